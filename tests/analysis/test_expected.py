"""Forecasts of points that nobody measured: tried on points that were."""

from __future__ import annotations

import json
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
