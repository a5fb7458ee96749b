"""The frames of synchrony on planted Records: protocols, large batches, Downpour, the server's memory, runs on devices."""

import math
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.synchrony import (
    curves_frame,
    devices_frame,
    downpour_frame,
    large_batch_frame,
    memory_frame,
    paper,
    ratio_frame,
    synchrony_frame,
)
from multigpu.synchrony.downpour import Downpour, DownpourRecord, simulate_downpour
from multigpu.synchrony.experiment import ConstantRate, Experiment
from multigpu.synchrony.grid import find_grid
from multigpu.synchrony.problems import Digits, LinearRegression
from multigpu.synchrony.record import SynchronyRecord, make_record
from multigpu.synchrony.server import Point
from multigpu.synchrony.simulate import simulate
from tests.synchrony.planted import record, records

RATE = {"kind": "constant", "rate": 0.1}
LINEAR = {"kind": "linear_regression"}
LEAST = LinearRegression().build().best_loss


def test_the_frame_has_units_theory_and_errors_above_the_least() -> None:
    row = synchrony_frame([record("k_async", 10, 5, update_time_s=0.7, staleness=1.0)]).iloc[0]
    assert (row["workers"], row["gradients"], row["gradients_per_update"], row["mean_s"]) == (10, 5, 5, 1.0)
    assert row["gradient_time_s"] == pytest.approx(0.14) and row["staleness_of_n_k"] == pytest.approx(0.5)
    assert row["theory_s"] == pytest.approx(sum(1 / i for i in range(6, 11))) and row["staleness_theory"] == 1.0
    # twenty parts, 1% below and above in turn: s is 1% times the root of 20/19
    low, high = row["update_time_low_s"] / 0.7, row["update_time_high_s"] / 0.7
    assert low == pytest.approx(1 - 2.093 * 0.010260 / math.sqrt(20), abs=1e-6) and high == pytest.approx(2 - low)
    # of 9 points the last quarter is 2; 5% of 40 s is past the first point
    curve = synchrony_frame(
        [record("sync", 8, problem=LINEAR, rate=RATE, time_s=40.0, losses=(9.0, *(LEAST + 1,) * 6, *(LEAST + 0.5,) * 2))]
    )
    assert curve["excess_last"].iloc[0] == pytest.approx(0.5) and curve["excess_early"].iloc[0] == pytest.approx(1.0)


def test_a_diverged_or_failed_run_has_no_figure_that_could_decide() -> None:
    diverged = record("async", 8, problem=LINEAR, rate=RATE, time_s=40.0, losses=(1.0, math.inf, math.nan))
    failed = diverged.model_copy(update={"result": None, "status": "failed"})
    frame = synchrony_frame([diverged, failed])
    assert not math.isfinite(frame["loss_last"].iloc[0]) and pd.isna(frame["loss_last"].iloc[1])


def test_sync_over_async_is_told_by_update_and_by_sample() -> None:
    """At P = 8 and 16 sync takes 3 s an update and async 1 / P; other protocols are no part of it."""
    others = ("k_sync", "k_batch_sync", "k_async", "k_batch_async")
    made = [record(name, 16, k, update_time_s=0.5) for name in others for k in (1, 8, 16)]
    for p in (8, 16):
        made += [*records("sync", p, update_time_s=3.0), *records("async", p, update_time_s=1 / p)]
    ratios = ratio_frame(synchrony_frame(made)).set_index(["workers", "unit"])
    assert ratios.loc[(16, "update"), "ratio"] == pytest.approx(48) and ratios.loc[(16, "sample"), "ratio"] == pytest.approx(3)
    assert (ratios["ratio_low"] < ratios["ratio"]).all() and (ratios["n"] == 5).all()
    assert ratio_frame(synchrony_frame([])).empty


