"""What steps tell, on planted numbers: input workers, warm-up's end, losses beside a reference."""

import math

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.records.record import Record
from multigpu_study.analysis import steps as tell
from tests.factory import make_record
from tests.multigpu.analysis.test_points import FRAME, RECORDS
from tests.multigpu.analysis.test_steps import fed
from tests.refusals import refused


def test_a_planted_knee_is_found_and_rates_that_still_rise_have_none() -> None:
    workers = [16, 1, 2, 4, 8, 12]
    for ceiling in (750.0, 300.0):
        found = tell.knee(workers, [min(100.0 * count, ceiling) for count in workers])
        assert found == pytest.approx((100.0, ceiling, ceiling / 100), rel=1e-6)
    assert tell.knee([1, 2, 4], [98.0, 203.0, 397.0]) == (
        pytest.approx(99.5, rel=0.01),
        math.inf,
        math.inf,
    )
    for few, rates in (([1], [2.0]), ([1, 2], [1.0, 0.0])):
        refused("a knee needs at least two positive points", tell.knee, few, rates)


def stepping(
    slow: int, times: float, steps: int = 40, noise: float = 0.01, seed: int = 0
) -> np.ndarray:
    """Step times of 20 ms with noise, the first `slow` ones longer by a factor."""
    return (
        0.02
        * np.exp(np.random.default_rng(seed).normal(0, noise, steps))
        * np.where(np.arange(steps) < slow, times, 1.0)
    )


def test_a_planted_change_is_found_and_times_that_are_steady_or_grow_have_no_warm_up() -> None:
    for slow, times in ((1, 30.0), (3, 1.3), (5, 1.1), (8, 2.0), (12, 1.06), (20, 1.2)):
        assert [tell.change_point(stepping(slow, times, seed=seed)) for seed in range(3)] == [
            slow
        ] * 3
    curve = stepping(4, 1.5)
    curve[0] = 10.0
    assert tell.change_point(curve) == 4
    found = [tell.change_point(stepping(0, 1.0, seed=seed)) for seed in range(40)]
    assert sum(steps > 0 for steps in found) <= 5  # 5% of them by construction
    # slower later: something else
    assert tell.change_point(stepping(20, 0.8)) == tell.change_point([0.02] * 30) == 0
    refused(
        "7 steps are too few to see a change: at least 8 are needed", tell.change_point, [1.0] * 7
    )
    refused(r"step times must be positive: one is 0\.0", tell.change_point, [1.0] * 9 + [0.0])


def test_records_are_read_by_their_slowest_rank_and_host_clocks_are_left_out() -> None:
    slow, fast = list(stepping(12, 1.2, seed=1)), list(stepping(0, 1.0, seed=2) * 0.9)
    records = [
        make_record(measurement={"step_time_s": [fast, slow]}, seed=1),
        make_record(measurement={"step_clock": "host"}, seed=2),
        make_record(traced_steps=3, seed=3),
        make_record(workload="cnn", seed=4, execution="captured"),
    ]
    found = tell.warmup_frame(records)
    assert found["key"].tolist() == [records[0].key, records[3].key] and found[
        "steps"
        # the factory's first three
    ].tolist() == [12, 3]
    assert found[["first_step_s", "seconds"]].iloc[0].tolist() == pytest.approx(
        [slow[0], np.maximum(slow, fast)[:12].sum()]
    )


def trained(
    loss: list[float], skipped_steps: tuple[int, int] | None = None, **fields: object
) -> Record:
    return make_record(measurement={"loss": loss, "skipped_steps": skipped_steps}, **fields)


PLAIN = trained([10.0 - step / 10 for step in range(40)], precision="fp32")


def test_the_difference_is_of_the_first_steps_means_within_one_job() -> None:
    late = trained([10.0 - step / 10 if step < tell.STEPS else 1.0 for step in range(40)])
    off = trained([1.02 * (10.0 - step / 10) for step in range(40)], execution="captured")
    others = [
        trained([1.0] * 40, **other)
        for other in ({"devices": 4}, {"batch_size": 360}, {"placement": "independent"})
    ]
    table = tell.parity([PLAIN, late, off, *others, trained([1.0] * (tell.STEPS - 1))])
    assert list(table["difference"]) == pytest.approx([0.0, 0.0, 0.02])


