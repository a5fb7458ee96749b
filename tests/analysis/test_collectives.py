"""The tidy table of all-reduces, from planted Records with times worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis.collectives import COLUMNS, collectives_frame
from tests.collectives.planted import plant, study


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return collectives_frame(study())


def test_a_row_a_record(frame, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 11 * 15
    pd.testing.assert_frame_equal(
        collectives_frame(plant(tmp_path)).sort_values("key", ignore_index=True), frame.sort_values("key", ignore_index=True)
    )
    row = frame[(frame["method"] == "ring") & (frame["bytes"] == 2**30)].iloc[0]
    # planted: 14 x 2 us + 2 x 7/8 GiB at 400 GB/s
    assert row["time_s"] == pytest.approx(28e-6 + 1.75 * 2**30 / 400e9)
    assert row["bus_bytes_per_s"] == pytest.approx(1.75 * 2**30 / row["time_s"])
    assert (row["busiest_link_bytes"], row["total_bytes"], row["latency_terms"]) == (1.75 * 2**30, 14 * 2**30, 14)
    assert row["kind"] == "algorithm" and set(frame[frame["kind"] == "library"]["method"]) == {"nccl", "two_shot"}
    assert collectives_frame([]).empty
