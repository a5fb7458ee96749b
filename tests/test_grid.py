"""The study's design: what every grid keeps to, and what a budget leaves out."""

from __future__ import annotations

import importlib.util

import pytest

from multigpu.grid import GRIDS, find_grid
from multigpu.grid.entries import ENDS, FEWEST, LAUNCH_OF_REPEAT, START_S, Planned, affordable, cost_s, having, pace, points
from multigpu.run import Run

COUNTS = [1, 2, 3, 4, 8]


def entry(seed: int, cost: float, launches: tuple[int, ...] = (0, 0, 1)) -> Planned:
    run = Run(workload="nmt", model="nmt_tiny", placement="ddp", device_type="cpu", batch_size=2, seed=seed)
    return Planned(run, cost, launches)


@pytest.mark.parametrize("name", list(GRIDS))
def test_every_grid_names_each_point_once_and_has_a_price(name: str) -> None:
    planned = GRIDS[name](COUNTS)
    assert find_grid(name, COUNTS) == planned
    entries = [(each.run.digest, each.first_repeat) for each in planned]
    assert len(entries) == len(set(entries))
    assert all(each.cost_s > 0 for each in planned)
    assert cost_s(planned) == pytest.approx(sum(each.cost_s * len(each.points()) for each in planned))
    assert len({(point.run.digest, point.repeat) for point in points(planned)}) == len(points(planned))
    for each in planned:
        assert [(point.repeat, point.launch) for point in each.points()] == list(enumerate(each.launches, each.first_repeat))
        assert len(each.launches) == 1 or each.run.devices in (*ENDS, 2, 3)


def test_headline_points_have_five_repeats_over_two_launches_at_least() -> None:
    for launches in (LAUNCH_OF_REPEAT, FEWEST):
        assert len(launches) >= 5 and len(set(launches)) >= 2


def test_a_budget_takes_first_repeats_in_order_and_then_second_ones() -> None:
    planned = [entry(0, 3.0), entry(1, 2.0, (0,)), entry(2, 4.0)]
    taken = [(point.run.seed, point.repeat) for point in affordable(planned, [], 16.0)]
    assert taken == [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)]
    assert [(point.run.seed, point.repeat) for point in affordable(planned, [], 6.0)] == [(0, 0), (1, 0)]
    assert len(affordable(planned, [], 1e9)) == len(points(planned))


def test_what_is_measured_already_costs_nothing() -> None:
    planned = [entry(0, 3.0), entry(1, 2.0)]
    known = [(planned[0].run, 0), (planned[0].run, 1)]
    assert [(point.run.seed, point.repeat) for point in affordable(planned, known, 5.0)] == [(1, 0), (1, 1)]
    assert not affordable(planned, [(each.run, n) for each in planned for n in range(3)], 100.0)


def test_a_budget_learns_from_what_was_measured() -> None:
    """Points that took a third of the estimate: three times as many fit, less one start of a launch."""
    planned = [entry(seed, 3.0, (0,)) for seed in range(40)]
    spent = {(each.run, 0): 1.0 for each in planned[:6]}
    assert pace(planned, dict(list(spent.items())[:4])) is None
    learned = pace(planned, spent)
    assert learned == pytest.approx(1 / 3)
    assert len(affordable(planned, spent, 30.0)) == 10
    assert len(affordable(planned, spent, START_S + 12.5, learned)) == 12
    assert not affordable(planned, spent, START_S, learned)


def test_what_is_measured_side_by_side_costs_its_share() -> None:
    planned = [entry(seed, 4.0, (0,)) for seed in range(12)]
    lanes = {each.run.digest: 4 if each.run.seed % 2 else 1 for each in planned}
    taken = [point.run.seed for point in affordable(planned, [], 12.0, lanes=lambda run: lanes[run.digest])]
    assert taken == [0, 1, 2, 3, 5, 7], "4 + 1 + 4 + 1 and two more at 1; an entry of 4 no longer fits"
    spent = {(each.run, 0): 1.0 for each in planned[:6]}
    assert len(affordable(planned, spent, START_S + 1.75, 0.25, lambda run: 4)) == 6


def test_several_grids_are_one_and_what_any_of_them_repeats_is_repeated() -> None:
    both = find_grid("cnn_pairs, cnn_batches", COUNTS)
    first, second = GRIDS["cnn_pairs"](COUNTS), GRIDS["cnn_batches"](COUNTS)
    declared = [entry.run.digest for entry in (*first, *second)]
    assert [entry.run.digest for entry in both] == list(dict.fromkeys(declared)) and len(both) < len(declared)
    for entry in (*first, *second):
        (chosen,) = [other for other in both if other.run.digest == entry.run.digest]
        assert len(chosen.points()) >= len(entry.points())
    turned = {entry.run.digest: len(entry.points()) for entry in find_grid("cnn_batches,cnn_pairs", COUNTS)}
    assert turned == {entry.run.digest: len(entry.points()) for entry in both}, "whichever is named first"


def test_fields_choose_among_a_grids_runs() -> None:
    planned = find_grid("captured", COUNTS)
    chosen = having(planned, {"devices": 2, "model": "nmt000"})
    assert chosen and all((entry.run.devices, entry.run.model) == (2, "nmt000") for entry in chosen)
    assert len(chosen) == sum((entry.run.devices, entry.run.model) == (2, "nmt000") for entry in planned)
    assert having(planned, {}) == planned and having([], {"devices": 2}) == []
    with pytest.raises(ValueError, match="no Run of the grid has devices=5 model=nmt000: `--dry-run` lists them"):
        having(planned, {"devices": 5, "model": "nmt000"})


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_any_computer_traces_tensorflows_loop_of_cells_once() -> None:
    loops = [entry.run for entry in find_grid("cpu_study", (1, 2)) if entry.run.recurrence == "stepwise"]
    assert [(run.framework, run.placement, run.devices) for run in loops] == [("tensorflow", "exp4", 1)]
