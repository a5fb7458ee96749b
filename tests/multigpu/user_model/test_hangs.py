"""A job that hangs, ends its process or is killed is said to, with the user's own line, in time: in
the examination, in a launch, and when a budget ends or somebody presses Ctrl-C.
"""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from multigpu.cli.main import main
from multigpu.machine.lock import LOCK_VARIABLE
from multigpu.records.record import Record, RecordStore
from multigpu.runner.plan import Journal, Plan
from multigpu.runner.point import Point
from multigpu.runner.sweep import make_plan
from multigpu.runner.timed import TIMED
from multigpu.spec.errors import JobError
from multigpu.user_model.budget import LEAST_PATIENCE_S, Budget, patience_for
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.compare import compare
from multigpu.user_model.describe import describe
from multigpu.user_model.examining import examine_apart
from multigpu.user_model.launches import measured_within
from multigpu.user_model.lookout import Lookout, OutOfTime
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job, telling
from tests.further import asked, but
from tests.multigpu.runner.launched import PATHS, descendants, tiny

HANGING = Path(__file__).parent / "hanging.py"
PATIENCE_S = 12.0  # a launch on a machine with much else to do takes seconds from step to step
SENTENCES = {
    "exits": r"rank 1 ended its process with os\._exit\(0\), in `hanging.py, line \d+: .*os\._exit",
    "ends": r"SystemExit: 3 \(hanging.py, line \d+: .*sys\.exit\(3\)",
    "interrupts": r"KeyboardInterrupt.*\(hanging.py, line \d+: ",
    "vanishes": "its workers died 2 times: rank 1 ended with exit code 0",
    "killed": "its workers died 2 times: rank 1 was killed by SIGKILL",
    "crashes": r"rank 1 was killed by SIGSEGV, in `hanging.py, line \d+: .*string_at",
    "sleeps": (
        r"rank 1 stood in `hanging.py, line \d+: time\.sleep\(0\.1\)` for \d+ s, .*, while rank 0"
        " waited"
    ),
}

SELDOM = {"interrupts", "crashes", "a model that is never made", "a kill"}
SELDOM |= {"an interrupt of its own"}
"""What `make test` leaves out."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def struck(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Record]:
    """One launch of all these jobs that are asked for; what became of each."""
    root, before = tmp_path_factory.mktemp("hanging"), set(descendants())
    store, bar, points = RecordStore(root / "records"), Budget(99, False), list[Point]()
    know(root / "jobs")
    bar.ends_s = math.inf
    wanted = {*SENTENCES} & asked(request, "name") or {*SENTENCES}
    names = [*(name for name in SENTENCES if name in wanted), "good"]
    models = dict[str, str]()
    for name in names:
        job = load_job(f"{HANGING}:{name}")
        described = describe(job, root / "jobs", 2, f"{HANGING}:{name}", timed=False)
        models[described.name] = name
        runs, _ = candidate_runs(job, described, root, ["ddp"], 2, "cpu", a_repeat_s=0)
        points += [
            Point(run, repeat)
            for run in runs
            for repeat in range(2 if name == "exits" else 1)
            if run.devices == 2 and run.placement == "ddp"
        ]
    store.check_writable()
    assert not measured_within(points, store, bar, Lookout(math.inf, PATIENCE_S))
    assert not set(descendants()) - before
    return {
        f"{models[record.run.model]} {record.repeat}": record
        for record in store
        if record.run.timed_steps == points[0].run.timed_steps
    }


@pytest.mark.parametrize("name", but({*SENTENCES} - SELDOM, [*SENTENCES]))
def test_who_hangs_or_ends_in_a_launch_is_named_with_the_users_own_line(
    struck: dict[str, Record], name: str
) -> None:
    record = struck[f"{name} 0"]
    assert record.status == ("timeout" if name == "sleeps" else "failed")
    assert re.search(SENTENCES[name], record.reason), record.reason


def test_one_job_that_hangs_or_dies_stops_no_other_and_its_repeats_are_not_tried(
    struck: dict[str, Record],
) -> None:
    assert struck["good 0"].status == "ok"
    assert struck["exits 1"].reason == struck["exits 0"].reason


TEXT = """
import ctypes, os, signal, sys, time
import multigpu as mg

