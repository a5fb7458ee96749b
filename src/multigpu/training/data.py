"""The audit of what replicas read. No framework."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from multigpu.training.record import EpochAudit


class CoverageAudit:
    """Which replica read which item, epoch by epoch; the same on every rank.

    Shards are disjoint when no item is read by two replicas, but for what fills up the last joined batch of an epoch. An epoch of which a
    predecessor read a part is judged by what is known of it.
    """

    def __init__(self, count: int, per_epoch: int, joined_batch: int, audits: Sequence[EpochAudit]) -> None:
        self.count, self.per_epoch = count, per_epoch
        self.allowed = self.per_epoch * joined_batch - self.count
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
        """Of every epoch that ran, in order; the last may be incomplete."""
        known = self.done | {epoch: self._audit(epoch) for epoch in self.seen}
        return [known[epoch] for epoch in sorted(known)]

    def fault(self) -> str | None:
        """Why the shards are not disjoint or do not cover the data set, or None."""
        for audit in self.audits():
            if audit.shared > audit.allowed:
                return (
                    f"shards are not disjoint: {audit.shared} of {audit.items} items of epoch {audit.epoch} were read by more than one"
                    f" replica, and filling up its last step explains {audit.allowed}"
                )
            if audit.complete and audit.distinct < audit.items:
                left_out = audit.items - audit.distinct
                return f"shards do not cover the data set: {left_out} of {audit.items} items were left out of epoch {audit.epoch}"
        return None
