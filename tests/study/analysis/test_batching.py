"""The translator's batches as the 2018 study timed them, and what batching costs."""

import pandas as pd
import pytest

from multigpu.analysis.compare import scaling
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import one, points
from multigpu.build import build_run
from multigpu.inputs.drawn_text import lengths_000
from multigpu.records.record import Record
from multigpu.workloads import description_of
from multigpu_study.analysis import batching
from multigpu_study.analysis.steps import step_times
from tests.factory import make_record
from tests.refusals import refused

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
