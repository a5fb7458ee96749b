"""Models of users through `compare` on two CPU processes: each placement equals one process, and
moves the bytes that its row predicts.
"""

import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import multigpu
from multigpu import paths
from multigpu.cli.main import main
from multigpu.grids import traced
from multigpu.records.record import RecordStore
from multigpu.report.notebooks import execute_one, read_notebook
from multigpu.runner.point import Point
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.compare import TRACED_STEPS
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import measured_within
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import Result, compared
from multigpu.workloads import description_of
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job
from tests.factory import make_machine
from tests.further import asked, but
from tests.multigpu.user_model.examined import examine_here
from tests.multigpu.user_model.standing import check_placements

MODELS = Path(__file__).parent / "models.py"
PLACEMENTS = ("ddp", "exp2", "exp4")
BUDGET_S = 50  # on two idle cores a comparison ends within 20 s; they may be shared

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


JOBS = ("resnet", "language", "recommender")
# in the notebook, which asks for five repeats
SHOWN, SHOWN_RUNS = ("recommender", ("ddp", "independent"))


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Result]:
    """`compare` of each job that is asked for, which goes on where all of them were measured by the
    same processes, a few steps a Run.
    """
    names = [name for name in JOBS if name in {*asked(request, "result"), SHOWN}]
    root, bar = tmp_path_factory.mktemp("own"), Budget(99, False)
    store, bar.ends_s = RecordStore(root / "records"), math.inf
    know(root / "jobs")
    points: list[Point] = []
    for name in names:
        (folder := root / name).mkdir()
        for shared in ("jobs", "records"):
            (folder / shared).symlink_to(root / shared)
        job = load_job(f"{MODELS}:{name}")
        described = describe(job, root / "jobs", 2, f"{MODELS}:{name}")
        runs, refused = candidate_runs(job, described, folder, PLACEMENTS, 2, "cpu", a_repeat_s=0)
        keep(folder, described, runs, refused, BUDGET_S)
        points += [
            Point(run, repeat)
            for run in runs
            for repeat in range(5 if name == SHOWN and run.placement in SHOWN_RUNS else 1)
        ]
    store.check_writable()
    measured_within(points, store, bar)
    fastest = [compared(root / name).chosen(None).run for name in names]
    shown = [compared(root / SHOWN)[name].run for name in (ONE, *SHOWN_RUNS)]
    measured_within(
        [Point(traced(run, TRACED_STEPS)) for run in dict.fromkeys([*fastest, *shown])], store, bar
    )
    for record in [record for record in store if record.repeat]:  # the notebook's alone
        own_launch = record.model_copy(update={"launch_id": f"launch{record.repeat}"})
        RecordStore(root / "repeats").write(own_launch)
        store.path(record.machine.name, record.key).unlink()
    with pytest.MonkeyPatch.context() as patch:  # the notebook and README's example examine apart
        patch.setattr("multigpu.user_model.compare.examine", examine_here)
        return {
            name: multigpu.compare(
                f"{MODELS}:{name}", 2, PLACEMENTS, BUDGET_S, root / name, "cpu", 1, progress=False
            )
            for name in names
        }


@pytest.fixture(params=but([SHOWN], JOBS))
def result(request: pytest.FixtureRequest, results: dict[str, Result]) -> Result:
    return results[request.param]


def test_placements_of_a_users_model_equal_one_process_and_move_what_is_predicted(
    result: Result,
) -> None:
    assert {ONE, *PLACEMENTS} <= set(result.names) and not result.failed
    check_placements(result, 1e-9 if result.described.optimizer["name"] == "sgd" else math.inf)
    assert result["ddp"].row["moved_bytes"] == 2 * 4 * description_of(result["ddp"].run).parameters


def test_its_records_are_read_by_other_commands(
    result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDERS)
    assert (
        main(["--records", str(result.folder / "records"), "records", "placement=ddp", "devices=2"])
        == 0
    )
    assert result.described.name in capsys.readouterr().out
    assert compared(result.folder).table().equals(result.table())
    logged = " ".join(repr(result).split())
    assert " ".join(result.verdict.split()) in logged and "ddp" in logged, "as papermill logs it"
    assert "display:flex" in result._repr_html_() or not result.measured("ddp", traced=True)


def test_one_gpu_compares_launched_with_captured_steps_and_forecasts_more(result: Result) -> None:
    """The Records of one process, told as if they were of one GPU, the captured steps twice as
    fast.
    """
    records, runs = [], {}
    for execution, share in (("eager", 1.0), ("captured", 0.5)):
        for record in result.records:
            if record.run.devices == 1 and record.measurement and not record.run.traced_steps:
                run = record.run.model_copy(
                    update={"device_type": "cuda", "execution": execution, "host_cores": None}
                )
                measured = record.measurement.model_copy(
                    update={"wall_s": share * record.measurement.wall_s, "ready_step_s": None}
                )
                changed = {
                    "run": run,
                    "measurement": measured,
                    "machine": make_machine(1),
                    "key": record.key + execution,
                }
                records.append(record.model_copy(update=changed))
                runs[run.digest] = run
    found = Result.of(result.described, list(runs.values()), {}, records, result.folder, 20)
    assert found.best is not None and found.best.name == "one device, captured" and not found.rivals
    assert found.table().set_index("name")["speedup"].to_dict() == pytest.approx(
        {"one device, captured": 1.0, ONE: 0.5}
    )
    assert found.why_not_scaling()["ms"].tolist() == pytest.approx(
        [1e3 * found[ONE].row["step_time_s"]]
    )
    ahead = found.forecast(8)
    assert 0 < ahead.value <= 8 * found.best.rate.value * 1.001
    assert math.isnan(ahead.low) and math.isnan(ahead.high), "a single run has no interval"
    assert "captured" in found._repr_html_() and "1 GPU" in found._repr_html_()


