"""One TrainingRun on one replica: build, begin or resume, train to the end of the budget."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.engines.errors import DidNotTrain
from multigpu.engines.torch.captured import CapturedTrainer
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.engines.torch.variables import distances
from multigpu.engines.torch.wire import Wire, barrier
from multigpu.inputs.batch import Source
from multigpu.measure.machine import total_energy_j
from multigpu.measure.session import Stage
from multigpu.measure.timing import Window, run_window
from multigpu.training import state
from multigpu.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from multigpu.training.data import ReadLog, item_source, steps_per_epoch
from multigpu.training.duties import Duties
from multigpu.training.evaluation import Scorer
from multigpu.training.evidence import Evidence, start_fault
from multigpu.training.files import FileWatch
from multigpu.training.history import History
from multigpu.training.run import TrainingRun
from multigpu.workloads import workloads

LONGEST_SEGMENT = 200
"""Steps between two stops at which replicas compare what they hold."""


def everyone(value: Any, replicas: int) -> list[Any]:
    """Every replica's value, by rank."""
    if replicas == 1:
        return [value]
    found: list[Any] = [None] * replicas
    dist.all_gather_object(found, value)
    return found


class TrainingSession:
    """A replica's side of one TrainingRun.

    Args:
        shared: a folder of memory-backed files, the same for all replicas. folder: where the leading replica checkpoints and logs.
        stage: told "build", "start" (variables stand, nothing is broadcast), "step" and "checkpoint".
    """

    def __init__(
        self,
        training: TrainingRun,
        rank: int,
        threads: int,
        shared: Path,
        timeout_s: float,
        startup_s: float,
        stage: Stage,
        duties: Duties,
        folder: Path,
    ) -> None:
        began = time.perf_counter()
        self.training, self.run, self.rank, self.threads = training, training.run, rank, threads
        self.duties, self.folder, self.stage, self.startup_s = duties, folder, stage, startup_s
        run = self.run
        self.replicas = run.devices
        self.source: Source = workloads()[run.workload].inputs[run.inputs](run, run.description)
        self.device = Device(run, rank, threads)
        self.context = Context(run, rank, self.device, Wire(rank, run.devices), self.source.capacity, shared, timeout_s)
        self.shard = duties.shard(rank)
        self.feed = Feed(self.source, self.shard, self.device)
        try:
            stage("build")
            self._build()
            self.device.synchronise()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self.close()  # nobody else can: whoever asked for this session never got it
            raise
        self.build_s = time.perf_counter() - began

    def _build(self) -> None:
        training, duties = self.training, self.duties
        self.trainer: Trainer = duties.build(self.context)
        if training.clip_norm:
            state.clip_updates(self.trainer, training.clip_norm)
        if self.context.captured:
            self.trainer = CapturedTrainer(self.trainer)
        self.per_epoch = steps_per_epoch(self.source)
        self.total = training.budget(self.per_epoch)
        self.rate_of = duties.rates(training, self.per_epoch)
        self.leads = duties.leads(self.rank)
        self.watch = FileWatch(self.folder)
        self.context.closing.callback(self.watch.close)
        self.scorer = Scorer(self.run, self.source, self.device) if training.evaluate_every and self.leads else None
        items = item_source(self.source)
        self.reads = ReadLog(items) if items else None
        self.applied: list[Any] = []
        self.evaluations = 0

    # --- the start ------------------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Take up the checkpoint, if there is one, or begin with equal weights.

        Raises:
            ValueError: the checkpoint cannot be used, or the inputs hold nothing out to score.
            DidNotTrain: replicas that must start from equal weights do not.
        """
        self.stage("start")
        held = self._checkpoint_of_all()
        self.at = 0
        self.history = History(self.training, self.replicas)
        if held:
            self.at, saved = held
            state.put_back(self.trainer, self.rank, saved["replicas"])
            self.history = History.restored(self.training, self.replicas, saved["history"], self.at)
        elif self.replicas > 1:
            self.duties.start(self.trainer)
        if self.device.cuda and "captured" in self.run.execution:
            state.make_rates_tensors(self.trainer)
        barrier()  # masters in shared memory stand before anyone pulls them
        hashes = everyone(state.weights_hash(state.inner(self.trainer).full_values()), self.replicas)
        self.evidence = Evidence(self.training, self.source, self.history.audits, self.at)
        if not held:
            self.history.start_hashes = hashes
            if fault := start_fault(hashes, state.is_replicated(self.trainer)):
                raise DidNotTrain(fault)
            self._evaluate()
        self.energy_before = self._energy()

    def _checkpoint_of_all(self) -> tuple[int, dict[str, Any]] | None:
        """What the leading replica finds in the folder, on every replica."""
        found: list[Any] = [None]
        if self.rank == 0 and checkpoint_path(self.folder).exists():
            try:
                found = [read_checkpoint(checkpoint_path(self.folder), self.training)]
            except ValueError as error:
                found = [str(error)]
        if self.replicas > 1:
            dist.broadcast_object_list(found, 0)
        if isinstance(found[0], str):
            raise ValueError(found[0])
        return found[0]

    # --- training -------------------------------------------------------------------------------------------------------------

    def _step(self, index: int) -> torch.Tensor:
        self.stage("step")
        self.duties.apply_rate(self.trainer, self.rate_of(index))
        self.applied.append(state.rate_mark(self.trainer))
        if self.reads:
            self.reads.note(index, self.shard)
        shard = self.feed.shard(index)
        self.units += shard.batch.units
        return self.trainer.step(shard)

    def _next_stop(self) -> int:
        ends = [self.total, self.at + LONGEST_SEGMENT]
        for every in (self.training.evaluate_every, self.training.checkpoint_every):
            if every:
                ends.append((self.at // every + 1) * every)
        return min(ends)

    def _due(self, every: int | None, at_the_end: bool) -> bool:
        return bool(every) and (self.at % (every or 1) == 0 or (at_the_end and self.at == self.total))

    def time(self) -> list[dict[str, Any]]:
        """Train to the end of the budget; all that this replica knows, as plain numbers (a list of one part)."""
        fault: str | None = None
        while self.at < self.total and not fault and not self.history.diverged:
            stop = self._next_stop()
            self.units, self.applied = 0, []
            window = run_window(self._step, self.at, stop - self.at, self.device, barrier)
            fault = self._account(window, stop)
            if fault or self.history.diverged:
                break
            if self._due(self.training.evaluate_every, at_the_end=True):
                self._evaluate()
            if self._due(self.training.checkpoint_every, at_the_end=False) and self.at < self.total:
                self._checkpoint()
        if self.history.diverged and not fault:
            self._evaluate()
        return [self._part(fault)]

    def _account(self, window: Window, stop: int) -> str | None:
        """Put together what all replicas know of the steps up to `stop`; why they were no joint training, or None."""
        rates = [float(mark) for mark in self.applied if mark is not None]
        mine = {
            "losses": torch.stack(window.results).double().cpu().tolist(),
            "steps": window.step_time_s,
            "wall_s": window.wall_s,
            "rates": rates,
            "units": self.units,
            "checksum": state.checksum(state.weights_of(self.trainer)),
            "read": self.reads.take() if self.reads else {},
            "files": self.watch.names,
            "evaluations": self.evaluations,
        }
        parts = everyone(mine, self.replicas)
        first, self.at = self.at, stop
        self.history.add(parts, stop)
        return self.evidence.fault(parts, first, stop)

    def _evaluate(self) -> None:
        """Score the model on the leading replica; every replica gives what it holds of it."""
        if not self.training.evaluate_every:
            return
        began = time.perf_counter()
        values = state.inner(self.trainer).full_values()
        if self.scorer:
            self.evaluations += 1
            buffers = dict(self.trainer.module.named_buffers())
            scores = self.scorer.score(values, buffers)
            self.history.note_scores(self.at, scores)
            self._log({"step": self.at, "seconds": self.history.train_s, "loss": self.history.last_loss, **scores})
        self.history.evaluation_s += time.perf_counter() - began

    def _checkpoint(self) -> None:
        """One replica writes what all of them need to go on."""
        began = time.perf_counter()
        self.stage("checkpoint")
        mine = state.take(self.trainer, self.rank)
        gathered: list[Any] | None = [None] * self.replicas if self.rank == 0 else None
        if self.replicas > 1:
            dist.gather_object(mine, gathered, 0)
        else:
            gathered = [mine]
        self.history.audits = self.evidence.audits()
        if self.leads:
            held = {"replicas": gathered or [mine], "history": self.history.saved()}
            write_checkpoint(self.folder, self.training, self.at, held)
            self._log({"step": self.at, "checkpoint": True})
        barrier()
        self.history.checkpoint_s += time.perf_counter() - began

    def _log(self, line: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    # --- the end --------------------------------------------------------------------------------------------------------------

    def _energy(self) -> float | None:
        return total_energy_j(self.device.index) if self.device.cuda else None

    def _part(self, fault: str | None) -> dict[str, Any]:
        found, before, after = self.device.state(), self.energy_before, self._energy()
        self.history.audits = self.evidence.audits()
        return {
            "fault": fault,
            "history": self.history.saved() if self.rank == 0 else None,
            "steps": self.at,
            "per_epoch": self.per_epoch,
            "agree": self.evidence.agree if state.is_replicated(self.trainer) else None,
            "end_hash": state.weights_hash(state.inner(self.trainer).full_values()),
            "evaluations": self.evaluations,
            "files": self.watch.names,
            "peak_memory_gib": self.device.peak_memory_gib(),
            "energy_j": after - before if after is not None and before is not None else None,
            "state": found.model_dump() if found else None,
            "threads": self.threads,
            "startup_s": self.startup_s,
            "build_s": self.build_s,
            **distances(self.run, dict(self.trainer.owned()), self.device.torch, self.device.dtype),
        }

    def close(self) -> None:
        """Free what this run holds; the process goes on to the next."""
        self.feed.close()
        if hasattr(self, "trainer"):
            self.trainer.close()
            del self.trainer
        self.context.closing.close()
