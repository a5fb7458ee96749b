"""The table of placements: rates of planted Records, and a true reason in every other cell."""

import re
from pathlib import Path

import pandas as pd
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.matrix import NOT_MEASURED, TableJob, as_text, matrix, table_job
from multigpu.analysis.points import Missing, points
from multigpu.cli.main import main
from multigpu.placements import every_placement
from multigpu.records.record import Record, RecordStore
from tests.factory import make_point, make_record, plant

HERE = "8x-nvidia-h200"


def planted() -> list[Record]:
    """ddp on one and two devices, a faster kernel, a way of TensorFlow, and one short of memory."""
    return [
        *make_point([1e6, 1.02e6, 0.98e6, 1e6, 1e6], "abcde", placement="ddp", devices=1),
        *make_point([1.1e6, 1.1e6], placement="exp4", devices=1),  # rarer, faster than luck makes
        *make_point([1.7e6, 1.72e6, 1.68e6], placement="ddp", devices=2),
        *make_point([3e6, 3e6, 3e6], placement="ddp", devices=2, cross_entropy="fused"),
        *make_point([4e6, 4e6, 4e6], placement="ddp", devices=2, execution="captured"),
        *make_point(
            [5e5, 5e5], placement="exp1", framework="tensorflow", processes="one", execution="graph"
        ),
        make_record("exp2", 2, status="out_of_memory", reason="planted: 3 GiB too few"),
    ]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return points(frame_of(planted()))


@pytest.fixture(scope="module")
def cells(table: pd.DataFrame) -> pd.DataFrame:
    job, machines, _ = table_job(table, {})
    assert set(machines) == {1, 2}
    return matrix(table, job, machines).set_index(["framework", "placement", "devices"])


def test_a_cell_is_the_usual_form_over_one_device_of_its_framework(cells: pd.DataFrame) -> None:
    """Neither captured nor with a kernel of its own; TensorFlow has no device alone to compare."""
    two = cells.loc[("torch", "ddp", 2)]
    assert two["rate"] == pytest.approx(1.7e6, rel=1e-3)
    assert two["best"] == pytest.approx(1.7 / 1.1, rel=1e-3)
    assert two["best_low"] < 1.7 / 1.1 < two["best_high"]
    assert (two["n"], two["execution"]) == (3, "eager")
    assert pd.isna(cells.loc[("tensorflow", "exp1", 2), "best"])
    assert cells.loc[("tensorflow", "exp1", 2), "rate"] == pytest.approx(5e5)


def test_every_placement_has_a_rate_or_a_true_reason(cells: pd.DataFrame) -> None:
    assert set(cells.index.get_level_values("placement")) == set(every_placement())
    assert cells["rate"].notna().eq(cells["reason"].eq("")).all()
    assert "3 GiB too few" in cells.loc[("torch", "exp2", 2), "reason"]
    assert cells.loc[("torch", "exp3", 2), "reason"] == NOT_MEASURED
    for (framework, name, _), row in cells.iterrows():
        lacks = framework not in every_placement()[name].frameworks
        assert row["reason"].endswith("has no such placement") == lacks, (framework, name)


def test_a_rule_refuses_what_cannot_be_measured(table: pd.DataFrame) -> None:
    job = table_job(table, {})[0]._replace(batch_size=-1)
    reasons = matrix(table, job, {2: HERE})
    torch = reasons[reasons["framework"].eq("torch") & reasons["placement"].eq("ddp")]
    assert "batch_size" in torch["reason"].item()
    assert torch["reason"].item() != NOT_MEASURED


def test_a_job_is_chosen_by_its_fields_or_refused(table: pd.DataFrame) -> None:
    assert table_job(table, {"workload": "nmt"})[0].workload == "nmt"
    with pytest.raises(Missing, match="no measured point"):
        table_job(table, {"precision": "fp16"})
    with pytest.raises(ValueError, match="bucket_mib"):
        table_job(table, {"bucket_mib": 25})


def test_the_command_prints_rates_and_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(RecordStore(tmp_path / "runs"), planted())
    assert main(["--records", str(tmp_path / "runs"), "table", "--devices", "2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ddp +1,699,\d+ \(1\.5[45]\) 3/\d$", said, re.MULTILINE)
    assert "3 GiB too few" in said
    assert main(["--records", str(tmp_path / "runs"), "table", "--devices", "7"]) == 2


def test_text_leaves_out_a_framework_without_rates(cells: pd.DataFrame) -> None:
    rows = cells.reset_index()
    rows.loc[rows["framework"].eq("tensorflow"), "rate"] = float("nan")
    assert "TensorFlow," not in as_text(rows, "words")
    assert isinstance(TableJob("nmt", "nmt000", 128, "bf16").words, str)
