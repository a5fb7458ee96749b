"""Jobs as users write them, valid and broken (`jobs/`): each is refused in one sentence with the
user's own line, or trained as plain PyTorch trains it, by placements too.

A job's `EXPECTED` says which: `refused`, a pattern of the sentence, and `line`, with which the
user's own line begins (`budget_s`: seconds that it takes to find out); or `equal`, the placements
that equal one process (True: all), and what was found out: `note` (a pattern, or some), `tables`,
`fixed`, `flat` (all of them), `trained` (some of them), `unchecked`; `twice`: once model and
batches were made again in new processes. `pending`: what it waits for, `needs`: a library; `cheap`:
`make test` runs it.
"""

import ast
import importlib
import math
import os
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.cli.main import main
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import measured_within
from multigpu.user_model.result import Result
from multigpu.workloads.own.description import Described, know
from multigpu.workloads.own.job import load_job
from tests.multigpu.user_model import oracle
from tests.multigpu.user_model.examined import train_here

JOBS = Path(__file__).parent / "jobs"
EVERY = "MULTIGPU_JOBS" in os.environ
"""Whether all jobs run, in more placements, and not the cheapest alone."""


def expected_of(name: str) -> dict[str, Any]:
    """The job's EXPECTED, read without running its file."""
    for node in ast.parse((JOBS / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPECTED":
            told: dict[str, Any] = ast.literal_eval(node.value)
            return told
    raise AssertionError(f"{name} does not say what is expected of it")


ALL = sorted(path.stem for path in JOBS.glob("[!_]*.py"))
CHEAP = [name for name in ALL if "cheap" in expected_of(name)]
PLACED = ("embedding_subclass", "tagger_of_ragged_batches", "weight_in_a_list")
"""Those of the cheap ones that go through placements: they share one sweep, of seconds a Run."""

NAMES = ALL if EVERY else CHEAP
PLACEMENTS = ("ddp", "exp2", "exp4", "zero1", "fsdp2") if EVERY else ("ddp", "exp4")
STEPS = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if EVERY else 400)]
pytestmark += [pytest.mark.further] if EVERY else []


def marked(name: str) -> Any:
    """The job's name as a parameter, with why its test is not due where it is not."""
    expected = expected_of(name)
    marks = []
    if "pending" in expected:
        marks.append(pytest.mark.xfail(reason=expected["pending"], strict=False))
    if "needs" in expected:
        missing = importlib.util.find_spec(expected["needs"]) is None
        marks.append(pytest.mark.skipif(missing, reason=f"no {expected['needs']}"))
    return pytest.param(name, marks=marks)


