"""A few steps under TensorFlow's profiler; `xplane.py` reads what it wrote."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from multigpu.engines.tensorflow.trainer import Trainer
from multigpu.engines.tensorflow.xplane import STEP, Names, read_space
from multigpu.measure.timing import advance
from multigpu.measure.trace import Missing
from multigpu.measure.traced import keep_whole


def trace(trainer: Trainer, step: Callable[[int], Any], first: int) -> list[dict[str, Any]]:
    """Trace the Run's `traced_steps` steps after one more that warms the profiler up; every replica's part, by rank."""
    context = trainer.context
    run, devices = context.run, trainer.devices
    first = advance(run, step, first)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            step(first)
            devices.synchronise()
            for index in range(run.traced_steps):
                with tf.profiler.experimental.Trace(STEP, step_num=index):
                    step(first + 1 + index)
            devices.synchronise()
        finally:
            tf.profiler.experimental.stop()
        (file,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
        data = file.read_bytes()
    keep_whole(run, "xplane.pb", data)
    graphs = trainer.graphs
    places = {node.name: devices.place(node.device) for node in graphs.nodes} if graphs else {}
    tables = frozenset(v.name for v in context.model.variables if v.kind == "embedding")
    names = Names(run.devices, context.placement.variables != "replica", run.execution == "xla", tables, places)
    missing: Missing = {}
    if run.execution == "eager":
        why = "eager operations carry no names of their scopes"
        missing = dict.fromkeys(("pull", "forward", "backward", "merge", "update"), why)
    elif names.fused:
        missing = dict.fromkeys(("forward", "backward"), "a tower's passes are one compiled function")
    return read_space(xplane_pb2.XSpace.FromString(data), names, devices.cuda, missing)
