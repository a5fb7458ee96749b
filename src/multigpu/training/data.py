"""What training asks of a source beside its batches, and the audit of what replicas read. No framework."""

from __future__ import annotations

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


class ReadLog:
    """What one replica read since the last call of `take`: item numbers by epoch, and how many steps."""

    def __init__(self, source: ItemSource) -> None:
        self.source = source
        self.read: dict[int, list[np.ndarray]] = {}

    def note(self, step: int, shard: int) -> None:
        """The replica trained on this shard in this step."""
        self.read.setdefault(step // self.source.steps_per_epoch, []).append(self.source.items(step, shard))

    def take(self) -> dict[int, tuple[int, list[int]]]:
        """Epoch -> (steps, items read); forgotten here."""
        found = {epoch: (len(parts), np.concatenate(parts).tolist()) for epoch, parts in self.read.items()}
        self.read = {}
        return found


class CoverageAudit:
    """Which replica read which item, epoch by epoch; the same on every rank.

    Shards are disjoint when no item is read by two replicas, but for what fills up the last joined batch of an epoch.
    """

    def __init__(self, source: ItemSource, joined_batch: int, audits: list[EpochAudit], from_step: int) -> None:
        self.count, self.per_epoch = source.count, source.steps_per_epoch
        self.allowed = self.per_epoch * joined_batch - self.count
        self.done = {audit.epoch: audit for audit in audits if audit.complete}
        self.partial = from_step // self.per_epoch if from_step % self.per_epoch else None
        """An epoch of which a predecessor read a part: it is judged by what is known of it."""
        self.open: dict[int, list[tuple[int, list[int]]]] = {}

    def add(self, by_rank: list[dict[int, tuple[int, list[int]]]]) -> None:
        """What every replica read since the last call."""
        for epoch in sorted({epoch for read in by_rank for epoch in read}):
            held = self.open.setdefault(epoch, [(0, []) for _ in by_rank])
            for rank, read in enumerate(by_rank):
                steps, items = read.get(epoch, (0, []))
                held[rank] = (held[rank][0] + steps, held[rank][1] + items)
            if held[0][0] == self.per_epoch:
                self.done[epoch] = self._audit(epoch, self.open.pop(epoch))

    def _audit(self, epoch: int, read: list[tuple[int, list[int]]]) -> EpochAudit:
        readers = np.zeros(self.count, dtype=np.int64)
        for _, items in read:
            readers[np.unique(items)] += 1
        steps = read[0][0]
        return EpochAudit(
            epoch=epoch,
            steps=steps,
            items=self.count,
            distinct=int((readers > 0).sum()),
            shared=int((readers > 1).sum()),
            allowed=self.allowed,
            complete=steps == self.per_epoch,
        )

    def audits(self) -> list[EpochAudit]:
        """Of every epoch that ran, in order; the last may be incomplete."""
        known = self.done | {epoch: self._audit(epoch, read) for epoch, read in self.open.items()}
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
