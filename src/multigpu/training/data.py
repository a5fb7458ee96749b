"""What training asks of a source beside its batches, and the audit of what replicas read. No framework."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import numpy as np

from multigpu.inputs.batch import Source
from multigpu.training.record import EpochAudit


class ItemSource(Protocol):
    """A source over a data set whose items can be named.

    count: items of the data set. steps_per_epoch: joined batches after which every item has been read.
    """

    count: int
    steps_per_epoch: int

    def items(self, step: int, rank: int) -> np.ndarray:
        """Numbers 0 .. count - 1 of the items in `batch(step, rank)`, shape (n,), int64."""
        ...


def item_source(source: Source) -> ItemSource | None:
    """The same source, if it names its items."""
    return cast(ItemSource, source) if all(hasattr(source, name) for name in ("count", "steps_per_epoch", "items")) else None


def steps_per_epoch(source: Source) -> int | None:
    """Steps of an epoch, or None where the source has none."""
    found = getattr(source, "steps_per_epoch", None)
    return None if found is None else int(found)


class CoverageAudit:
    """Which replica read which item, epoch by epoch; the same on every rank.

    Shards are disjoint when no item is read by two replicas, but for what fills up the last joined batch of an epoch. An epoch of which a
    predecessor read a part is judged by what is known of it.
    """

    def __init__(self, source: ItemSource, joined_batch: int, audits: Sequence[EpochAudit]) -> None:
        self.count, self.per_epoch = source.count, source.steps_per_epoch
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
