"""A Run's logs for TensorBoard: losses, step times, the graph with the device that each operation truly ran on, and a profile.

`python -m multigpu measure ... --tensorboard FOLDER` writes all but the profile beside the Records of what it measures;
`python -m multigpu.engines.tensorflow.tensorboard RUN.json FOLDER` all of it, and no Record: a profiled step is slower than a
measured one. Then `tensorboard --logdir FOLDER`.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import tensorflow as tf

from multigpu.engines.tensorflow.graphs import Graphs
from multigpu.engines.tensorflow.session import Session
from multigpu.measure.session import joined_losses
from multigpu.run import Run

PROFILED_STEPS = 3


def placed_graph(graphs: Graphs) -> tf.compat.v1.GraphDef:
    """All partitions of a step as one graph: every node with its final device, copies as `_Send` and `_Recv`."""
    placed = tf.compat.v1.GraphDef()
    seen: set[str] = set()
    for node in graphs.nodes:
        if node.name not in seen:
            seen.add(node.name)
            placed.node.append(node)
    return placed


def write(tag: str, value: float | str, step: int, plugin: str) -> None:
    """One value for a plugin of TensorBoard, whose own package (that `tf.summary.scalar` wants) need not be here."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.data_class = 1 if plugin == "scalars" else 2  # DATA_CLASS_SCALAR, DATA_CLASS_TENSOR
    tf.summary.write(tag, tf.constant(value), step, metadata)


def write_logs(run: Run, folder: Path) -> None:
    """Run the warm-up and the timed steps, and write their logs to `folder`.

    Raises:
        ValueError: the Run is not TensorFlow's, or not one process's.
        Unsupported: TensorFlow cannot do it here.
    """
    if run.framework != "tensorflow" or run.processes != "one":
        raise ValueError(f"TensorBoard logs need framework 'tensorflow' and processes 'one', not {run.framework!r} and {run.processes!r}")
    session = Session(run, 0, 1, folder, 60.0, 0.0, lambda stage: None)
    try:
        session.warm_up()
        first = run.warmup_steps
        with tf.profiler.experimental.Profile(str(folder)):
            for index in range(first, first + min(PROFILED_STEPS, run.timed_steps)):
                with tf.profiler.experimental.Trace("step", step_num=index, _r=1):
                    session.step(index)
            session.devices.synchronise()
        write_events(session, [*session.first.step_time_s, *session.warm.step_time_s], folder)
    finally:
        session.close()


def write_events(session: Session, durations: list[float], folder: Path) -> None:
    """Losses, step times (s, on the host's clock), bytes a step and the placed graph of a session that has run."""
    assert session.trainer.graphs
    with tf.device("/device:CPU:0"), tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.graph(placed_graph(session.trainer.graphs))
        write("run", session.run.model_dump_json(indent=1), 0, "text")
        for step, loss in enumerate(joined_losses(session.run, [{"losses": mine} for mine in session.trainer.loss_shares()])):
            write("loss", loss, step, "scalars")
        for step, duration in enumerate(durations):
            write("step time in s, host's clock", duration, step, "scalars")
        for kind, count in session.moved.items():
            write(f"bytes a step/{kind}", float(count), 0, "scalars")


def folder_of(run: Run, logs: Path) -> Path:
    """A new folder for one measurement of `run` among others."""
    name = f"{run.model}-{run.placement}-x{run.devices}-{run.digest}"
    numbered = (logs / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    folder = next(one for one in numbered if not one.exists())
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    """Entry point."""
    began = time.perf_counter()
    run, folder = Run.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    write_logs(run, folder)
    print(f"written in {time.perf_counter() - began:.0f} s: tensorboard --logdir {folder}")


if __name__ == "__main__":
    main()
