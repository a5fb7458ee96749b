"""Frames of TrainingRecords and of synchrony's, on planted Records worked out by hand; committed
placements follow one curve.
"""

import math
from functools import cache
from typing import Any

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.points import where
from multigpu.analysis.training import (
    ALLOWED,
    curve_distance,
    curves_frame,
    reach_frame,
    same_curve_table,
    training_frame,
)
from multigpu.grids.training import GRIDS, joined_placements
from multigpu.records.training import TrainingRecord, TrainingStore
from multigpu_study.analysis import synchrony
from multigpu_study.analysis.synchrony import (
    devices_frame,
    downpour_frame,
    large_batch_frame,
    memory_frame,
    synchrony_frame,
)
from multigpu_study.synchrony.downpour import Downpour, DownpourRecord, simulate_downpour
from multigpu_study.synchrony.experiment import ConstantRate, Experiment
from multigpu_study.synchrony.grid import find_grid
from multigpu_study.synchrony.problems import Digits, LinearRegression
from multigpu_study.synchrony.record import SynchronyRecord, make_record
from multigpu_study.synchrony.server import Point
from multigpu_study.synchrony.simulate import simulate
from tests.multigpu.training.planted import trained
from tests.study.synchrony.planted import record, records

LOSSES = [2.0 - 0.05 * step for step in range(20)]
STRONG = {"devices": 2, "batch_size": 64, "scaling": "strong", "base_rate": 0.05, "epochs": 4}


def shifted(by: float) -> list[float]:
    """The curve, its second half `by` times itself higher."""
    return [*LOSSES[:10], *(loss * (1 + by) for loss in LOSSES[10:])]


def panel(other: float = 0.01, other64: float = 0.0, replicas: float = 0.5):
    """ddp in fp64 is the truth, ddp in fp32 lies 1% from it, exp2 and independent replicas as
    asked.
    """
    exact = {"precision": "fp64"}
    runs = (
        (0.0, "ddp", exact),
        (0.01, "ddp", {}),
        (other, "exp2", {}),
        (other64, "exp2", exact),
        (replicas, "independent", {}),
    )
    return [
        trained(shifted(by), placement=placement, **STRONG, **precision)
        for by, placement, precision in runs
    ]


def told(records: list[TrainingRecord]) -> pd.DataFrame:
    return same_curve_table(training_frame(records), curves_frame(records))


def test_a_row_a_distance_and_the_time_to_an_accuracy_by_hand():
    row = training_frame(
        [
            trained(
                LOSSES,
                accuracies=(0.5, 0.9, 0.8, 0.7),
                step_s=0.5,
                gpus=2,
                devices=2,
                energy_j=(30.0, 50.0),
            )
        ]
    ).iloc[0]
    assert (
        row["joined_batch"],
        row["steps"],
        row["train_s"],
        row["step_time_s"],
        row["units_per_s"],
    ) == (32, 20, 10.0, 0.5, 64.0)
    assert (row["last_loss"], row["accuracy"]) == (
        pytest.approx((LOSSES[18] + LOSSES[19]) / 2),
        0.7,
    )
    assert curve_distance(shifted(0.1), LOSSES) == pytest.approx(0.1)
    wobbling = [loss + (0.3 if step % 2 else -0.3) for step, loss in enumerate(LOSSES)]
    assert curve_distance(wobbling, LOSSES) == pytest.approx(0, abs=1e-12)
    assert curve_distance(LOSSES[:5], LOSSES) == math.inf
    found = reach_frame(
        [trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.95), step_s=0.5)], [0.85, 0.95, 0.99]
    )
    assert found[["steps", "seconds", "samples"]].to_numpy()[:2].tolist() == [
        [10, 5.0, 160],
        [20, 10.0, 320],
    ]
    assert math.isnan(found["steps"].iloc[2])


def test_what_cannot_miss_is_not_counted():
    """ddp beside itself lies at 0, and its drift within three times itself, whatever it does."""
    made = panel()
    table = told(made).set_index("key").loc[[one.key for one in made]]
    assert (
        table["role"].tolist() == ["reference", "yardstick", "compared", "compared", "free"]
        and table["same"][:2].isna().all()
    )
    assert told(made[:-1])["same"].isna().all(), (
        "without replicas nothing shows what the tolerance can tell"
    )


@pytest.mark.parametrize(
    ("asked", "point", "same"),
    [
        ({"other": 0.029}, ("exp2", "fp32"), True),  # the tolerance comes from the drift of fp32
        ({"other": 0.031}, ("exp2", "fp32"), False),
        # 2^-29 of 3% is 5.6e-11: what rounding can do there
        (
            {"other64": 5e-11},
            ("exp2", "fp64"),
            True,
        ),
        ({"other64": 1e-6}, ("exp2", "fp64"), False),
        ({}, ("independent", "fp32"), None),  # independent replicas need not follow
        # within fp32's 3%, which then tells nothing, and not within fp64's
        (
            {"replicas": 0.02},
            ("exp2", "fp32"),
            None,
        ),
        ({"replicas": 0.02}, ("exp2", "fp64"), True),
        # beyond even that tolerance it misses all the same
        (
            {"other": 0.031, "replicas": 0.02},
            ("exp2", "fp32"),
            False,
        ),
        ({"replicas": 0.031}, ("exp2", "fp32"), True),
    ],
)
def test_a_curve_is_the_same_within_what_rounding_and_not_replicas_would_keep(asked, point, same):
    table = told(panel(**asked))
    assert table["drift"].to_list() == pytest.approx([0.01] * 5) and ALLOWED == 3
    assert {(row["placement"], row["precision"]): row["same"] for _, row in table.iterrows()}[
        point
    ] is same


