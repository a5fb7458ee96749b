"""What a comparison tells, of planted Records in which each sentence would be wrong if it were told
of the others.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.points import Missing
from multigpu.placements import find_placement
from multigpu.records.record import Equivalence, Record
from multigpu.runner.point import Point
from multigpu.user_model.ahead import as_wide_as
from multigpu.user_model.describe import making_of
from multigpu.user_model.launches import raced
from multigpu.user_model.page import lines, measured, remarks
from multigpu.user_model.parts import slowest_of
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import Result
from multigpu.user_model.trust import divides_update, reach, update_share
from multigpu.workloads.own.description import Described
from multigpu.workloads.own.job import Job
from tests.factory import make_record
from tests.refusals import refused

BATCH = 64
TIMED = 20


def described(**told: Any) -> Described:
    """A job of which nothing matters but what is told."""
    usual: dict[str, Any] = {
        **dict.fromkeys(("name", "job", "values"), "net"),
        **dict.fromkeys(("file", "any_rows"), True),
        **{name: [] for name in ("variables", "fixed")},
        **{name: {} for name in ("tables", "tied")},
        **dict.fromkeys(("forward_flops", "memory_passes"), 1.0),
        "optimizer": {"name": "sgd"},
        "structure": 0,
        "checked_in": "fp64",
    }
    return Described(**{**usual, **told})


def planted(
    placement: str,
    devices: int,
    steps_ms: Sequence[float],
    launches: str = "abc",
    ready_ms: float | None = None,
    waited_ms: float | None = None,
    flags: Sequence[str] = (),
    ranks_ms: Sequence[float] = (),
    **told: Any,
) -> list[Record]:
    """One Record a step's time, each of the launch whose turn it is; ranks_ms: what a step of each
    rank takes (of all: as long as the step).
    """
    found = []
    noise = np.random.default_rng(0)
    for repeat, step_ms in enumerate(steps_ms):
        measurement: dict[str, Any] = {
            "flags": list(flags),
            "ready_step_s": None,
            "host_threads": 1,
        }
        measurement |= {name: told.pop(name) for name in ("host_threads",) if name in told}
        if ready_ms is not None:
            ready_s = ready_ms * step_ms / steps_ms[0] / 1e3
            waits_s = [waited_ms / 1e3 if waited_ms is not None else step_ms / 1e3 - ready_s]
            measurement |= {
                "ready_step_s": ready_s,
                "input_wait_s": [waits_s * (TIMED + 3)] * devices,
            }
        each = [list(ms * noise.uniform(0.98, 1.02, TIMED + 3) / 1e3) for ms in ranks_ms]
        measurement |= {"step_time_s": each} if each else {}
        found.append(
            make_record(
                placement,
                devices,
                units_per_s=devices * BATCH / (step_ms / 1e3),
                repeat=repeat,
                launch_id=launches[repeat % len(launches)],
                measurement=measurement,
                workload="stacks",
                model="mlp_tiny",
                batch_size=BATCH,
                precision="fp32",
                device_type="cpu",
                warmup_steps=3,
                timed_steps=TIMED,
                **({"host_cores": 1} if devices == 1 else {}),
            )
        )
    return found


def result_of(*points: list[Record], missing: Sequence[Any] = (), **told: Any) -> Result:
    """The comparison of these Records; missing: Runs that were not reached."""
    runs = [own[0].run for own in points]
    every = [record for own in points for record in own]
    job = described(**told)
    return Result.of(job, [*runs, *missing], {}, every, Path("nowhere"), 20.0)


def causes(result: Result, name: str | None = None) -> dict[str, float]:
    """Where a step goes, in ms; it adds up to the step as given."""
    table = result.why_not_scaling(name)
    step_ms = 1e3 * result.chosen(name).row["fed_step_s"]
    assert table["ms"].sum() == pytest.approx(step_ms) and table["ms"].min() >= 0
    return dict(zip(table["cause"], table["ms"], strict=True))


STEADY = (10.0, 10.1, 9.9)
DDP = (11.0, 11.1, 10.9)


def test_a_difference_over_three_launches_is_a_verdict() -> None:
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP))
    assert result.best is not None and result.best.name == "ddp" and not any(result.doubts.values())
    assert result.verdict.startswith("Fastest: ddp") and "1.82" in result.verdict
    assert causes(result)["gradients and variables travel and are reduced"] == pytest.approx(1.0)
    slower = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [30.0, 30.1, 29.9]))
    assert slower.best is not None and slower.best.name == ONE
    assert slower.verdict.startswith("Merging takes 20.0 ms of ddp's step of 30.0 ms (67%)")
    assert f" Fastest: {ONE}" in slower.verdict


@pytest.mark.parametrize(
    ("repeats", "launches", "why"),
    [(1, "a", "1 launch of"), (3, "a", "1 launch of"), (3, "ab", "2 launches of")],
)
def test_fewer_launches_are_no_verdict(repeats: int, launches: str, why: str) -> None:
    """Each side counts, and repeats of one launch do not."""
    few = planted("ddp", 2, DDP[:repeats], launches)
    many = planted("ddp", 1, STEADY)
    for result in (
        result_of(many, few),
        result_of(planted("ddp", 1, STEADY[:repeats], launches), planted("ddp", 2, DDP)),
    ):
        assert result.best is not None and result.best.name == "ddp"
        assert "Fastest" not in result.verdict
        assert "Not told apart yet" in result.verdict and why in result.verdict


def test_placements_that_intervals_do_not_tell_apart_are_said_to_be_so() -> None:
    near = planted("replicated_allreduce", 2, [11.1, 11.2, 10.95])
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP), near)
    assert result.rivals == ["replicated_allreduce"]
    assert result.verdict.startswith("Not told apart: ddp")
    single = [near[:1], planted("ddp", 2, DDP[:1])]
    result = result_of(planted("ddp", 1, STEADY), *single)
    assert result.rivals == ["replicated_allreduce"]
    assert result.verdict.startswith(
        "Not told apart yet (1 launch of ddp; a verdict takes 3 of each)"
    )
    assert "Fastest" not in result.verdict and "replicated_allreduce" in result.verdict


def test_no_placement_is_called_fastest_where_none_was_reached() -> None:
    one, ddp = planted("ddp", 1, STEADY), planted("ddp", 2, DDP)
    result = result_of(one, missing=[ddp[0].run])
    assert result.best is None and result.left_out == ["ddp"]
    assert result.verdict.startswith("No placement was reached within the budget of 20 s")
    assert "Fastest" not in "\n".join(lines(result))
    refused("needs a placement beside one device", result.forecast, error=Missing)
    # replicas that merge nothing are no placement that trains the job
    alone = result_of(one, planted("independent", 2, STEADY), missing=[ddp[0].run])
    assert alone.best is None and "No placement was reached" in alone.verdict
    # where one device alone was asked for, it may be the best
    assert result_of(one).best is not None and result_of(one).verdict.startswith("Fastest")


def test_a_failed_placement_is_not_called_unreached() -> None:
    ddp = planted("ddp", 2, DDP[:1])[0]
    failed = ddp.model_copy(update={"status": "failed", "reason": "it broke", "measurement": None})
    result = result_of(planted("ddp", 1, STEADY), [failed])
    assert result.best is None and "could be measured (ddp: it broke)" in result.verdict


def test_what_a_slow_batch_takes_is_not_called_computing() -> None:
    """One device waits 140 of 150 ms, so two processes that make batches are twice as fast as
    given, and no faster at all on batches that are ready.
    """
    result = result_of(
        planted("ddp", 1, [150.0, 150.5, 149.5], ready_ms=10.0),
        planted("ddp", 2, [150.2, 150.4, 150.0], ready_ms=22.0),
        planted("independent", 2, [150.0, 150.3, 149.9], ready_ms=10.5),
        batch_s=0.14,
    )
    ddp = result["ddp"]
    assert ddp.row["fed_speedup"] == pytest.approx(2, rel=0.02)
    assert ddp.speedup.value == pytest.approx(20 / 22, rel=0.02)
    assert result.best is not None and result.best.name == ONE
    told = causes(result, "ddp")
    assert told["waiting for its batch"] == pytest.approx(128.2, rel=0.01)
    assert told["computing, as on one device"] == pytest.approx(10, rel=0.01)
    assert causes(result, ONE)["waiting for its batch"] == pytest.approx(140, rel=0.01)
    first = result.verdict.split(". ")[0]
    assert (
        first.startswith("Your batch() costs 128 ms of ddp's step of 150 ms") and "140 ms" in first
    )
    assert "7 input workers a device would hide it" in result.verdict
    assert "samples/s with its input" in result._repr_html_()
    assert "with its input" in "\n".join(lines(result))


def test_a_race_goes_on_by_launches_until_its_budget_ends() -> None:
    """Three ways on a made-up machine that measures what it is told to, and no more once its budget
    is used up; one of them fails.
    """
    steps_ms = {("ddp", 1): 10.0, ("ddp", 2): 12.0, ("exp2", 2): 90.0, ("exp4", 2): 0.0}
    runs = {key: planted(*key, [1.0])[0].run for key in steps_ms}
    for left, launches, failed in ((99, 3, {"exp4": "it broke"}), (5, 2, {})):
        records, asked = list[Record](), list[int]()

        def result(records: list[Record] = records) -> Result:
            return Result.of(described(), [*runs.values()], {}, records, Path("nowhere"), 20.0)

        def measure(
            chosen: Sequence[Point],
            left: int = left,
            records: list[Record] = records,
            asked: list[int] = asked,
        ) -> list[str]:
            asked.append(len(chosen))
            for point in chosen[: max(0, left - len(records))]:
                steps = [steps_ms[point.run.placement, point.run.devices]] * (point.repeat + 1)
                made = planted(point.run.placement, point.run.devices, [ms or 1 for ms in steps])
                told = {"launch_id": f"launch{len(asked)}"}
                if not steps[0]:
                    told |= {"status": "failed", "reason": "it broke", "measurement": None}
                records.append(made[-1].model_copy(update=told))
            return []

        assert raced(result, measure, 8, 30.0) == []
        assert asked[:3] == [3, 2, 3], "the third tries what is left, beside what is ahead"
        found = result()
        assert found.failed == failed and found.race is not None
        assert found.race.launches == {ONE: launches, "ddp": launches, "exp2": 1}
        assert found.verdict.startswith("Fastest: ddp" if launches == 3 else "Not told apart")


def test_input_that_takes_nothing_is_not_spoken_of() -> None:
    """A batch that takes long by itself, and is made while the step computes, costs nothing."""
    hidden = result_of(
        planted("ddp", 1, STEADY, ready_ms=9.9),
        planted("ddp", 2, DDP, ready_ms=10.9),
        batch_s=0.009,
    )
    assert "batch()" not in hidden.verdict and hidden.verdict.startswith("Fastest: ddp")
    plain = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP))
    assert "its input" not in plain._repr_html_() and "waiting for its batch" not in causes(plain)


def test_what_slowed_a_window_of_a_cpu_is_not_called_input() -> None:
    """Steps as given took twice as long as those on ready batches, waited for next to nothing, and
    a batch is made in next to nothing.
    """
    result = result_of(
        planted("ddp", 1, STEADY, ready_ms=5.0, waited_ms=0.2),
        planted("ddp", 2, DDP, ready_ms=5.5, waited_ms=0.2),
        batch_s=0.00005,
    )
    assert "batch()" not in result.verdict
    assert causes(result, "ddp")["waiting for its batch"] == pytest.approx(0.3)
    assert result["ddp"].row["step_time_s"] == pytest.approx(0.0107)


def test_input_hidden_better_does_not_win() -> None:
    """As given the second is faster; on batches that are ready the first."""
    result = result_of(
        planted("ddp", 1, [30.0, 30.1, 29.9], ready_ms=10.0),
        planted("ddp", 2, [40.0, 40.1, 39.9], ready_ms=11.0),
        planted("replicated_allreduce", 2, [31.0, 31.1, 30.9], ready_ms=14.0),
    )
    assert result.best is not None and result.best.name == "ddp"
    rates = result.table().set_index("name")
    assert rates.loc["replicated_allreduce", "fed_rate"] > rates.loc["ddp", "fed_rate"]
    assert rates.loc["replicated_allreduce", "rate"] < rates.loc["ddp", "rate"]


def test_a_slow_rank_is_named_and_is_no_shared_machine() -> None:
    slow = planted("independent", 2, [60.0, 60.3, 59.7], ranks_ms=[10.0, 60.0])
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [62.0, 62.2, 61.8]), slow)
    told = causes(result, "ddp")
    assert told["waiting for rank 1, which is slower"] == pytest.approx(50, rel=0.03)
    assert told["devices share this machine"] < 2
    assert told["gradients and variables travel and are reduced"] == pytest.approx(2, abs=0.5)
    assert result.verdict.startswith("Rank 1 is slow: the others wait 50.0 ms of a step of 62.0 ms")
    # a machine that all share is nobody's fault
    shared = planted("independent", 2, [60.0, 60.3, 59.7], ranks_ms=[60.0, 60.0])
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [62.0, 62.2, 61.8]), shared)
    told = causes(result, "ddp")
    assert told["devices share this machine"] == pytest.approx(50, rel=0.03)
    assert not [cause for cause in told if "rank" in cause] and "Rank" not in result.verdict


def test_a_rank_is_slow_only_where_every_record_says_so() -> None:
    swapped = [
        *planted("independent", 2, [60.0], ranks_ms=[10.0, 60.0]),
        *planted("independent", 2, [60.0, 60.1], ranks_ms=[60.0, 10.0])[1:],
    ]
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [62.0, 62.2, 61.8]), swapped)
    assert not [cause for cause in causes(result, "ddp") if "rank" in cause]
    assert slowest_of([[1.0] * 9, [1.05] * 9]) is None
    # a few hiccups make no slow rank
    assert slowest_of([[1.0] * 9, [1.0] * 6 + [9.0] * 3]) is None
    assert slowest_of([[1.0] * 9, [1.2] * 9, [1.0] * 9]) == (1, pytest.approx(0.2))
    assert slowest_of([[1.0] * 9]) is None


def test_independent_replicas_merge_nothing() -> None:
    result = result_of(
        planted("ddp", 1, STEADY),
        planted("ddp", 2, DDP),
        planted("independent", 2, [13.0, 13.1, 12.9], ranks_ms=[13.0, 13.0]),
    )
    told = causes(result, "independent")
    assert set(told) == {"computing, as on one device", "devices share this machine"}
    assert told["devices share this machine"] == pytest.approx(3, abs=0.1)


def test_an_impossible_result_never_leads_and_is_said() -> None:
    result = result_of(
        planted("ddp", 1, [40.0, 40.2, 39.8]),
        planted("ddp", 2, [19.2, 19.3, 19.1]),
        planted("replicated_allreduce", 2, [50.0, 50.1, 49.9]),
    )
    assert [doubt.short for doubt in result.doubts["ddp"]] == ["impossible"]
    assert result.best is not None and result.best.name == "replicated_allreduce"
    assert "Fastest" not in result.verdict, "what was not measured may be faster"
    assert "No verdict: ddp (6,667 samples/s, impossible) may be faster" in result.verdict
    assert any("4.17 times one device is more than the 2.00" in told for told in remarks(result))
    cells = measured(result).set_index("name")["speedup_text"]
    assert "impossible" in cells["ddp"] and ":" not in cells["replicated_allreduce"]
    refused("no forecast rests on ddp", result.forecast, 8, "ddp", error=Missing)
    how = result.why_not_scaling("ddp").set_index("cause")["known_by"]
    assert "one device's is longer (40.0 ms)" in how["computing, as on one device"]
    # what noise makes of twice as fast is possible
    possible = result_of(
        planted("ddp", 1, [20.0, 20.8, 19.2]), planted("ddp", 2, [19.0, 19.9, 18.6])
    )
    assert not possible.doubts["ddp"] and possible.best is not None


def test_parts_that_do_not_add_up_are_said_where_an_interval_allows_anything() -> None:
    """The lower end of what it gains lies below what two devices can reach, and one device computes
    longer than the whole step lasts.
    """
    loose = result_of(planted("ddp", 1, [22.0, 25.5, 23.0]), planted("ddp", 2, [19.0, 21.5, 20.0]))
    assert loose["ddp"].speedup.low < 2
    assert [doubt.short for doubt in loose.doubts["ddp"]] == ["parts do not add up"]
    told = loose.doubts["ddp"][0].sentence
    assert told == "computing takes 23.5 ms on one device and the whole step 20.2 ms here"
    assert loose.best is not None and loose.best.name == ONE
    # of a single run no interval says what is possible
    single = result_of(planted("ddp", 1, [62.3]), planted("ddp", 2, [29.9]))
    assert [doubt.short for doubt in single.doubts["ddp"]] == ["impossible"]


def test_two_repeats_far_apart_are_too_few() -> None:
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [11.0, 16.0]))
    assert [doubt.short for doubt in result.doubts["ddp"]] == ["too few repeats"]
    row = measured(result).set_index("name").loc["ddp"]
    assert row["rate_text"].endswith("(too few repeats)") and " to " not in row["rate_text"]
    assert result.best is not None and result.best.name == ONE, "one device leads what is believed"
    assert "Fastest" not in result.verdict, "two repeats leave out nothing"
    assert "ddp (9,481 samples/s, too few repeats) may be faster" in result.verdict
    slow = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, [90.0, 95.0, 190.0]))
    assert slow.doubts["ddp"] and "Fastest: one device" in slow.verdict, "all it allows is slower"
    both = result_of(planted("ddp", 1, [10.0, 15.0]), planted("ddp", 2, [11.0, 16.0]))
    assert both.best is None and both.verdict.startswith("No verdict: no figure here can be")
    assert "Ahead as measured: ddp" in both.verdict and both.ahead is not None


FLAG = "disturbed: others used 1.3 of 2 cores"


def test_disturbed_records_never_lead_and_quiet_ones_count() -> None:
    noisy = planted("ddp", 2, DDP, flags=[FLAG])
    result = result_of(planted("ddp", 1, STEADY), noisy)
    assert [doubt.short for doubt in result.doubts["ddp"]] == ["disturbed"]
    assert result.best is not None and result.best.name == ONE
    assert any(FLAG in told for told in remarks(result))
    # of those beside which nothing worked alone
    mixed = [*planted("ddp", 2, [25.0], flags=[FLAG]), *planted("ddp", 2, [25.0, *DDP], "dabc")[1:]]
    result = result_of(planted("ddp", 1, STEADY), mixed)
    assert not result.doubts["ddp"] and result["ddp"].row["n"] == 3
    assert result["ddp"].row["step_time_s"] == pytest.approx(0.011)
    assert "ddp: 1 of 4 repeats were disturbed and are left out." in remarks(result)
    every = result_of(planted("ddp", 1, STEADY, flags=[FLAG]), noisy)
    assert every.best is None and "believed (disturbed)" in every.verdict
    assert "Ahead as measured: ddp" in every.verdict


def test_a_disturbed_device_alone_makes_no_verdict_of_the_others() -> None:
    result = result_of(planted("ddp", 1, [10.5, 10.6, 10.4], flags=[FLAG]), planted("ddp", 2, DDP))
    assert result.best is not None and result.best.name == "ddp"
    assert result.verdict.startswith("No verdict, since one device's figure is not believed")


def test_a_device_alone_on_fewer_cores_is_no_baseline_of_like_with_like() -> None:
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP, host_threads=2))
    assert [doubt.short for doubt in result.doubts["ddp"]] == ["more cores"]
    assert "each device had 2 cores and one device alone 1" in result.doubts["ddp"][0].sentence


def test_what_a_placement_can_reach_follows_from_its_row() -> None:
    for name in ("ddp", "independent", "ps_gpu0"):
        row = find_placement(name)
        assert not divides_update(row) and reach(row, 4, 0.5) == 4
    for name in ("exp4", "zero1", "fsdp2"):
        row = find_placement(name)
        assert divides_update(row) and reach(row, 2, 0.0) == 2
        # half of a step is its update, of which each does half
        assert reach(row, 2, 0.5) == pytest.approx(2 * 1.0 / 0.75)
    assert reach(find_placement("exp4"), 2, 1.0) == 4
    run = planted("ddp", 1, STEADY)[0].run
    assert 0 < update_share(run, 0.01) < 0.2 and update_share(run, 1e-9) == 1.0


def test_a_forecast_is_as_wide_as_its_data_and_has_no_interval_from_a_single_run() -> None:
    result = result_of(planted("ddp", 1, [10.0, 11.0, 10.2]), planted("ddp", 2, [11.0, 12.1, 11.3]))
    ahead, data = result.forecast(8), result["ddp"].rate
    assert ahead.high / ahead.value >= data.high / data.value > 1.01
    assert ahead.low / ahead.value <= data.low / data.value
    for one, two in ((STEADY[:1], DDP), (STEADY, DDP[:1])):
        single = result_of(planted("ddp", 1, one), planted("ddp", 2, two)).forecast(8)
        assert math.isnan(single.low) and "single run" in f"{single:rate interval}"
    wide = as_wide_as(Estimate(100, 99, 101), Estimate(50, 40, 70))
    assert (wide.low, wide.high) == pytest.approx((80, 140))


def test_what_equal_rests_on_stands_beside_it() -> None:
    compared = {"distance": 1e-12, "tolerance": 1e-8, "steps": 3, "precision": "fp64"}
    points = [
        [
            record.model_copy(
                update={
                    "measurement": record.measurement.model_copy(
                        update={"equivalence": Equivalence(**compared)}
                    )
                }
            )
            for record in own
            if record.measurement
        ]
        for own in (planted("ddp", 1, STEADY), planted("ddp", 2, DDP))
    ]
    note = "the loss is a mean over tokens, not over samples"
    result = result_of(*points, notes=[note])
    assert set(result.table()["equal"]) == {"equal, with notes"}
    html, text = result._repr_html_(), "\n".join(lines(result))
    assert html.index("equal, with notes") < html.index(note[1:]) < html.index("Where a step goes")
    assert note[1:] in text
    assert set(result_of(*points).table()["equal"]) == {"equal"}


def test_a_batch_is_timed_by_itself_and_a_long_one_once() -> None:
    made: list[int] = []

    def job(pause_s: float) -> Job:
        def batch(n: int, generator: Any) -> tuple[np.ndarray, np.ndarray]:
            made.append(n)
            time.sleep(pause_s)
            return np.zeros((n, 3)), np.zeros(n)

        return Job(lambda: None, batch, lambda found, target: found, batch_size=4)

    told = making_of(job(0.6), "torch", 2)
    assert made == [4] and 0.6 <= told["batch_s"] < 1.2 and told["batch_by"] == "batch()"
    assert 0.01 <= making_of(job(0.01), "torch", 2)["batch_s"] < 0.2 and 3 < len(made) <= 22
