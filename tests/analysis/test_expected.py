"""What nobody measured: the rate that Runs should reach and the memory that they should need, tried on what was measured."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.advise import advised
from multigpu.analysis.expected import expected
from multigpu.analysis.explain_text import explained
from multigpu.analysis.memory import room_for
from multigpu.analysis.points import usual, where
from multigpu.analysis.read import frames, machines_of
from multigpu.cli import main
from multigpu.command import parse_fields
from multigpu.placements import find_placement
from multigpu.placements.memory import most_kept
from multigpu.record import RecordStore
from multigpu.run import build_run
from tests.factory import make_machine, make_point, plant

RUNS = paths.RUNS


@pytest.fixture(scope="module")
def ones() -> pd.DataFrame:
    """Plain points of one device of the richest machine, each of another model and batch."""
    every = frames(RUNS)[1]
    table = usual(where(every, machine=machines_of(every)["machine"].iloc[0], devices=1, framework="torch", execution="eager"))
    return where(table[table["n"] > 0], placement="ddp", inputs="synthetic", precision="bf16").drop_duplicates(["model", "batch_size"])


def test_what_was_measured_lies_in_the_band_of_the_same_model_at_batches_beside_it(ones: pd.DataFrame) -> None:
    """Asked for a batch that no Record has, next to one that has: the rate per step changes by less than the band is wide."""
    inside = []
    for _, row in ones.head(12).iterrows():
        beside = {"batch_size": int(row["batch_size"]) + 1, "precision": "bf16"}
        found = expected(RUNS, {"workload": row["workload"], "model": row["model"], **beside})
        assert found is not None and found.rate.low < found.rate.value < found.rate.high
        inside.append(found.rate.low < row["rate"] < found.rate.high)
    assert np.mean(inside) >= 0.75 and len(inside) >= 5, "bands are of 95%, and twelve are few"


def test_what_names_no_model_or_cannot_be_has_no_forecast() -> None:
    assert expected(RUNS, {"devices": 8}) is expected(RUNS, {"model": "vgg16", "devices": 2, "batch_size": 0}) is None


def test_explain_and_advise_forecast_more_devices_from_the_counts_that_were_measured_and_say_so() -> None:
    text = explained(RUNS, ["workload=cnn", "model=vgg16", "devices=8"])
    assert "No Record has devices = 8" in text and "Forecast, not a measurement: ddp" in text and "1, 2 and 4 devices" in text
    assert "python -m multigpu measure" in text and "devices=8" in text
    found = json.loads(advised(RUNS, {"workload": "cnn", "model": "vgg16", "devices": 8}, form="json"))
    said = found["forecast"]
    assert found["jobs"] == [] and said["rate_low"] < said["rate"] < said["rate_high"] and 0.5 < said["scaling"] < 1
    assert json.loads(explained(RUNS, ["workload=cnn", "model=vgg16", "devices=2"], form="json"))["forecast"] is None


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_batch_in_parts_takes_as_many_steps_of_a_part_and_merges_once_or_at_each(devices: int) -> None:
    job = {"workload": "cnn", "model": "resnet50_v1.5", "layout": "channels_last", "precision": "bf16", "placement": "ddp"}
    ways = {"batch_size": 64, "execution": "eager"}, *({"batch_size": 256, "micro_steps": 4, "micro_sync": one} for one in (None, "each"))
    part, once, each = (expected(RUNS, job | {"devices": devices} | way, "4x-nvidia-h200") for way in ways)
    assert part is not None and once is not None and each is not None
    assert once.rate.low <= part.rate.value * 1.05 < part.rate.value * 1.2 > once.rate.value
    assert each.rate.value == once.rate.value if devices == 1 else each.rate.value < once.rate.value and each.rate.low < once.rate.low


def test_a_forecast_of_a_grid_can_be_written_and_measured_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "more" / "forecast.csv"
    assert main(["measure", "--grid", "persistent", "--devices", "1", "--forecast", str(file), "batch_size=384"]) == 0
    table = pd.read_csv(file)
    assert len(table) and (table["rate_low"] <= table["rate"]).all() and (table["rate"] <= table["rate_high"]).all()
    assert all(build_run(**parse_fields(words.split())).model == "nmt000" for words in table["fields"])


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
    [("vgg16", "adam", 1.5), ("resnet50_v1.5", "adam", 0.2), ("alexnet", "momentum", 0.6)],
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
    placement = find_placement(run.placement)
    assert most_kept(run) <= gib * 2**30 and placement.semantics.facts.is_equal_training and not placement.uses_host
    assert run.placement in text and run.model_dump(include=set(fields)) == fields
