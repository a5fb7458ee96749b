"""The study's grids beside its claims and its pages: repeats that are enough, rows that are whole, and what a budget may leave out."""

from collections import Counter
from itertools import pairwise

import pytest

from multigpu.claims import all_claims
from multigpu.claims.core import Predicate
from multigpu.claims.rows import admitted
from multigpu.grid import Planned, cost_s, find_grid
from multigpu.grid.named import ladder_s
from multigpu.placements import placements
from multigpu.placements.refusals import refusal
from multigpu.run import Run
from multigpu.undecided import cheapest, planned_rows

COUNTS = [1, 2, 3, 4]
ONE_PROCESS_A_DEVICE = ("per_device", "eager")
WAYS = (ONE_PROCESS_A_DEVICE, ("one", "eager"), ("per_device", "captured"))


def untimed(run: Run) -> str:
    """What is left of a Run without its numbers of steps."""
    return run.model_copy(update={"warmup_steps": 1, "timed_steps": 1, "traced_steps": 0}).digest


def often(planned: list[Planned], predicate: Predicate) -> list[Planned]:
    """What has repeats enough for the predicate."""
    return [e for e in planned if len(e.points()) >= predicate.min_n and len(set(e.launches)) >= predicate.min_launches]


@pytest.mark.parametrize(
    ("number", "grids"),
    [
        ("C13", "inputs"),
        ("C15", "equal_batches"),
        ("C16", "cnn_formats"),
        ("C17", "cnn_pairs"),
        ("C18", "cnn_pairs"),
        ("C30", "cnn_formats,headline"),
        ("C46", "cnn_batches"),
    ],
)
@pytest.mark.parametrize("devices", [(1, 2, 4), (1, 2, 4, 8)])
def test_a_grid_repeats_enough_for_the_claim_that_rests_on_it(number: str, grids: str, devices: tuple[int, ...]) -> None:
    (claim,) = [claim for claim in all_claims() if claim.number == number]
    predicate = claim.predicate
    assert isinstance(predicate, Predicate)
    planned = often(find_grid(grids, devices), predicate)
    rows = planned_rows(entry for entry in planned if not entry.run.traced_steps)
    for contrast in predicate.contrasts:
        own = admitted(rows, predicate, contrast, ("torch",))
        models = {model for _, its, _ in cheapest(contrast, own, lambda _: 1.0) for model in its}
        assert len(models) >= contrast.models_at_least, contrast.label


def test_three_devices_are_repeated_where_claims_ask_for_them() -> None:
    """C1 and C11: the NMT at 128 x 100, eager, a process a device, Exp1 to Exp4 and ddp."""
    three = [e for e in find_grid("placements_repeated", COUNTS) if e.run.devices == 3 and e.run.processes == "per_device"]
    assert {entry.run.placement for entry in three} == {"exp1", "exp2", "exp3", "exp4", "ddp"}
    assert all(len(entry.points()) >= 5 for entry in three) and cost_s(three) <= 90


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


def test_ladders_rise_and_join_what_other_grids_measure() -> None:
    rungs = [entry for entry in find_grid("cnn_ladders", (1, 4)) if not entry.first_repeat]
    assert {run.devices for run in (entry.run for entry in rungs)} == {1}
    elsewhere = {entry.run.digest for entry in find_grid("captured,cnn_batches,cnn_models", (1,)) if entry.run.model == "resnet50_v1.5"}
    assert len({entry.run.digest for entry in rungs} & elsewhere) >= 8, "equal Runs are measured once"
    prices = [(e.run.batch_size, e.cost_s) for e in rungs if e.run.model == "resnet50_v1.5" and e.run.execution == "captured"]
    assert prices == sorted(prices)[: len(prices)] or prices[-1][1] == 4.0, "until memory ends"
    thousand = next(entry.run for entry in rungs if (entry.run.model, entry.run.batch_size) == ("resnet50_v1.5", 1024))
    assert 8.3 <= ladder_s(thousand) <= 1.6 * 8.3, "40 steps of 1,024 images at the 4,938 images/s measured at 512 are 8.3 s"
    counts = Counter((entry.run.digest, entry.first_repeat) for entry in rungs)
    assert set(counts.values()) == {1}


def test_a_strong_point_has_a_step_of_one_gpu_to_be_compared_with() -> None:
    runs = [entry.run for entry in find_grid("cnn_strong", (1, 2, 4, 8))]
    ladder = {entry.run.digest for entry in find_grid("cnn_ladders", (1,))}
    joined = {(run.model, sum(run.shard_sizes)) for run in runs if run.devices == 1}
    assert all((run.model, sum(run.shard_sizes)) in joined for run in runs)
    assert all(run.digest in ladder for run in runs if run.devices == 1)


def test_a_trace_has_its_step_without_a_profiler() -> None:
    planned = [entry.run for entry in find_grid("memory_speed", [1, 2])]
    timed = {untimed(run) for run in planned if not run.traced_steps}
    assert {untimed(run) for run in planned if run.traced_steps} <= timed
    phases = {entry.run.digest for entry in find_grid("phases", [1, 2, 4, 8])}
    assert phases <= {entry.run.digest for entry in find_grid("traces,tensorflow_traces", [1, 2, 4, 8])}, "one Run, one Record"


def test_captured_formats_are_those_that_are_launched_kernel_by_kernel() -> None:
    """And the dearest searches come last, so that a budget leaves these out."""

    def facts(run: Run) -> tuple[object, ...]:
        return run.model, run.batch_size, run.precision, run.layout, run.loss_scale

    planned = [entry for entry in find_grid("cnn_formats_captured", [1, 2]) if not entry.run.traced_steps]
    assert {facts(entry.run) for entry in planned} == {facts(entry.run) for entry in find_grid("cnn_formats", [1])}
    assert [entry.cost_s for entry in planned] == sorted(entry.cost_s for entry in planned)


def test_small_grids_need_no_gpu() -> None:
    for name in ("cpu_study", "causes_small", "parallelism_small", "interference_small", "phases_small", "hardware_small"):
        planned = find_grid(name, [1, 2])
        assert planned and {entry.run.device_type for entry in planned} == {"cpu"}, name
