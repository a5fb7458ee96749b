"""What batching costs, counted and measured, on numbers worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from multigpu.analysis.batching import shard_costs, shard_frame
from multigpu.inputs.drawn_text import lengths_000
from multigpu.run import build_run

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