def test_steps_that_left_their_update_out_are_passed_over() -> None:
    """Two of fp16's first steps overflowed, the first and the fourth: the same batch has the same
    loss once more.
    """
    plain = PLAIN.measurement.loss
    skipping = [plain[0], plain[0], plain[1], plain[2], plain[2], *plain[3:38]]

    def in_fp16(counted: tuple[int, int] | None) -> Record:
        return trained(skipping, counted, workload="cnn", devices=1, precision="fp16")

    reference = trained(plain, workload="cnn", devices=1, precision="fp32")
    assert (
        tell.learning_losses(in_fp16((2, 0))) == plain[:38]
        and tell.learning_losses(in_fp16((1, 1))) == plain[:38]
    )
    assert tell.learning_losses(in_fp16((1, 0))) == skipping[1:], (
        "no more are passed over than were counted"
    )
    assert tell.learning_losses(in_fp16((0, 0))) == tell.learning_losses(in_fp16(None)) == skipping
    late, same = (
        tell.parity([reference, in_fp16(counted)])["difference"].iloc[1]
        for counted in (None, (2, 0))
    )
    assert late > 0.01 and same == pytest.approx(0)


def test_what_tensorflow_draws_by_itself_is_left_out() -> None:
    twin = {
        "framework": "tensorflow",
        "placement": "exp4",
        "processes": "one",
        "execution": "graph",
    }
    for workload, compared in (("nmt", 2), ("cnn", 1), ("stacks", 1)):
        job = {"workload": workload, "precision": "fp32", "devices": 1}
        assert (
            len(tell.parity([trained([1.0] * 40, **job), trained([1.0] * 40, **job, **twin)]))
            == compared
        )


TOLERANCE = 0.01
"""By how much a loss may differ from the reference's."""


BY_GRAPH = {"ddp", "exp4", "ps_gpu0", "replicated_copy", "replicated_allreduce"}


def test_captured_records_train_as_eager_ones_do(committed: list[Record]) -> None:
    """As page 05 compares: mean loss of the first steps beside the same job's plain Run, for both
    forms of execution of a placement.
    """
    table = tell.parity(committed)
    table = table[~table["staged"] & table["framework"].eq("torch")]
    # fp16's scale is found or fixed
    plain = table[table["execution"].eq("eager") & table["precision"].ne("fp16")]
    repeats = plain.groupby([*tell.JOB, *tell.WAY, "placement"], dropna=False)["difference"]
    wide = (
        (repeats.transform("max") - repeats.transform("min"))
        .gt(2 * TOLERANCE)
        .reindex(table.index, fill_value=False)
    )
    chaotic = (
        wide.groupby(table.groupby(list(tell.JOB), dropna=False).ngroup())
        .transform("any")
        .astype(bool)
    )
    assert set(table[chaotic]["model"]) <= {"resnet110"}, (
        "a job whose plain repeats part in ten steps tells nothing"
    )
    table = table[~chaotic]
    captured = table[table["execution"].str.contains("captured")]
    eager = table[table["execution"].eq("eager")]
    assert set(captured["model"]) >= {"nmt000", "resnet50_v1.5"}
    assert (captured["difference"].abs() < 2 * TOLERANCE).all(), (
        "one Record parts from plain training"
    )
    # of repeats: kernels may add in other orders
    far = captured.groupby([*tell.JOB, *tell.WAY, "placement"], dropna=False)["difference"].median()
    assert (far.abs() <= TOLERANCE).all(), far[far.abs() > TOLERANCE].to_string()
    same = [*tell.JOB, "precision", "placement"]
    means = eager.groupby(same, dropna=False)["difference"].median().rename("eager").reset_index()
    both = pd.merge(captured, means, on=same)
    assert len(both) > 50 and set(both["placement"]) >= BY_GRAPH
    apart = both[((1 + both["difference"]) / (1 + both["eager"]) - 1).abs() > TOLERANCE]
    assert apart.empty, ", ".join(apart["key"])


def test_points_are_told_with_the_mean_wait_of_their_records() -> None:
    records = [fed([[0.01] * 14], repeat=0), fed([[0.03] * 14], repeat=1), fed([], input_workers=8)]
    table = tell.with_waits(points(frame_of(records)), records).set_index("input_workers")["wait_s"]
    assert table[4] == pytest.approx(0.02) and math.isnan(table[8])


def test_every_step_of_the_records_named_is_a_row_a_rank() -> None:
    steps = tell.step_times(RECORDS, [FRAME["key"].iloc[0], "unknown"])
    assert len(steps) == 2 * 40 and (steps["timed"] == (steps["step"] >= 10)).all()
    assert tell.step_times(RECORDS, []).dtypes.to_dict() == steps.dtypes.to_dict()