def test_operations_are_counted_where_a_ceiling_is_known(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
    job = multigpu.Job(
        model,
        lambda n, g: (torch.rand(n, 10, generator=g), torch.rand(n, 1, generator=g)),
        F.mse_loss,
        batch_size=4,
    )
    assert describe(job, tmp_path, 2, timed=False).forward_flops == 2 * (10 * 20 + 20)
    lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True)
    job = multigpu.Job(
        lstm,
        lambda n, g: (torch.rand(n, 7, 12, generator=g), torch.zeros(n)),
        lambda found, _: found[0].square().mean(),
    )
    # seven positions: two layers of four gates over input and hidden state
    assert describe(job, tmp_path, 2, timed=False).forward_flops == 7 * 2 * (
        4 * 16 * (12 + 16) + 4 * 16 * (16 + 16)
    )


LOOP = f"""
import sys
sys.path.insert(0, {str(MODELS.parent)!r})
import torch
import multigpu as mg
from models import Ratings, Recommender

result, steps = mg.compared(sys.argv[1]), 3
ratings = Ratings()

def made():
    torch.manual_seed(7)
    return Recommender()

def shard(step, rank):
    rows = slice(16 * step + 8 * rank, 16 * step + 8 * rank + 8)
    return (ratings.ids[rows], ratings.age[rows]), ratings.rating[rows, 0]

plain = made()
plain.user.sparse = plain.item.sparse = False
rule = torch.optim.SGD(plain.parameters(), 0.1)
for step in range(steps):  # one process on the global batch
    rule.zero_grad()
    for inputs, target in (shard(step, 0), shard(step, 1)):
        (torch.nn.functional.mse_loss(plain(*inputs), target) / 2).backward()
    rule.step()
starts, expected = made().state_dict(), plain.state_dict()

def right(values):
    apart = max(float((values[key] - expected[key]).abs().max()) for key in expected)
    moved = max(float((values[key] - starts[key]).abs().max()) for key in values)
    return apart < 1e-6 < moved

dense = made()
dense.user.sparse = dense.item.sparse = False
ddp = result["ddp"].wrap(dense)
rank = torch.distributed.get_rank()
losses = [float(ddp.step(shard(step, rank))) for step in range(steps)]
values = ddp.state_dict()["model"]
if rank == 0:
    print("ddp", type(ddp).__name__, right(values) and ddp.model is dense, losses[0] > 0)
for name in ("exp2", "exp4"):
    trained = result[name].wrap(made())
    losses = [trained.step(shard(step, rank)) for step in range(steps)]
    values = trained.state_dict()
    trained.close()
    if rank == 0:
        print(name, right(values), losses[0] > 0)
"""


def test_a_loop_of_ones_own_trains_as_it_was_compared(
    results: dict[str, Result], tmp_path: Path
) -> None:
    """Under torchrun, a wrapped placement trains what one process on the global batch does; where
    `multigpu.wrap` has it, as the same object.
    """
    (tmp_path / "loop.py").write_text(LOOP)
    started = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *started, str(tmp_path / "loop.py"), str(results[SHOWN].folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert sorted(line for line in ended.stdout.splitlines() if line) == [
        "ddp ModelTrainer True True",
        "exp2 True True",
        "exp4 True True",
    ]


def test_the_notebook_compares_a_job(results: dict[str, Result], tmp_path: Path) -> None:
    """It goes on with what is measured already, and measures nothing."""
    shutil.copytree(results[SHOWN].folder, tmp_path / "out")
    shutil.copytree(
        results[SHOWN].folder.parent / "repeats", tmp_path / "out" / "records", dirs_exist_ok=True
    )
    before = len(list(RecordStore(tmp_path / "out" / "records")))
    parameters = {
        "job": f"{MODELS}:{SHOWN}",
        "devices": 2,
        "placements": ["ddp"],
        "budget_s": BUDGET_S,
        "out": str(tmp_path / "out"),
    }
    execute_one(
        paths.REPOSITORY / "notebooks" / "your-model.ipynb",
        executed := tmp_path / "executed.ipynb",
        parameters,
    )
    assert len(list(RecordStore(tmp_path / "out" / "records"))) == before
    told = {
        cell.id: cell.outputs for cell in read_notebook(executed).cells if cell.cell_type == "code"
    }
    shown = told["compare"][-1]["data"]["text/html"]
    assert ">ddp</td>" in shown and "samples/s" in told["forecast"][0]["data"]["text/html"]


def test_the_readmes_example_is_the_one_that_the_notebook_runs() -> None:
    """`test_wheel` runs it."""
    blocks = re.findall(
        r"```python\n(.*?)```", (paths.REPOSITORY / "README.md").read_text(), re.DOTALL
    )
    printed = next(block for block in blocks if "multigpu.Job(" in block)
    assert (
        printed == (paths.REPOSITORY / "examples" / "my_model.py").read_text()
        and printed.count("\n") <= 40
    )
