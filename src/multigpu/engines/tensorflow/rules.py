"""Update rules, as PyTorch defines them, in TensorFlow's fused kernels. These run on their
variable's device, whatever `tf.device` says: this is how document 000's Exp1 silently became its
Exp2. An update elsewhere needs variables that live there.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from multigpu.spec.model import Optimizer

# where a step's numbers stand in its `hyper` vector; from TERMS on, one number a replica
STEP = 0
RATE = 1
EPSILON = 2
TERMS = 3


def hyper(rule: Optimizer, step: int, terms: Sequence[int], dtype: tf.DType) -> np.ndarray:
    """Return the numbers that a step needs, shape (3 + replicas,): its index, the rule's rate and
    epsilon, each replica's divisor. Adam's bias corrections enter here, in float64: w <- w - rate
    sqrt(c2) / c1 x m / (sqrt(v) + epsilon sqrt(c2)), with c = 1 - beta^(step + 1): PyTorch's rule,
    whose epsilon stands beside the corrected root, multiplied out.
    """
    rate, epsilon = rule.rate, 0.0
    if rule.name != "sgd":
        first, second = 1 - rule.beta1 ** (step + 1), 1 - rule.beta2 ** (step + 1)
        rate, epsilon = rule.rate * second**0.5 / first, rule.epsilon * second**0.5
    return np.array([step, rate, epsilon, *terms], dtype=dtype.as_numpy_dtype)


def slot_names(rule: Optimizer) -> list[str]:
    """Names of the arrays that the rule keeps beside each variable."""
    return {0: [], 1: ["momentum"], 2: ["mean", "square"]}[rule.slots]


def apply(
    rule: Optimizer,
    variable: tf.Variable,
    slots: list[tf.Variable],
    gradient: tf.Tensor,
    numbers: tf.Tensor,
    locking: bool = False,
) -> None:
    """Update `variable` and its slots by a dense gradient. locking: updates at once wait."""
    dtype = gradient.dtype
    if rule.name == "adamw":  # by the rule's own rate, not the corrected one
        shrunk = tf.constant(rule.rate * rule.weight_decay, dtype) * variable.read_value()
        variable.assign_sub(shrunk, use_locking=locking)
    elif rule.weight_decay:
        gradient = gradient + tf.constant(rule.weight_decay, dtype) * variable.read_value()
    if rule.name != "sgd":
        nothing = tf.zeros([], dtype)  # bias corrections are in the rate already
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=nothing,
            beta2_power=nothing,
            lr=numbers[RATE],
            beta1=tf.constant(rule.beta1, dtype),
            beta2=tf.constant(rule.beta2, dtype),
            epsilon=numbers[EPSILON],
            grad=gradient,
            use_locking=locking,
        )
    elif slots:
        momentum = tf.constant(rule.momentum, dtype)
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=slots[0].handle,
            lr=numbers[RATE],
            grad=gradient,
            momentum=momentum,
            use_locking=locking,
        )
    else:
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=numbers[RATE], delta=gradient, use_locking=locking
        )


def apply_rows(
    rule: Optimizer,
    variable: tf.Variable,
    slots: list[tf.Variable],
    ids: tf.Tensor,
    rows: tf.Tensor,
    numbers: tf.Tensor,
) -> None:
    """The dense rule where only `rows` (n, width) at distinct `ids` (n,) have gradients."""
    if rule.weight_decay:
        raise NotImplementedError(
            "weight decay with sparse gradients: choose embedding_gradients 'dense'"
        )
    dtype = rows.dtype
    if rule.name != "sgd":
        mean, square = slots
        for slot, decay, addition in ((mean, rule.beta1, rows), (square, rule.beta2, rows * rows)):
            slot.assign(slot.read_value() * tf.constant(decay, dtype))
            tf.raw_ops.ResourceScatterAdd(
                resource=slot.handle, indices=ids, updates=addition * tf.constant(1 - decay, dtype)
            )
        variable.assign_sub(
            numbers[RATE] * mean.read_value() / (tf.sqrt(square.read_value()) + numbers[EPSILON])
        )
    elif slots:
        slots[0].assign(slots[0].read_value() * tf.constant(rule.momentum, dtype))
        tf.raw_ops.ResourceScatterAdd(resource=slots[0].handle, indices=ids, updates=rows)
        variable.assign_sub(numbers[RATE] * slots[0].read_value())
    else:
        tf.raw_ops.ResourceScatterSub(
            resource=variable.handle, indices=ids, updates=numbers[RATE] * rows
        )