TRAINED = {"ddp", "exp1", "exp2", "exp3", "exp4", "independent", "ps_gpu0"}
TRAINED |= {f"replicated_{way}" for way in ("allreduce", "copy", "ring", "server")}
"""Placements that Records compare at the gentle rate; one that is added joins them with its first
Record.
"""


@cache
def committed() -> dict[str, TrainingRecord]:
    return {
        record.training.digest: record
        for record in TrainingStore(paths.TRAINING)
        if record.status == "ok"
    }


def compared_of(planned) -> tuple[list[TrainingRecord], pd.DataFrame, pd.DataFrame]:
    """The committed Records of what is planned, none of which is missing, their table and what is
    compared, all of which is the same.
    """
    missing = [training.label() for training in planned if training.digest not in committed()]
    assert not missing, missing
    own = [committed()[training.digest] for training in planned]
    table = told(own)
    compared = table[table["role"] == "compared"]
    assert compared["same"].tolist() == [True] * len(compared), compared[
        ["placement", "precision", "distance", "tolerance"]
    ]
    return own, table, compared


def test_committed_placements_follow_one_curve_to_the_end_of_their_budget(monkeypatch):
    """Every Record of the two grids that compare placements at a rate where they can be: there, at
    its last step, the same curve.
    """
    records = committed()
    known = joined_placements(unit="words")
    assert set(known) >= TRAINED
    monkeypatch.setattr("multigpu.grids.training.gpu_count", lambda: 2)
    two = [entry.built for entry in GRIDS["translation_cpu"]() if entry.built.base_rate == 1e-3]
    whole = [entry.built for entry in GRIDS["translation_gpu"]() if entry.built.run.devices == 2]
    assert len(two) == 2 * len(known) - 1 and len(whole) == len(known)
    two, whole = (
        [t for t in planned if t.run.placement in TRAINED or t.digest in records]
        for planned in (two, whole)
    )
    for planned, drift, beyond in ((two, 1e-6, 1e4), (whole, 0.01, 1.0)):
        own, table, compared = compared_of(planned)
        for m, training in ((one.measurement, one.training) for one in own):
            assert m is not None and m.steps == training.budget(m.steps_per_epoch) > 150
        assert (
            curves_frame(own).groupby("key")["step"].max()
            == [r.measurement.steps for r in sorted(own, key=lambda r: r.key)]
        ).all()
        assert len(table) == len(planned) and table["panel"].nunique() == 1
        assert set(compared["placement"]) >= TRAINED - {"ddp", "independent"}
        # rounding is small, and far from what another result does
        assert (
            table["drift"].max() < drift
            and table["replicas"].min() > beyond * table["tolerance"].max()
        )
        assert table.loc[table["role"] == "free", "placement"].tolist() == ["independent"]


@pytest.mark.parametrize("grid", ["training_cpu", "training_cifar_cpu", "training_alexnet_cpu"])
def test_committed_image_models_follow_one_curve_under_every_placement_on_cpus(grid: str):
    """make_parallel too, whose one process has all devices: every comparison of these grids has its
    Record, and none misses.
    """
    planned = [
        entry.built for entry in GRIDS[grid]() if "the same curve" in entry.settings.question
    ]
    _, table, compared = compared_of(planned)
    assert len(compared) == len(planned) - 3 * table["panel"].nunique(), (
        "all but reference, yardstick and independent replicas"
    )
    concatenated = compared[compared["processes"] == "one"]
    assert set(concatenated["placement"]) == {"make_parallel", "make_parallel_cpu"}
    assert (
        len(concatenated) == 4 * table["panel"].nunique()
        and (concatenated["replicas"] > concatenated["tolerance"]).all()
    )
    assert (concatenated.loc[concatenated["precision"] == "fp64", "distance"] < 1e-12).all()


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
    alone = find_grid("large_batch")[0].experiment
    assert isinstance(alone, Experiment) and isinstance(alone.rate, ConstantRate)
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
        problem=Digits(),
        rate=0.05,
        time_s=time_s,
        evaluations=2,
        **fields,
    )
    return simulate_downpour(e, e.open())[0]


def test_downpour_reaches_an_error_or_never_and_replicas_that_die_compute_less() -> None:
    made = [
        downpour(2, 2.0).model_copy(
            update={"curve": [Point(0.0, 0, 0, 2.0, 0.9), Point(400.0, 1, 1, 1.0, error)]}
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
        e.experiment
        for e in find_grid("memory")
        if isinstance(e.experiment, Experiment) and e.experiment.workers == 8
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