NEW = [name for name in NAMES if not EVERY or name not in CHEAP]
"""Those of which `make test` has not found out already what can be without placements."""
REFUSED = [name for name in NEW if "refused" in expected_of(name)]
TRAINED = [name for name in NAMES if "refused" not in expected_of(name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("jobs")
    know(root / "jobs")
    return root


@lru_cache
def described(name: str, folder: Path) -> Described:
    named = f"{JOBS / name}.py:job"
    twice_s = 100.0 if expected_of(name).get("twice") else 0.0
    return describe(load_job(named), folder / "jobs", 2, named, timed=False, twice_s=twice_s)


@pytest.mark.parametrize("name", [marked(name) for name in REFUSED])
def test_a_broken_job_is_refused_in_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if not EVERY:  # `make jobs` examines each in a process of its own
        request.getfixturevalue("examined_here")
    expected, path = expected_of(name), JOBS / f"{name}.py"
    budget_s = str(expected.get("budget_s", 20))
    asked = ["compare", f"{path}:job", "--device-type", "cpu", "--quiet", "--budget-s", budget_s]
    began = time.monotonic()
    assert main([*asked, "--out", str(tmp_path / "out")]) == 2
    assert time.monotonic() - began < expected.get("ends_s", 60)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert re.search(expected["refused"], said[0]), said
    if line := expected["line"]:
        lines = path.read_text().splitlines()
        number = next(at for at, text in enumerate(lines, 1) if text.strip().startswith(line))
        assert f"{path.name}, line {number}" in said[0]


@pytest.mark.parametrize("name", [marked(name) for name in TRAINED if name in NEW])
def test_what_is_found_out_of_a_job(name: str, folder: Path) -> None:
    expected, found = expected_of(name), described(name, folder)
    notes = expected.get("note", [])
    for pattern in [notes] if isinstance(notes, str) else notes:
        assert [note for note in found.notes if re.search(pattern, note)], found.notes
    told = {"tables": list(found.tables), "fixed": found.fixed, "flat": found.flat}
    for key, names in told.items():
        if key in expected:
            assert sorted(each.removeprefix("model.") for each in names) == sorted(expected[key])
    trained = {each.removeprefix("model.") for each, _ in found.variables}
    assert set(expected.get("trained", [])) <= trained
    assert re.search(expected.get("unchecked", "^$"), found.unchecked)


@pytest.mark.parametrize("name", [marked(name) for name in TRAINED if name in NEW])
def test_what_placements_are_compared_with_is_plain_pytorch(name: str, folder: Path) -> None:
    """The reference of the placements, one process of the engines, equals the user's own module,
    loss and optimizer in plain PyTorch, whole batch by whole batch.
    """
    found, job = described(name, folder), load_job(f"{JOBS / name}.py:job")
    if found.checked_in is None:
        pytest.skip(found.unchecked)
    steps = 3 * STEPS if expected_of(name).get("differs") else STEPS
    run = oracle.run_of(job, found).model_copy(update={"precision": "fp64"})
    values, losses = train_here(run, steps)
    expected, plain = oracle.trained(job, 2, steps, seed=run.seed)
    if expected_of(name).get("differs"):  # as a note says
        assert losses != pytest.approx(plain, rel=1e-7)
        return
    assert losses == pytest.approx(plain, rel=1e-7)
    for own, value in expected.items():
        if f"model.{own}" in values:
            torch.testing.assert_close(values[f"model.{own}"], value, rtol=1e-6, atol=1e-9)
        else:
            assert f"model.{own}" in found.fixed
            torch.testing.assert_close(value, oracle.module_of(job).get_parameter(own).detach())


@pytest.fixture(scope="module")
def results(folder: Path, request: pytest.FixtureRequest) -> dict[str, Result]:
    """Of each job that trains and is asked for, all placements, in as few launches as can be."""
    store, bar, asked = RecordStore(folder / "records"), Budget(99, False), {}
    bar.ends_s = math.inf
    points: list[Point] = []
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.originalname == "test_placements_of_a_job_equal_one_process"
    }
    for name in sorted(wanted):
        try:
            found = described(name, folder)
        except Exception:  # another test tells
            continue
        job = load_job(f"{JOBS / name}.py:job")
        (own := folder / name).mkdir()
        runs, refused = candidate_runs(job, found, own, PLACEMENTS, 2, "cpu", a_repeat_s=0)
        keep(own, found, runs, refused, 60)
        asked[name] = found, runs, refused, own
        points += [Point(run, 0) for run in runs if run.placement in PLACEMENTS and run.devices > 1]
    store.check_writable()
    measured_within(points, store, bar)
    records = list(store)
    return {
        name: Result.of(
            found,
            runs,
            refused,
            [record for record in records if record.run.model == found.name and record.repeat == 0],
            own,
            60,
        )
        for name, (found, runs, refused, own) in asked.items()
    }


@pytest.mark.parametrize("name", [marked(name) for name in TRAINED if EVERY or name in PLACED])
def test_placements_of_a_job_equal_one_process(name: str, results: dict[str, Result]) -> None:
    expected, result = expected_of(name), results[name]
    equal = [name for name in PLACEMENTS if name not in result.refused]
    equal = equal if expected["equal"] is True else [p for p in equal if p in expected["equal"]]
    for placement in equal:
        assert placement in result.names, result.failed.get(placement)
        if result.described.checked_in is None:
            continue
        compared = result.equivalence(placement)
        assert compared is not None and compared.holds, (placement, compared)
        for record in result.measured(placement):
            assert record.measurement is not None
            assert record.measurement.moved_bytes == record.measurement.predicted_bytes
    for placement in set(expected.get("unequal", [])) & set(result.names):
        compared = result.equivalence(placement)
        assert compared is None or not compared.holds
    for placement, why in expected.get("failed", {}).items():
        assert placement not in PLACEMENTS or re.search(why, result.failed[placement])
