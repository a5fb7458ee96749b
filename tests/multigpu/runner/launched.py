"""Tiny Runs, and a launch of them in which faults strike: its Records by seed, and what it left
behind.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from multigpu.build import build_run
from multigpu.machine.lock import memory_root
from multigpu.machine.private_network import OPEN_PORTS
from multigpu.records.record import Record, RecordStore
from multigpu.runner.point import Point
from multigpu.runner.summary import Summary
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run
from tests.multigpu.runner.listening import Listener, overheard

ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join([f"{ROOT}/src", str(ROOT), os.environ.get("PYTHONPATH", "")])
COMMON: dict[str, Any] = {
    "device_type": "cpu",
    "batch_size": 4,
    "warmup_steps": 2,
    "timed_steps": 3,
}
IMAGES = COMMON | {"workload": "cnn", "model": "resnet_tiny"}
WORDS = COMMON | {"workload": "nmt", "model": "nmt_tiny", "sequence_length": 5}
SAMPLES = COMMON | {
    "workload": "stacks",
    "model": "mlp_tiny",
    "framework": "tensorflow",
    "execution": "graph",
}

SWEEP = """
import signal
from pathlib import Path
from multigpu.runner.lanes import measure_shared
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu.records.record import RecordStore
from tests.multigpu.runner.launched import tiny
# a shell that put the tests in the background has left it ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
store = RecordStore(Path("runs").resolve())
"""  # of a process that measures


def tiny(seed: int, devices: int = 2, placement: str = "ddp", **more: Any) -> Run:
    """A Run of half a second; its seed names it."""
    return build_run(**IMAGES | {"seed": seed, "devices": devices, "placement": placement} | more)


def fault(seed: int, stage: str, rank: int, kind: str | float, **more: Any) -> dict[str, Any]:
    """What strikes a process of the Run of this seed, as `tests.faults` reads it."""
    return {"seed": seed, "stage": stage, "rank": rank, "fault": kind, **more}


def descendants() -> list[int]:
    """Processes that this one has started and that still live."""
    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
    ]


def memory_of(pid: int) -> list[Path]:
    """Folders of memory-backed files that the launcher `pid` has left."""
    return list(memory_root().glob(f"multigpu-memory-{pid}-*"))


@dataclass(frozen=True)
class Struck:
    """A sweep. left: processes that still lived when it had ended. heard: what listened
    meanwhile.
    """

    store: RecordStore
    summary: Summary
    points: Sequence[Point]
    left: set[int]
    heard: set[Listener]

    def __getitem__(self, seed: int) -> Record:
        return next(record for record in self.store if record.run.seed == seed)

    def check_whole(self) -> None:
        """Every Run has one Record, and nothing is left; a look that came too late would see nobody
        listen.
        """
        assert self.heard
        assert sorted(record.run.seed for record in self.store) == sorted(
            point.run.seed for point in self.points
        )
        assert sum(self.summary.statuses.values()) == len(self.points)
        assert not self.left and not memory_of(os.getpid())


def strike(
    folder: Path,
    points: Sequence[Point],
    faults: Sequence[dict[str, Any]],
    measure: Any = measure,
    **environment: str,
) -> Struck:
    """Measure these points while faults (`tests.faults`) strike; nothing that listens meanwhile is
    reached from another host.
    """
    # other tests may have left helpers of their own
    store, before = (RecordStore(folder / "runs"), set(descendants()))
    hook = environment.pop("hook", "tests.faults:strike")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            {"FAULTS": json.dumps(list(faults)), "PYTHONPATH": PATHS} | environment
        ).items():
            patch.setenv(name, value)
        patch.delenv(OPEN_PORTS, raising=False)
        with overheard() as heard:
            summary = measure(points, store, progress=False, hook=hook)
    return Struck(store, summary, points, set(descendants()) - before, heard)
