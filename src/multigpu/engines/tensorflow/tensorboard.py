"""A Run's logs for TensorBoard: losses, step times, and the graph with the device that each operation truly ran on.
`measure ... --tensorboard FOLDER` writes them beside the Records; a profile is kept of traced steps (`--traces`), which are slower.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from multigpu.engines.tensorflow.graphs import Graphs
from multigpu.measure.session import joined_losses
from multigpu.run import Run

if TYPE_CHECKING:
    from multigpu.engines.tensorflow.session import Session


def placed_graph(graphs: Graphs) -> tf.compat.v1.GraphDef:
    """All partitions of a step as one graph: every node with its final device, copies as `_Send` and `_Recv`."""
    first = {node.name: node for node in reversed(graphs.nodes)}  # a node may stand in several partitions
    return tf.compat.v1.GraphDef(node=[node for node in graphs.nodes if first[node.name] is node])


def write_events(session: Session, durations: list[float], folder: Path) -> None:
    """Losses, step times (s, on the host's clock), bytes a step and the placed graph of a session that has run."""
    assert session.trainer.graphs
    with tf.device("/device:CPU:0"), tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.graph(placed_graph(session.trainer.graphs))
        tf.summary.text("run", session.run.model_dump_json(indent=1), 0)
        for step, loss in enumerate(joined_losses(session.run, [{"losses": mine} for mine in session.trainer.loss_shares()])):
            tf.summary.scalar("loss", loss, step)
        for step, duration in enumerate(durations):
            tf.summary.scalar("step time in s, host's clock", duration, step)
        for kind, count in session.moved.items():
            tf.summary.scalar(f"bytes a step/{kind}", count, 0)


def folder_of(run: Run, logs: Path) -> Path:
    """A new folder for one measurement of `run` among others."""
    name = f"{run.model}-{run.placement}-x{run.devices}-{run.digest}"
    numbered = (logs / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    folder = next(one for one in numbered if not one.exists())
    folder.mkdir(parents=True)
    return folder