def test_a_curve_is_a_row_a_point() -> None:
    made = [record("async", 8, problem=LINEAR, rate=RATE, time_s=40.0, losses=(2.0,) * 9, seed=seed) for seed in (0, 1)]
    curves = curves_frame(made)
    assert curves["key"].nunique() == 2 and (curves.groupby("key").size() == 9).all()
    assert curves_frame([]).empty and list(curves_frame([]).columns) == list(curves.columns)


ALONE = find_grid("large_batch")[0].experiment
assert isinstance(ALONE, Experiment) and ALONE.problem is not None and isinstance(ALONE.rate, ConstantRate)
PROBLEM, LAW, BASE = ALONE.problem, ALONE.law, ALONE.rate.rate


WARM_UP = {"kind": "warm_up", "start": BASE, "updates": 4}
LARGE = [(1, {}, 0.02), (4, {}, 0.05), (16, {}, 0.09), (4, {"rate": 4 * BASE}, 0.025), (16, {"rate": 16 * BASE}, 0.5)]
LARGE += [(n, WARM_UP | {"rate": n * BASE}, error) for n, error in ((4, 0.02), (16, 0.022))]
"""Workers, the rule of the rate and the error at the end."""


def test_the_grid_of_large_batches_sees_equally_many_rows() -> None:
    for entry in find_grid("large_batch"):
        e = entry.experiment
        assert isinstance(e, Experiment) and e.problem is not None and e.updates is not None
        assert e.updates * e.workers * e.problem.batch_size / e.problem.rows == pytest.approx(30, rel=0.02)


def test_a_row_says_its_batch_and_the_rule_of_its_rate() -> None:
    common = {"problem": PROBLEM, "law": LAW, "losses": (1.0, 1.0)}
    made = [
        record(
            "sync", n, rate=RATE | {"rate": BASE} | rule, errors=(0.9, error + seed / 1000), update_time_s=1 + n / 100, seed=seed, **common
        )
        for n, rule, error in LARGE
        for seed in (0, 1)
    ]
    frame = large_batch_frame(made)
    assert set(frame["batch"]) == {32, 128, 512} and set(frame["rule"]) == {"one", "scaled", "warm_up"}
    assert frame.groupby(["batch", "rule"])["error"].min().loc[(128, "scaled")] == 0.025 and frame["problem"].nunique() == 1
    # 1,437 rows in batches of 512 take 1.16 s each
    wide = frame[(frame["batch"] == 512)].iloc[0]
    assert wide["epoch_s"] == pytest.approx(1.16 * 1437 / 512)
    assert large_batch_frame([record("sync", 4, problem=PROBLEM, rate={"kind": "constant", "rate": BASE})]).empty


def test_half_a_second_is_half_a_minute() -> None:
    """90 x 1.28 million images in an hour on 256 GPUs are 125 a second of each; 352 of them take 29 s for an epoch."""
    p = paper()
    assert p["images_per_s"] == 32_000 and p["of_one"] == 125 and p["epoch_s"] == pytest.approx(1_280_000 / 44_000)


def downpour(replicas: int, scale: dict[str, Any], time_s: float, **fields: Any) -> DownpourRecord:
    e = Downpour(replicas=replicas, shards=2, law=scale, problem=Digits(), rate=0.05, time_s=time_s, **fields)
    return simulate_downpour(e, e.open())[0]


def test_downpour_against_replicas() -> None:
    """Curves that reach the error after 400 s with one replica, after 100 s with 8, never with 16."""
    made = []
    for replicas, reached in ((1, 400.0), (8, 100.0), (16, None)):
        curve = [Point(0.0, 0, 0, 2.0, 0.9), Point(reached or 500.0, 1, 1, 1.0, 0.04 if reached else 0.5)]
        every = [downpour(replicas, {"kind": "exponential", "scale_s": 1.0}, 16 / replicas, seed=seed) for seed in (0, 1)]
        made += [record.model_copy(update={"curve": curve}) for record in every]
    frame = downpour_frame(made)
    assert frame["time_to_error_s"].dropna().tolist() == [400.0, 400.0, 100.0, 100.0] and (frame["outages"] == "none").all()


