"""What steps tell, on planted numbers: waits for batches, where workers give out, where warm-up ends, losses beside the reference."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.analysis.steps import JOB, STEPS, WAY, change_point, knee, learning_losses, parity, waited_s, warmup_frame, with_waits
from multigpu.record import Record
from tests.factory import make_record
from tests.refusals import refused

LENGTH = {"warmup_steps": 4, "timed_steps": 10}


def fed(rate: float, wait_s: float = 0.0, **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU at 64 images a step."""
    common: dict[str, Any] = {"workload": "cnn", "devices": 1, **LENGTH, "inputs": "jpeg_folder", "input_workers": 4, "prefetch": 1}
    waits = {"input_wait_s": [[wait_s] * 14]} if "inputs" not in more else {}
    return make_record(units_per_s=rate, measurement=more.pop("measurement", waits), **(common | more))


@pytest.mark.parametrize(("ceiling", "bend"), [(750.0, 7.5), (300.0, 3.0)])
def test_a_planted_knee_is_found(ceiling: float, bend: float) -> None:
    workers = [16, 1, 2, 4, 8, 12]
    found = knee(workers, [min(100.0 * count, ceiling) for count in workers])
    assert found == pytest.approx((100.0, ceiling, bend), rel=1e-6)


def test_rates_that_still_rise_have_no_knee() -> None:
    found = knee([1, 2, 4], [98.0, 203.0, 397.0])
    assert found.per_worker == pytest.approx(99.5, rel=0.01) and math.isinf(found.ceiling) and math.isinf(found.workers)
    for workers, rates in (([1], [2.0]), ([1, 2], [1.0, 0.0])):
        refused("a knee needs at least two positive points", knee, workers, rates)


def test_a_wait_is_of_the_second_half_and_the_slowest_replica_and_a_points_the_mean_of_its_records() -> None:
    waits = [[0.0] * 9 + [0.044] * 5, [0.0] * 9 + [0.05] * 5]
    assert waited_s(fed(1000.0, measurement={"input_wait_s": waits})) == pytest.approx(0.05)
    assert waited_s(fed(1000.0, inputs="synthetic", input_workers=None, prefetch=0)) == 0.0
    assert math.isnan(waited_s(fed(1000.0, measurement={"input_wait_s": []})))
    records = [fed(1000.0, 0.01, repeat=0), fed(1000.0, 0.03, repeat=1), fed(900.0, input_workers=8, measurement={"input_wait_s": []})]
    table = with_waits(points(frame_of(records)), records).set_index("input_workers")["wait_s"]
    assert table[4] == pytest.approx(0.02) and math.isnan(table[8])
    assert with_waits(points(frame_of([])), []).empty


def stepping(slow: int, times: float, steps: int = 40, noise: float = 0.01, seed: int = 0) -> np.ndarray:
    """Step times of 20 ms with noise, the first `slow` ones longer by a factor."""
    found = 0.02 * np.exp(np.random.default_rng(seed).normal(0, noise, steps))
    found[:slow] *= times
    return found


@pytest.mark.parametrize(("slow", "times"), [(1, 30.0), (3, 1.3), (5, 1.1), (8, 2.0), (12, 1.06), (20, 1.2)])
def test_a_planted_change_is_found(slow: int, times: float) -> None:
    assert [change_point(stepping(slow, times, seed=seed)) for seed in range(3)] == [slow] * 3


def test_a_first_step_beyond_measure_hides_nothing_and_times_that_are_steady_or_grow_have_no_warm_up() -> None:
    curve = stepping(4, 1.5)
    curve[0] = 10.0
    assert change_point(curve) == 4
    found = [change_point(stepping(0, 1.0, seed=seed)) for seed in range(40)]
    assert sum(steps > 0 for steps in found) <= 5  # 5% of them by construction
    assert change_point(stepping(20, 0.8)) == 0  # slower later: something else
    assert change_point([0.02] * 30) == 0
    refused("7 steps are too few to see a change: at least 8 are needed", change_point, [1.0] * 7)
    refused(r"step times must be positive: one is 0\.0", change_point, [1.0] * 9 + [0.0])


def test_records_are_read_by_their_slowest_rank_and_host_clocks_are_left_out() -> None:
    slow, fast = list(stepping(12, 1.2, seed=1)), list(stepping(0, 1.0, seed=2) * 0.9)
    records = [
        make_record(measurement={"step_time_s": [fast, slow]}, seed=1),
        make_record(measurement={"step_clock": "host"}, seed=2),
        make_record(traced_steps=3, seed=3),
        make_record(workload="cnn", seed=4, execution="captured"),
    ]
    found = warmup_frame(records).set_index("key")
    assert set(found.index) == {records[0].key, records[3].key}
    row = found.loc[records[0].key]
    assert (row["steps"], row["first_step_s"]) == (12, slow[0])
    assert row["seconds"] == pytest.approx(np.maximum(slow, fast)[:12].sum())
    assert found.loc[records[3].key, "steps"] == 3  # the factory's own first three