def make():
    {making}

{loading}
job = mg.Job(make, lambda n, generator: make(), batch_size=4)
"""
ENDLESS = {
    "a file that is never loaded, inside C": (
        "pass",
        "ctypes.PyDLL(None).sleep(1000)",
        r"stood in mine\.py, line 8: ctypes\.PyDLL",
    ),
    "a model that is never made": (
        "while True: time.sleep(0.01)",
        "",
        r"stood in mine\.py, line 6: while True",
    ),
}
ENDED = {
    "an exit": (
        "os._exit(0)",
        r"ends its own process with os\._exit\(0\) \(mine\.py, line 6: os\._exit\(0\)\)",
    ),
    "a polite exit": ("sys.exit(0)", r"fails with SystemExit: 0 \(mine\.py, line 6: sys\.exit"),
    "an interrupt of its own": ("raise KeyboardInterrupt", r"KeyboardInterrupt.*line 6: raise"),
    "a crash": (
        "ctypes.string_at(0)",
        r"was killed by SIGSEGV, in mine\.py, line 6: ctypes\.string_at",
    ),
    "a kill": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
}


def examined(folder: Path, making: str, loading: str, within_s: float) -> str:
    """Why a job cannot be examined."""
    (folder / "mine.py").write_text(TEXT.format(making=making, loading=loading))
    before = set(descendants())
    began = time.monotonic()
    with pytest.raises(JobError) as refusal:
        examine_apart(f"{folder}/mine.py:job", folder / "jobs", 2, False, within_s)
    assert time.monotonic() - began < within_s + 15
    assert not set(descendants()) - before
    return str(refusal.value)


@pytest.mark.parametrize("name", but({*ENDLESS} - SELDOM, [*ENDLESS]))
def test_an_examination_ends_in_time_and_says_where_it_stood(tmp_path: Path, name: str) -> None:
    making, loading, sentence = ENDLESS[name]
    for within_s in (5.0, 20.0, 60.0):  # python alone may take seconds to start
        said = examined(tmp_path, making, loading, within_s)
        if "had not reached the job's own code" not in said:
            break
    assert re.search(sentence, said), said
    assert f"within {within_s:.0f} s" in said


@pytest.mark.parametrize("name", but({*ENDED} - SELDOM, [*ENDED]))
def test_a_job_that_ends_the_examination_is_said_to(tmp_path: Path, name: str) -> None:
    said = examined(tmp_path, ENDED[name][0], "", 120.0)
    assert re.search(ENDED[name][1], said), said


def test_ctrl_c_is_no_fault_of_a_job() -> None:
    with pytest.raises(KeyboardInterrupt), telling("model"):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(JobError, match="model fails with KeyboardInterrupt"), telling("model"):
        raise KeyboardInterrupt
    with pytest.raises(JobError, match="GeneratorExit"), telling("batch"):
        raise GeneratorExit


STANDING = """
import faulthandler, sys, time
from pathlib import Path
from multigpu.engines.common.standing import DUMPING, noted
stacks = open(sys.argv[2], "w")
faulthandler.register(DUMPING, file=stacks)
with noted(Path(sys.argv[1])) as board:
    board.at(sys.argv[3])
    print("stands", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def standing(plan: Plan, folder: Path, stage: str) -> Iterator[Plan]:
    """A Run that is being measured by a process that does not get on in it."""
    key = plan.key(plan.items[1])
    journal = Journal(plan.scratch)
    journal.report("start", index=1, key=key, at=time.monotonic(), label="")
    (folder / "stands.py").write_text(STANDING)
    board = plan.memory / f"{key}.0.board"
    words = [sys.executable, folder / "stands.py", board, journal.stack_file(key, 0), stage]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": PATHS}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stands\n"
        yield plan
        process.kill()


def planned(folder: Path) -> Plan:
    for name in ("scratch", "memory"):
        (folder / name).mkdir()
    items = [Point(tiny(0, 1), repeat) for repeat in range(2)]
    plan, _ = make_plan(TIMED, items, folder / "runs", folder / "scratch", folder / "memory")
    return plan


def test_a_budget_that_ends_in_a_run_that_stands_leaves_its_record(tmp_path: Path) -> None:
    with standing(planned(tmp_path), tmp_path, "timed") as plan:
        lookout = Lookout(time.monotonic() + 4.0, patience_s=600.0)
        with pytest.raises(OutOfTime):
            while time.monotonic() < lookout.ends_s + 2:
                lookout(plan)
                time.sleep(0.1)
    (record,) = RecordStore(tmp_path / "runs")
    assert record.status == "timeout" and record.repeat == plan.items[1].repeat
    said = r"its process stood in `stands.py, line 10: time\.sleep\(600\)` for \d+ s, in its timed"
    assert re.match(said, record.reason) and record.reason.endswith(", when the budget ended")


def test_a_run_that_stands_is_left_and_one_that_gets_on_is_not(tmp_path: Path) -> None:
    with standing(planned(tmp_path), tmp_path, "warm-up") as plan:
        patient, impatient = Lookout(math.inf, 600.0), Lookout(math.inf, 0.1)
        patient(plan)
        journal = Journal(plan.scratch)
        assert journal.fault(plan.key(plan.items[1])) is None
        time.sleep(0.2)
        impatient(plan)
        for item in plan.items:  # both repeats: the second would stand there too
            fault = journal.fault(plan.key(item))
            assert fault and fault[0] == "timeout" and "stands.py, line 10" in fault[1]
        assert not list(plan.memory.glob("*.board"))
    assert not list(RecordStore(tmp_path / "runs")), "its workers write it"


def test_what_is_merely_slow_is_given_its_time() -> None:
    assert patience_for("cpu", 10.0, 0.001) == LEAST_PATIENCE_S["cpu"]
    assert patience_for("cpu", 10.0, 3.0) >= 10 * 3.0


def test_too_many_devices_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "none.py:job", "--devices", "5000", "--out", str(tmp_path)]
    for kind in ("cpu", "cuda"):
        assert main([*words, "--device-type", kind]) == 2
        (said,) = capsys.readouterr().err.strip().splitlines()
        assert said.count("5000") == 1 and len(said) < 150


