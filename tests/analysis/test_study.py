"""What a page reads beside Runs: averages worked out by hand, and the Records of other kinds in a folder, or in none."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from multigpu.analysis.points import averages
from multigpu.analysis.read import read_study
from multigpu.collectives.record import CollectiveStore
from tests.collectives.planted import make_record


def test_averages_have_students_interval_and_a_single_run_has_none() -> None:
    frame = pd.DataFrame({"way": ["a", "a", "a", "b"], "accuracy": [0.8, 0.9, 1.0, 0.5], "key": ["1", "2", "3", "4"]})
    three, one = averages(frame, ["way"], ["accuracy"]).to_dict("records")
    # t(0.975, 2) = 4.30265 times 0.1 / sqrt 3
    assert three["accuracy"] == pytest.approx(0.9) and three["accuracy_high"] == pytest.approx(0.9 + 4.30265 * 0.1 / math.sqrt(3), rel=1e-5)
    assert (three["n"], three["keys"]) == (3, "1, 2, 3")
    assert one["accuracy"] == 0.5 and math.isnan(one["accuracy_low"]) and one["n"] == 1
    assert averages(frame.iloc[:0], ["way"], ["accuracy"]).empty


def test_a_study_without_records_has_every_frame(tmp_path: Path) -> None:
    study = read_study(str(tmp_path), "8x-nvidia-h200")
    for frame in (study.points, study.collectives, study.hosts, study.host_steps, study.synchrony, study.training):
        assert frame.empty and len(frame.columns) > 5
    assert list(study.points.columns) == list(read_study().points.columns)
    with pytest.raises(ValueError, match="does not exist"):
        read_study(str(tmp_path / "typo"))


def test_all_reduces_are_of_the_pages_machine(tmp_path: Path) -> None:
    store = CollectiveStore(tmp_path / "collectives")
    for gpus in (4, 8):
        store.write(make_record(devices=4, gpus=gpus, time_s=float(gpus)))
    study = read_study(str(tmp_path), "8x-nvidia-h200")
    assert study.collectives["time_s"].tolist() == [8.0]
    assert study.on("4x-nvidia-h200").collectives["time_s"].tolist() == [4.0] and study.machine == "8x-nvidia-h200"
