"""Sweeps that meet what a machine does to them: no Record is lost, a sentence says what it was, and
the same call measures the rest (`benchmarks/faults_on_cpus.py`, once each).
"""

import importlib.util
import os
import subprocess
import time
from pathlib import Path

import pytest
from benchmarks import faults_on_cpus as faults

from multigpu.machine.process import age_s, start_ticks
from tests.further import but

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def can_mount(folder: Path) -> bool:
    try:
        with faults.disk_at(folder / "disk"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def can_bound_memory(folder: Path) -> bool:
    group = faults.memory_group(folder)
    try:
        group.mkdir()
        bounded = any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max"))
        group.rmdir()
        return bounded
    except OSError:
        return False


NEEDS = {
    "the folder of the Records is read-only": can_mount,
    "the disk of the Records is full": can_mount,
    "the kernel's memory killer": can_bound_memory,
    "a killed Snakemake": lambda folder: importlib.util.find_spec("snakemake") is not None,
}
SAYS = {
    "the clock is set two days back": ("", 1),
    "the folder of the Records is read-only": ("Read-only file system", 2),
    "the disk of the Records is full": ("No space left on device", 2),
    "the kernel's memory killer": ("", 1),
    "a GPU gone after a restart": (
        "finds itself on 1x-planted-gpu, and not on 2x-planted-gpu; ",
        2,
    ),
    "a killed Snakemake": ("", 2),
}
"""What the first call says, and how many calls it takes."""
OFTEN = ("the clock is set two days back", "the kernel's memory killer")
"""Of the others `test_recovery` and `test_program` show what is said."""


@pytest.mark.parametrize("name", but(OFTEN, [*SAYS]))
def test_no_record_is_lost_and_the_same_call_goes_on(name: str, tmp_path: Path) -> None:
    if not NEEDS.get(name, lambda folder: True)(tmp_path):
        pytest.skip("this cannot be planted here without more rights, or without Snakemake")
    row, (words, calls) = faults.tried(name), SAYS[name]
    assert (row["status"], row["lost"], row["calls"]) == ("ok", 0, calls), row
    assert words in str(row["reason"]) and "Traceback" not in str(row["reason"])
    assert 0 < float(str(row["recovered_s"])) < 400


def test_the_age_of_a_process_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = age_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 < before <= age_s() < before + 60
    assert start_ticks(os.getpid()) == start_ticks() and start_ticks(os.getppid()) <= start_ticks()
    with pytest.raises(OSError):
        start_ticks(2**22 + 1)
