"""Forecasts of points that nobody measured: tried on points that were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.advise import advised
from multigpu.analysis.expected import expected
from multigpu.analysis.explain_text import explained
from multigpu.analysis.points import usual, where
from multigpu.analysis.read import frames, machines_of
from multigpu.cli import main
from multigpu.command import parse_fields
from multigpu.run import build_run

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
        found = expected(
            RUNS, {"workload": row["workload"], "model": row["model"], "batch_size": int(row["batch_size"]) + 1, "precision": "bf16"}
        )
        assert found is not None and found.rate.low < found.rate.value < found.rate.high
        inside.append(found.rate.low < row["rate"] < found.rate.high)
    assert np.mean(inside) >= 0.75 and len(inside) >= 5, "bands are of 95%, and twelve are few"


def test_more_devices_are_forecast_from_the_counts_that_were_measured() -> None:
    found = expected(RUNS, {"workload": "cnn", "model": "vgg16", "devices": 8})
    assert found is not None and found.run.placement == "ddp" and found.run.devices == 8
    assert 0.5 < found.scaling < 1 and found.rate.low < found.rate.value < found.rate.high and "1, 2 and 4" in found.basis
    assert "Forecast, not a measurement" in found.text() and "devices=8" in found.text()


@pytest.mark.parametrize(
    "fields",
    [{"devices": 8}, {"model": "vgg16", "workload": "cnn", "placement": "exp2", "devices": 2, "device_type": "cpu", "batch_size": 0}],
)
def test_what_names_no_model_or_cannot_be_has_no_forecast(fields: dict[str, Any]) -> None:
    assert expected(RUNS, fields) is None


def test_explain_and_advise_forecast_and_say_so() -> None:
    words = ["workload=cnn", "model=vgg16", "devices=8"]
    text = explained(RUNS, words)
    assert "No Record has devices = 8" in text and "Forecast, not a measurement" in text and "python -m multigpu measure" in text
    found = json.loads(advised(RUNS, {"workload": "cnn", "model": "vgg16", "devices": 8}, form="json"))
    assert found["jobs"] == [] and found["forecast"]["rate_low"] < found["forecast"]["rate"] and found["forecast"]["unit"] == "images/s"
    measured = json.loads(explained(RUNS, ["workload=cnn", "model=vgg16", "devices=2"], form="json"))
    assert measured["points"] and measured["forecast"] is None


def test_new_kernels_lose_to_merging_about_what_their_kin_lose() -> None:
    """Asked as if nobody had measured ResNet-50 on two GPUs with the library's kernels: the kin are other batches and bucket rules."""
    every = frames(RUNS)[1]
    two = where(every, model="resnet50_v1.5", devices=2, placement="ddp", execution="captured", precision="bf16", batch_norm=None)
    two = two[(two["n"] >= 5) & two["batch_size"].isin([64, 256])]
    for batch in (64, 256):
        fields = {"workload": "cnn", "model": "resnet50_v1.5", "layout": "channels_last", "execution": "captured", "batch_size": batch}
        found = expected(RUNS, fields | {"batch_norm": "fused", "stem": "folded", "devices": 2, "precision": "bf16"})
        assert found is not None and 0.9 < found.scaling < 1 and found.rate.low < found.rate.value < found.rate.high
        assert found.rate.value > 1.2 * where(two, batch_size=batch)["rate"].max(), "the kernels' own gain is kept"


def test_a_forecast_of_a_grid_can_be_written_and_measured_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "more" / "forecast.csv"
    assert main(["measure", "--grid", "persistent", "--devices", "1", "--forecast", str(file), "batch_size=384"]) == 0
    table = pd.read_csv(file)
    assert len(table) and (table["rate_low"] <= table["rate"]).all() and (table["rate"] <= table["rate_high"]).all()
    assert all(build_run(**parse_fields(words.split())).model == "nmt000" for words in table["fields"])
