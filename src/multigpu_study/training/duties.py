"""The five duties of document 004: what N replicas must do beside a step, so that they train one
model. Each is one method, so that it can be broken by itself; what replicas left behind is the
evidence, the same on every rank.
"""

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.trainer import Context, Trainer
from multigpu.inputs.batch import Source
from multigpu.placements import find_placement
from multigpu_study.training.history import SegmentNumbers
from multigpu_study.training.record import EpochAudit
from multigpu_study.training.run import TrainingRun
from multigpu_study.training.schedule import global_batch, schedule_of
from multigpu_study.training.state import replicas_of


class Duties:
    """The duties of a process for its replica, or for all of them."""

    def start(self, trainer: Trainer) -> None:
        """1. Identical initial weights: every replica takes rank 0's variables and running
        statistics, before training alone. Placements with one master a variable have nothing to
        send.
        """
        first, *others = (replica.copies() for replica in replicas_of(trainer))
        with torch.no_grad():
            for other in others:
                for tensor, sent in zip(other, first, strict=True):
                    tensor.copy_(sent)
            for tensor in first if trainer.context.run.processes != "one" else ():
                sent = tensor.detach().contiguous()
                dist.broadcast(sent, 0)
                tensor.copy_(sent)

    def build(self, context: Context) -> Trainer:
        """2. Synchronised gradients: the placement's trainer, whose step merges all replicas'."""
        return build_trainer(context)

    def shard(self, rank: int) -> int:
        """3. Disjoint shards: which part of every global batch this replica trains on."""
        return rank

    def rates(self, training: TrainingRun, steps_per_epoch: int | None) -> Callable[[int], float]:
        """4. A schedule, step -> rate, that knows of the replicas if the Run asks for it."""
        return schedule_of(training, steps_per_epoch).rate

    def apply_rate(self, trainer: Trainer, rate: float) -> None:
        """4, carried out before every step."""
        for replica in replicas_of(trainer):
            replica.set_rate(rate)

    def leads(self, rank: int) -> bool:
        """5. Whether this replica evaluates, checkpoints and logs: one does."""
        return rank == 0


def start_fault(hashes: Sequence[str], replicated: bool) -> str | None:
    """Why the replicas did not start as one model, or None."""
    if replicated and len(set(hashes)) > 1:
        odd = [rank for rank, value in enumerate(hashes) if value != hashes[0]]
        return (
            f"replicas {odd} start from other weights than replica 0: the initial weights were not"
            " broadcast"
        )
    return None


class CoverageAudit:
    """Which replica read which item, epoch by epoch; the same on every rank. Of an epoch that a
    predecessor began, what is known is judged. Shards are disjoint when no item is read by two
    replicas, but for what fills up the last global batch of an epoch.
    """

    def __init__(
        self, count: int, per_epoch: int, global_batch: int, audits: Sequence[EpochAudit]
    ) -> None:
        self.count = count
        self.per_epoch = per_epoch
        self.allowed = per_epoch * global_batch - count
        self.done = {audit.epoch: audit for audit in audits if audit.complete}
        self.steps: Counter[int] = Counter()
        self.seen: dict[int, np.ndarray] = {}
        """Of an epoch that is not complete, [replica, item]."""

    def add(self, steps: Iterable[int], read: Sequence[Sequence[np.ndarray]]) -> None:
        """These steps ran; read: by rank, what each replica read in each."""
        for place, step in enumerate(steps):
            epoch = step // self.per_epoch
            seen = self.seen.setdefault(epoch, np.zeros((len(read), self.count), bool))
            for rank, items in enumerate(read):
                seen[rank, items[place]] = True
            self.steps[epoch] += 1
            if self.steps[epoch] == self.per_epoch:
                self.done[epoch] = self._audit(epoch)
                del self.seen[epoch]

    def _audit(self, epoch: int) -> EpochAudit:
        readers = self.seen[epoch].sum(axis=0)
        return EpochAudit(
            epoch=epoch,
            steps=self.steps[epoch],
            items=self.count,
            distinct=int((readers > 0).sum()),
            shared=int((readers > 1).sum()),
            allowed=self.allowed,
            complete=self.steps[epoch] == self.per_epoch,
        )

    def audits(self) -> list[EpochAudit]:
        known = self.done | {epoch: self._audit(epoch) for epoch in self.seen}
        return [known[epoch] for epoch in sorted(known)]

    def fault(self) -> str | None:
        for audit in self.audits():
            if audit.shared > audit.allowed:
                return (
                    f"shards are not disjoint: {audit.shared} of {audit.items} items of epoch"
                    f" {audit.epoch} were read by more than one replica, and filling up its last"
                    f" step explains {audit.allowed}"
                )
            if audit.complete and audit.distinct < audit.items:
                left_out = audit.items - audit.distinct
                return (
                    f"shards do not cover the data set: {left_out} of {audit.items} items were left"
                    f" out of epoch {audit.epoch}"
                )
        return None


