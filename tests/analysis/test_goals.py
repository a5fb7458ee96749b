"""Speeds that were to be reached, beside planted ones."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.frame import frame_of
from multigpu.analysis.goals import goals, goals_table, reached, words_a_pair
from multigpu.published import load_published
from multigpu.record import Record
from tests.factory import make_machine, make_point, make_record

TABLE = load_published("goals")
CAPTURED = {"execution": "captured", "cross_entropy": "fused"}
TENSORFLOW = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32"}


def of(records: list[Record], framework: str, model: str, batch: int = 128, placement: str = "ddp", loop: bool = False) -> dict[str, Any]:
    table = goals(frame_of(records))
    chosen = (table["framework"] == framework) & (table["model"] == model) & (table["batch_size"] == batch)
    chosen &= (table["placement"] == placement) & (table["recurrence"].eq("stepwise") == loop)
    (row,) = table[chosen].to_dict("records")
    return row


def test_on_as_many_gpus_the_rate_is_compared() -> None:
    row = of(make_point([8e6, 8e6, 8e6, 8e6, 8e6], devices=8, **CAPTURED), "torch", "nmt000")
    assert (row["devices"], row["n"], row["launches"], row["why"]) == (8, 5, 2, "")
    assert row["rate"] == pytest.approx(8e6) and row["share"] == pytest.approx(8 / 9.78)
    assert row["reached"] is False
    fast = make_point([9.5e6, 9.51e6, 9.49e6, 9.5e6, 9.5e6], devices=8, **CAPTURED)
    assert of(fast, "torch", "nmt000")["reached"] is True


def test_an_interval_over_the_goal_does_not_tell() -> None:
    assert reached(9.1, 8.8, 9.4, 9.0) is None
    assert (reached(9.1, 9.0, 9.2, 9.0), reached(8.5, 8.1, 8.9, 9.0)) == (True, False)
    assert (reached(9.0, float("nan"), float("nan"), 9.0), reached(8.9, float("nan"), float("nan"), 9.0)) == (True, False)


def test_fewer_gpus_are_shown_and_not_compared() -> None:
    four = make_machine(4)
    records = make_point([1.1e6, 1.1e6], devices=2, machine=four, placement="exp4", **TENSORFLOW)
    records += make_point([2e6, 2e6], devices=4, machine=four, placement="exp4", **TENSORFLOW)
    row = of(records, "tensorflow", "nmt000", placement="exp4")
    assert (row["devices"], row["why"]) == (4, "not measured: needs 8 GPUs")
    assert pd.isna(row["share"]) and pd.isna(row["reached"])


def test_only_the_same_setting_counts() -> None:
    """Neither other arithmetic, placements, batches, forms of execution, loops, gradients nor lengths; more than eight GPUs do not stand
    for eight.
    """
    others = [
        {**TENSORFLOW, "precision": "fp32", "placement": "exp4"},
        {**TENSORFLOW, "placement": "exp1"},
        {**TENSORFLOW, "placement": "exp4", "batch_size": 360},
        {**TENSORFLOW, "placement": "exp4", "recurrence": "stepwise"},
        {**TENSORFLOW, "placement": "exp4", "embedding_gradients": "sparse"},
        {**TENSORFLOW, "placement": "exp4", "sequence_length": None, "inputs": "lengths_000"},
        {**TENSORFLOW, "placement": "exp4", "host_cores": 2},
        {**CAPTURED, "wire_dtype": "bf16"},
        {"execution": "eager"},
    ]
    records = [make_record(devices=8, units_per_s=5e6, **fields) for fields in others]
    records.append(make_record(devices=16, units_per_s=2e7, machine=make_machine(16), **CAPTURED))
    table = goals(frame_of(records))
    known = table[table["n"] > 0]
    assert known[["placement", "recurrence"]].to_numpy().tolist() == [["exp4", "stepwise"]]
    assert set(table.loc[table["n"] == 0, "why"]) == {"not measured: needs 8 GPUs"}


def test_a_figure_with_an_interval_comes_before_a_lucky_one() -> None:
    lucky = [make_record(devices=8, units_per_s=9.9e6, **CAPTURED, bucket_mib=100)]
    row = of(make_point([9.2e6] * 5, devices=8, **CAPTURED) + lucky, "torch", "nmt000")
    assert row["rate"] == pytest.approx(9.2e6) and row["n"] == 5


def test_why_there_is_no_figure_is_said() -> None:
    cnn = {"workload": "cnn", "execution": "captured", "batch_size": 32}
    records = [make_record(devices=8, status="failed", reason="planted fault", **cnn)]
    assert of(records, "torch", "resnet50_v1.5", 32)["why"] == "failed: planted fault"
    assert of(records, "torch", "resnet50_v1.5", 64)["why"] == "not measured: needs 8 GPUs"


def test_words_are_counted_on_both_sides() -> None:
    """A planted pair has 200 words; 9.78 M words/s in steps of 20.5 ms are 195.8 for each of 1,024 pairs."""
    goal = TABLE[TABLE["step_time_ms"].notna()].to_dict("records")[0]
    ours, theirs = words_a_pair(frame_of(make_point([8e6, 8e6], devices=8, **CAPTURED)), goal)
    assert ours == 200 and theirs == pytest.approx(195.79, abs=0.01)
    assert pd.isna(words_a_pair(frame_of([]), goal)[0])


def test_the_table_says_all_of_it() -> None:
    records = make_point([9.5e6, 9.51e6, 9.49e6, 9.5e6, 9.5e6], devices=8, **CAPTURED)
    records += make_point([1.2e6, 1.21e6, 1.19e6], devices=4, placement="exp3", **TENSORFLOW)
    records += [make_record(devices=8, placement="exp2", units_per_s=0.8e6, **TENSORFLOW)]
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", goals_table(frame_of(records)).html, flags=re.DOTALL).split())
    assert "PyTorch: NMT of 000, 100 words a sentence, bf16: M words/s" in text and "PyTorch: ResNet-50 v1.5, bf16: images/s" in text
    assert re.search(r"9\.780 9\.000 9\.500 \(9\.\d+ to 9\.\d+\) 97% yes", text), text
    assert re.search(r"1\.030 0\.87\d 0\.800 78% no", text), text
    assert re.search(r"1\.350 1\.14\d not measured – on 4 GPUs already 4 GPUs: 1\.200 \(1\.\d+ to 1\.\d+\) 0\.300 \(0\.169\) 3 over", text)
    assert "Our Records count 200 a pair" in text and "8 H200s, each once" in text


def test_without_records_every_goal_is_open() -> None:
    table = goals(frame_of([]))
    assert table["n"].tolist() == [0] * len(TABLE) and set(table["why"]) == {"not measured: needs 8 GPUs"}
    assert "What is not measured needs 8 GPUs." in goals_table(frame_of([])).html
