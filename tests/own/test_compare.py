"""Models of users through `compare` on two CPU processes: each placement equals one process, and moves the bytes that its row predicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import multigpu
from multigpu.cli import main
from multigpu.own.examine import describe
from multigpu.own.placed import ONE
from multigpu.own.result import Result, compared
from multigpu.workloads.own.description import FOLDERS
from multigpu.workloads.own.loading import load_job
from tests.factory import make_machine

MODELS = Path(__file__).parent / "models.py"
PLACEMENTS = ("ddp", "exp2", "exp4")
BUDGET_S = 50
"""On two idle cores a comparison ends within 20 s; they may be shared."""


pytestmark = pytest.mark.slow


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


def test_where_a_step_goes_adds_up_to_it(result: Result) -> None:
    for name in result.names:
        causes = result.why_not_scaling(name)
        assert causes["ms"].min() >= 0 and causes["ms"].sum() == pytest.approx(1e3 * result[name].row["step_time_s"])


def test_its_records_are_read_by_other_commands(
    result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDERS)
    assert main(["--records", str(result.folder / "records"), "records", "placement=ddp", "devices=2"]) == 0
    assert result.described.name in capsys.readouterr().out
    assert compared(result.folder).table().equals(result.table())


def test_one_gpu_compares_launched_with_captured_steps_and_forecasts_more(result: Result) -> None:
    """The Records of one process, told as if they were of one GPU, the captured steps twice as fast."""
    records, runs = [], {}
    for execution, share in (("eager", 1.0), ("captured", 0.5)):
        for record in result.records:
            if record.run.devices == 1 and record.measurement and not record.run.traced_steps:
                run = record.run.model_copy(update={"device_type": "cuda", "execution": execution, "host_cores": None})
                measured = record.measurement.model_copy(update={"wall_s": share * record.measurement.wall_s})
                changed = {"run": run, "measurement": measured, "machine": make_machine(1), "key": record.key + execution}
                records.append(record.model_copy(update=changed))
                runs[run.digest] = run
    found = Result.of(result.described, list(runs.values()), {}, records, result.folder, 20)
    assert found.best is not None and found.best.name == "one device, captured" and not found.rivals
    assert found.table().set_index("name")["speedup"].to_dict() == pytest.approx({"one device, captured": 1.0, ONE: 0.5})
    assert found.why_not_scaling()["ms"].tolist() == pytest.approx([1e3 * found[ONE].row["step_time_s"]])
    ahead = found.forecast(8)
    assert ahead.low < ahead.value < ahead.high <= 8 * found.best.rate.value * 1.001
    assert "captured" in found._repr_html_() and "1 GPU" in found._repr_html_()


def test_operations_are_counted_where_a_ceiling_is_known(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
    job = multigpu.Job(model, lambda n, g: (torch.rand(n, 10, generator=g), torch.rand(n, 1, generator=g)), F.mse_loss, batch_size=4)
    assert describe(job, tmp_path, 2, timed=False).forward_flops == 2 * (10 * 20 + 20)
    recurrent = describe(load_job(f"{MODELS}:lstm"), tmp_path, 2, f"{MODELS}:lstm", timed=False)
    # seven positions: two layers of four gates over input and hidden state, then the head
    assert recurrent.forward_flops == 7 * 2 * (4 * 16 * (12 + 16) + 4 * 16 * (16 + 16) + 16 * 60)
