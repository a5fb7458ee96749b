"""What Runs should need of a device, against what was measured, and advice for those that do not fit."""

from __future__ import annotations

import shlex

import pytest

from multigpu import paths
from multigpu.analysis.advise import advised
from multigpu.analysis.memory import largest, peaks_beside, room_for
from multigpu.analysis.points import where
from multigpu.analysis.read import frames
from multigpu.command import parse_fields
from multigpu.placements import find_placement
from multigpu.placements.memory import most_kept
from multigpu.record import RecordStore
from multigpu.run import build_run
from tests.factory import make_machine, make_point, plant

RUNS = paths.RUNS


def test_a_job_that_is_too_large_for_ddp_is_told_what_fits() -> None:
    """One H200 ran out of memory with 4,096 images of ResNet-50, where 2,048 had passed; a batch of 64 fits under everything."""
    fields = {"workload": "cnn", "model": "resnet50_v1.5", "placement": "ddp", "precision": "bf16", "layout": "channels_last"}
    large, small = (room_for(RUNS, build_run(**fields, batch_size=batch, devices=2)) for batch in (6144, 64))
    assert large is not None and large.needed_gib > large.has_gib and not large.others
    assert large.instead is not None and large.instead.micro_steps and large.instead.micro_steps >= large.needed_gib / large.has_gib
    assert small is not None and small.needed_gib < small.has_gib and small.text() == ""
    fields = {"workload": "nmt", "model": "nmt000", "placement": "replicated_copy", "precision": "bf16", "sequence_length": 100}
    between = room_for(RUNS, build_run(**fields, batch_size=128, devices=512))
    assert between is not None and between.needed_gib > between.has_gib and "zero1" in between.others and "zero1" in between.text()


@pytest.mark.parametrize(
    ("model", "optimizer", "gib"),
    [("vgg16", "adam", 1.5), ("resnet50_v1.5", "adam", 0.2), ("alexnet", "momentum", 0.6), ("inception3", "adam", 0.15)],
)
def test_a_model_made_too_large_for_ddp_is_told_which_placement_fits_it(tmp_path, model: str, optimizer: str, gib: float) -> None:
    """Models never measured on a machine whose GPUs are too small for a copy of the rule's states each, and for ddp alone."""
    small = make_machine(8, name="small").model_copy(update={"gpu_memory_gib": [gib] * 8})
    plant(RecordStore(tmp_path / "runs"), make_point([1e6], machine=small))
    fields = {"workload": "cnn", "model": model, "optimizer": optimizer, "devices": 8}
    assert most_kept(build_run(placement="ddp", batch_size=32, **fields)) > gib * 2**30
    text = advised(tmp_path / "runs", fields, "small")
    command = text.rsplit("`", 2)[1]
    run = build_run(**parse_fields(shlex.split(command.removeprefix("python -m multigpu measure "))))
    assert run.model_dump(include=set(fields)) == fields
    placement = find_placement(run.placement)
    assert most_kept(run) <= gib * 2**30 and placement.semantics.is_equal_training and not placement.uses_host
    assert run.placement in text


def test_what_no_placement_can_hold_is_told_so(tmp_path) -> None:
    tiny = make_machine(2, name="tiny").model_copy(update={"gpu_memory_gib": [0.1] * 2})
    plant(RecordStore(tmp_path / "runs"), make_point([1e6], machine=tiny))
    room = room_for(tmp_path / "runs", build_run(workload="cnn", model="vgg19", placement="ddp", batch_size=1, devices=2))
    assert room is not None and room.instead is None and not room.knows_steps and "`" not in room.text() != ""


@pytest.mark.parametrize(("devices", "within"), [(1, 0.04), (2, 0.002), (4, 0.02)])
def test_peaks_are_what_rows_and_another_placements_peak_predict(devices: int, within: float) -> None:
    """Placements with a server or copies on GPUs hold flat gradients through the step as exp4 does; peaks of others are less alike, and
    those of one GPU, which meets every shape first, hold what cuDNN tried.
    """
    points = where(frames(RUNS)[1], machine="4x-nvidia-h200", framework="torch", processes="per_device", devices=devices)
    table = peaks_beside(points, "exp4")
    alike = where(table, placement=["exp1", "exp3", "ps_gpu0", "replicated_copy", "replicated_allreduce"])
    assert len(alike) >= 20 and alike["off"].abs().median() < within
    assert table["off"].abs().median() < 0.05
    assert (table["kept_gib"] <= table["peak_memory_gib"]).all()


def test_the_largest_model_keeps_all_that_a_device_has() -> None:
    run = build_run(workload="cnn", model="resnet50_v1.5", placement="ddp", optimizer="adam", batch_size=1, devices=8)
    assert largest(run, 80) == pytest.approx(80e9 / 16)
