"""A clock that cannot be fooled, what a launch says of Runs that did not end well or did not train,
and how it climbs a ladder.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.engines.common.failures import is_echo, status_of
from multigpu.engines.common.session import measurement
from multigpu.engines.common.timing import TimedWindow, clock_flags, run_window, training_fault
from multigpu.machine.cluster import CLUSTER_VARIABLE, Cluster
from multigpu.records.record import RecordStore
from multigpu.runner import program
from multigpu.runner.hosts import launching
from multigpu.runner.plan import Journal, Plan, stood_at
from multigpu.runner.point import Point
from multigpu.runner.program import Program
from multigpu.runner.sweep import make_plan
from multigpu.runner.timed import PASSED_OVER, TIMED, Timed, ascending, full_at, ladder_of
from multigpu.spec.errors import DidNotTrain, Unsupported
from multigpu.spec.run import Run
from tests.multigpu.runner.launched import tiny
from tests.refusals import refused


class FakeDevice:
    """A device that works off a queue: steps return at once, `synchronise` waits for the rest, on a
    clock of its own.
    """

    now = busy_until = 0.0

    def enqueue(self, device_s: float, host_s: float = 0.0) -> None:
        self.now += host_s
        self.busy_until = max(self.busy_until, self.now) + device_s

    def mark(self) -> float:
        return max(self.busy_until, self.now)

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def synchronise(self) -> None:
        self.now = max(self.now, self.busy_until)

    def timed(
        self,
        step: Callable[[int], object],
        first: int,
        count: int,
        barrier: Callable[[], None] = lambda: None,
    ) -> TimedWindow:
        return run_window(step, first, count, self, barrier, lambda: self.now)


def test_asynchronous_work_is_waited_for_and_work_queued_before_is_not_counted() -> None:
    """Steps return after 1 ms of host time while the device needs 10 ms each: 30 steps cost 0.3 s,
    not 0.03.
    """
    device, seen = FakeDevice(), []
    device.enqueue(5.0)
    window = device.timed(
        lambda index: (seen.append(index), device.enqueue(0.010, host_s=0.001))[0], 10, 30
    )
    # the first step's device work begins when its host work has ended
    assert window.wall_s == pytest.approx(0.301)
    assert [window.event_s, sum(window.step_time_s)] == pytest.approx([window.wall_s] * 2)
    assert window.step_time_s[1:] == pytest.approx([0.010] * 29)
    assert seen == list(range(10, 40)) and len(window.results) == 30, (
        "the window holds every step once"
    )


def test_a_sleeping_rank_counts_for_all() -> None:
    """The closing barrier waits for the slowest replica, so the fast one's wall clock shows it
    too.
    """
    device, barriers = FakeDevice(), iter([0.0, 0.5])

    def barrier() -> None:
        device.now += next(barriers)

    window = device.timed(lambda index: device.enqueue(0.010), 0, 10, barrier)
    assert window.wall_s == pytest.approx(0.600)
    assert clock_flags(window.wall_s, [window.event_s, 0.599]) == []
    assert clock_flags(window.wall_s, [window.event_s, 0.100]) == ["clocks disagree by 83.3%"]


@pytest.mark.parametrize(
    ("losses", "moved", "agree", "words"),
    [
        ([3.0, 2.0, math.nan], {"w": 1.0}, True, "loss of step 2 is nan"),
        ([3.0, 2.0, 1.0], {"w": 1.0, "frozen": 0.0}, True, "'frozen'"),
        ([3.0, 2.0, 1.0], {"w": math.inf}, None, "'w'"),
        ([3.0, 3.0, 2.9, 2.9, 2.8, 2.8], {"w": 1.0}, None, "3 of 6 steps left the loss"),
        ([3.0, 2.0, 1.0], {"w": 1.0}, False, "different ones"),
        ([3.0, 2.5, 2.6, 2.1], {"w": 1e-9}, True, None),
        ([3.0, 2.5, 2.6, 2.1], {"w": 0.1}, None, None),
        # a batch that was learned by heart may stay so, in fp32 too, where its loss ends above zero
        ([3.0, 0.1, 1e-12, *[0.0] * 20], {"w": 0.1}, None, None),
        ([3.0, 0.1, *[1.1920929e-07] * 200], {"w": 0.1}, None, None),
        ([3.0, 0.1, *[1e-5] * 20], {"w": 0.1}, None, "exactly as it was"),
    ],
)
def test_what_does_not_train_is_a_fault_and_training_is_none(losses, moved, agree, words) -> None:
    found = training_fault(losses, moved, agree)
    assert words in found if words else found is None


def plan_of(folder: Path, *runs: Run) -> Plan:
    return make_plan(TIMED, [Point(run) for run in runs], folder / "runs", folder, folder)[0]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(tmp_path, tiny(0))


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Also where a Run has what JSON does not: `data` is a tuple."""
    read = tiny(0, inputs="image_folder", data=(str(tmp_path),))
    plan = plan_of(tmp_path, tiny(1), read)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert {item.spec for item in plan.items} == {tiny(1), read}


