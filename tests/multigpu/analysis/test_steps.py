"""What steps tell, on planted numbers: waits, warm-up's end, losses beside the reference, the 2018
study's timing, batching's costs.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis import batching
from multigpu.analysis import steps as tell
from multigpu.analysis.compare import scaling
from multigpu.analysis.frame import frame_of, step_times
from multigpu.analysis.points import one, points
from multigpu.build import build_run
from multigpu.inputs.drawn_text import lengths_000
from multigpu.records.record import Record
from multigpu.workloads import description_of
from tests.factory import make_record
from tests.refusals import refused


def fed(waits: list[list[float]], **more: Any) -> Record:
    """A Record of ResNet-50 on one GPU that waited so for its batches."""
    common: dict[str, Any] = {
        "inputs": "jpeg_folder",
        "input_workers": 4,
        "prefetch": 1,
        "warmup_steps": 4,
        "timed_steps": 10,
    }
    return make_record(
        measurement={"input_wait_s": waits}, **{"workload": "cnn", "devices": 1} | common | more
    )


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


def test_a_wait_is_of_all_timed_steps_and_a_points_the_mean_of_its_records() -> None:
    """Of the replica that waited most, warm-up left out; what was recorded counts, also where the
    inputs need not have been waited for.
    """
    ranks = [[9.0] * 4 + [0.0] * 5 + [0.044] * 5, [9.0] * 4 + [0.0] * 5 + [0.05] * 5]
    assert tell.waited_s(fed(ranks)) == pytest.approx(0.025)
    drawn = {"inputs": "synthetic", "input_workers": None, "prefetch": 0}
    assert tell.waited_s(fed([], **drawn)) == 0.0
    assert tell.waited_s(fed(ranks, **drawn)) == pytest.approx(0.025)
    assert tell.wait_of([fed(ranks), fed([])]) == pytest.approx(0.025)
    assert tell.wait_of([fed([])]) == 0.0
    records = [fed([[0.01] * 14], repeat=0), fed([[0.03] * 14], repeat=1), fed([], input_workers=8)]
    table = tell.with_waits(points(frame_of(records)), records).set_index("input_workers")["wait_s"]
    assert table[4] == pytest.approx(0.02) and math.isnan(table[8])


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
    ].tolist() == [
        12,
        3,
    ]
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
    captured, eager = (
        table[table["execution"].str.contains("captured")],
        table[table["execution"].eq("eager")],
    )
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


TEXT = {"inputs": "lengths_000", "sequence_length": None, "warmup_steps": 10, "timed_steps": 30}


def timed(record: Record, times: list[float], **measured: object) -> Record:
    """The Record with these step times on every replica."""
    assert record.measurement
    update = {"step_time_s": [times] * record.run.devices, **measured}
    return record.model_copy(update={"measurement": record.measurement.model_copy(update=update)})


def slow_first(slow: float) -> list[Record]:
    """Five repeats over two launches on 1 and 4 GPUs; the first step of each on four lasts `slow`
    times as long as a steady one.
    """
    records = []
    for devices, rate in ((1, 1e6), (4, 3e6)):
        for repeat, launch in enumerate("aaabb"):
            record = make_record(
                "exp4", devices, rate * (1 + 0.001 * repeat), repeat, launch, sequence_length=100
            )
            steady = record.measurement.wall_s / 30
            records.append(
                timed(record, [steady * (slow if devices == 4 else 1.0), *[steady] * 39])
            )
    return records


def seen(records: list[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame of these Records and their step times."""
    frame = frame_of(records)
    return frame, step_times(records, list(frame["key"]))


@pytest.mark.parametrize("batches", [20, 80])
def test_sums_are_over_all_steps_from_the_first_and_go_on_at_the_steady_pace(batches: int) -> None:
    """On four GPUs the first step is as long as 11: so many batches take the time of ten more, and
    the Record's 40 are not all.
    """
    frame, steps = seen(slow_first(11.0))
    table, share = batching.as_published(frame, steps, batches=batches), batches / (batches + 10)
    assert (table["units_per_s"] / frame["units_per_s"]).tolist() == pytest.approx(
        [1.0] * 5 + [share] * 5
    )
    assert one(scaling(points(table)), devices=4)["speedup_same"] == pytest.approx(
        3.0 * share, rel=1e-3
    )


def ragged(devices: int, first_s: float, **fields: object) -> Record:
    """Every step 0.1 s, each of the ten of warm-up `first_s`; words as its source has them."""
    record = make_record("exp4", devices, 1.0, **TEXT | fields)
    words = batching.shard_frame(record.run, 40).groupby("step")["words"].sum()
    record = timed(record, [first_s] * 10 + [0.1] * 30, units=int(words[10:].sum()), wall_s=3.0)
    return record.model_copy(
        update={"input_fingerprint": batching.text_source(record.run).fingerprint}
    )


def test_lengths_of_their_own_are_counted_and_another_input_is_left_out() -> None:
    record = ragged(4, 0.5)
    words = batching.shard_frame(record.run, 40).groupby("step")["words"].sum()
    counted = batching.counted_units([record])
    assert counted["units"].tolist() == words.tolist() and words.nunique() > 10
    table = batching.as_published(*seen([record]), batches=20, counted=counted)
    assert table["units_per_s"].iloc[0] == pytest.approx(words[:20].sum() / (10 * 0.5 + 10 * 0.1))
    assert batching.as_published(*seen([record])).empty
    other = record.model_copy(update={"input_fingerprint": "another"})
    assert batching.counted_units(
        [other, timed(record, [0.1] * 40, units=record.measurement.units + 1)]
    ).empty


def test_padding_imbalance_and_waiting_by_hand_and_counting_sees_what_batches_hold():
    found = batching.shard_costs(
        pd.DataFrame(
            {"step": [0, 0, 1, 1], "words": [10, 30, 20, 20], "positions": [20, 40, 20, 20]}
        )
    )
    waiting = 1 - (30 + 20) / (40 + 20)
    assert found == pytest.approx(
        {
            "words_per_step": 40,
            "padding_share": 0.2,
            "imbalance": (30 / 20 + 1) / 2,
            "waiting_share": waiting,
        }
    )
    run = build_run(
        workload="nmt",
        model="nmt_small",
        placement="ddp",
        device_type="cpu",
        devices=3,
        batch_size=4,
        inputs="lengths_000",
    )
    source, shards = lengths_000(run, description_of(run)), batching.shard_frame(run)
    assert len(shards) == 30 * 3
    for step, rank, words, positions in shards[::13].itertuples(index=False):
        batch = source.batch(step, rank)
        assert (words, positions) == (batch.units, batch.padded_units)
    images = build_run(
        workload="cnn", model="resnet_small", placement="ddp", device_type="cpu", batch_size=4
    )
    refused(
        "'resnet_small' reads images: padding and imbalance are counted for words",
        batching.shard_frame,
        images,
    )
