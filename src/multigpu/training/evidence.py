"""Judges what replicas left behind: whether each of the five duties was done. Every rank comes to the same conclusion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from multigpu.inputs.batch import Source
from multigpu.placements import find_placement
from multigpu.training.data import CoverageAudit, item_source, steps_per_epoch
from multigpu.training.record import EpochAudit
from multigpu.training.run import TrainingRun


def start_fault(hashes: Sequence[str], replicated: bool) -> str | None:
    """Why the replicas did not start as one model, or None."""
    if replicated and len(set(hashes)) > 1:
        odd = [rank for rank, value in enumerate(hashes) if value != hashes[0]]
        return f"replicas {odd} start from other weights than replica 0: the initial weights were not broadcast"
    return None


def writers_fault(files: Sequence[Sequence[str]], evaluations: Sequence[int]) -> str | None:
    """Why not one rank alone evaluated, checkpointed and logged, or None."""
    busy = [rank for rank, (names, count) in enumerate(zip(files, evaluations, strict=True)) if names or count]
    if len(busy) > 1:
        what = sorted({name for names in files for name in names})
        return f"ranks {busy} evaluated or wrote files ({', '.join(what)}): one rank evaluates, checkpoints and logs"
    return None


class Evidence:
    """Of one TrainingRun, on every rank.

    agree: whether all replicas that must be equal were so at every stop.
    """

    def __init__(self, training: TrainingRun, source: Source, audits: Sequence[EpochAudit], from_step: int) -> None:
        self.schedule = training.schedule_of(steps_per_epoch(source))
        items = item_source(source)
        self.coverage = CoverageAudit(items, training.joined_batch, list(audits), from_step) if items else None
        self.agree = True
        self.staged = find_placement(training.run.placement).staged

    def audits(self) -> list[EpochAudit]:
        """What was read, by epoch."""
        return self.coverage.audits() if self.coverage else []

    def fault(self, parts: Sequence[dict[str, Any]], first: int, stop: int) -> str | None:
        """The first duty that was not done in steps first .. stop - 1, in one sentence, or None."""
        sums = [part["checksum"] for part in parts]
        if any(other != sums[0] for other in sums):
            self.agree = False
            why = "they did not fetch the same for their next step" if self.staged else "their gradients were not synchronised"
            return f"replicas hold different weights after step {stop}: {why}"
        if self.coverage:
            self.coverage.add([part["read"] for part in parts])
            if fault := self.coverage.fault():
                return fault
        for rank, part in enumerate(parts):
            for step, rate in enumerate(part["rates"], first):
                wanted = self.schedule.rate(step)
                if not math.isclose(rate, wanted, rel_tol=1e-6):
                    return f"replica {rank} took step {step} at the rate {rate:g}, and the schedule of this run asks for {wanted:g}"
        return writers_fault([part["files"] for part in parts], [part["evaluations"] for part in parts])
