"""What the study adds to the frames of all Records, and its own Records that are withdrawn."""

import math
from pathlib import Path

import pandas as pd
import pytest

from multigpu import paths
from multigpu.records.record import RecordStore
from multigpu_study.analysis.points import averages
from multigpu_study.analysis.read import DocumentStudy


def test_a_study_without_records_has_the_columns_of_each_kind(tmp_path: Path) -> None:
    study = DocumentStudy(tmp_path, "8x-nvidia-h200")
    for frame in (study.synchrony, study.hosts, study.host_steps):
        assert frame.empty and len(frame.columns) > 5


def test_what_is_withdrawn_is_a_committed_record_and_says_why() -> None:
    table = pd.read_csv(paths.DATA / "withdrawn.csv")
    keys = {(record.key, record.attempt) for record in RecordStore(paths.RUNS)}
    assert set(zip(table["key"], table["attempt"], strict=True)) <= keys
    assert (
        table["what"].isin(["all", "peak_memory_gib"]).all() and table["why"].str.len().gt(20).all()
    )


def test_averages_have_students_interval_and_a_single_run_has_none() -> None:
    frame = pd.DataFrame(
        {"way": ["a", "a", "a", "b"], "accuracy": [0.8, 0.9, 1.0, 0.5], "key": ["1", "2", "3", "4"]}
    )
    three, one = averages(frame, ["way"], ["accuracy"]).to_dict("records")
    # t(0.975, 2) = 4.30265 times 0.1 / sqrt 3
    assert three["accuracy"] == pytest.approx(0.9) and three["accuracy_high"] == pytest.approx(
        0.9 + 4.30265 * 0.1 / math.sqrt(3), rel=1e-5
    )
    assert (three["n"], three["keys"]) == (3, "1, 2, 3")
    assert one["accuracy"] == 0.5 and math.isnan(one["accuracy_low"]) and one["n"] == 1
    assert averages(frame.iloc[:0], ["way"], ["accuracy"]).empty
