"""Synchrony's Records as a kind of their own: what holds them, and what tells them from others."""

from multigpu import paths
from multigpu.records.store import RecordKind
from multigpu_study.synchrony.averaging import AveragingRecord
from multigpu_study.synchrony.downpour import DownpourRecord
from multigpu_study.synchrony.record import SynchronyRecord
from multigpu_study.synchrony.store import SynchronyStore

SYNCHRONY = RecordKind(
    name="synchrony",
    stores=lambda: [SynchronyStore(paths.SYNCHRONY)],
    records={
        "joint": AveragingRecord,
        "shard_updates": DownpourRecord,
        "experiment": SynchronyRecord,
    },
)
