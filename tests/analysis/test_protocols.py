"""Two protocols on one set of Records, as the 2018 translation study timed and without the warm-up; what batching costs, counted."""

import pandas as pd
import pytest

from multigpu.analysis.compare import scaling
from multigpu.analysis.frame import frame_of, step_times
from multigpu.analysis.points import one, points
from multigpu.analysis.protocols import as_published, counted_units, shard_costs, shard_frame, text_source
from multigpu.inputs.drawn_text import lengths_000
from multigpu.record import Record
from multigpu.run import build_run
from tests.factory import make_record

TEXT = {"inputs": "lengths_000", "sequence_length": None, "warmup_steps": 10, "timed_steps": 30}


def timed(record: Record, times: list[float], **measured: object) -> Record:
    """The Record with these step times on every replica."""
    assert record.measurement
    update = {"step_time_s": [times] * record.run.devices, **measured}
    return record.model_copy(update={"measurement": record.measurement.model_copy(update=update)})


def slow_first(slow: float) -> list[Record]:
    """Five repeats over two launches on 1 and 4 GPUs; the first step of each on four lasts `slow` times as long as a steady one."""
    records = []
    for devices, rate in ((1, 1e6), (4, 3e6)):
        for repeat, launch in enumerate("aaabb"):
            record = make_record("exp4", devices, rate * (1 + 0.001 * repeat), repeat, launch, sequence_length=100)
            assert record.measurement
            steady = record.measurement.wall_s / record.run.timed_steps
            total = record.run.warmup_steps + record.run.timed_steps
            records.append(timed(record, [steady * (slow if devices == 4 else 1.0), *[steady] * (total - 1)]))
    return records


def seen(records: list[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame of these Records and their step times."""
    frame = frame_of(records)
    return frame, step_times(records, list(frame["key"]))


@pytest.mark.parametrize("batches", [20, 80])
def test_sums_are_over_all_steps_from_the_first_and_go_on_at_the_steady_pace(batches: int) -> None:
    """On four GPUs the first step is as long as 11: so many batches take the time of ten more, and the Record's 40 are not all."""
    frame, steps = seen(slow_first(11.0))
    table = as_published(frame, steps, batches=batches)
    share = batches / (batches + 10)
    for row, steady in zip(table.itertuples(), frame.itertuples(), strict=True):
        assert row.units_per_s == pytest.approx(steady.units_per_s * (share if row.devices == 4 else 1.0))
    assert one(scaling(points(frame)), devices=4)["speedup_same"] == pytest.approx(3.0, rel=1e-3)
    assert one(scaling(points(table)), devices=4)["speedup_same"] == pytest.approx(3.0 * share, rel=1e-3)


def ragged(devices: int, first_s: float, **fields: object) -> Record:
    """Every step 0.1 s, each of the ten of warm-up `first_s`; words as its source has them."""
    record = make_record("exp4", devices, 1.0, **TEXT | fields)
    words = shard_frame(record.run, 40).groupby("step")["words"].sum()
    record = timed(record, [first_s] * 10 + [0.1] * 30, units=int(words[10:].sum()), wall_s=3.0)
    return record.model_copy(update={"input_fingerprint": text_source(record.run).fingerprint})


def test_on_lengths_of_their_own_words_of_every_step_are_counted() -> None:
    record = ragged(4, 0.5)
    words = shard_frame(record.run, 40).groupby("step")["words"].sum()
    counted = counted_units([record])
    assert counted["units"].tolist() == words.tolist() and words.nunique() > 10
    frame, steps = seen([record])
    table = as_published(frame, steps, batches=20, counted=counted)
    assert table["units_per_s"].iloc[0] == pytest.approx(words[:20].sum() / (10 * 0.5 + 10 * 0.1))


def test_a_record_of_another_input_or_with_other_words_is_not_counted_and_then_left_out() -> None:
    record = ragged(1, 0.1)
    assert as_published(*seen([record])).empty
    other = record.model_copy(update={"input_fingerprint": "another"})
    off = timed(record, [0.1] * 40, units=record.measurement.units + 1 if record.measurement else 0)
    assert counted_units([other, off]).empty and len(counted_units([record])) == 40


# two steps of two replicas: 10 and 30 words in 20 and 40 positions, then 20 and 20 in 20 and 20
SHARDS = pd.DataFrame({"step": [0, 0, 1, 1], "rank": [0, 1, 0, 1], "words": [10, 30, 20, 20], "positions": [20, 40, 20, 20]})


def test_padding_imbalance_and_waiting_by_hand():
    found = shard_costs(SHARDS)
    assert found["words_per_step"] == 40 and found["padding_share"] == pytest.approx(1 - 80 / 100)
    assert found["imbalance"] == pytest.approx((30 / 20 + 1) / 2)
    assert found["waiting_share"] == pytest.approx(1 - (30 + 20) / (40 + 20))


def test_counting_sees_what_batches_hold():
    run = build_run(workload="nmt", model="nmt_small", placement="ddp", device_type="cpu", devices=3, batch_size=4, inputs="lengths_000")
    source, shards = lengths_000(run, run.description), shard_frame(run)
    assert len(shards) == 30 * 3
    for step in (0, 7, 29):
        for rank in range(3):
            batch, row = source.batch(step, rank), shards[(shards["step"] == step) & (shards["rank"] == rank)].iloc[0]
            assert (row["words"], row["positions"]) == (batch.units, batch.padded_units)
    with pytest.raises(ValueError, match="'resnet_small' reads images: padding and imbalance are counted for words"):
        shard_frame(build_run(workload="cnn", model="resnet_small", placement="ddp", device_type="cpu", batch_size=4))
