"""What the study adds to the frames of all Records, and its own Records that are withdrawn."""

from pathlib import Path

import pandas as pd

from multigpu import paths
from multigpu.records.record import RecordStore
from multigpu_study.analysis.read import DocumentStudy


def test_a_study_without_records_has_the_columns_of_synchrony(tmp_path: Path) -> None:
    frame = DocumentStudy(tmp_path, "8x-nvidia-h200").synchrony
    assert frame.empty and len(frame.columns) > 5


def test_what_is_withdrawn_is_a_committed_record_and_says_why() -> None:
    table = pd.read_csv(paths.DATA / "withdrawn.csv")
    keys = {(record.key, record.attempt) for record in RecordStore(paths.RUNS)}
    assert set(zip(table["key"], table["attempt"], strict=True)) <= keys
    assert (
        table["what"].isin(["all", "peak_memory_gib"]).all() and table["why"].str.len().gt(20).all()
    )
