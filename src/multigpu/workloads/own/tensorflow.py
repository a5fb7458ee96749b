"""A user's Keras model as a pure function (`keras.StatelessScope`), and its batches."""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from multigpu.spec.errors import JobError
from multigpu.spec.model import Model
from multigpu.workloads.own.batches import Streamed
from multigpu.workloads.own.description import Described, Leaves
from multigpu.workloads.own.job import Job, telling
from multigpu.workloads.own.seeding import MADE, drawing_alike
from multigpu.workloads.own.structure import put_together
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors

LARGEST_SEED = 2**24
"""Below it every whole number is a float32, in which a step's state travels."""

_controlled = False


@contextmanager
def comparable() -> Iterator[None]:
    """Models built inside drop nothing out: two of them compute the same."""
    global _controlled
    _controlled = True
    try:
        yield
    finally:
        _controlled = False


def generator_of(seed: int) -> np.random.Generator:
    """Return the generator that a user's function draws from."""
    return np.random.default_rng(seed)


class Loaded(Streamed):
    """Global batches of a tf.data.Dataset in its own order, again and again."""

    def begun(self, step: int) -> Iterator[Any]:
        if not isinstance(self.source, tf.data.Dataset):
            raise JobError(
                f"batch is a {type(self.source).__name__}: give a function batch(n, generator), or"
                " a tf.data.Dataset of batches"
            )
        return iter(
            self.source.repeat()
            .rebatch(self.rows, drop_remainder=True)
            .skip(step)
            .prefetch(tf.data.AUTOTUNE)
        )


@contextmanager
def computing_in(form: Form) -> Iterator[None]:
    """Layers made inside, and constants that they make for themselves, have the form's types."""
    usual, policy = keras.config.floatx(), keras.config.dtype_policy()
    try:
        keras.config.set_floatx(form.dtype.name)
        keras.config.set_dtype_policy(
            "mixed_bfloat16" if form.compute == tf.bfloat16 else form.dtype.name
        )
        yield
    finally:
        keras.config.set_floatx(usual)
        keras.config.set_dtype_policy(policy)


def own_model(job: Job, example: Any, form: Form) -> keras.Model:
    """The user's model, built on the CPU. example: what it is called with."""
    if keras.backend.backend() != "tensorflow":
        raise JobError(
            f"Keras runs on {keras.backend.backend()} here: set KERAS_BACKEND=tensorflow to compare"
            " a Keras model"
        )
    with (
        telling(f"model {job.title!r}", job.made_at),
        tf.device("/device:CPU:0"),
        computing_in(form),
        drawing_alike(MADE),
    ):
        made = copy.deepcopy(job.model) if isinstance(job.model, keras.Model) else job.model()
        if isinstance(made, keras.Model) and not (made.built and made.weights):
            made(tf.nest.map_structure(lambda array: tf.constant(array[:1]), example))
    if not isinstance(made, keras.Model):
        raise JobError(
            f"model {job.title!r} gives a {type(made).__name__}, not a keras.Model ({job.made_at})"
        )
    return made


def without_dropout(model: keras.Model) -> None:
    """Set every dropout of the library's layers to 0."""
    for layer in model._flatten_layers():
        for name in ("rate", "dropout", "recurrent_dropout"):
            if hasattr(layer, "seed_generator") and isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.0)


def named_variables(model: keras.Model) -> dict[str, Any]:
    """Trained variables first, then all others, by names without Keras' running numbers."""
    met: Counter[str] = Counter()
    found = {}
    for variable in [*model.trainable_variables, *model.non_trainable_variables]:
        name = re.sub(
            r"[^A-Za-z0-9_.]+", "_", re.sub(r"_\d+(?=/|$)", "", variable.path).replace("/", ".")
        )
        met[name] += 1
        found[name if met[name] == 1 else f"{name}.{met[name]}"] = variable
    return found


def own_loss(job: Job, form: Form) -> Any:
    """The user's loss; Keras' own losses are made anew in the form's type."""
    if form.dtype != tf.float64 or not isinstance(job.loss, keras.losses.Loss):
        return job.loss
    with telling("loss", job.made_at), computing_in(form):
        return type(job.loss).from_config(job.loss.get_config())


def loss_of(job: Job, model: keras.Model, loss: Any, batch: Any, kind: tf.DType) -> tf.Tensor:
    """The mean loss of the user's model and its layers on a batch; a JobError names a line."""
    inputs, target = (batch, None) if job.loss is None else job.pair(batch)
    with telling(f"model {job.title!r}", job.made_at):
        found = model(inputs, training=True) if model._call_has_training_arg else model(inputs)
    if job.loss is not None:
        with telling("loss", job.made_at):
            found = loss(target, found)
        # divided by a strategy's replicas, whose mean is taken here
        if isinstance(loss, keras.losses.Loss):
            found *= tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, found.dtype)
    if not tf.is_tensor(found):
        raise JobError(
            f"the loss is a {type(found).__name__} where a tensor is due: give one of Keras' losses"
            f" ({job.made_at})"
        )
    return tf.add_n(
        [tf.reduce_mean(tf.cast(found, kind)), *(tf.cast(added, kind) for added in model.losses)]
    )


class OwnStep(StepModule):
    """The sum of a shard's loss. What is not trained is state; replicas draw alike."""

    def __init__(self, job: Job, structure: Any, leaves: Leaves, form: Form) -> None:
        self.job, self.structure, self.form = job, structure, form
        example = put_together(
            structure,
            {str(at): np.ones((1, *shape), kind) for at, (shape, kind) in enumerate(leaves)},
        )
        self.model = own_model(
            job, example if job.loss is None or not isinstance(example, tuple) else example[0], form
        )
        if _controlled:
            without_dropout(self.model)
        self.loss_function = own_loss(job, form)
        self.variables = named_variables(self.model)
        self.trained = list(self.variables)[: len(self.model.trainable_variables)]

    def begin(self, states: Mapping[str, np.ndarray]) -> None:
        """Take these for state, with what they start with."""
        self.statistics = {
            name: (value.shape, value % LARGEST_SEED if value.dtype.kind in "ui" else value)
            for name, value in states.items()
        }

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        given = {
            name: tf.cast(value, self.variables[name].dtype)
            for name, value in (values | statistics).items()
        }
        with (
            computing_in(self.form),
            keras.StatelessScope(
                [(self.variables[name], value) for name, value in given.items()]
            ) as scope,
        ):
            whole = put_together(self.structure, batch)
            found = loss_of(self.job, self.model, self.loss_function, whole, self.form.dtype)
        after = {name: scope.get_current_value(self.variables[name]) for name in statistics}
        changed = {
            name: tf.cast(value, statistics[name].dtype)
            for name, value in after.items()
            if value is not given[name]
        }
        return found * tf.cast(tf.shape(batch["0"])[0], found.dtype), changed


def build(model: Model, form: Form) -> OwnStep:
    """The user's model for all replicas."""
    config = model.config
    described: Described = config.described
    made = OwnStep(described.load(config.folder), described.structure, described.leaves, form)
    with np.load(config.values) as stored:
        made.begin({name: stored[name] for name in described.fixed})
    return made
