"""Whatever happens to a sweep: measured Records stay, no process is left, and the same call
finishes the rest.

Processes are killed (`benchmarks/soak.py`, small), stopped, or find a disk that takes no more.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pytest
from benchmarks.soak import soak
from PIL import Image

from multigpu.inputs.encoded import made_folder
from multigpu.machine import lock, process
from multigpu.machine.machine import this_machine
from multigpu.records.record import RecordStore
from multigpu.runner import sweep as sweeps
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from tests.factory import make_record, plant
from tests.multigpu.runner import launched
from tests.multigpu.runner.launched import (
    PATHS,
    SWEEP,
    Struck,
    descendants,
    fault,
    memory_of,
    strike,
    tiny,
)
from tests.patience import PATIENCE_S
from tests.refusals import refused

HEALTHY, KILLED_ONCE, ALWAYS_DIES, MEMORY_BUILD, MEMORY_TIMED, HANGS, RAISES, UNRECORDED, LAST = (
    range(9)
)
FED, STAGED, NO_JPEG, OTHER_DEVICE, ON_DEVICE, DANGLING, OTHER_NAMES, STOPPED = range(9, 17)
"""By the Runs' seeds: what strikes them; who feeds them, and from which device to which they move;
what is wrong with their images.
"""


def images_of(root: Path, seed: int) -> str:
    """Two classes of four images, among them what the seed says: a link to nothing; names that are
    no UTF-8, one of them of no image.
    """
    folder = root / str(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(
                folder / name / f"{number}.png"
            )
    if seed == DANGLING:
        (folder / "dog" / "gone.png").symlink_to("/nowhere/gone.png")
    else:
        os.rename(folder / "cat" / "1.png", os.fsencode(folder / "cat") + b"/caf\xe9.png")
        Path(os.fsdecode(os.fsencode(folder / "dog") + b"/caf\xe9.png")).write_text("no image")
    return str(folder)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Struck:
    """One launch in which nearly everything goes wrong."""
    folder = tmp_path_factory.mktemp("sweep")
    faults = [
        fault(KILLED_ONCE, "timed", 1, "kill", once=str(folder / "struck")),
        fault(ALWAYS_DIES, "warm-up", 0, "kill"),
        fault(MEMORY_BUILD, "build", 1, "memory"),
        fault(MEMORY_TIMED, "timed", 1, "memory"),
        fault(HANGS, "timed", 1, "hang"),
        fault(RAISES, "build", 0, "raise"),
        fault(UNRECORDED, "timed", 0, "record"),
        fault(STOPPED, "timed", 1, "stop", once=str(folder / "stopped")),
    ]
    (folder / "broken" / "a").mkdir(parents=True)
    for number in range(4):
        (folder / "broken" / "a" / f"{number}.jpg").write_bytes(b"no picture")
    jpegs = {"inputs": "jpeg_folder", "input_workers": 1}
    runs = [
        *map(tiny, [*range(FED), STOPPED]),
        tiny(FED, 1, data=(str(made_folder(folder / "cache", 8)),), **jpegs),
        tiny(STAGED, 1, inputs="synthetic_host", prefetch=2),
        tiny(NO_JPEG, 1, data=(str(folder / "broken"),), **jpegs),
        tiny(OTHER_DEVICE, 1, device_ids="2"),
        tiny(ON_DEVICE, 1),
        *(
            tiny(seed, inputs="image_folder", data=(images_of(folder, seed),))
            for seed in (DANGLING, OTHER_NAMES)
        ),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "STOPPED_S", 1.0)
        return strike(
            folder,
            [Point(run, timeout_s=6.0 if run.seed == HANGS else 90.0) for run in runs],
            faults,
        )


@pytest.mark.timeout(600)
def test_every_run_has_one_record_and_no_process_is_left(sweep: Struck) -> None:
    sweep.check_whole()


@pytest.mark.parametrize(
    "seed", [HEALTHY, KILLED_ONCE, LAST, FED, STAGED, OTHER_DEVICE, ON_DEVICE, STOPPED]
)
def test_healthy_runs_are_measured(sweep: Struck, seed: int) -> None:
    assert sweep[seed].status == "ok"
    assert (sweep.store.root.parent / "struck").exists(), (
        "the fault did strike: a killed worker costs one restart and no Run"
    )
    (note,) = sweep.summary.notes
    assert "was stopped from outside" in note and (sweep.store.root.parent / "stopped").exists()


@pytest.mark.parametrize(
    ("seed", "status", "words"),
    [
        (ALWAYS_DIES, "failed", "died 2 times"),
        (MEMORY_BUILD, "out_of_memory", "planted"),
        (MEMORY_TIMED, "out_of_memory", "planted"),
        (RAISES, "failed", "planted fault"),
        (
            UNRECORDED,
            "failed",
            "its Record could not be put together: KeyError: 'planted: a number",
        ),
        (NO_JPEG, "failed", "cannot be decoded as an image"),
        (DANGLING, "failed", "gone.png"),
        (OTHER_NAMES, "failed", r"caf\udce9.png cannot be decoded"),
    ],
)
def test_what_goes_wrong_is_a_status_with_its_sentence(
    sweep: Struck, seed: int, status: str, words: str
) -> None:
    record = sweep[seed]
    assert (record.status, record.measurement) == (status, None) and words in record.reason
    assert any(
        trouble.startswith(f"{status}: {record.run.label()}: ") and words in trouble
        for trouble in sweep.summary.troubles
    )


def test_a_hang_is_a_timeout_and_the_record_says_where_its_replicas_stood(sweep: Struck) -> None:
    record = sweep[HANGS]
    # the other one waits for it; on a busy machine the launch may end before the second of them has
    # written its stacks
    assert re.search(
        r"replicas (0, 1|0|1) did not finish in time: (0, 1|0|1) in \S+ \(.+:\d+\) < ",
        record.reason,
    )
    assert record.status == "timeout" and "multigpu-sweep" not in record.reason


def test_waits_and_what_is_read_are_recorded(sweep: Struck) -> None:
    waits = {
        seed: measured.input_wait_s
        for seed in (FED, STAGED, ON_DEVICE)
        if (measured := sweep[seed].measurement)
    }
    assert [len(own) for own in waits[FED] + waits[STAGED]] == [5, 5] and waits[ON_DEVICE] == []
    assert all(wait > 0 for own in waits[FED] + waits[STAGED] for wait in own)
    assert (
        sweep[FED].input_label.startswith("JPEG files of made-jpegs")
        and len(sweep[FED].input_fingerprint) == 64
    )
    assert len(sweep[OTHER_NAMES].input_fingerprint) == 64, (
        "a name that is no UTF-8 is no fault of an image"
    )


@pytest.mark.timeout(300)
def test_the_same_call_measures_nothing_but_failures_that_are_asked_for_and_restarts_import_nothing(
    sweep: Struck,
) -> None:
    """Workers are forked: what a start costs, a restart does not. The first launch dies with its
    second Run, whatever their order.
    """
    again = measure(sweep.points, sweep.store, progress=False)
    assert again.reused == len(sweep.points) and not again.statuses
    restarted = [
        r.measurement.startup_s
        for r in sweep.store
        if r.measurement and not r.launch_id.endswith(".0")
    ]
    chosen = [point for point in sweep.points if point.run.seed in (RAISES, HEALTHY)]
    summary = measure(chosen, sweep.store, progress=False, retry=["failed"])
    assert summary.statuses == {"ok": 1} and summary.reused == 1
    assert sweep[RAISES].attempt == 1 and (first := sweep[RAISES].measurement)
    assert restarted and min(restarted) < first.startup_s / 2
    assert len(list(sweep.store.root.glob("*/*.json.gz"))) == len(sweep.points) + 1, (
        "the failed attempt is kept"
    )


@pytest.mark.timeout(600)
def test_a_killed_launcher_leaves_its_records_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep's parent is killed with -9 in the middle: its children end by themselves, the next
    call finishes.
    """
    store = RecordStore(tmp_path / "runs")
    # any other sweep that begins would clear up what the killed one leaves
    monkeypatch.setattr(lock, "memory_root", lambda: tmp_path)
    monkeypatch.setattr(launched, "memory_root", lambda: tmp_path)
    # whichever Run comes last in the shuffled order hangs: the first to start after one Record is
    # there
    monkeypatch.setenv("FAULTS", json.dumps([fault(seed, "timed", 0, "2") for seed in range(3)]))
    monkeypatch.setenv("PYTHONPATH", PATHS)
    code = (
        f"{SWEEP}from multigpu.machine import lock\nlock.memory_root = Path.cwd\n"
        "measure([Point(tiny(seed)) for seed in range(3)], store, progress=False,"
        " hook='tests.faults:strike')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not list(store) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 3, "an agent and two workers"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not [
        process
        for process in alive
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    kept = {record.key for record in store}
    assert 1 <= len(kept) < 3
    monkeypatch.delenv("FAULTS")
    assert memory_of(parent.pid), "a killed launcher cannot clear up"
    summary = measure([Point(tiny(seed)) for seed in range(3)], store, progress=False)
    assert not memory_of(parent.pid), "the next one does"
    assert summary.reused == len(kept) and summary.statuses == {"ok": 3 - len(kept)}
    assert kept <= {record.key for record in store}


@pytest.mark.timeout(300)
def test_the_first_record_that_cannot_be_written_ends_the_sweep(tmp_path: Path) -> None:
    before, kept = set(descendants()), make_record("ddp", 1)
    store = plant(RecordStore(tmp_path / "runs"), [kept])
    faults = [fault(seed, "build", 0, "disk") for seed in range(3)]
    why = (
        rf"^a Record cannot be written to {store.root}: No space left on device; 0 Runs were"
        r" measured and are kept, .* once there is room$"
    )
    refused(
        why, strike, tmp_path, [Point(tiny(seed)) for seed in range(3)], faults, error=RuntimeError
    )
    assert list(store) == [kept] and not set(descendants()) - before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", folder], capture_output=True
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_nearly_full_or_read_only_is_refused_before_anything_starts(
    small_disk: Path,
) -> None:
    store = RecordStore(small_disk / "runs")
    store.check_writable()
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    refused(
        r"^records cannot be written to \S+: No space left on device; make room there$",
        measure,
        [Point(tiny(0))],
        store,
    )
    (small_disk / "filler").unlink()
    own = store.root / this_machine().name
    own.mkdir()
    subprocess.run(["mount", "--bind", own, own], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", own], check=True)
    try:
        refused(
            rf"^records cannot be written to {own}: Read-only file system; choose a folder",
            measure,
            [Point(tiny(0))],
            store,
        )
    finally:
        subprocess.run(["umount", own], check=True)


@pytest.mark.timeout(300)
def test_a_stopped_launcher_is_said_and_one_that_does_not_end_when_all_is_measured_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second as where a worker is killed while torch's agent is about to let all of them go."""
    monkeypatch.setattr(process, "STOPPED_S", 1.0)
    monkeypatch.setattr(sweeps, "ENDING_S", 1.0)
    once = str(tmp_path / "launcher")
    faults = [fault(LAST, "timed", 0, "stop its launcher", once=once)]
    why = r"was stopped from outside .* and with it its launch; 0 Runs were measured and are kept"
    refused(why, strike, tmp_path, [Point(tiny(LAST))], faults, error=RuntimeError)
    faults.append(fault(LAST, "timed", 1, "linger"))
    again = strike(tmp_path, [Point(tiny(LAST))], faults)
    again.check_whole()
    assert again.summary.statuses == {"ok": 1}


@pytest.mark.slow
@pytest.mark.further  # kills by hand, above, strike at each stage
@pytest.mark.timeout(300)
def test_random_kills_lose_no_run(tmp_path: Path) -> None:
    before = set(descendants())
    store, met, _ = soak(tmp_path, runs=7, every=4, planted=(0, 1))
    found = Counter(record.status for record in store)
    assert found == {"ok": 6, "out_of_memory": 1} and not list(store.unreadable())
    names = Counter(fault.fault for fault in met)
    assert names.pop("a Run without memory") == 1 and names
    assert set(names) <= {"a killed agent", "a killed worker"}
    assert not set(descendants()) - before


def test_a_full_disk_for_notes_is_a_sentence_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, why in ((errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file")):
        full = mock.Mock(side_effect=OSError(code, os.strerror(code)))
        monkeypatch.setattr("multigpu.runner.sweep.make_plan", full)
        refused(
            rf"^how far a launch is cannot be noted in /\S+: {why}.*; 0 Runs were measured and are",
            measure,
            [Point(tiny(0))],
            RecordStore(tmp_path),
            progress=False,
            error=RuntimeError,
        )
