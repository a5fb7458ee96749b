"""A user's Keras model under a placement that TensorFlow's own strategies carry out, for
`model.fit`.
"""

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.devices import Devices, prepare
from multigpu.engines.tensorflow.strategies import strategy_of
from multigpu.placements import find_placement, placements
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.workloads.own.description import Described


class Own(Devices):
    """The devices of a user's own program, which keeps its settings."""

    def __init__(self, run: Run) -> None:
        soft = tf.config.get_soft_device_placement()
        try:
            prepare(run.device_type, run.devices)
        finally:
            tf.config.set_soft_device_placement(soft)
        self.cuda, self.count = run.device_type == "cuda", run.devices


def wrapped(run: Run, described: Described, folder: Path, module: Any) -> keras.Model:
    """Make the model under the placement's strategy, with its values; ValueError: it cannot be."""
    row = find_placement(run.placement)
    served = [
        name
        for name, one in placements().items()
        if any(e.strategy and e.processes == run.processes for e in one.engines)
    ]
    if row.name not in served:
        raise ValueError(
            f"placement {row.name!r} is no strategy of tf.distribute, in which model.fit trains:"
            f" choose {', '.join(served)}"
        )
    try:
        strategy = strategy_of(row, Own(run))
    # TensorFlow fixes its devices at the first operation
    except (Unsupported, RuntimeError) as error:
        raise ValueError(
            f"{run.devices} devices cannot be had: {error}; give wrap a function that makes the"
            " model, before anything computes"
        ) from None
    given = isinstance(module, keras.Model)
    with strategy.scope():
        made = keras.models.clone_model(module) if given else module()
    if not isinstance(made, keras.Model):
        raise ValueError(
            f"wrap was given {module!r}: give a Keras model, or a function or class that makes one"
        )
    if given:
        made.set_weights(module.get_weights())
    return made
