"""What merging costs is learned from planted steps, holds in the committed Records, and is told as
such.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.forecast import MOST, Points, forecast
from multigpu.analysis.forecast_reduction import Demand, Links
from multigpu.analysis.frame import frame_of
from multigpu.analysis.merge_cost import KINDS, MergeCost, kind_of, merge_costs, merged
from multigpu.analysis.points import points
from multigpu_study.analysis import forecast_accuracy, merge_cost
from tests.scripts import load

TRUE = np.array([0.6, 1.5, 1.2, 0.004, 8e-5])


def planted(count: int, spread: float, seed: int = 0, cost: np.ndarray = TRUE) -> pd.DataFrame:
    """Pairs whose steps follow known costs, moved by `spread` on logarithms; 8 models, two and
    four devices.
    """
    random = np.random.default_rng(seed)
    pairs = pd.DataFrame(
        {
            "machine": "planted",
            "placement": random.choice(["ddp", "exp4", "zero1"], count),
            "model": [f"model{number % 8}" for number in range(count)],
            "batch_size": 64,
            "form": "captured",
            "kind": random.choice(KINDS, count),
            "compute_s": random.uniform(1e-3, 0.1, count),
            "merge_s": random.uniform(1e-5, 5e-3, count),
            "devices": random.choice([2, 4], count),
            "n": 5,
        }
    )
    told_s = merge_cost.forecast_s(pairs, cost)
    return pairs.assign(step_s=told_s * np.exp(random.normal(0, spread, count)))


def test_known_costs_are_found_also_where_some_steps_are_far_off() -> None:
    pairs = planted(80, 0.0)
    assert merge_cost.learned(pairs) == pytest.approx(TRUE, rel=1e-4)
    odd = pairs.assign(step_s=pairs["step_s"].where(pairs.index >= 8, 1.5 * pairs["step_s"]))
    assert merge_cost.learned(odd) == pytest.approx(TRUE, rel=1e-3), "least absolute errors"
    none_beside = pairs[pairs["kind"].ne("beside")]
    assert merge_cost.learned(none_beside)[0] == 1.0, "what was never seen costs its links' time"


def test_steps_that_wait_for_no_host_cost_what_captured_ones_cost_whatever_some_waited() -> None:
    """Eight steady pairs, half of which waited 10 ms for a host: alone they tell other costs."""
    waited = planted(8, 0.0, seed=3).assign(form="steady", devices=2)
    waited["step_s"] += np.where(waited.index < 4, 0.01, 0.0)
    every = pd.concat([planted(80, 0.0), waited], ignore_index=True)
    found = merge_cost.learned_of("steady", every)
    assert found[merge_cost.OF_KERNELS] == pytest.approx(TRUE[merge_cost.OF_KERNELS], rel=1e-3)
    assert np.abs(merge_cost.learned(waited) / TRUE - 1)[merge_cost.OF_KERNELS].max() > 0.2


def test_bands_hold_95_of_100_models_that_were_left_out() -> None:
    pairs = planted(600, 0.03)
    told = forecast_accuracy.from_one(pairs)
    assert 0.92 < told["inside"].mean() < 0.98
    shifted = pairs.assign(step_s=pairs["step_s"].where(pairs["model"].ne("model3"), 9.0))
    held = forecast_accuracy.from_one(shifted).groupby("model")["inside"].mean()
    assert held["model3"] == 0 < held.drop("model3").min(), "a model's own errors widen no band"


def test_a_form_with_few_jobs_has_no_costs_of_its_own() -> None:
    rare = planted(5, 0.0).assign(form="steady", devices=2)
    every = pd.concat([planted(60, 0.0), rare], ignore_index=True)
    assert set(load("merge_cost").cost_table(every)) == {"captured"}
    assert merge_cost.merges(points(frame_of([])), {}).empty


def test_a_rate_is_told_with_the_band_of_its_form_and_a_lone_replica_loses_nothing() -> None:
    cost = MergeCost(*TRUE, low=0.9, high=1.25, pairs=40)
    rate = merged(64, 4, (0.1, 0.11, 0.09), 2e-3, "beside", cost, "images/s")
    lost_s = 0.6 * 2e-3 + 0.004 * 0.1 + 8e-5
    assert rate.value == pytest.approx(4 * 64 / (0.1 + lost_s))
    assert rate.low == pytest.approx(4 * 64 / (0.11 + lost_s) / 1.25)
    assert rate.high == pytest.approx(4 * 64 / (0.09 + lost_s) / 0.9)
    assert (kind_of("zero1"), kind_of("zero1", "copied_grouped")) == ("after", "beside")
    alone = merged(64, 4, (0.1, 0.1, 0.1), 0.0, "after", cost, "images/s")
    assert (alone.low, alone.value, alone.high) == pytest.approx((2560, 2560, 2560))


def test_what_no_merge_can_cost_does_not_grow_with_the_devices() -> None:
    """Two devices waited 50 ms that 1 ms of bytes cannot explain; on 8 they wait no 70 ms."""
    links = Links(1000.0)
    known = Points((1, 2), ((10.0,), (60.0,)), Demand(reduced=1000.0))
    row = forecast(known, [2, 8], links).set_index("devices")
    assert row.at[8, "meeting_s"] == row.at[2, "meeting_s"] == pytest.approx(50 - MOST)
    assert row.at[2, "step_s"] == pytest.approx(60)
    assert row.at[8, "step_s"] == pytest.approx(60 + MOST * 0.75)
    slow = replace(known, times_s=((10.0,), (11.0,)))
    assert forecast(slow, [8], links)["meeting_s"].iloc[0] == 0


def test_the_committed_costs_are_those_of_the_records_and_their_bands_hold() -> None:
    pairs = merge_cost.committed(paths.RUNS)
    told = forecast_accuracy.from_one(pairs)
    assert len(told) > 500 and 0.90 <= told["inside"].mean() <= 0.98
    known = merge_costs()
    for form, found in load("merge_cost").cost_table(pairs).items():
        assert found == pytest.approx(known[form], rel=0.02, abs=1e-6), "run workflow/merge_cost.py"
    replicated = told[told["kind"].ne("homes") & told["form"].eq("captured")]
    table = forecast_accuracy.accuracy(replicated, ["devices"]).set_index("devices")
    assert table.at[4, "mean_error"] <= 0.03, "the goal for replicated placements, captured"


def test_accuracy_counts_order_within_a_job_alone() -> None:
    told = pd.DataFrame(
        [
            ("a", "ddp", 1.0, 1.1),
            ("a", "exp4", 2.0, 1.0),  # told slower, was faster
            ("a", "zero1", 3.0, 3.0),
            ("b", "ddp", 9.0, 0.5),  # another job's
        ],
        columns=["model", "placement", "forecast_s", "step_s"],
    ).assign(batch_size=8, form="captured", devices=4, inside=[True, True, False, True])
    told = told.assign(error=told["forecast_s"] / told["step_s"] - 1)
    (row,) = forecast_accuracy.accuracy(told, ["form"]).to_dict("records")
    assert (row["n"], row["compared"], row["order"]) == (4, 3, pytest.approx(2 / 3))
    assert row["inside"] == 0.75 and row["mean_error"] == pytest.approx((0.1 / 1.1 + 1 + 17) / 4)
    (lone,) = forecast_accuracy.accuracy(told[told["model"].eq("b")], ["form"]).to_dict("records")
    assert lone["compared"] == 0 and math.isnan(lone["order"])
