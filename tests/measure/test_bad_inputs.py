"""A file of an input that cannot be read costs its own Run, which says so and names it; the others of the launch are measured."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from multigpu.measure.launch import measure
from multigpu.measure.point import Point
from multigpu.record import Record, RecordStore
from multigpu.run import Run

BEFORE, DANGLING, BROKEN, OTHER_NAMES, AFTER = SEEDS = range(5)
"""By the Runs' seeds: healthy, a link to nothing, a file that is no image, one that has a name that is no UTF-8, healthy."""

LATIN = b"caf\xe9.png"


def folder_of(root: Path, seed: int) -> Path:
    """Two classes of four images, and what the seed says."""
    folder = root / str(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(folder / name / f"{number}.png")
    if seed == DANGLING:
        (folder / "dog" / "gone.png").symlink_to("/nowhere/gone.png")
    if seed == BROKEN:
        (folder / "cat" / "1.png").write_bytes((folder / "cat" / "2.png").read_bytes()[:50])
    if seed == OTHER_NAMES:
        os.rename(folder / "cat" / "1.png", os.fsencode(folder / "cat") + b"/" + LATIN)
        Path(os.fsdecode(os.fsencode(folder / "dog") + b"/" + LATIN)).write_text("no image")
    return folder


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Record]:
    """One launch over them all, by seed."""
    root = tmp_path_factory.mktemp("images")
    job = {"workload": "cnn", "model": "resnet_tiny", "placement": "ddp", "devices": 2, "batch_size": 4, "device_type": "cpu"}
    fields = job | {"inputs": "image_folder", "warmup_steps": 2, "timed_steps": 3}
    runs = [Run(**fields, seed=seed, data=(str(folder_of(root, seed)),)) for seed in SEEDS]  # type: ignore[arg-type]
    store = RecordStore(root / "runs")
    summary = measure([Point(run, timeout_s=60.0) for run in runs], store, progress=False)
    assert sum(summary.statuses.values()) == len(SEEDS)
    return {record.run.seed: record for record in store}


@pytest.mark.timeout(300)
def test_healthy_runs_are_measured(records: dict[int, Record]) -> None:
    assert [records[seed].status for seed in (BEFORE, AFTER)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("seed", "words"), [(DANGLING, "gone.png"), (BROKEN, "cat/1.png cannot be decoded"), (OTHER_NAMES, r"caf\udce9.png cannot be decoded")]
)
def test_a_run_that_cannot_read_a_file_names_it(records: dict[int, Record], seed: int, words: str) -> None:
    record = records[seed]
    assert record.status == "failed" and words in record.reason and record.measurement is None


def test_a_name_that_is_no_utf8_is_no_fault_of_an_image(tmp_path: Path) -> None:
    from multigpu.inputs.pictures import ImageFolder

    (tmp_path / "cat").mkdir()
    for value in (b"caf\xe9.png", b"caf\xe8.png"):
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "x.png")
        os.rename(tmp_path / "x.png", os.fsencode(tmp_path / "cat") + b"/" + value)
    whole = ImageFolder(tmp_path, 4, 1).fingerprint
    os.unlink(os.fsencode(tmp_path / "cat") + b"/caf\xe8.png")
    assert ImageFolder(tmp_path, 4, 1).fingerprint != whole
