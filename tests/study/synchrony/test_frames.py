"""Frames of synchrony's Records, on planted ones worked out by hand."""

import math
from typing import Any

import pandas as pd
import pytest
from benchmarks.synchrony.downpour import simulate_downpour

from multigpu.analysis.points import where
from multigpu.grids import find_grid
from multigpu_study.analysis import synchrony
from multigpu_study.analysis.servers import devices_frame, downpour_frame, large_batch_frame
from multigpu_study.analysis.synchrony import memory_frame, synchrony_frame
from multigpu_study.synchrony.downpour import Downpour, DownpourRecord
from multigpu_study.synchrony.experiment import ConstantRate, ProtocolExperiment
from multigpu_study.synchrony.grid import GRIDS
from multigpu_study.synchrony.problems import DigitsProblem, LinearRegression
from multigpu_study.synchrony.record import SynchronyRecord, make_record
from multigpu_study.synchrony.server import CurvePoint
from multigpu_study.synchrony.simulate import simulate
from tests.study.synchrony.planted import record, records

RATE = {"kind": "constant", "rate": 0.1}
LINEAR = {"kind": "linear_regression"}
LEAST = LinearRegression().build().best_loss


def test_the_frame_has_units_theory_and_errors_and_none_of_what_diverged() -> None:
    row = synchrony_frame([record("k_async", 10, 5, update_time_s=0.7, staleness=1.0)]).iloc[0]
    assert (row["workers"], row["gradients"], row["gradients_per_update"], row["mean_s"]) == (
        10,
        5,
        5,
        1.0,
    )
    assert row["gradient_time_s"] == pytest.approx(0.14) and row[
        "staleness_of_n_k"
    ] == pytest.approx(0.5)
    assert (
        row["theory_s"] == pytest.approx(sum(1 / i for i in range(6, 11)))
        and row["staleness_theory"] == 1.0
    )
    # twenty parts, 1% below and above in turn: s is 1% times the root of 20/19
    low, high = row["update_time_low_s"] / 0.7, row["update_time_high_s"] / 0.7
    assert low == pytest.approx(
        1 - 2.093 * 0.010260 / math.sqrt(20), abs=1e-6
    ) and high == pytest.approx(2 - low)
    # of 9 points the last quarter is 2; 5% of 40 s is past the first point
    common = {"problem": LINEAR, "rate": RATE, "time_s": 40.0}
    curve = record("sync", 8, losses=(9.0, *(LEAST + 1,) * 6, *(LEAST + 0.5,) * 2), **common)
    diverged = record("async", 8, losses=(1.0, math.inf, math.nan), **common)
    frame = synchrony_frame(
        [curve, diverged, diverged.model_copy(update={"result": None, "status": "failed"})]
    )
    assert frame["excess_last"].iloc[0] == pytest.approx(0.5) and frame["excess_early"].iloc[
        0
    ] == pytest.approx(1.0)
    assert not math.isfinite(frame["loss_last"].iloc[1]) and pd.isna(frame["loss_last"].iloc[2])


def test_sync_over_async_is_told_by_update_and_by_sample() -> None:
    """At P = 16 sync takes 3 s an update and async 1 / P; another protocol is no part of it."""
    made = [
        record("k_sync", 16, 8, update_time_s=0.5),
        *records("sync", 16, update_time_s=3.0),
        *records("async", 16, update_time_s=1 / 16),
    ]
    ratios = synchrony.ratio_frame(synchrony_frame(made)).set_index("unit")
    assert (ratios.loc["update", "ratio"], ratios.loc["sample", "ratio"]) == (
        pytest.approx(48),
        pytest.approx(3),
    )
    assert (ratios["ratio_low"] < ratios["ratio"]).all() and (ratios["n"] == 5).all()
    assert synchrony.ratio_frame(synchrony_frame([])).empty


def test_a_row_says_its_batch_and_the_rule_of_its_rate() -> None:
    alone = find_grid("large_batch", grids=GRIDS)[0].run
    assert isinstance(alone, ProtocolExperiment) and isinstance(alone.rate, ConstantRate)
    base, common = (
        alone.rate.rate,
        {"problem": alone.problem, "law": alone.law, "losses": (1.0, 1.0), "errors": (0.9, 0.02)},
    )
    warm_up = {"kind": "warm_up", "start": base, "updates": 4, "rate": 16 * base}
    rules = ((1, {"rate": base}), (4, {"rate": 4 * base}), (16, warm_up))
    frame = large_batch_frame(
        [
            record("sync", n, rate=RATE | rule, update_time_s=1 + n / 100, **common)
            for n, rule in rules
        ]
    )
    assert frame[["batch", "rule"]].to_numpy().tolist() == [
        [32, "one"],
        [128, "scaled"],
        [512, "warm_up"],
    ]
    assert frame["epoch_s"].iloc[-1] == pytest.approx(1.16 * 1437 / 512), (
        "1,437 rows in batches of 512 take 1.16 s each"
    )
    assert large_batch_frame(
        [record("sync", 4, problem=alone.problem, rate=RATE | {"rate": base})]
    ).empty


