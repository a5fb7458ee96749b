"""Forecasts that were made before, beside what was measured then."""

from pathlib import Path

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.records.record import Record
from multigpu_study.analysis.forecast import foretold
from tests.factory import make_record


def said(record: Record, rates: str) -> str:
    """A line of a file of `measure --forecast`."""
    fields = record.run.model_dump(exclude_defaults=True)
    return " ".join(f"{name}={value}" for name, value in fields.items()) + f",{rates}\n"


def test_a_point_stands_beside_the_share_that_was_foretold(tmp_path: Path) -> None:
    measured = [make_record("ddp", 2), make_record("ddp", 4)]
    table, file = points(frame_of(measured)), tmp_path / "said.csv"
    assert foretold(table, file).empty
    file.write_text(
        "fields,rate,rate_low,rate_high\n"
        + said(measured[0], "90,80,95")
        + said(make_record("independent", 2), "100,99,101")
        + said(make_record("independent", 4), "200,190,210")
    )
    (row,) = foretold(table, file).to_dict("records")
    assert (row["placement"], row["devices"]) == ("ddp", 2)
    shares = [row[f"predicted{end}"] for end in ("", "_low", "_high")]
    assert shares == pytest.approx([0.9, 0.8, 0.95])
