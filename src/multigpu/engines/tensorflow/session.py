"""One Run in one TensorFlow process: build, warm up, time, trace; logs for TensorBoard."""

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from multigpu.engines.common.context import RunSession, all_replicated, check_carried
from multigpu.engines.common.numbers import ReplicaNumbers, VariableNumbers
from multigpu.engines.common.session import Opening, joined_losses
from multigpu.engines.common.timing import advance, run_window
from multigpu.engines.common.traced import keep_whole
from multigpu.engines.ready import KEPT, ready_step_s
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import DataFeed, Feed, Shard, is_even, slices_global_batch
from multigpu.engines.tensorflow.graphs import Graphs
from multigpu.engines.tensorflow.replicated import ReplicatedTrainer
from multigpu.engines.tensorflow.server import ParallelTrainer, ServerTrainer
from multigpu.engines.tensorflow.strategies import StrategyTrainer
from multigpu.engines.tensorflow.trainer import Context, Trainer
from multigpu.engines.tensorflow.variables import squared_distance
from multigpu.engines.tensorflow.xplane import STEP, Names, read_space
from multigpu.inputs.encoded import EncodedImages
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.row import Placement
from multigpu.records.trace import Missing
from multigpu.spec.run import Run
from multigpu.workloads import description_of


def build_trainer(context: Context) -> Trainer:
    """The trainer of the Run's placement; `Unsupported` where no trainer does what it asks."""
    trainer = trainer_of(context.placement)
    check_carried(trainer, context.placement)
    return trainer(context)


def trainer_of(placement: Placement) -> type[Trainer]:
    """The class that carries the row out."""
    if any(engine.strategy for engine in placement.engines):
        return StrategyTrainer
    if all_replicated(placement):
        return ReplicatedTrainer
    return ParallelTrainer if placement.loss == "gpu0" else ServerTrainer


class Session(RunSession):
    """One Run in one process, whose one clock gives all replicas the same step durations."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        run = self.run
        self.strategy, self.devices = self._set_up(opening.rank)
        dynamic = (
            description_of(run).unit == "words"
            and self.source.period != 1
            and run.batching != "fixed"
        )
        self.context = Context(
            run, self.devices, is_even(self.source, len(shard_sizes(run))), dynamic, self.strategy
        )
        self.feed = self._feed()
        self.trainer: Trainer
        self.build(self._trainer)

    def _set_up(self, rank: int) -> tuple[Any, Devices]:
        """The strategy, which must stand before all else in this process, or None; its devices."""
        return None, Devices(self.run)

    def _feed(self) -> Feed | DataFeed:
        if self.run.input_workers is None:
            return Feed(self.source, self.devices, self.run.feed, slices_global_batch(self.run))
        assert isinstance(self.source, EncodedImages)
        return DataFeed(self.source, self.devices)

    def _trainer(self) -> Trainer:
        return build_trainer(self.context)

    def barrier(self) -> None:
        """Meet the Run's other processes; there are none here."""

    def shards(self, index: int) -> list[Shard]:
        return self.counted(index, self.feed.shards(index))

    def step(self, index: int) -> None:
        """One step; after the last of a window every device has finished."""
        self.stage("step")
        self.trainer.step(self.shards(index))
        if index + 1 in (self.run.warmup_steps, self.run.warmup_steps + self.run.timed_steps):
            self.devices.synchronise()

    def waits(self, steps: int) -> list[list[float]]:
        """Return, in one list, what the first `steps` steps waited for their batches, s."""
        return [[wait for step, wait in sorted(self.feed.waits.items()) if step < steps]]

    def settle(self) -> None:
        """Wait until the thread that makes batches ahead is at rest."""
        if isinstance(self.feed, Feed):
            self.feed.settle()

    def warm_up(self) -> None:
        began = time.perf_counter()
        self.stage("warm-up")

        def counted(index: int) -> None:
            shards = self.shards(index)
            self.moved = self.trainer.counted_step(shards)
            self.gradient_rows = self.trainer.distinct_rows(shards) if self.context.sparse else None
            self.devices.synchronise()

        self.first = run_window(counted, 0, 1, self.devices, self.barrier)
        self.warm = run_window(self.step, 1, self.run.warmup_steps - 1, self.devices, self.barrier)
        self.warmup_s = time.perf_counter() - began

    def time(self) -> Sequence[Mapping[str, Any]]:
        self.stage("timed")
        first = self.run.warmup_steps
        window = run_window(self.step, first, self.run.timed_steps, self.devices, self.barrier)
        states = [self.devices.state(rank) for rank in self.devices.ranks]
        losses = self.trainer.loss_shares()
        steps = [
            round(t, 7)
            for t in [*self.first.step_time_s, *self.warm.step_time_s, *window.step_time_s]
        ]
        distances = self._distances()
        parts: list[ReplicaNumbers] = []
        for place, (rank, state) in enumerate(zip(self.devices.ranks, states, strict=True)):
            part: ReplicaNumbers = {
                **self.part(place, window, state),
                "rank": rank,
                "clock": "host",
                "event_s": window.event_s,
                "steps": steps,
                "losses": losses[place],
                "gradient_rows": self.gradient_rows,
                "uncounted": self.trainer.uncounted,
                "peak_memory_gib": self.devices.peak_memory_gib(place),
                "input_wait": [round(wait, 7) for _, wait in sorted(self.feed.waits.items())],
                **distances[place],  # type: ignore[typeddict-item] # `part` brings no other
            }
            parts.append(part)
        if logs := os.environ.get("MULTIGPU_TENSORBOARD"):
            write_events(self, steps, folder_of(self.run, Path(logs)))
        last = first + self.run.timed_steps
        ready_s = ready_step_s(self, last, window.wall_s / self.run.timed_steps, self.barrier)
        if ready_s is not None:
            for part in parts:
                part["ready_s"] = ready_s
            last += KEPT
        if self.run.traced_steps:
            traced = trace(self.trainer, self.step, last)
            for part, mine in zip(parts, traced, strict=True):
                part["trace"] = mine
        return parts

    def _distances(self) -> list[VariableNumbers]:
        """Of each part: how far its variables are from their start, and fingerprints."""
        owned = [self.trainer.owned(place) for place in range(len(self.devices.ranks))]
        parts: list[VariableNumbers] = [
            {"distance": {}, "start_square": 0.0, "prints": {}} for _ in owned
        ]
        for variable, initial in self.trainer.initial():
            name = variable.name
            start_square = squared_distance(initial)
            for part, own in zip(parts, owned, strict=True):
                if name not in own:  # another device answers for it
                    continue
                value = own[name].numpy()
                part["distance"][name] = squared_distance(value, initial) ** 0.5
                part["start_square"] += start_square
                part["prints"][name] = float(value.sum(dtype=np.float64))
        return parts

    def close(self) -> None:
        self.feed.close()
        if hasattr(self, "trainer"):
            del self.trainer


