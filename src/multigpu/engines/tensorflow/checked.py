"""Compare one Run's first steps with one device on the global batch, rules in numpy."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from multigpu.engines.common.checked import STEPS, equivalence_of, relative, told_once
from multigpu.engines.common.session import Opening
from multigpu.engines.tensorflow import session
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed, Shard
from multigpu.engines.tensorflow.module import build_module, form_of
from multigpu.engines.tensorflow.session import build_trainer
from multigpu.engines.tensorflow.trainer import Context
from multigpu.engines.tensorflow.variables import (
    from_stored,
    initial_values,
    squared_distance,
    to_stored,
)
from multigpu.placements.resolve import semantics_of
from multigpu.records.record import Equivalence
from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Optimizer
from multigpu.spec.run import Run
from multigpu.workloads import description_of, import_part, workloads
from multigpu.workloads.tensorflow_module import StepModule, Tensors

Arrays = dict[str, np.ndarray]


def shard_gradients(
    module: StepModule, values: Arrays, shard: Shard, dtype: tf.DType
) -> tuple[float, Arrays]:
    """The sum of a shard's loss and its gradients, tables densified, in TensorFlow's layout."""
    dense: Tensors = {
        name: tf.constant(value, dtype)
        for name, value in values.items()
        if name not in module.lookup_arrays
    }
    ids = {name: shard.tensors[array].numpy() for name, array in module.lookup_arrays.items()}
    rows: Tensors = {name: tf.constant(values[name][asked], dtype) for name, asked in ids.items()}
    statistics: Tensors = {
        name: tf.constant(start, dtype, shape) for name, (shape, start) in module.statistics.items()
    }
    with tf.GradientTape() as tape:
        tape.watch([*dense.values(), *rows.values()])
        loss, _ = module.loss(dense, shard.tensors, rows, statistics)
    found, row_gradients = tape.gradient(loss, (dense, rows))
    gradients = {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in found.items()}
    for name, gradient in row_gradients.items():
        gradients[name] = np.zeros_like(values[name])
        np.add.at(gradients[name], ids[name], gradient.numpy())
    return float(loss), gradients


def update_plainly(
    rule: Optimizer,
    step: int,
    values: Arrays,
    gradients: Arrays,
    slots: dict[str, list[np.ndarray]],
) -> None:
    """PyTorch's rules, written out; step: from 1 on."""
    for name, value in values.items():
        gradient = gradients[name]
        if rule.name == "adamw":
            value *= 1 - rule.rate * rule.weight_decay
        else:
            gradient = gradient + rule.weight_decay * value
        own = slots.setdefault(name, [np.zeros_like(value) for _ in range(2)])
        if rule.name != "sgd":
            own[0] = rule.beta1 * own[0] + (1 - rule.beta1) * gradient
            own[1] = rule.beta2 * own[1] + (1 - rule.beta2) * gradient**2
            mean, square = own[0] / (1 - rule.beta1**step), own[1] / (1 - rule.beta2**step)
            value -= rule.rate * mean / (np.sqrt(square) + rule.epsilon)
        else:
            own[0] = rule.momentum * own[0] + gradient
            value -= rule.rate * own[0]


def train_reference(
    context: Context, steps: Iterable[list[Shard]], ranks: list[int]
) -> tuple[Arrays, list[float]]:
    """Variables, in the description's layout, after steps that accumulate the gradients of the
    shards of `ranks` (all: the global batch), and each step's loss.
    """
    devices, kind = context.devices, context.devices.dtype.as_numpy_dtype
    module = build_module(context.run, form_of(context.run, devices, context.even))
    initial = list(initial_values(context.model, context.run.seed))
    values = {
        variable.name: to_stored(module, variable, value).astype(kind)
        for variable, value in initial
    }
    slots: dict[str, list[np.ndarray]] = {}
    losses: list[float] = []
    with devices.at(0):
        for shards in steps:
            terms = sum(shards[rank].batch.loss_terms[rank] for rank in ranks)
            total, joined = 0.0, {name: np.zeros_like(value) for name, value in values.items()}
            for rank in ranks:
                loss, gradients = shard_gradients(module, values, shards[rank], devices.dtype)
                total += loss / terms
                for name, gradient in gradients.items():
                    joined[name] += gradient / terms
            losses.append(total)
            update_plainly(context.rule, len(losses), values, joined, slots)
    return {
        variable.name: from_stored(module, variable, values[variable.name])
        for variable, _ in initial
    }, losses


def equivalence(run: Run) -> Equivalence | None:
    """As `equivalence_of`, on the same shards."""
    return equivalence_of(run, _compared)


def _compared(check: Run) -> tuple[float, int]:
    """The largest distance of any group of replicas, and the steps after which it is taken."""
    with import_part(check.workload, "tensorflow").comparable():
        devices = Devices(check)
        context = Context(check, devices, even=False, dynamic=False)
        feed = Feed(
            workloads()[check.workload].inputs[check.inputs](check, description_of(check)), devices
        )
        shards = [feed.shards(step) for step in range(STEPS)]
        feed.close()
        trainer = build_trainer(context)
        for step in shards:
            trainer.step(step)
        alone = not semantics_of(check).facts.replicas_agree
        groups = (
            [[rank] for rank in range(check.devices)] if alone else [list(range(check.devices))]
        )
        initial = {
            variable.name: value
            for variable, value in initial_values(description_of(check), check.seed)
        }
        distances = []
        for ranks in groups:
            expected = train_reference(context, shards, ranks)[0]
            found = trainer.full_values(ranks[0])
            apart = sum(squared_distance(found[name], value) for name, value in expected.items())
            moved = sum(squared_distance(value, initial[name]) for name, value in expected.items())
            distances.append(relative(apart, moved))
    return max(distances), STEPS


class Session(session.Session):
    """As any other, once its placement was compared; what the comparison took is in no time."""

    def __init__(self, opening: Opening) -> None:
        run = opening.run
        if run.processes != "one":
            raise Unsupported(
                "a user's Keras model is trained by one process for all devices: leave"
                " processes out"
            )
        Devices(run)  # before the user's file: what it makes of TensorFlow fixes devices
        opening.stage("compared")
        found = told_once(run, lambda: equivalence(run))
        super().__init__(opening)
        self.told = found