def started(journal: Journal, key: str, at: float) -> None:
    """Note the start of a Run. at: by the clock of the day."""
    monotonic = at - (time.time() - time.monotonic())
    journal.report("start", index=0, key=key, at=monotonic, label="planted")


def part(distance: dict[str, float], **more: Any) -> dict[str, Any]:
    """What a replica knows whose four steps took 0.1 s each; its variables began 5 from zero."""
    own = {
        "steps": [0.1] * 4,
        "losses": [4.0, 3.0, 2.0, 1.0],
        "lookups": [{}, {}],
        "moved": {},
        "state": None,
        "threads": 1,
    }
    same = {
        "distance": distance,
        "start_square": 25.0,
        "prints": {"w": 1.0, "b": 1.0},
        "units": 12,
        "padded_units": 12,
    }
    spans = dict.fromkeys(
        ("startup_s", "build_s", "warmup_s", "peak_memory_gib"), 1.0
    ) | dict.fromkeys(("wall_s", "event_s"), 0.3)
    return own | same | spans | more


def test_an_independent_replica_that_stands_still_is_found_beside_others_that_move() -> None:
    moving, run = part({"w": 3.0, "b": 4.0}), tiny(0, 3, "independent")
    found = measurement(run, [moving] * 3, 1.0)
    assert found.parameter_change == 1.0 and found.replicas_agree is None and found.flags == [], (
        "5 away from a start that was 5 from zero"
    )
    for rank in range(3):
        parts = [part({"w": 3.0, "b": 0.0}) if other == rank else moving for other in range(3)]
        refused(
            rf"1 of 6 variables did not move, 'b \(device {rank}\)' among them",
            measurement,
            run,
            parts,
            1.0,
            error=DidNotTrain,
        )


def test_what_replicas_know_together_makes_the_record() -> None:
    ways = [{"device_to_device": 8, "host_to_device": 0}, {"device_to_device": 4}]
    parts = [
        part({"w": 3.0, "b": 4.0}, moved=moved, event_s=event_s)
        for moved, event_s in zip(ways, (0.3, 0.2), strict=True)
    ]
    found = measurement(tiny(0), parts, 1.0)
    assert (
        found.moved_bytes == {"device_to_device": 12}
        and found.units == 24
        and found.loss == [8.0, 6.0, 4.0, 2.0]
    )
    assert found.replicas_agree is True and found.parameter_change == 1.0, (
        "of copies the first counts"
    )
    assert [flag[:51] for flag in found.flags] == [
        "moved bytes {'device_to_device': 12} differ from th"
    ]
    (uncounted,) = measurement(
        tiny(0), [{**one, "uncounted": "no hooks"} for one in parts], 1.0
    ).flags
    assert uncounted == "moved bytes were not counted: no hooks"
    parts[1]["prints"] = {"w": 1.0, "b": 2.0}
    refused(
        "must hold equal variables ended with different ones",
        measurement,
        tiny(0),
        parts,
        1.0,
        error=DidNotTrain,
    )


FULL = (
    "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error. Last error: Cuda failure 2 'out of"
    " memory'"
)
GONE = "[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5"


@pytest.mark.parametrize(
    ("error", "status", "echo"),
    [
        (RuntimeError(FULL), "out_of_memory", False),
        (Unsupported("gloo has no reduce-scatter of halves"), "unsupported", False),
        (RuntimeError(GONE), "failed", True),
        (RuntimeError("shapes do not match"), "failed", False),
        (type("ResourceExhaustedError", (Exception,), {})("OOM"), "out_of_memory", False),
    ],
)
def test_a_cause_is_no_echo_whatever_library_names_it(
    error: Exception, status: str, echo: bool
) -> None:
    """Told by words, or by the name of the error's class: its library is not imported."""
    found = status_of(error)
    assert found[0] == status and is_echo(found[1], found[0]) is echo


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    """TensorFlow names the operation first, then where it was defined, and the cause last."""
    _, said = status_of(
        RuntimeError(
            "merge/all/1/CollectiveReduce "
            + "File somewhere " * 100
            + "NCCL: unhandled system error"
        )
    )
    assert (
        said.startswith("RuntimeError: merge/all/1/Coll")
        and said.endswith("NCCL: unhandled system error")
        and len(said) == 300
    )
    assert status_of(RuntimeError("x" * 286))[1] == "RuntimeError: " + "x" * 286


