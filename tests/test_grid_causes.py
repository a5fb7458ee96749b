"""The grid of document 000's lost speed: one change a way, headline first, shared points shared."""

from __future__ import annotations

from itertools import pairwise

import pytest

from multigpu.grid import GRIDS, find_grid
from multigpu.grid.causes import CHAINS, CORES, LADDER, Chain, job_run
from multigpu.measure.ladder import ladder_of
from multigpu.measure.plan import Item

COUNTS = [1, 2, 4, 8]
STEPS = {"warmup_steps", "timed_steps"}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_each_way_changes_what_it_names_and_nothing_else(chain: Chain, small: bool) -> None:
    steps = chain.steps(2, small)
    for (_, before), (way, after) in pairwise(steps):
        changed = {name for name, value in after.model_dump().items() if value != before.model_dump()[name]}
        assert changed and changed - STEPS == set(way.changes) - STEPS
    last, ceiling = steps[-1][1], chain.ceiling_run(2, small)
    assert ceiling == last.model_copy(update={"placement": "independent"})


def test_2018_is_one_process_that_dispatches_a_loop_on_two_cores() -> None:
    for chain in CHAINS:
        first = chain.runs(8)[0]
        assert (first.processes, first.recurrence, first.host_cores, first.placement) == ("one", "stepwise", 2, "exp4")
    today = CHAINS[0].runs(8)[-1]
    assert (today.processes, today.recurrence, today.execution, today.host_cores) == ("per_device", None, "captured", None)


def test_repeated_points_come_first_and_points_of_other_grids_are_the_same_runs() -> None:
    planned = find_grid("causes", COUNTS)
    tiers = [entry.tier for entry in planned]
    assert tiers == sorted(tiers) and {"headline", "screening"} == set(tiers)
    chain = {run.digest for each in CHAINS for count in (1, 4, 8) for run in [*each.runs(count), each.ceiling_run(count)]}
    assert {entry.run.digest for entry in planned if entry.tier == "headline"} == chain
    elsewhere = {entry.run.digest for name in GRIDS if not name.startswith("causes") for entry in find_grid(name, COUNTS)}
    for entry in planned:
        run = entry.run
        usual = run.recurrence is None and run.host_cores is None and run.batch_size in (128, 360) and run.framework == "torch"
        if usual and not run.traced_steps and (run.processes, run.batch_size) != ("one", 360):
            assert run.digest in elsewhere, run.label()


def test_sweeps_hold_every_count_of_cores_and_every_batch() -> None:
    runs = [entry.run for entry in find_grid("causes", COUNTS)]
    for count in COUNTS:
        for placement, framework, processes in (("exp4", "torch", "one"), ("ddp", "torch", "per_device"), ("exp4", "tensorflow", "one")):
            own = [r for r in runs if (r.devices, r.placement, r.framework, r.processes) == (count, placement, framework, processes)]
            plain = [r for r in own if r.batch_size == 128 and r.recurrence is None and r.execution in ("eager", "graph")]
            assert {run.host_cores for run in plain} >= {*CORES, None}
            assert {run.recurrence for run in own} == {None, "stepwise"}
    captured = job_run({"placement": "ddp", "precision": "bf16", "execution": "captured", "cross_entropy": "fused"}, 8)
    rungs = [run for run in runs if ladder_of(Item(run=run)) == ladder_of(Item(run=captured))]
    assert sorted(run.batch_size for run in rungs) == list(LADDER)


def test_the_small_grid_needs_no_gpu() -> None:
    planned = find_grid("causes_small", [1, 2])
    assert {entry.run.device_type for entry in planned} == {"cpu"} and "captured" not in {entry.run.execution for entry in planned}
