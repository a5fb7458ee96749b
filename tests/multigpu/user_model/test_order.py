"""In which order a comparison tries its ways, on made-up Runs and a made-up clock; and what it says
of those that it did not try.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from multigpu.placements import placements
from multigpu.records.record import Record
from multigpu.runner.point import Point
from multigpu.spec.run import Run
from multigpu.user_model.candidates import FIRST, MANY_FORMS, variants
from multigpu.user_model.launches import next_points, raced, shared_launch
from multigpu.user_model.order import NEW_ON_CPU, order_of
from multigpu.user_model.page import remarks
from multigpu.user_model.placed import ONE, bracketed, called
from multigpu.user_model.race import LAUNCHES
from multigpu.user_model.result import Result
from multigpu.user_model.untried import untried
from tests.further import but
from tests.multigpu.user_model.test_told import STEADY, described, planted

PLAIN = [
    name
    for name, row in placements().items()
    if row.compute == "replica"
    and any((e.framework, e.processes) == ("torch", "per_device") for e in row.engines)
]
PLAIN.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
FAMILIES = ["ddp", "exp4", "exp2", "ps_gpu0", "fsdp2", "zero1"]


def runs_of(levers: Sequence[str] = (), device_type: str = "cpu") -> list[Run]:
    """The Runs of a comparison in the order of its candidates."""
    own = planted("ddp", 2, STEADY)[0].run
    alone = planted("ddp", 1, STEADY)[0].run
    plain: list[dict[str, Any]] = [{"placement": name, "devices": 2} for name in PLAIN]
    runs = [alone, *(own.model_copy(update=told) for told in plain)]
    for change in variants(levers, "torch", device_type, "fp32"):
        runs += [run.model_copy(update=change) for run in runs if run.placement in MANY_FORMS][:5]
    cores = {"host_cores": None} if device_type == "cuda" else {}
    return [run.model_copy(update={"device_type": device_type} | cores) for run in runs]


def test_one_way_of_each_family_is_first_and_what_trains_otherwise_is_last() -> None:
    order = order_of(runs_of())
    assert order.first == [ONE, *FAMILIES] and order.at_once == NEW_ON_CPU
    assert order.later[0] == "independent", "it tells what sharing a machine costs"
    assert {*order.later[-3:]} == {"local_sgd", "staged_cpu", "staged_gpu0"}
    assert sorted(order.first + order.later) == sorted(map(called, runs_of()))


def test_forms_that_may_win_come_before_what_another_way_dominates() -> None:
    levers = ("compiled", "recompute", "micro_steps")
    order = order_of(runs_of(levers))
    assert order.first == [ONE, *FAMILIES], "compiling takes long on CPUs"
    places = {name: place for place, name in enumerate(order.later)}
    assert places["ddp, compiled"] < places["replicated_ring"] < places["ddp, recomputed"]
    assert places["ddp, 2 micro-steps"] < places["local_sgd"]
    gpu = order_of(runs_of(("compiled", "captured", "recompute"), "cuda"))
    assert gpu.at_once is None
    captured = [f"{name}, captured" for name in (ONE, "ddp", "zero1", "fsdp2")]
    assert {*gpu.first} == {ONE, "ddp", *captured}, "the host launches and compiles slowly"
    places = {name: place for place, name in enumerate(gpu.later)}
    assert places["fsdp2"] < places["replicated_allreduce, captured"] < places["ddp, recomputed"]
    assert places["zero1, compiled and captured"] < places["replicated_copy"]
    assert {ONE, *FAMILIES} <= {*order_of(runs_of(("compiled",), "cuda")).first}


def test_of_named_placements_the_first_of_a_family_stands_for_it() -> None:
    runs = [run for run in runs_of() if run.devices == 1 or run.placement in ("exp1", "zero2")]
    assert order_of(runs).first == [ONE, "exp1", "zero2"]
    parts = [run.model_copy(update={"micro_steps": 2}) for run in runs]
    assert len(order_of(parts, 2).first) == 3, "the job itself asks for them"
    assert not order_of(parts, 1).first


def test_on_cpus_one_launch_measures_one_device_beside_several() -> None:
    alone, several, *_ = runs_of()
    assert alone.host_cores == 1 and several.host_cores is None
    assert shared_launch(Point(alone)) == shared_launch(Point(several))
    assert shared_launch(Point(alone)) != shared_launch(Point(several, launch=1))
    keras = {"framework": "tensorflow", "processes": "one"}
    first, second = (run.model_copy(update=keras) for run in (alone, several))
    assert shared_launch(Point(first)) != shared_launch(Point(second))


def test_captures_that_are_known_to_work_share_a_launch_and_new_ones_have_their_own() -> None:
    fields = {"device_type": "cuda", "host_cores": None}
    runs = [run.model_copy(update=fields) for run in runs_of() if run.placement in MANY_FORMS]
    runs = [*runs, *(run.model_copy(update={"execution": "captured"}) for run in runs)]
    alone, ddp = (run for run in runs if run.execution == "captured" and run.placement == "ddp")
    known = [
        record.model_copy(update={"run": run})
        for run in (alone, ddp)
        for record in planted("ddp", run.devices, STEADY[:1])
    ]
    result = Result.of(described(), runs, {}, known, Path("nowhere"), 100.0)
    launches: dict[str, set[int]] = {}
    for point in next_points(result, {}, 5, 60.0):
        launches.setdefault(called(point.run), set()).add(point.launch)
    captured = {name: found for name, found in launches.items() if "captured" in name}
    assert captured[called(alone)] == captured[called(ddp)] and len(captured) > 3
    new = [found for name, found in captured.items() if name not in result.names]
    assert all(len(found) == 1 for found in captured.values())
    assert len(set.union(*new)) == len(new) and not set.union(*new) & captured[called(ddp)]
    assert {name for name, found in launches.items() if found == {0}} == {*launches} - {*captured}


class FakeMachine:
    """Measures what it is asked to on a clock of its own, until its budget ends."""

    def __init__(self, runs: list[Run], steps_ms: dict[str, float], budget_s: float) -> None:
        self.runs, self.steps_ms, self.budget_s = runs, steps_ms, budget_s
        self.now_s = 6.0  # imports and the examination
        self.records: list[Record] = []
        self.met = list[tuple[float, str, int]]()  # when, which way, its launch
        self.launches = 0

    def window_s(self, run: Run) -> float:
        return 20.0 if "compiled" in run.execution else 0.9

    def is_over(self) -> bool:
        return self.now_s + 4.0 > self.budget_s

    def result(self) -> Result:
        job = described(micro_steps=1)
        return Result.of(job, self.runs, {}, self.records, Path("nowhere"), self.budget_s)

    def measure(self, chosen: Sequence[Point]) -> list[str]:
        self.launches += 1
        self.now_s += 3.0
        for point in chosen:
            if self.now_s + self.window_s(point.run) > self.budget_s:
                break
            self.now_s += self.window_s(point.run)
            name, run = called(point.run), point.run
            step_ms = self.steps_ms.get(name, 13.0) * (1 + 0.003 * (self.launches % 3))
            made = planted("ddp", run.devices, [step_ms] * (point.repeat + 1))[-1]
            found = made.measurement.model_copy(update={"total_s": self.window_s(run)})
            told = {"run": run, "launch_id": f"launch{self.launches}", "measurement": found}
            told["key"] = f"{run.digest}.{point.repeat}"
            self.records.append(made.model_copy(update=told))
            self.met.append((self.now_s, name, self.launches))
        return []

    def race(self) -> Result:
        assert raced(self.result, self.measure, 5, 30.0, self.is_over) == []
        return self.result()

    def when(self, name: str, launches: int) -> float:
        """When a way had windows in so many launches."""
        seen = set[int]()
        for when, own, launch in self.met:
            seen |= {launch} if own == name else set()
            if len(seen) == launches:
                return when
        raise AssertionError(f"{name} was measured in {len(seen)} launches")


COMPILED_MS = {f"{ONE}, compiled": 9.8, "ddp, compiled": 10.4}
STEPS_MS = {ONE: 10.0, "ddp": 11.2, "exp4": 11.6, "exp2": 11.9, "fsdp2": 14.0, "zero1": 12.0}


def test_a_minute_gives_an_interval_in_20_s_and_a_leader_of_three_launches() -> None:
    machine = FakeMachine(runs_of(), STEPS_MS | {"replicated_ring": 11.0}, 60.0)
    found = machine.race()
    assert machine.when(ONE, 2) <= 20 and machine.when("ddp", 2) <= 20
    assert machine.when("ddp", LAUNCHES) <= 30 and machine.when("zero1", 1) <= 30
    assert found.race is not None and found.race.launches[found.race.leader] >= LAUNCHES
    assert found.race.leader in ("ddp", "replicated_ring")
    exotic = min(when for when, name, _ in machine.met if name not in (ONE, *FAMILIES))
    assert machine.when("ddp", LAUNCHES) < exotic, "leaders before exotic ways"


@pytest.mark.parametrize("budget_s", but([20.0, 30.0, 60.0], [20.0, 25.0, 30.0, 40.0, 60.0, 150.0]))
def test_a_verdict_is_of_three_launches_or_says_that_there_are_too_few(budget_s: float) -> None:
    levers = ("compiled", "recompute", "micro_steps")
    machine = FakeMachine(runs_of(levers), STEPS_MS, budget_s)
    found = machine.race()
    assert found.race is not None
    enough = found.race.launches[found.race.leader] >= LAUNCHES
    assert enough or "Not told apart yet" in found.verdict
    assert enough or budget_s not in (30.0, 40.0, 60.0)
    left = found.left_out
    assert left and f"{len(left)} ways were not tried." in found.verdict
    (told,) = (text for text in remarks(found) if "did not reach" in text)
    assert all(bracketed(name) in told for name in left)
    assert max(Counter(name for _, name, _ in machine.met).values()) <= 12


def test_with_every_lever_150_s_try_each_family_and_compiled_ddp() -> None:
    levers = ("compiled", "recompute", "micro_steps")
    machine = FakeMachine(runs_of(levers), STEPS_MS | COMPILED_MS, 150.0)
    found = machine.race()
    assert {ONE, *FAMILIES, "independent", "ddp, compiled"} <= {*found.names}
    assert len(runs_of(levers)) > 40 and found.best is not None
    assert found.best.name == "ddp, compiled" or "ddp, compiled" in found.rivals


def test_what_was_not_tried_is_named_with_its_seconds() -> None:
    machine = FakeMachine(runs_of(("compiled",)), STEPS_MS, 25.0)
    found = machine.race()
    costs = untried(found)
    assert {*costs} == {*found.left_out} >= {"replicated_ring", "ddp, compiled"}
    ring, compiled = costs["replicated_ring"], costs["ddp, compiled"]
    assert ring is not None and ring.seconds == pytest.approx(0.9) and not ring.is_least
    assert compiled is not None and compiled.is_least, "no compiled way was measured"
    (told,) = (text for text in remarks(found) if "did not reach" in text)
    assert ": 0.9 s each" in told and ": 0.9 s or more each" in told and "together" in told
    (told,) = (text for text in remarks(found, is_over=False) if "Not tried yet" in text)
    assert "did not reach" not in told and "replicated_ring" in told