def trace(trainer: Trainer, step: Callable[[int], Any], first: int) -> list[dict[str, Any]]:
    """Trace `traced_steps` steps after one that warms the profiler up; parts by rank."""
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
    pulls, fused = context.placement.variables != "replica", run.execution == "xla"
    names = Names(run.devices, pulls, fused, tables, places)
    missing: Missing = {}
    if run.execution == "eager":
        why = "eager operations carry no names of their scopes"
        missing = dict.fromkeys(("pull", "forward", "backward", "merge", "update"), why)
    elif names.fused:
        missing = dict.fromkeys(
            ("forward", "backward"), "a tower's passes are one compiled function"
        )
    return read_space(xplane_pb2.XSpace.FromString(data), names, devices.cuda, missing)


def placed_graph(graphs: Graphs) -> tf.compat.v1.GraphDef:
    """All partitions of a step as one graph, copies between devices as `_Send` and `_Recv`."""
    # a node may stand in several partitions
    first = {node.name: node for node in reversed(graphs.nodes)}
    return tf.compat.v1.GraphDef(node=[node for node in graphs.nodes if first[node.name] is node])


def write_events(session: Session, durations: list[float], folder: Path) -> None:
    """Write losses, step times (s), bytes a step and the placed graph for TensorBoard."""
    assert session.trainer.graphs
    with tf.device("/device:CPU:0"), tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.graph(placed_graph(session.trainer.graphs))
        tf.summary.text("run", session.run.model_dump_json(indent=1), 0)
        for step, loss in enumerate(
            joined_losses(session.run, [{"losses": mine} for mine in session.trainer.loss_shares()])
        ):
            tf.summary.scalar("loss", loss, step)
        for step, duration in enumerate(durations):
            tf.summary.scalar("step time in s, host's clock", duration, step)
        for kind, count in session.moved.items():
            tf.summary.scalar(f"bytes a step/{kind}", count, 0)


def folder_of(run: Run, logs: Path) -> Path:
    """A new folder for one measurement of `run` among others."""
    name = f"{run.model}-{run.placement}-x{run.devices}-{run.digest}"
    numbered = (
        logs / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1)
    )
    folder = next(one for one in numbered if not one.exists())
    folder.mkdir(parents=True)
    return folder
