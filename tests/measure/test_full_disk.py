"""Where a disk takes no more, a sweep ends at once with one sentence; what was measured stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from multigpu.measure.machine import this_machine
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from tests.factory import make_record
from tests.measure.launched import descendants, strike, tiny


@pytest.mark.timeout(300)
def test_the_first_record_that_cannot_be_written_ends_the_sweep(tmp_path: Path) -> None:
    store, before, kept = RecordStore(tmp_path / "runs"), set(descendants()), make_record("ddp", 1)
    store.write(kept)
    faults = [{"seed": seed, "stage": "build", "rank": 0, "fault": "disk"} for seed in range(3)]
    with pytest.raises(RuntimeError) as ended:
        strike(tmp_path, [Point(tiny(seed)) for seed in range(3)], faults)
    said = str(ended.value)
    assert said.startswith(f"a Record cannot be written to {store.root}: No space left on device; 0 Runs were measured and are kept")
    assert "\n" not in said
    assert list(store) == [kept] and not set(descendants()) - before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_nearly_full_or_read_only_is_refused_before_anything_starts(small_disk: Path) -> None:
    store = RecordStore(small_disk / "runs")
    store.check_writable()
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    with pytest.raises(ValueError, match=r"^records cannot be written to \S+: No space left on device; make room there$"):
        measure([Point(tiny(0))], store, progress=False)
    (small_disk / "filler").unlink()
    own = store.root / this_machine().name
    own.mkdir()
    subprocess.run(["mount", "--bind", own, own], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", own], check=True)
    try:
        with pytest.raises(ValueError, match=rf"^records cannot be written to {own}: Read-only file system; choose a folder"):
            measure([Point(tiny(0))], store, progress=False)
    finally:
        subprocess.run(["umount", own], check=True)
