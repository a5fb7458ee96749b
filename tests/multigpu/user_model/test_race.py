"""The race of a comparison on made-up rates: who is measured next, and who is named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from multigpu.spec.run import Run
from multigpu.user_model.candidates import STEPS
from multigpu.user_model.launches import cold_steps
from multigpu.user_model.race import (
    LAUNCHES,
    MOST_DISTURBED,
    RaceStanding,
    RaceWindow,
    by_launch,
    gaps_of,
    next_launch,
    standing,
)

ONE = "one device"
Measure = Callable[[str, int], RaceWindow]


def run_race(
    ways: list[str], measure: Measure, most: int = 8, launches: int = 12
) -> tuple[list[RaceWindow], list[list[str]]]:
    """Windows of a whole race, two a launch, and what each launch measured; at most so many."""
    windows: list[RaceWindow] = []
    rounds: list[list[str]] = []
    while len(rounds) < launches:
        chosen = next_launch(ways, windows, ways, ways[0], most)
        if not chosen:
            break
        number = len(rounds)
        rounds.append(chosen)
        windows += [measure(way, number) for _ in range(2) for way in chosen]
    return windows, rounds


def steady(rates: dict[str, float], noise: float = 0.01, seed: int = 0) -> Measure:
    """Windows of these rates, each off by this much, in logarithms."""
    draws = np.random.default_rng(seed)
    return lambda way, launch: RaceWindow(
        way, str(launch), rates[way] * float(np.exp(draws.normal(0, noise)))
    )


RATES = {ONE: 100.0, "ddp": 180.0, "fsdp2": 175.0, "exp4": 60.0, "exp2": 40.0}


def ended(windows: list[RaceWindow]) -> RaceStanding:
    found = standing(windows)
    assert found is not None
    return found


def test_all_ways_have_one_launch_and_then_those_that_reach_the_leader() -> None:
    windows, rounds = run_race(list(RATES), steady(RATES))
    assert rounds[0] == list(RATES)
    assert set(rounds[1]) == {ONE, "ddp", "fsdp2"}, "one device until it has enough launches too"
    assert {"ddp", "fsdp2"} <= set(rounds[-1])
    found = ended(windows)
    assert found.leader == "ddp" and found.is_decided and found.rival == "fsdp2"
    assert found.launches["ddp"] >= LAUNCHES and found.launches["exp2"] == 1


def test_a_verdict_takes_three_launches_of_both_sides_however_clear_the_first_is() -> None:
    rates = {ONE: 100.0, "ddp": 900.0}
    windows, rounds = run_race(list(rates), steady(rates))
    assert len(rounds) == LAUNCHES
    for launches in range(1, LAUNCHES):
        early = [window for window in windows if int(window.launch) < launches]
        assert not ended(early).is_decided
    assert ended(windows).is_decided


def test_repeats_of_one_launch_do_not_count_as_launches() -> None:
    windows = [RaceWindow(way, "0", rate) for way, rate in RATES.items() for _ in range(50)]
    assert not ended(windows).is_decided and "fsdp2" in ended(windows).near


def test_a_tie_is_not_told_apart_and_ends_with_the_launches_that_are_allowed() -> None:
    rates = {ONE: 50.0, "ddp": 100.0, "zero1": 100.0}
    decided = 0
    for seed in range(100):
        windows, rounds = run_race(list(rates), steady(rates, 0.03, seed), most=6)
        decided += ended(windows).is_decided
        assert len(rounds) <= 6
    assert decided <= 8


def test_disturbed_windows_are_measured_again_and_not_used() -> None:
    quiet = steady(RATES)

    def measure(way: str, launch: int) -> RaceWindow:
        window = quiet(way, launch)
        if launch == 0 and way == "ddp":
            return window._replace(rate=window.rate / 10, disturbed=True)
        return window

    windows, rounds = run_race(list(RATES), measure)
    assert "ddp" in rounds[1], "it has no window that counts"
    assert ended(windows).leader == "ddp" and ended(windows).launches["ddp"] >= LAUNCHES
    # where the flag is left out, the slow windows count
    plain = [window._replace(disturbed=False) for window in windows if window.launch == "0"]
    assert ended(plain).leader == "fsdp2"


def test_a_way_that_is_always_disturbed_is_left() -> None:
    quiet = steady(RATES)
    windows, rounds = run_race(
        list(RATES), lambda way, n: quiet(way, n)._replace(disturbed=way == "exp4")
    )
    assert sum("exp4" in chosen for chosen in rounds) == MOST_DISTURBED
    assert "exp4" not in ended(windows).launches and ended(windows).leader == "ddp"
    every = [window._replace(disturbed=True) for window in windows]
    assert standing(every) is None


def test_what_trains_something_else_is_measured_once_and_never_leads() -> None:
    rates = RATES | {"local_sgd": 500.0}
    windows = [RaceWindow(way, "0", rate) for way, rate in rates.items()]
    chosen = next_launch(list(rates), windows, list(RATES), ONE, 8)
    assert "local_sgd" not in chosen
    assert standing(windows, RATES) == ended([w for w in windows if w.way in RATES])


def test_launches_are_paired_so_that_a_drift_hides_no_difference() -> None:
    """Each launch is 1.5 times as fast as the one before, and one way 5% faster than the other."""
    drift = [
        RaceWindow(way, str(n), rate * 1.5**n)
        for n in range(4)
        for way, rate in (("ddp", 105.0), ("zero1", 100.0))
    ]
    assert ended(drift).is_decided and ended(drift).leader == "ddp"
    shuffled = [
        w._replace(rate=w.rate * 1.5 ** (3 - 2 * int(w.launch))) if w.way == "ddp" else w
        for w in drift
    ]
    assert not ended(shuffled).is_decided


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.4])
def test_a_wrong_leader_is_named_in_few_of_many_races(spread: float) -> None:
    """Two to twelve ways, launches and windows that wander by up to 6 and 8%, one in ten windows
    disturbed: 700 races of each spread.
    """
    draws = np.random.default_rng(int(1000 * spread))
    wrong = decided = 0
    for _ in range(700):
        ways = [f"way{number}" for number in range(int(draws.integers(2, 13)))]
        true = {way: draws.normal(0, spread) for way in ways}
        of_launch, of_window = draws.uniform(0.002, 0.06), draws.uniform(0.005, 0.08)
        offsets: dict[tuple[str, int], float] = {}

        def measure(
            way: str,
            launch: int,
            true: dict[str, float] = true,
            offsets: dict[tuple[str, int], float] = offsets,
            wander: tuple[float, float] = (of_launch, of_window),
        ) -> RaceWindow:
            offset = offsets.setdefault((way, launch), draws.normal(0, wander[0]))
            disturbed = bool(draws.random() < 0.1)
            slowed = draws.uniform(0.1, 1) if disturbed else 0.0
            log = true[way] + offset + draws.normal(0, wander[1]) - slowed
            return RaceWindow(way, str(launch), float(np.exp(log)), disturbed)

        found = ended(run_race(ways, measure)[0])
        decided += found.is_decided
        wrong += found.is_decided and found.leader != max(ways, key=true.__getitem__)
    assert wrong <= 0.05 * 700
    assert decided >= {0.01: 0.0, 0.1: 0.2, 0.4: 0.5}[spread] * 700


@pytest.mark.parametrize("placement", ["ddp", "local_sgd", "staged_cpu"])
def test_the_run_that_warms_a_launch_stands_in_for_no_window(placement: str) -> None:
    """It is compared with nothing: a window's Record that it replaced lost what was compared. A
    placement that averages every five steps is timed in whole cycles.
    """
    fields: dict[str, Any] = {"workload": "nmt", "model": "nmt_tiny", "placement": placement}
    run = Run(**fields, batch_size=4, devices=2, timed_steps=10)
    few = Run(**run.model_dump() | {"timed_steps": cold_steps(run)})
    assert few.timed_steps not in STEPS and few.timed_steps < 20


MANY = {
    ONE: 100.0,
    "ddp": 180.0,
    "exp4": 150.0,
    "exp2": 175.0,
    "ps_gpu0": 90.0,
    "fsdp2": 185.0,
    "zero1": 178.0,
    **{f"exotic{number}": 170.0 + number for number in range(11)},
}
EARLY = list(MANY)[:7]


def short_race(
    rates: dict[str, float],
    launches: int,
    noise: float = 0.01,
    first: list[str] = EARLY,
    at_once: int | None = 2,
) -> tuple[list[RaceWindow], list[list[str]]]:
    """A race of so many launches in which each measures a window of a way."""
    measure, windows, rounds = steady(rates, noise), list[RaceWindow](), list[list[str]]()
    while len(rounds) < launches and (
        chosen := next_launch(list(rates), windows, list(rates), ONE, 8, first, at_once)
    ):
        rounds.append(chosen)
        windows += [measure(way, len(rounds)) for way in chosen]
    return windows, rounds


def test_the_second_launch_gives_an_interval_of_one_device_and_of_who_led_the_first() -> None:
    _, rounds = short_race(MANY, 3)
    assert rounds[:2] == [[ONE, "ddp", "exp4"]] * 2
    assert rounds[2] == [ONE, "ddp", "exp2", "ps_gpu0", "fsdp2", "zero1"], "then all families"


def test_a_leader_has_its_launches_before_an_exotic_way_has_one() -> None:
    windows, rounds = short_race(MANY, 30)
    exotic = next(place for place, own in enumerate(rounds) if any("exotic" in n for n in own))
    before = [window for window in windows if int(window.launch) <= exotic]
    found = ended(before)
    assert {*EARLY} == {window.way for window in before}, "each family had its window first"
    assert found.leader == "fsdp2" and found.launches["fsdp2"] >= LAUNCHES
    assert found.launches[ONE] >= LAUNCHES and len(before) <= 25, "in time for a short budget"
    assert rounds[exotic][0] == "fsdp2", "others are tried beside the leader"


def test_an_exotic_way_that_is_fastest_is_found_where_there_is_time() -> None:
    windows, rounds = short_race(MANY | {"exotic7": 260.0}, 30)
    found = ended(windows)
    assert found.leader == "exotic7" and found.is_decided
    assert not next_launch(list(MANY), windows, list(MANY), ONE, 8, EARLY, 2)
    assert {name for own in rounds for name in own} == {*MANY}, "each way was tried"


def test_a_way_that_joins_late_is_compared_in_launches_that_measured_both() -> None:
    """The machine is 1.5 times as fast from the third launch on, when a slower way joins."""
    drift = [RaceWindow("ddp", str(n), 100.0 * (1.5 if n > 2 else 1.0)) for n in range(1, 6)]
    late = [RaceWindow("exp2", str(n), 90.0 * 1.5) for n in range(3, 6)]
    found = ended([*drift, *late])
    assert found.leader == "ddp" and found.is_decided, "by means of all launches exp2 would lead"
    assert gaps_of(*by_launch([*drift, *late]).values()) == pytest.approx([np.log(100 / 90)] * 3)
    alone = [window._replace(launch=f"own{window.launch}") for window in late]
    assert len(gaps_of(*by_launch([*drift, *alone]).values())) == 3, "first with first"


def test_where_a_launch_is_dear_each_family_is_in_the_first() -> None:
    _, rounds = short_race(MANY, 2, at_once=None)
    assert rounds[0] == EARLY
    _, rounds = short_race(MANY, 1, first=list(MANY), at_once=None)
    assert rounds[0] == list(MANY)


def test_a_way_has_no_more_launches_than_are_allowed_and_others_go_on() -> None:
    windows: list[RaceWindow] = []
    rounds = 0
    measure = steady(MANY)
    while chosen := next_launch(list(MANY), windows, list(MANY), ONE, 1, EARLY, 2):
        rounds += 1
        windows += [measure(way, rounds) for way in chosen]
    assert sorted(window.way for window in windows) == sorted(MANY), "each once, and then it ends"


def test_a_disturbed_exotic_way_waits_until_the_leader_has_its_launches() -> None:
    """A disturbed way of the first round does not."""
    windows, _ = short_race(MANY, 2)
    for way in ("exp2", "exotic3"):
        told = [*windows, RaceWindow(way, "2", 100.0, disturbed=True)]
        told += [RaceWindow(other, "2", 90.0) for other in EARLY if other != way]
        chosen = next_launch(list(MANY), told, list(MANY), ONE, 8, EARLY, 2)
        assert (way in chosen) == (way == "exp2") and ONE in chosen


@pytest.mark.parametrize(("faster", "leads"), [(1.02, "ddp"), (2.0, "late")])
def test_of_ways_met_once_one_leads_only_where_it_is_surely_faster(
    faster: float, leads: str
) -> None:
    """Of many, one looks fast by chance: it is measured again before others are tried."""
    rates = {"ddp": 100.0, "exp4": 90.0}
    windows = [
        RaceWindow(way, f"{launch}", rate * (1 + 0.01 * launch))
        for launch in range(3)
        for way, rate in rates.items()
    ]
    windows.append(RaceWindow("late", "2", 102.0 * faster))
    found = standing(windows)
    assert found is not None and found.leader == leads
    assert [*found.upstarts] == ([] if leads == "late" else ["late"])
    ways = ["ddp", "exp4", "late", "never"]
    chosen = next_launch(ways, windows, ways, "ddp", 8, ["ddp", "exp4"], 2)
    assert {"ddp", "late"} <= {*chosen} if leads == "ddp" else "late" in chosen
    assert "never" not in chosen