def downpour(replicas: int, time_s: float, **fields: Any) -> DownpourRecord:
    law = {"kind": "constant", "time_s": 1.0}
    e = Downpour(
        replicas=replicas,
        shards=2,
        law=law,
        problem=DigitsProblem(),
        rate=0.05,
        time_s=time_s,
        evaluations=2,
        **fields,
    )
    return simulate_downpour(e, e.open())[0]


def test_downpour_reaches_an_error_or_never_and_replicas_that_die_compute_less() -> None:
    made = [
        downpour(2, 2.0).model_copy(
            update={"curve": [CurvePoint(0.0, 0, 0, 2.0, 0.9), CurvePoint(400.0, 1, 1, 1.0, error)]}
        )
        for error in (0.04, 0.5)
    ]
    assert downpour_frame(made)["time_to_error_s"].tolist() == pytest.approx(
        [400.0, math.nan], nan_ok=True
    )
    # eight replicas compute four batches each; one that dies at 1.5 has one, and two more if it
    # returns at 2
    away = {"worker": 0, "at_s": 1.5}
    frame = downpour_frame(
        downpour(8, 4.5, outages=one) for one in ((), (away,), (away | {"until_s": 2.0},))
    )
    assert dict(zip(frame["outages"], frame["batches"], strict=True)) == {
        "none": 32,
        "leave": 29,
        "return": 31,
    }


def test_the_server_holds_a_version_a_batch_under_way() -> None:
    planned = [
        e.run
        for e in find_grid("memory", grids=GRIDS)
        if isinstance(e.run, ProtocolExperiment) and e.run.workers == 8
    ]
    held = memory_frame(make_record(e, simulate(e)) for e in planned).set_index("protocol")
    # sync: one version and eight gradients; async: its gradient and at most a version for every
    # worker
    assert held.loc["sync", "held"] == 9 and 5 <= held.loc["async", "held"] <= 9
    assert (
        held.loc["sync", "exchanged"] == pytest.approx(2, abs=0.02)
        and held.loc["k_sync", "exchanged"] > 2.9
    )


def on_device(
    protocol: str, k: int | None, update_time_s: float, delay_s: float = 0.0, server: str = "host"
) -> SynchronyRecord:
    """A real run of two workers whose batches take 0.1 s."""
    fields = {
        "law": {"kind": "computed"},
        "clock": "real",
        "rate": RATE,
        "update_time_s": update_time_s,
    }
    problem = {"kind": "model", "workload": "cnn", "model": "resnet_tiny"}
    late = {"delays_s": (0.0, delay_s) if delay_s else None, "server_device": server}
    planted = record(
        protocol, 2, k, problem=problem, losses=(2.0, 1.0), errors=(0.9, 0.5), **fields, **late
    )
    assert planted.result is not None
    timed = {"batch_times_s": [[0.1] * 5, [0.1] * 5], "server_time_s": 0.0}
    return planted.model_copy(update={"result": planted.result.model_copy(update=timed)})


def test_runs_on_devices_stand_beside_predictions_and_servers_beside_the_hosts() -> None:
    """Each after its twin on the host, and predicted from its own server's sync."""
    steps = (("sync", 0.1, 0), ("async", 0.1, 0), ("sync", 0.4, 0.3), ("async", 0.08, 0.3))
    host = [on_device(name, None, step_s, late) for name, step_s, late in steps]
    device = [
        on_device("sync", None, 0.1, server="cpu"),
        on_device("async", None, 0.05, 0.3, server="cpu"),
    ]
    frame = devices_frame([*device, *host])
    assert frame["protocol"].tolist() == ["sync", "sync", "async", "sync", "async", "async"]
    assert frame["server_device"].tolist() == ["host", "cpu", "host", "host", "host", "cpu"]
    assert frame["base"].tolist() == [
        (device if name == "cpu" else host)[0].key for name in frame["server_device"]
    ]
    late = where(frame, server_device="host", straggler_s=0.3)
    # one gradient every 0.1 s and one every 0.4 s: 12.5 a second
    assert (
        late["gradients_per_s"].tolist()
        == pytest.approx([5.0, 12.5])
        == late["predicted_per_s"].round(1).tolist()
    )
    assert devices_frame(host[3:])["predicted_per_s"].isna().all()
    # they are no part of the figures on the virtual clock
    assert (
        synchrony.curves_frame(host)["clock"].tolist() == ["real"] * 8
        and synchrony_frame(host)["theory_s"].isna().all()
    )
    assert set(frame["problem"]) == {"images (tiny ResNet), batch 32"} and set(
        frame["machine"]
    ) == {host[0].machine.name}
