"""Ladders of batches: climbed from below, and no further than the first that did not fit."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from multigpu.measure.plan import Journal, Plan
from multigpu.measure.point import Point
from multigpu.measure.program import Program
from multigpu.measure.sweep import make_plan
from multigpu.measure.timed import PASSED_OVER, TIMED, Item, ascending, full_at, item_of, ladder_of
from multigpu.measure.timing import TIMING_VERSION
from multigpu.record import RecordStore
from multigpu.run import Run
from tests.factory import make_machine, make_record


def run_of(batch: int, model: str = "resnet_tiny") -> Run:
    return Run(workload="cnn", model=model, placement="ddp", device_type="cpu", batch_size=batch)


def items_of(batches: Sequence[int], model: str = "resnet_tiny") -> list[Item]:
    return [Item(run=run_of(batch, model)) for batch in batches]


def test_a_ladder_keeps_its_places_and_is_climbed_from_below() -> None:
    one, other = items_of((64, 16, 32)), items_of((8, 4), "alexnet_tiny")
    mixed = [one[0], other[0], one[1], other[1], one[2]]
    climbed = ascending(mixed)
    assert [(item.run.model[0], item.run.batch_size) for item in climbed] == [("r", 16), ("a", 4), ("r", 32), ("a", 8), ("r", 64)]
    assert [item.smaller for item in climbed] == [(), (), (16,), (4,), (16, 32)]
    assert ladder_of(one[0]) != ladder_of(other[0]) != ladder_of(Item(run=other[0].run, repeat=1))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    points = [Point(run_of(batch)) for batch in (64, 16, 128, 32)]
    made, reused = make_plan(TIMED, list(map(item_of, points)), tmp_path / "runs", tmp_path, tmp_path)
    assert reused == 0
    return made


def test_above_the_first_batch_that_does_not_fit_nothing_is_started(plan: Plan) -> None:
    assert [item.run.batch_size for item in plan.items] == [16, 32, 64, 128]
    program, store = Program(plan), RecordStore(plan.records)
    decisions = []
    for index, item in enumerate(plan.items):
        decisions.append(program.decide(index))
        if decisions[-1]:
            status = "out_of_memory" if item.run.batch_size == 32 else "ok"
            record = make_record(
                "ddp",
                1,
                status=status,
                machine=make_machine(0, plan.machine),
                versions={"torch": plan.framework_version},
                timing_version=TIMING_VERSION,
                **item.run.model_dump(exclude_defaults=True, exclude={"placement"}),
            )
            store.write(record.model_copy(update={"run": item.run, "key": plan.key(item)}))
    assert decisions == [True, True, False, False]
    said = Journal(plan.scratch).progress.read_text()
    assert said.count(f'"{PASSED_OVER}"') == 2 and "a batch of 32 was out of memory" in said
    assert len(list(store)) == 2, "what was passed over leaves no Record"
    again, _ = make_plan(TIMED, [item_of(Point(item.run)) for item in plan.items], plan.records, plan.scratch, plan.memory)
    assert [item.run.batch_size for item in again.items] == [64, 128]
    assert [full_at(again, item) for item in again.items] == [32, 32]
