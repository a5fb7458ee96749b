"""Models of users through `compare` on two CPU processes: each placement equals one process, and moves the bytes that its row predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

import multigpu
from multigpu.own.result import ONE, Result

MODELS = Path(__file__).parent / "models.py"
PLACEMENTS = ("ddp", "exp2", "exp4")
BUDGET_S = 50
"""On two idle cores a comparison ends within 20 s; they may be shared."""


@pytest.fixture(scope="module", params=["resnet", "transformer", "lstm", "recommender"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp(request.param)
    job = f"{MODELS}:{request.param}"
    return multigpu.compare(job, 2, PLACEMENTS, budget_s=BUDGET_S, out=out, device_type="cpu", repeats=1, progress=False)


def test_placements_of_a_users_model_equal_one_process(result: Result) -> None:
    assert {ONE, *PLACEMENTS} <= {*result.names, *result.left_out} and {ONE, "ddp"} <= set(result.names) and not result.failed
    for name in result.names:
        compared = result.equivalence(name)
        assert compared is not None and compared.precision == "fp64" and compared.holds
        assert compared.distance < 1e-9 or result.described.optimizer["name"] != "sgd"


def test_bytes_are_counted_as_predicted(result: Result) -> None:
    for record in result.records:
        assert record.measurement is not None
        assert record.measurement.moved_bytes == record.measurement.predicted_bytes
        assert not [flag for flag in record.measurement.flags if "bytes" in flag]
    ddp = result["ddp"]
    assert ddp.row["moved_bytes"] == 2 * 4 * ddp.run.description.parameters
