"""The published protocol on sentences of different lengths: words are those of each step."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis import protocols, protocols_lengths
from multigpu.analysis.batching import shard_frame, text_source
from multigpu.analysis.frame import frame_of, step_times
from multigpu.record import Record, RecordStore
from tests.factory import make_record, plant

TEXT = {"inputs": "lengths_000", "sequence_length": None, "warmup_steps": 10, "timed_steps": 30}


def planted(devices: int, first_s: float, **fields: object) -> Record:
    """Every step 0.1 s, each of the ten of warm-up `first_s`; words as its source has them."""
    record = make_record("exp4", devices, 1.0, **TEXT | fields)
    words = shard_frame(record.run, 40).groupby("step")["words"].sum()
    times = [first_s] * 10 + [0.1] * 30
    update = {"units": int(words[10:].sum()), "wall_s": 3.0, "step_time_s": [times] * devices}
    measured = record.measurement.model_copy(update=update)
    return record.model_copy(update={"measurement": measured, "input_fingerprint": text_source(record.run).fingerprint})


@pytest.fixture(scope="module")
def records():
    return [planted(1, 0.1), planted(4, 0.5)]


def test_words_of_every_step_are_counted(records):
    counted = protocols_lengths.counted_units(records)
    assert counted.groupby("key").size().tolist() == [40, 40]
    for record in records:
        own = counted[counted["key"] == record.key].set_index("step")["units"]
        assert own[own.index >= 10].sum() == record.measurement.units and own.nunique() > 3, "steps differ in words"


def test_a_record_of_another_input_is_left_out(records):
    other = records[0].model_copy(update={"input_fingerprint": "another"})
    wrong = records[1].model_copy(update={"measurement": records[1].measurement.model_copy(update={"units": 5})})
    assert protocols_lengths.counted_units([other, wrong]).empty


def test_both_protocols_by_hand(tmp_path, records):
    store = plant(RecordStore(tmp_path), records)
    frame, counted = frame_of(records), protocols_lengths.counted_units(records)
    steps = step_times(store, list(frame["key"]))
    table = protocols.protocol_frame(frame, steps, batches=40, counted=counted).set_index("devices")
    words = {n: counted[counted["key"] == record.key]["units"] for n, record in zip((1, 4), records, strict=True)}
    # 40 steps: 4 s on one device; 10 x 0.5 + 30 x 0.1 = 8 s on four
    assert table.loc[1, "published_rate"] == pytest.approx(words[1].sum() / 4.0)
    assert table.loc[4, "published_rate"] == pytest.approx(words[4].sum() / 8.0)
    assert table.loc[4, "corrected_rate"] == pytest.approx(words[4].iloc[10:].sum() / 3.0)
    longer = protocols.protocol_frame(frame, steps, counted=counted).set_index("devices")
    # ten more steps at the steady pace: 1 s and a third of the timed words
    assert longer.loc[4, "published_rate"] == pytest.approx((words[4].sum() + words[4].iloc[10:].sum() / 3) / 9.0)
    finding = protocols_lengths.lengths_finding(longer.reset_index())
    assert "furthest apart for Exp4 on 4 GPUs (PyTorch)" in finding
    html = protocols_lengths.lengths_table(longer.reset_index()).html
    assert "1.51" in html, "the document's Exp4 on 4"


def test_without_counting_such_records_are_left_out(tmp_path, records):
    store = plant(RecordStore(tmp_path), records)
    frame = frame_of(records)
    assert protocols.as_published(frame, step_times(store, list(frame["key"]))).empty
    columns = ["devices", "published_speedup", "corrected_speedup", "first_over_rest"]
    assert protocols_lengths.lengths_finding(pd.DataFrame(columns=columns)) == protocols_lengths.NONE


def test_only_the_documents_experiments_on_its_lengths_count(records):
    others = [
        make_record("exp4", 4),
        make_record("ddp", 4, **TEXT),
        make_record("exp4", 4, **TEXT, batching="shared"),
        make_record("exp4", 4, **TEXT, status="failed"),
    ]
    assert protocols_lengths.length_records([*records, *others], ["8x-nvidia-h200"]) == records
    assert protocols_lengths.length_records(records, ["elsewhere"]) == []