class Evidence:
    """Evidence of one TrainingRun. agree: whether replicas that must be equal always were."""

    def __init__(self, training: TrainingRun, source: Source, audits: Sequence[EpochAudit]) -> None:
        self.schedule = schedule_of(training, source.steps_per_epoch)
        count, per_epoch = source.count, source.steps_per_epoch
        self.coverage = (
            CoverageAudit(count, per_epoch, global_batch(training), audits)
            if count and per_epoch
            else None
        )
        self.agree = True
        self.staged = find_placement(training.run.placement).staged

    def audits(self) -> list[EpochAudit]:
        return self.coverage.audits() if self.coverage else []

    def fault(self, parts: Sequence[SegmentNumbers], first: int, stop: int) -> str | None:
        """The first duty that was not done in steps first .. stop - 1, or None."""
        sums = [part["checksum"] for part in parts]
        if any(other != sums[0] for other in sums):
            self.agree = False
            if self.staged:
                why = "they did not fetch the same for their next step"
            else:
                why = "their gradients were not synchronised"
            return f"replicas hold different weights after step {stop}: {why}"
        if self.coverage:
            self.coverage.add(
                range(first, stop), [[np.array(items) for items in part["read"]] for part in parts]
            )
            if fault := self.coverage.fault():
                return fault
        for rank, part in enumerate(parts):
            for step, rate in enumerate(part["rates"], first):
                wanted = self.schedule.rate(step)
                if not math.isclose(rate, wanted, rel_tol=1e-6):
                    return (
                        f"replica {rank} took step {step} at the rate {rate:g}, and the schedule of"
                        f" this run asks for {wanted:g}"
                    )
        busy = [rank for rank, part in enumerate(parts) if part["files"] or part["evaluations"]]
        if len(busy) > 1:
            what = sorted({name for part in parts for name in part["files"]})
            return (
                f"ranks {busy} evaluated or wrote files ({', '.join(what)}): one rank evaluates,"
                " checkpoints and logs"
            )
        return None


_watched: dict[Path, list[str]] = {}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watched:
        return
    path, _, flags = arguments
    if (
        not isinstance(path, str | bytes | os.PathLike)
        or not isinstance(flags, int)
        or not flags & WRITING
    ):
        return
    file = Path(os.path.abspath(os.fsdecode(path)))
    for folder, names in _watched.items():
        if folder in file.parents:
            # temporary names differ by process; what they are for does not
            name = (
                ".writing" if file.name.startswith(".writing-") else str(file.relative_to(folder))
            )
            if name not in names:
                names.append(name)


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # cannot be taken back, so it is one for all watches


@contextmanager
def files_written(folder: Path) -> Iterator[list[str]]:
    """Names of the files below `folder` that this process opens for writing."""
    _install()
    folder = Path(os.path.abspath(folder))
    names: list[str] = []
    _watched[folder] = names
    try:
        yield names
    finally:
        _watched.pop(folder, None)