@pytest.mark.alone
@pytest.mark.further  # `test_notebook_job` stops a comparison and goes on with it
def test_ctrl_c_leaves_no_process_and_the_same_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))
    (tmp_path / "lock").touch()
    # this process reads Records of a model that the other one describes
    monkeypatch.setenv(FOLDERS, str(tmp_path / "out" / "jobs"))
    asked: dict[str, Any] = {"devices": 2, "placements": ["ddp"], "device_type": "cpu"}
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from multigpu.cli.main import main\n"
        f"raise SystemExit(main(['compare', '{HANGING}:good', '--devices', '2', '--placements',"
        " 'ddp', '--device-type', 'cpu', '--quiet', '--budget-s', '500', '--out', 'out']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PATHS},
        stderr=subprocess.PIPE,
        text=True,
    )
    store = RecordStore(tmp_path / "out" / "records")
    until = time.monotonic() + 200
    # a throw-away Run, and one of one device
    while len(list(store)) < 2 and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and started
    assert said.strip().splitlines()[-1].startswith("multigpu: stopped; what was measured is kept")
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not [one for one in alive if one.is_running() and one.status() != "zombie"]
    kept = {record.key for record in store if record.status == "ok"}
    assert kept
    result = compare(
        f"{HANGING}:good", budget_s=240, out=tmp_path / "out", progress=False, repeats=1, **asked
    )
    assert kept <= {record.key for record in store} and "ddp" in result.names


@pytest.mark.alone
@pytest.mark.further
def test_a_comparison_whose_rank_sleeps_ends_in_time_and_says_so(tmp_path: Path) -> None:
    began, budget_s = time.monotonic(), 30.0
    with pytest.raises(JobError) as refusal:
        compare(f"{HANGING}:sleeps", 2, ["ddp"], budget_s, tmp_path, "cpu", 1, progress=False)
    assert time.monotonic() - began <= budget_s + max(5.0, budget_s / 10)
    said = r"no placement on 2 devices can train it: ddp failed: rank 1 stood in `hanging.py, line"
    assert re.match(said, str(refusal.value)), refusal.value
    assert (tmp_path / "index.html").is_file()
