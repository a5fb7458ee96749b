"""Synchrony's Records as a kind of their own: what holds them, what tells them from others, and how
one of the virtual clock is made again.
"""

import math
from collections.abc import Mapping
from typing import Any

from multigpu import paths
from multigpu.records.store import RecordKind
from multigpu_study.synchrony.averaging import AveragingRecord
from multigpu_study.synchrony.downpour import DownpourRecord
from multigpu_study.synchrony.record import SynchronyRecord, summarise
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.store import SynchronyStore


def of_the_virtual_clock(record: Mapping[str, Any]) -> bool:
    """Whether a Record's seconds, and what was trained in them, depend on no machine."""
    return record.get("experiment", {}).get("clock") == "virtual" and "result" in record


def simulated_again(record: SynchronyRecord) -> tuple[str, bool]:
    """Simulate once more: a line, and whether it ends the same, to the bit or a millionth."""
    result, old = summarise(simulate(record.experiment)), record.result
    assert old is not None
    same = result.fingerprint == old.fingerprint
    ends = [
        (result.end_s, old.end_s),
        *((new.loss, was.loss) for new, was in zip(result.curve[-1:], old.curve[-1:], strict=True)),
    ]
    near = all(math.isclose(new, was, rel_tol=1e-6) for new, was in ends)
    if same:
        how = "the same bits"
    elif near:
        how = "the same to a millionth"
    else:
        how = f"ends at {result.end_s:.6g} s, not {old.end_s:.6g}"
    return f"{record.key}: {how}", same or near


SYNCHRONY = RecordKind(
    name="synchrony",
    stores=lambda: [SynchronyStore(paths.SYNCHRONY)],
    records={
        "joint": AveragingRecord,
        "shard_updates": DownpourRecord,
        "experiment": SynchronyRecord,
    },
    repeatable=of_the_virtual_clock,
    again=simulated_again,
)
