"""The frames of synchrony, on planted Records worked out by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from multigpu.analysis.synchrony import curves_frame, ratio_frame, synchrony_frame
from multigpu.synchrony.problems import LinearRegression
from multigpu.synchrony.record import SynchronyRecord
from tests.synchrony.planted import record, records

RATE = {"kind": "constant", "rate": 0.1}
LINEAR, DIGITS = {"kind": "linear_regression"}, {"kind": "digits"}
SIX = (("sync", None), ("async", None), *((name, 4) for name in ("k_sync", "k_batch_sync", "k_async", "k_batch_async")))
LEAST = LinearRegression().build().best_loss


def runtimes() -> list[SynchronyRecord]:
    """Every protocol at P = 8 and 16 with K = P/2, sync 3 and async 0.125 an update; every K at 16."""
    made = []
    for p in (8, 16):
        for name, k in SIX:
            time_s = {"sync": 3.0, "async": 1 / p}.get(name, 0.5)
            counts = [None] if k is None else sorted({p // 2, *((1, 16) if p == 16 else ())})
            made += (
                records(name, p, update_time_s=time_s) if k is None else [record(name, p, half, update_time_s=time_s) for half in counts]
            )
    return made


def trained() -> list[SynchronyRecord]:
    """Curves on two problems: async is there at once and ends at 10 times sync's loss above the least."""
    made = []
    for name, k in SIX:
        tail = 0.1 if name == "async" else 0.01
        for seed in range(2):
            common = {"rate": RATE, "time_s": 40.0, "seed": seed}
            ends = (LEAST + (tail if k or tail == 0.1 else 3), *(LEAST + tail,) * 7)
            made.append(record(name, 8, k, problem=LINEAR, losses=(LEAST + 3, *ends), **common))
            made.append(record(name, 8, k, problem=DIGITS, losses=(2.0,) * 9, errors=(0.9, *(0.1,) * 8), **common))
    return made


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
    ratios = ratio_frame(synchrony_frame(runtimes())).set_index(["workers", "unit"])
    assert ratios.loc[(16, "update"), "ratio"] == pytest.approx(48) and ratios.loc[(16, "sample"), "ratio"] == pytest.approx(3)
    assert (ratios["ratio_low"] < ratios["ratio"]).all() and (ratios["n"] == 5).all()
    assert ratio_frame(synchrony_frame([])).empty


def test_a_curve_is_a_row_a_point() -> None:
    curves = curves_frame(trained())
    assert curves["key"].nunique() == len(trained()) and (curves.groupby("key").size() == 9).all()
    assert curves_frame([]).empty and list(curves_frame([]).columns) == list(curves.columns)