def trained(loss: list[float], skipped_steps: tuple[int, int] | None = None, **fields: object) -> Record:
    return make_record(measurement={"loss": loss, "skipped_steps": skipped_steps}, **fields)


PLAIN = trained([10.0 - step / 10 for step in range(40)], precision="fp32")


def test_the_difference_is_of_the_first_steps_means() -> None:
    late = trained([10.0 - step / 10 if step < STEPS else 1.0 for step in range(40)])
    off = trained([1.02 * (10.0 - step / 10) for step in range(40)], execution="captured")
    table = parity([PLAIN, late, off])
    assert list(table["difference"]) == pytest.approx([0.0, 0.0, 0.02])


def test_steps_that_left_their_update_out_are_passed_over() -> None:
    """Two of fp16's first steps overflowed, the first and the fourth: the same batch has the same loss once more."""
    plain = PLAIN.measurement.loss
    skipping = [plain[0], plain[0], plain[1], plain[2], plain[2], *plain[3:38]]

    def in_fp16(counted: tuple[int, int] | None) -> Record:
        return trained(skipping, counted, workload="cnn", devices=1, batch_size=64, precision="fp16")

    reference = trained(plain, workload="cnn", devices=1, batch_size=64, precision="fp32")
    assert learning_losses(in_fp16((2, 0))) == plain[:38] and learning_losses(in_fp16((1, 1))) == plain[:38]
    assert learning_losses(in_fp16((1, 0))) == skipping[1:], "no more are passed over than were counted"
    assert learning_losses(in_fp16((0, 0))) == learning_losses(in_fp16(None)) == skipping
    late, same = parity([reference, in_fp16(None)])["difference"].iloc[1], parity([reference, in_fp16((2, 0))])["difference"].iloc[1]
    assert late > 0.01 and same == pytest.approx(0)


def test_other_jobs_independent_replicas_and_short_runs_are_left_out() -> None:
    records = [
        PLAIN,
        trained([1.0] * 40, devices=4),
        trained([1.0] * 40, batch_size=360),
        trained([1.0] * 40, placement="independent"),
        trained([1.0] * (STEPS - 1)),
    ]
    assert list(parity(records)["key"]) == [PLAIN.key]


@pytest.mark.parametrize(("workload", "model", "compared"), [("nmt", "nmt000", 2), ("cnn", "resnet50_v1.5", 1), ("stacks", "mlp42m", 1)])
def test_what_tensorflow_draws_by_itself_is_left_out(workload: str, model: str, compared: int) -> None:
    job = {"workload": workload, "model": model, "precision": "fp32", "devices": 1}
    twin = {"framework": "tensorflow", "placement": "exp4", "processes": "one", "execution": "graph"}
    assert len(parity([trained([1.0] * 40, **job), trained([1.0] * 40, **job, **twin)])) == compared


TOLERANCE = 0.01
"""By how much a loss may differ from the reference's."""
BY_GRAPH = {"ddp", "exp4", "ps_gpu0", "replicated_copy", "replicated_allreduce"}


def test_captured_records_train_as_eager_ones_do(committed: list[Record]) -> None:
    """As page 05 compares: mean loss of the first steps beside the same job's plain Run, for both forms of execution of a placement."""
    table = parity(committed)
    table = table[~table["staged"] & table["framework"].eq("torch")]
    plain = table[table["execution"].eq("eager") & table["precision"].ne("fp16")]  # fp16's scale is found or fixed
    repeats = plain.groupby([*JOB, *WAY, "placement"], dropna=False)["difference"]
    wide = (repeats.transform("max") - repeats.transform("min")).gt(2 * TOLERANCE).reindex(table.index, fill_value=False)
    chaotic = wide.groupby(table.groupby(list(JOB), dropna=False).ngroup()).transform("any").astype(bool)
    assert set(table[chaotic]["model"]) <= {"resnet110"}, "a job whose plain repeats part in ten steps tells nothing"
    table = table[~chaotic]
    captured, eager = table[table["execution"].str.contains("captured")], table[table["execution"].eq("eager")]
    assert set(captured["model"]) >= {"nmt000", "resnet50_v1.5"} and set(captured["placement"]) >= BY_GRAPH
    assert (captured["difference"].abs() < 2 * TOLERANCE).all(), "one Record parts from plain training"
    far = captured.groupby([*JOB, *WAY, "placement"], dropna=False)["difference"].median()  # of repeats: kernels may add in other orders
    assert (far.abs() <= TOLERANCE).all(), far[far.abs() > TOLERANCE].to_string()
    same = [*JOB, "precision", "placement"]
    means = eager.groupby(same, dropna=False)["difference"].median().rename("eager").reset_index()
    both = pd.merge(captured, means, on=same)
    assert len(both) > 50 and set(both["placement"]) >= BY_GRAPH
    apart = both[((1 + both["difference"]) / (1 + both["eager"]) - 1).abs() > TOLERANCE]
    assert apart.empty, ", ".join(apart["key"])
