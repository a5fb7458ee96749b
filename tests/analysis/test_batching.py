"""What batching costs, counted and measured, on numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis.autocorrelation import autocorrelation, band, ljung_box, ljung_box_bound, memory
from multigpu.analysis.batching import imbalance, padding_share, shard_frame, waiting_share
from multigpu.inputs.text import lengths_000
from multigpu.run import build_run
from tests.factory import make_record

# two steps of two replicas: 10 and 30 words in 20 and 40 positions, then 20 and 20 in 20 and 20
SHARDS = pd.DataFrame(
    {"step": [0, 0, 1, 1], "rank": [0, 1, 0, 1], "words": [10, 30, 20, 20], "positions": [20, 40, 20, 20], "width": [5, 10, 5, 5]}
)


def test_padding_imbalance_and_waiting_by_hand():
    assert padding_share(SHARDS) == pytest.approx(1 - 80 / 100)
    assert imbalance(SHARDS) == pytest.approx((30 / 20 + 1) / 2)
    assert waiting_share(SHARDS) == pytest.approx(1 - (30 + 20) / (40 + 20))
    assert waiting_share(SHARDS, "width") == pytest.approx(1 - (7.5 + 5) / (10 + 5))


def test_counting_sees_what_batches_hold():
    run = build_run(workload="nmt", model="nmt_small", placement="ddp", device_type="cpu", devices=3, batch_size=4, inputs="lengths_000")
    source, shards = lengths_000(run, run.description), shard_frame(run)
    assert len(shards) == 30 * 3
    for step in (0, 7, 29):
        for rank in range(3):
            batch, row = source.batch(step, rank), shards[(shards["step"] == step) & (shards["rank"] == rank)].iloc[0]
            assert (row["words"], row["positions"]) == (batch.units, batch.padded_units)
            assert row["width"] == max(batch.arrays["source"].shape[1], batch.arrays["target_output"].shape[1])
    with pytest.raises(ValueError, match="'resnet_small' reads images: padding and imbalance are counted for words"):
        shard_frame(build_run(workload="cnn", model="resnet_small", placement="ddp", device_type="cpu", batch_size=4))


def test_autocorrelation_by_hand():
    # mean 2.5; deviations -1.5, -0.5, 0.5, 1.5; their squares add to 5
    assert autocorrelation([1, 2, 3, 4], 2) == pytest.approx([(0.75 - 0.25 + 0.75) / 5, (-0.75 - 0.75) / 5])
    found = autocorrelation([1, 2, 3, 4], 2)
    assert ljung_box([1, 2, 3, 4], 2) == pytest.approx(4 * 6 * (found[0] ** 2 / 3 + found[1] ** 2 / 2) / 2)
    assert band(400) == pytest.approx(0.098, abs=1e-3) and ljung_box_bound() == pytest.approx(1.5705, abs=1e-4)
    assert autocorrelation([5.0] * 10, 3).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="20 lags need more than 20 values"):
        autocorrelation(range(20))


def test_a_period_is_seen_and_noise_is_not():
    rng = np.random.default_rng(0)
    quiet = [ljung_box(rng.normal(size=400)) for _ in range(200)]
    assert np.mean(np.array(quiet) < ljung_box_bound()) == pytest.approx(0.95, abs=0.04)
    wave = np.sin(np.arange(400) * 2 * np.pi / 12) + rng.normal(size=400)
    assert ljung_box(wave) > 5 * ljung_box_bound()
    assert autocorrelation(wave)[11] > 3 * band(400)
    assert memory(wave) == ljung_box(wave) and memory(wave[:99]) is None


LAW: dict[str, Any] = {"inputs": "lengths_000", "sequence_length": None, "input_label": "synthetic lengths of 000"}


def repeats(rate: float, devices: int, batching: str, **more: Any) -> list[Any]:
    """Five Records over two launches, a few thousandths apart."""
    return [
        make_record("ddp", devices, rate * (1 + wobble), repeat, launch, **LAW, batching=batching, **more)
        for repeat, (wobble, launch) in enumerate(zip((0, 0.002, -0.002, 0.001, -0.001), "aaabb", strict=True))
    ]


def planted(times: Any, **fields: Any) -> Any:
    """A Record whose only replica's steps took these times, warm-up first."""
    run = build_run(workload="nmt", model="nmt000", placement="ddp", batch_size=64, precision="bf16", **fields)
    source = lengths_000(run, run.description) if run.inputs == "lengths_000" else None
    record = make_record("ddp", 1, batch_size=64, sequence_length=None, **fields)
    measured = record.measurement.model_copy(update={"step_time_s": [list(map(float, times))]})
    return record.model_copy(update={"measurement": measured, "input_fingerprint": source.fingerprint if source else ""})
