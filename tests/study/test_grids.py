"""The study's grids beside its claims and its pages: repeats that are enough, rows that are whole, and what a budget may leave out."""

from itertools import pairwise

import pytest

from multigpu.claims import find_claim
from multigpu.claims.core import Predicate
from multigpu.claims.rows import admitted
from multigpu.grid import find_grid
from multigpu.placements import placements
from multigpu.placements.refusals import refusal
from multigpu.run import Run
from multigpu.undecided import cheapest, planned_rows

COUNTS = [1, 2, 3, 4]
WAYS = (("per_device", "eager"), ("one", "eager"), ("per_device", "captured"))


def untimed(run: Run) -> str:
    """What is left of a Run without its numbers of steps."""
    return run.model_copy(update={"warmup_steps": 1, "timed_steps": 1, "traced_steps": 0}).digest


RESTS = {"C13": "inputs", "C15": "equal_batches", "C16": "cnn_formats", "C17": "cnn_pairs", "C18": "cnn_pairs", "C46": "cnn_batches"}
RESTS["C30"] = "cnn_formats,headline"


@pytest.mark.parametrize("number", RESTS)
@pytest.mark.parametrize("devices", [(1, 2, 4), (1, 2, 4, 8)])
def test_a_grid_repeats_enough_for_the_claim_that_rests_on_it(number: str, devices: tuple[int, ...]) -> None:
    predicate = find_claim(number).predicate
    assert isinstance(predicate, Predicate)
    planned = [e for e in find_grid(RESTS[number], devices) if len(e.points()) >= predicate.min_n and not e.run.traced_steps]
    rows = planned_rows(entry for entry in planned if len(set(entry.launches)) >= predicate.min_launches)
    for contrast in predicate.contrasts:
        own = admitted(rows, predicate, contrast, ("torch",))
        models = {model for _, its, _ in cheapest(contrast, own, lambda _: 1.0) for model in its}
        assert len(models) >= contrast.models_at_least, contrast.label


def test_every_way_that_is_timed_on_the_most_devices_is_traced_there() -> None:
    """Page 05's table: what these grids time of its jobs has a traced twin, but for ddp with the other of its two losses."""
    traced = {untimed(entry.run) for entry in find_grid("traces", COUNTS)}
    for entry in find_grid("captured,dispatch,cnn_updates,headline,placements_screening", COUNTS):
        run = entry.run
        plain = run.bucket_mib is None and run.all_reduce_spec is None and run.wire_dtype is None
        plain &= (run.placement, run.model) != ("ddp", "nmt000") or (run.execution == "captured") == (run.cross_entropy == "fused")
        if (run.model, run.batch_size) in {("nmt000", 128), ("resnet50_v1.5", 64)} and run.devices == 4 and plain:
            assert untimed(run) in traced, run.label()


def test_the_table_of_placements_holds_all_that_can_run_repeated_and_traced() -> None:
    entries = find_grid("placement_table", [1, 2])
    timed = {untimed(entry.run) for entry in entries if len(entry.points()) >= 5}
    assert timed == {untimed(entry.run) for entry in entries if entry.run.traced_steps} and {e.run.devices for e in entries} == {2}
    held = {(e.run.placement, e.run.processes, e.run.execution) for e in entries if e.run.model == "resnet50_v1.5"}
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
    """Both frameworks' chains begin with a loop of cells on two cores, and no two steps differ in more than one field."""
    planned = [entry.run for entry in find_grid("causes", [8]) if len(entry.points()) > 1]
    for framework in ("torch", "tensorflow"):
        ceiling, *chain = sorted((run for run in planned if run.framework == framework), key=lambda run: run.placement != "independent")
        assert (chain[-1].recurrence, chain[-1].host_cores, chain[-1].placement, chain[-1].processes) == ("stepwise", 2, "exp4", "one")
        for after, before in pairwise(chain):
            one, other = after.model_dump(), before.model_dump()
            assert len({name for name in one if one[name] != other[name]} - {"warmup_steps", "timed_steps"}) == 1, after.label()
        assert ceiling == chain[0].model_copy(update={"placement": "independent"})


def test_what_is_compared_is_measured_in_the_same_launches() -> None:
    for name in ("updates_in_backward", "sent_unpacked", "small_last", "cnn_captured", "persistent", "memory_speed"):
        for entry in find_grid(name, (1, 2, 4)):
            if len(entry.points()) > 1:
                assert {point.launch for point in entry.points()} >= {0, 1, 2}, entry.run.label()