def test_the_last_word_of_a_run_is_an_echo_only_where_nothing_better_is_known(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = plan.key(plan.items[0])

    def give_up(error: Exception) -> Any:
        one = Program(plan)
        started(one.journal, key, time.time())
        with pytest.raises(SystemExit):
            one.give_up(0, status_of(error))
        return one.journal.fault(key)

    monkeypatch.setattr(os, "_exit", sys.exit)
    assert give_up(RuntimeError(GONE)) is None, (
        "who died may have said why elsewhere, or does better the second time"
    )
    assert give_up(ConnectionError("broken pipe")) == (
        "failed",
        f"its workers died 2 times: RuntimeError: {GONE}",
    )
    assert give_up(RuntimeError(FULL)) == ("out_of_memory", FULL)


def stacks(*calls: str) -> str:
    """What `faulthandler` writes of a process whose main thread is in these calls, innermost first;
    another thread reads.
    """
    lines = [
        f'  File "/somewhere/{call.split()[1]}.py", line {number} in {call.split()[0]}'
        for number, call in enumerate(calls, 1)
    ]
    other = [
        "Thread 0x00007f1 (most recent call first):",
        '  File "/lib/threading.py", line 982 in run',
        "",
    ]
    return "\n".join(
        ["Timeout (0:00:06)!", *other, "Thread 0x00007f2 (most recent call first):", *lines, ""]
    )


WAITS = stacks("all_reduce distributed", "wrapper logger", "merge wire", "step trainer")
WAIT = "all_reduce (distributed.py:1) < wrapper (logger.py:2) < merge (wire.py:3)"


def test_a_timeout_says_where_its_replicas_stood(plan: Plan) -> None:
    key = plan.key(plan.items[0])
    journal = Journal(plan.scratch)
    for rank, text in {
        10: WAITS,
        2: WAITS,
        1: stacks("<lambda> feed", "step trainer"),
        3: "",
        4: "Timeout (0:00:06)!\nThread 0x0",
    }.items():
        journal.stack_file(key, rank).write_text(text)
    told = f"1 in <lambda> (feed.py:1) < step (trainer.py:2); 2, 10 in {WAIT}"
    assert journal.fault(key) == ("timeout", f"replicas 1, 2, 4, 10 did not finish in time: {told}")
    assert stood_at("Timeout (0:00:06)!\nThread 0x00007f2 (most rec") == ""


def test_what_other_hosts_know_of_a_failure_is_told_as_well(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = plan.key(plan.items[0])
    there = tmp_path / "there"
    there.mkdir()
    Journal(there).note(key, ("failed", "RuntimeError: gloo"), "echo")
    for reason in ("planted", "a later word"):
        Journal(there).note("full", ("out_of_memory", reason))
    (there / "full.3.stacks").write_text(WAITS)
    (there / "slow.3.stacks").write_text(WAITS)
    noted = {"fault": launching._faults(Journal(there)), "echo": Journal(there).noted("echo")}
    heard = json.loads(json.dumps({"word": "ended", "code": 1, "noted": noted}))
    meeting: Any = SimpleNamespace(
        host=0, tell=lambda word, **message: None, hear=lambda *wanted: heard
    )
    monkeypatch.setenv(CLUSTER_VARIABLE, "")  # which the company sets, is taken back
    journal = Journal(plan.scratch)
    launching.HostGroup(
        meeting, Cluster(hosts=2, per_host=2, network="a wire", link="wire")
    ).settle(journal)
    assert journal.fault("full") == ("out_of_memory", "planted"), (
        "a cause counts for more than a wait for it"
    )
    assert journal.fault("slow") == (
        "timeout",
        f"replica 3 did not finish in time on its host: in {WAIT}",
    )
    for _ in range(2):
        started(journal, key, 1000.0)
    assert journal.fault(key) == ("failed", "its workers died 2 times: RuntimeError: gloo")


@pytest.mark.parametrize("machine", ["", "elsewhere"])
def test_a_worker_that_starts_after_the_end_or_on_another_machine_does_nothing(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """The launcher looks ten times a second for an end. A GPU that is lost makes another machine:
    Records would get wrong keys.
    """
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path / "plan.json")])
    monkeypatch.setattr(program, "end_with_parent", lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    ran: list[Plan] = []
    program.run_program(ran.append)
    if machine:
        (tmp_path / "plan.json").write_text(
            plan.model_copy(update={"machine": machine}).model_dump_json()
        )
    else:
        Journal(plan.scratch).end("the disk is full", "there is room")
    with pytest.raises(SystemExit):
        program.run_program(ran.append)
    (end,) = Journal(plan.scratch).events()
    assert len(ran) == 1 and end["event"] == "end"
    if machine:
        assert (
            end["why"]
            == f"a process of the launch finds itself on {plan.machine}, and not on elsewhere"
        )


def test_workers_that_died_without_a_reason_are_quoted(plan: Plan) -> None:
    key = plan.key(plan.items[0])
    stack = (
        "Current thread 0x00007f2 (most recent call first):\n  Garbage-collecting\n"
        + '  File "/somewhere/agent.py", line 3 in main\n'
    )
    second = [
        "warned at the beginning\n",
        stack,
        "Fatal Python error: Bus error\n\n" + stack,
        "it is gone",
    ]
    starts = [(1001.0, ["of the first start"]), (1999.0, second), (2010.0, ["of those that ask"])]
    for start, (at, texts) in enumerate(starts):
        for rank, text in enumerate(texts):  # each falls silent a second after the one before
            log = (
                plan.scratch / "logs" / "launch_x1" / f"attempt_{start}" / str(rank) / "stderr.log"
            )
            log.parent.mkdir(parents=True)
            log.write_text(text)
            os.utime(log, (at + rank, at + rank))
        os.utime(log.parent.parent, (at, at))
    journal = Journal(plan.scratch)
    for at in (1000.0, 2000.0):
        started(journal, key, at)
    words = (
        "its workers died 2 times without a message; last on standard error: Fatal Python error:"
        " Bus error"
    )
    assert journal.fault(key) == ("failed", words)
    started(journal, key, 2005.0)
    assert journal.fault(key) == ("failed", "its workers died 3 times without a message"), (
        "they said nothing of this Run"
    )


@pytest.mark.parametrize(
    ("broken", "error", "status"),
    [
        ((Journal, "report"), OSError(28, "No space left on device"), "ok"),
        ((Timed, "measure"), MemoryError("planted"), "failed"),
    ],
)
def test_a_record_is_not_written_over_and_memory_that_is_full_while_it_is_made_is_not_the_runs(
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    broken: tuple[Any, str],
    error: Exception,
    status: str,
) -> None:
    """Else its ladder of batches would end here."""

    def full(*of: Any, **more: Any) -> Any:
        raise error

    monkeypatch.setattr(*broken, full)
    Program(plan).conclude(0, [part({"w": 1.0})] * 2, 1.0)
    (record,) = RecordStore(plan.records)
    assert record.status == status


def test_a_ladder_keeps_its_places_and_is_climbed_from_below() -> None:
    one = [Point(run=tiny(0, batch_size=batch)) for batch in (64, 16, 32)]
    other = [Point(run=tiny(0, batch_size=batch, model="alexnet_tiny")) for batch in (8, 4)]
    climbed = ascending([one[0], other[0], one[1], other[1], one[2]])
    assert [(item.run.model[0], item.run.batch_size) for item in climbed] == [
        ("r", 16),
        ("a", 4),
        ("r", 32),
        ("a", 8),
        ("r", 64),
    ]
    assert [item.smaller for item in climbed] == [(), (), (16,), (4,), (16, 32)]
    assert ladder_of(one[0]) != ladder_of(other[0]) != ladder_of(Point(run=other[0].run, repeat=1))


def test_above_the_first_batch_that_does_not_fit_nothing_is_started(tmp_path: Path) -> None:
    runs = [tiny(0, 1, batch_size=batch) for batch in (64, 16, 128, 32)]
    plan = plan_of(tmp_path, *runs)
    assert [item.run.batch_size for item in plan.items] == [16, 32, 64, 128]
    program, decisions = Program(plan), []
    for index, item in enumerate(plan.items):
        decisions.append(program.decide(index))
        if decisions[-1]:
            program.write(
                item, "out_of_memory" if item.run.batch_size == 32 else "failed", "planted"
            )
    assert decisions == [True, True, False, False]
    over = [
        event["reason"]
        for event in Journal(plan.scratch).events()
        if event.get("status") == PASSED_OVER
    ]
    assert over == ["a batch of 32 was out of memory"] * 2
    assert len(list(RecordStore(plan.records))) == 2, "what was passed over leaves no Record"
    again = plan_of(tmp_path, *runs)
    assert [(item.run.batch_size, full_at(again, item)) for item in again.items] == [
        (64, 32),
        (128, 32),
    ]