def test_replicas_that_die_are_compared_with_those_that_stay() -> None:
    """Eight replicas compute four batches each; one that dies at 1.5 has one, and two more if it returns at 2."""
    away = {"worker": 0, "at_s": 1.5}
    ways = ((), (away,), (away | {"until_s": 2.0},))
    frame = downpour_frame(downpour(8, {"kind": "constant", "time_s": 1.0}, 4.5, outages=one, evaluations=2) for one in ways)
    assert dict(zip(frame["outages"], frame["batches"], strict=True)) == {"none": 32, "leave": 29, "return": 31}


def test_the_server_holds_a_version_a_batch_under_way() -> None:
    planned = [e.experiment for e in find_grid("memory") if isinstance(e.experiment, Experiment) and e.experiment.workers == 8]
    records = [make_record(e, simulate(e)) for e in planned]
    held = memory_frame(records).set_index("protocol")
    # sync: one version and eight gradients; async: its gradient and at most a version for every worker
    assert held.loc["sync", "held"] == 9 and 5 <= held.loc["async", "held"] <= 9
    assert held.loc["sync", "exchanged"] == pytest.approx(2, abs=0.02) and held.loc["k_sync", "exchanged"] > 2.9


def on_device(protocol: str, k: int | None, update_time_s: float, delay_s: float = 0.0, server: str = "host") -> SynchronyRecord:
    """A real run of two workers whose batches take 0.1 s."""
    fields = {"law": {"kind": "computed"}, "clock": "real", "rate": {"kind": "constant", "rate": 0.1}, "update_time_s": update_time_s}
    problem = {"kind": "model", "workload": "cnn", "model": "resnet_tiny"}
    late = {"delays_s": (0.0, delay_s) if delay_s else None, "server_device": server}
    planted = record(protocol, 2, k, problem=problem, losses=(2.0, 1.0), errors=(0.9, 0.5), **fields, **late)
    assert planted.result is not None
    timed = {"batch_times_s": [[0.1] * 5, [0.1] * 5], "server_time_s": 0.0}
    return planted.model_copy(update={"result": planted.result.model_copy(update=timed)})


def test_a_server_on_a_device_stands_beside_one_on_the_host() -> None:
    steps = (("sync", 0.2, 0), ("async", 0.1, 0), ("sync", 0.5, 0.3), ("async", 0.1, 0.3))
    host = [on_device(name, None, step_s, late) for name, step_s, late in steps]
    device = [on_device("sync", None, 0.1, server="cpu"), on_device("async", None, 0.05, 0.3, server="cpu")]
    frame = devices_frame([*device, *host])
    # each after its twin on the host, and predicted from its own server's sync
    assert frame["protocol"].tolist() == ["sync", "sync", "async", "sync", "async", "async"]
    assert frame["server_device"].tolist() == ["host", "cpu", "host", "host", "host", "cpu"]
    assert set(frame[frame["server_device"] == "cpu"]["base"]) == {device[0].key} and device[0].key != host[0].key


def test_runs_on_devices_stand_beside_predictions_from_syncs_steps() -> None:
    made = [on_device("sync", None, 0.1), on_device("sync", None, 0.4, 0.3), on_device("async", None, 0.08, 0.3)]
    frame = devices_frame(made).set_index(["protocol", "straggler_s"])
    late = frame.loc[("sync", 0.3)]
    assert (late["gradients_per_s"], late["predicted_per_s"]) == (pytest.approx(5.0), pytest.approx(5.0))
    # one gradient every 0.1 s and one every 0.4 s: 12.5 a second
    assert frame.loc[("async", 0.3), "predicted_per_s"] == pytest.approx(12.5, rel=0.01)
    assert set(frame["base"]) == {made[0].key}
    assert devices_frame(made[2:])["predicted_per_s"].isna().all()
    # they are no part of the figures on the virtual clock
    assert (curves_frame(made)["clock"] == "real").all() and synchrony_frame(made)["theory_s"].isna().all()
