"""The ways that a comparison tries of each placement: which there are, what they are called, and
that those measured on two CPU processes train what they say.
"""

import math
from pathlib import Path
from typing import Any

import pytest

from multigpu.build import build_run
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.spec.run import Run
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import candidate_runs, checked_levers, variants
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import measured_within, next_points
from multigpu.user_model.placed import ONE, called
from multigpu.user_model.result import Result, compared
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job
from tests.further import but
from tests.multigpu.user_model.test_told import STEADY, planted, result_of
from tests.refusals import refused

CAUSES = Path(__file__).parent / "causes.py"


def test_levers_are_named_or_refused_in_a_sentence() -> None:
    assert checked_levers(None, "cpu") == () and "captured" in checked_levers(None, "cuda")
    assert "precision" not in checked_levers("all", "cuda")
    assert "captured" not in checked_levers("all", "cpu")
    assert checked_levers("compiled,precision", "cpu") == ("compiled", "precision")
    refused("levers = 'fuse': choose 'all' or some of", checked_levers, ["fuse"], "cuda")
    refused("which CPUs do not have", checked_levers, ["captured"], "cpu")


def test_forms_combine_and_further_changes_come_by_themselves() -> None:
    forms = variants(("captured", "compiled"), "torch", "cuda", "fp32")
    assert [way["execution"] for way in forms] == ["compiled", "captured", "compiled_captured"]
    ways = variants(("compiled", "recompute", "precision"), "torch", "cpu", "fp32")
    assert ways == [
        {"execution": "compiled"},
        {"execution": "eager", "recompute": True},
        {"execution": "compiled", "recompute": True},
        {"execution": "eager", "precision": "bf16"},
        {"execution": "compiled", "precision": "bf16"},
    ]
    assert variants(("captured",), "torch", "cuda", "fp32") == [{"execution": "captured"}]
    assert variants((), "torch", "cuda", "fp32") == []


def test_a_captured_way_has_a_launch_of_its_own() -> None:
    """A capture that fails spoils its processes; all others share one process group."""
    own = planted("ddp", 1, STEADY)[0].run.model_copy(
        update={"device_type": "cuda", "host_cores": None}
    )
    runs = [own]
    for placement in ("ddp", "zero1"):
        for form in ("eager", "compiled", "captured", "compiled_captured"):
            told = {"placement": placement, "devices": 2, "execution": form}
            runs.append(own.model_copy(update=told))
    result = Result.of(result_of(planted("ddp", 1, STEADY)).described, runs, {}, [], Path(), 20.0)
    points = next_points(result, {}, 8, 30.0)
    names = [called(point.run) for point in points]
    first = [ONE, "ddp", "ddp, captured", "zero1, captured"]
    assert sorted(names) == sorted([*first, ONE]), "one device has a second window"
    shared = [point for point in points if "captured" not in point.run.execution]
    captured = [point for point in points if "captured" in point.run.execution]
    assert {point.launch for point in shared} == {0}
    assert len({point.launch for point in captured} - {0}) == len(captured) == 2


WAYS = (("ddp, 2 micro-steps", "ddp, bf16"), ("ddp, compiled",))  # `test_compiled` has more


@pytest.fixture(scope="module", params=but(WAYS[:1], WAYS))
def result(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Result:
    """Ways of ddp on two CPU processes."""
    folder, bar = tmp_path_factory.mktemp("ways"), Budget(99, False)
    bar.ends_s = math.inf
    store = RecordStore(folder / "records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDERS, "")
        know(folder / "jobs")
        job = load_job(f"{CAUSES}:plain")
        described = describe(job, folder / "jobs", 2, f"{CAUSES}:plain")
        levers = ["compiled", "micro_steps", "precision"]
        runs, no = candidate_runs(job, described, folder, ["ddp"], 2, "cpu", 0, levers)
        names = {ONE, "ddp", *request.param}
        runs = [run for run in runs if called(run) in names]
        keep(folder, described, runs, no, 60)
        store.check_writable()
        measured_within([Point(run) for run in runs], store, bar)
        found = compared(folder)
        assert {*found.names} == names
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_way_trains_the_same_but_what_changes_numbers(result: Result) -> None:
    table = result.table().set_index("name")
    for name in result.names:
        same = name != "ddp, bf16"
        assert result.trains_the_same(name) is same
        assert table.loc[name, "equal"] == ("equal" if same else "bf16: other numbers")
    assert result.race is not None
    assert "ddp, bf16" not in [result.race.leader, *result.race.near, *result.race.behind]


def fields(**told: Any) -> Run:
    """A Run of one job and these fields."""
    own = planted("ddp", 2, STEADY)[0].run
    return build_run(**(own.model_dump(exclude_defaults=True) | told))


def test_a_way_is_called_by_what_is_not_plain() -> None:
    assert called(fields()) == "ddp"
    assert called(fields(execution="compiled", micro_steps=2)) == "ddp, compiled, 2 micro-steps"
    assert called(fields(devices=1, host_cores=1)) == ONE
