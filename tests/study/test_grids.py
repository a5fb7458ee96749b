"""The study's grids beside its claims and its pages: repeats that are enough, and what undecided
claims still need of them.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from multigpu.analysis.frame import frame_of
from multigpu.cli.main import main
from multigpu.grids import every_grid, find_grid
from multigpu.grids.planned import Planned, each_once
from multigpu.placements import placements
from multigpu.placements.resolve import shard_sizes
from multigpu.records.record import Record
from multigpu.runner.point import START_S
from multigpu.spec.rules.engines import refusal
from multigpu.spec.run import Run
from multigpu_study.claims import all_claims, evaluate_all, find_claim
from multigpu_study.claims.core import Predicate
from multigpu_study.claims.results import ClaimResult
from multigpu_study.claims.rows import admitted
from multigpu_study.claims.undecided import Need, affordable_needs, cheapest, needs, planned_rows
from tests.factory import make_machine, make_record

WAYS = (("per_device", "eager"), ("one", "eager"), ("per_device", "captured"))


def untimed(run: Run) -> str:
    """What is left of a Run without its numbers of steps."""
    return run.model_copy(update={"warmup_steps": 1, "timed_steps": 1, "traced_steps": 0}).digest


RESTS = {
    "C13": "inputs",
    "C15": "equal_batches",
    "C16": "cnn_formats",
    "C17": "cnn_pairs",
    "C18": "cnn_pairs",
    "C46": "cnn_batches",
}
RESTS["C30"] = "cnn_formats,headline"


@pytest.mark.parametrize("number", RESTS)
@pytest.mark.parametrize("devices", [(1, 2, 4), (1, 2, 4, 8)])
def test_a_grid_repeats_enough_for_the_claim_that_rests_on_it(
    number: str, devices: tuple[int, ...]
) -> None:
    predicate = find_claim(number).predicate
    assert isinstance(predicate, Predicate)
    planned = [
        e
        for e in find_grid(RESTS[number], devices)
        if len(e.points()) >= predicate.min_n and not e.run.traced_steps
    ]
    rows = planned_rows(
        entry for entry in planned if len(set(entry.launches)) >= predicate.min_launches
    )
    for contrast in predicate.contrasts:
        own = admitted(rows, predicate, contrast, ("torch",))
        models = {model for _, its, _ in cheapest(contrast, own, lambda _: 1.0) for model in its}
        assert len(models) >= contrast.models_at_least, contrast.label


def test_the_table_of_placements_holds_all_that_can_run_repeated_and_traced() -> None:
    entries = find_grid("placement_table", [1, 2])
    timed = {untimed(entry.run) for entry in entries if len(entry.points()) >= 5}
    assert timed == {untimed(entry.run) for entry in entries if entry.run.traced_steps} and {
        e.run.devices for e in entries
    } == {2}
    held = {
        (e.run.placement, e.run.processes, e.run.execution)
        for e in entries
        if e.run.model == "resnet50_v1.5"
    }
    able = {
        (name, processes, execution)
        for name, row in placements().items()
        for processes, execution in WAYS
        if row.compute == "replica" and refusal(row, "torch", processes, execution) is None
    }
    assert held == able
    assert {e.run.placement for e in find_grid("dispatch", [1, 2]) if e.run.devices == 2} == {
        name for name, processes, _ in able if processes == "one" and "make_parallel" not in name
    }


def test_a_chain_from_2018_changes_one_thing_at_a_time() -> None:
    """Both frameworks' chains begin with a loop of cells on two cores, and no two steps differ in
    more than one field.
    """
    planned = [entry.run for entry in find_grid("causes", [8]) if len(entry.points()) > 1]
    for framework in ("torch", "tensorflow"):
        ceiling, *chain = sorted(
            (run for run in planned if run.framework == framework),
            key=lambda run: run.placement != "independent",
        )
        assert (
            chain[-1].recurrence,
            chain[-1].host_cores,
            chain[-1].placement,
            chain[-1].processes,
        ) == ("stepwise", 2, "exp4", "one")
        for after, before in pairwise(chain):
            one, other = after.model_dump(), before.model_dump()
            assert (
                len(
                    {name for name in one if one[name] != other[name]}
                    - {"warmup_steps", "timed_steps"}
                )
                == 1
            ), after.label()
        assert ceiling == chain[0].model_copy(update={"placement": "independent"})


@pytest.fixture(scope="module")
def planned() -> list[Planned]:
    return find_grid(every_grid(), [1, 2, 4])


@pytest.fixture(scope="module")
def unmeasured() -> list[ClaimResult]:
    """What no Record says of every claim."""
    return evaluate_all(runs=frame_of([]))


@pytest.fixture(scope="module")
def from_nothing(unmeasured, planned) -> list[Need]:
    return needs(unmeasured, planned, set())


def as_records(entry: Planned) -> list[Record]:
    """Every repeat of an entry, planted."""
    fields: dict[str, Any] = entry.run.model_dump() | {"machine": make_machine(4)}
    rate = 1e6 * entry.run.devices
    return [
        make_record(
            units_per_s=rate + 100 * at.repeat, repeat=at.repeat, launch_id=str(at.launch), **fields
        )
        for at in entry.points()
    ]


def test_what_is_needed_is_what_verdicts_lack(from_nothing, planned) -> None:
    """Planted as asked, every contrast over plain Runs has a setting with enough repeats, of as
    many models as it wants.
    """
    plain = {
        claim.number
        for claim in all_claims()
        if claim.predicates and all(p.of == "runs" for p in claim.predicates)
    }
    asked = [need for need in from_nothing if need.claim in plain and need.framework == "torch"]
    assert len(asked) > 15
    records = [
        record
        for need in asked
        for entry in need.entries
        if not entry.run.traced_steps
        for record in as_records(entry)
    ]
    equal_steps = "step_memory"  # planted steps are all alike and remember nothing
    results = {result.claim.number: result for result in evaluate_all(runs=frame_of(records))}
    for need in asked:
        result = results[need.claim]
        contrasts = [
            contrast
            for contrast in result.claim.predicate.contrasts
            if contrast.quantity != equal_steps
        ]
        for contrast in contrasts:
            enough = [
                setting
                for setting in result.settings
                if setting.contrast == contrast.label and setting.enough
            ]
            models = {
                model for setting in enough for model in str(setting.fields["model"]).split(" / ")
            }
            assert len(models) >= contrast.models_at_least, (need.claim, contrast.label)
        if len(contrasts) == len(result.claim.predicate.contrasts):
            assert result.by_framework["torch"].verdict != "not yet measured", need.claim
    of_asked = [results[number] for number in dict.fromkeys(need.claim for need in asked)]
    left = needs(of_asked, planned, {(record.run.digest, record.repeat) for record in records})
    assert not [need for need in left if need.framework == "torch"]
    together = each_once(entry for need in from_nothing for entry in need.entries)
    assert all(
        len(entry.points()) >= 5 and len({point.launch for point in entry.points()}) >= 2
        for entry in together
    )
    assert sum(need.missing for need in from_nothing) == sum(
        len(entry.points()) for entry in together
    )


def test_the_cheapest_setting_is_taken(unmeasured) -> None:
    """C3 asks for Exp4 beside Exp3 on one GPU or on eight: of two batches' worth of candidates the
    dear one stays.
    """
    form: dict[str, Any] = {
        "workload": "nmt",
        "model": "nmt000",
        "batch_size": 128,
        "sequence_length": 100,
    }
    runs = [
        Run(placement=placement, precision=precision, **form)
        for precision in ("bf16", "fp32")
        for placement in ("exp3", "exp4")
    ]
    planned = [Planned(run, 1.0 if run.precision == "fp32" else 9.0) for run in runs]
    c3 = [result for result in unmeasured if result.claim.number == "C3"]
    (need,) = needs(c3, planned, set())
    assert {entry.run.precision for entry in need.entries} == {"fp32"} and (
        need.missing,
        need.cost_s,
    ) == (10, 10.0)
    known = {(entry.run.digest, repeat) for entry in need.entries for repeat in (0, 1)}
    (rest,) = needs(c3, planned, known)
    assert (rest.missing, rest.cost_s) == (6, 6.0)


def test_a_budget_takes_whole_claims_and_pays_for_each_launch_once(from_nothing) -> None:
    """Where measuring without starts was learned, starts are added: without them a budget would end
    in the midst of the last launch.
    """
    found = [
        Need(name, "torch", (), 5, cost)
        for name, cost in (("C1", 100.0), ("C2", 30.0), ("C3", 50.0))
    ]
    assert [need.claim for need in affordable_needs(found, 90)] == ["C2", "C3"]
    assert [need.claim for need in affordable_needs(found, 90, pace=0.5)] == ["C2", "C3", "C1"]
    assert affordable_needs(found, 20) == []
    launches = (("C1", 10.0, "ab"), ("C2", 20.0, "bc"), ("C3", 30.0, "c"))
    found = [Need(name, "torch", (), 5, cost, frozenset(on)) for name, cost, on in launches]
    costs = (5.0 + 2 * START_S, 10.0 + START_S, 15.0)
    for several in (1, 2, 3):
        assert len(affordable_needs(found, sum(costs[:several]), pace=0.5)) == several
        assert len(affordable_needs(found, sum(costs[:several]) - 0.1, pace=0.5)) < several
    assert all(need.launches for need in from_nothing)


def test_a_grid_is_repeated_as_often_as_the_command_line_asks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for times in (1, 3, 9):
        assert (
            main(
                [
                    "measure",
                    "--grid",
                    "deepconn",
                    "--devices",
                    "1",
                    "--repeats",
                    str(times),
                    "--dry-run",
                ]
            )
            == 0
        )
        told = Counter(line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()[1:])
        assert len(told) > 5 and {*told.values()} == {times}


def test_a_strong_point_has_a_step_of_one_gpu_to_be_compared_with() -> None:
    runs = [entry.run for entry in find_grid("cnn_strong", (1, 2, 4, 8))]
    ladder = {entry.run.digest for entry in find_grid("cnn_ladders", (1,))}
    joined = {(run.model, sum(shard_sizes(run))) for run in runs if run.devices == 1}
    assert all((run.model, sum(shard_sizes(run))) in joined for run in runs)
    assert all(run.digest in ladder for run in runs if run.devices == 1)


def test_a_trace_has_its_step_without_a_profiler() -> None:
    planned = [entry.run for entry in find_grid("memory_speed", [1, 2])]
    timed = {untimed(run) for run in planned if not run.traced_steps}
    assert {untimed(run) for run in planned if run.traced_steps} <= timed
    phases = {entry.run.digest for entry in find_grid("phases", [1, 2, 4, 8])}
    assert phases <= {
        entry.run.digest for entry in find_grid("traces,tensorflow_traces", [1, 2, 4, 8])
    }, "one Run, one Record"


def test_what_is_compared_is_measured_in_the_same_launches() -> None:
    for name in (
        "updates_in_backward",
        "sent_unpacked",
        "small_last",
        "cnn_captured",
        "persistent",
        "memory_speed",
    ):
        for entry in find_grid(name, (1, 2, 4)):
            if len(entry.points()) > 1:
                assert {point.launch for point in entry.points()} >= {0, 1, 2}, entry.run.label()
