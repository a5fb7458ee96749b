"""What batching costs, counted and measured, on numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis import batching_page as page
from multigpu.analysis.autocorrelation import autocorrelation, band, ljung_box, ljung_box_bound, memory
from multigpu.analysis.batching import batching_frame, imbalance, padding_share, runs_by_mode, shard_frame, text_source, waiting_share
from multigpu.analysis.batching_records import fit_steps, fits_frame, memory_frame, modes_table
from multigpu.analysis.figure_batching import figure_gain, figure_waiting
from multigpu.analysis.figure_batching_training import counted_memory, figure_convergence, figure_memory, lag_one, memory_finding
from multigpu.analysis.frame import frame_of
from multigpu.analysis.ordinary import ordinary
from multigpu.inputs.text import lengths_000
from multigpu.run import build_run
from tests.factory import make_machine, make_record

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


def test_own_buckets_wait_more_with_every_replica_and_a_shared_one_hardly_at_all():
    counted = batching_frame(runs_by_mode((1, 2, 8), ("lengths_000",)))
    waiting = counted.pivot_table(index="devices", columns="batching", values="waiting_share")
    assert waiting["own"].is_monotonic_increasing and waiting.loc[1, "own"] == 0
    assert waiting.loc[8, "own"] > 10 * waiting.loc[8, "shared"]
    assert waiting["fixed"].abs().max() < 1e-12
    padding = counted.pivot_table(index="devices", columns="batching", values="padding_share")
    assert (padding["fixed"] > 2 * padding["own"]).all() and padding.loc[8, "own"] == pytest.approx(padding.loc[8, "shared"], abs=0.01)
    picture = figure_waiting(counted)
    assert "wait" in picture.finding and len(picture.data) == 9
    assert figure_gain(pd.DataFrame(), counted).alt.startswith("No Record of a shared bucket")


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


def test_modes_stand_beside_own_buckets_and_beside_one_device():
    records = [
        *repeats(1e6, 1, "own"),
        *repeats(4e6, 8, "own"),
        *repeats(7e6, 8, "shared"),
        make_record("ddp", 8, 3e6, **LAW, batching="fixed"),
    ]
    table = modes_table(frame_of(records)).set_index(["devices", "batching"])
    shared, fixed = table.loc[(8, "shared")], table.loc[(8, "fixed")]
    assert shared["gain"] == pytest.approx(1.75, rel=1e-4) and shared["gain_low"] < 1.75 < shared["gain_high"] < 1.8
    assert shared["speedup"] == pytest.approx(7, rel=1e-4)  # one device with own buckets is one with a shared one
    assert fixed["gain"] == pytest.approx(0.75, rel=1e-4) and np.isnan(fixed["gain_low"]) and np.isnan(fixed["speedup"])
    assert table.loc[(8, "own"), "gain"] == 1 and table.loc[(8, "own"), "n"] == 5
    counted = batching_frame(runs_by_mode((1, 8), ("lengths_000",)))
    picture = figure_gain(table.reset_index(), counted)
    assert "8 GPUs 1.75 times" in picture.finding
    assert all(ax.get_title(loc="left") in ("PyTorch, GPUs", "TensorFlow, GPUs") for ax in picture.axes)
    unsure = table.reset_index().assign(gain=1.0, gain_low=0.9, gain_high=1.1)
    assert "intervals do not tell what a shared bucket brings" in figure_gain(unsure, counted).finding
    once = table.reset_index().assign(gain=1.2, gain_low=float("nan"), gain_high=float("nan"))
    assert "measured once, a shared bucket is 1.20 to 1.20 times" in figure_gain(once, counted).finding
    assert set(ordinary(frame_of(records))["batching"]) == {"own"}
    assert modes_table(frame_of([make_record()])).empty


def planted(times: Any, **fields: Any) -> Any:
    """A Record whose only replica's steps took these times, warm-up first."""
    run = build_run(workload="nmt", model="nmt000", placement="ddp", batch_size=64, precision="bf16", **fields)
    source = lengths_000(run, run.description) if run.inputs == "lengths_000" else None
    record = make_record("ddp", 1, batch_size=64, sequence_length=None, **fields)
    measured = record.measurement.model_copy(update={"step_time_s": [list(map(float, times))]})
    return record.model_copy(update={"measurement": measured, "input_fingerprint": source.fingerprint if source else ""})


def test_step_times_are_fitted_to_their_largest_shards():
    run = build_run(workload="nmt", model="nmt000", placement="ddp", batch_size=64, precision="bf16", inputs="lengths_000")
    positions = shard_frame(run, 40)["positions"].to_numpy()
    record = planted(0.01 + 2e-6 * positions, inputs="lengths_000", timed_steps=30)
    fit = fit_steps(record)
    assert (fit["fixed_s"], fit["s_per_unit"], fit["r2"]) == pytest.approx((0.01, 2e-6, 1.0))
    assert fit["waiting_share"] == 0 and fit["steps"] == 30
    other = record.model_copy(update={"input_fingerprint": "another"})
    with pytest.raises(ValueError, match="read an input that is another today"):
        fit_steps(other)
    assert len(fits_frame([record, other, make_record()])) == 1


def test_the_memory_of_step_times_has_a_column_and_a_figure():
    rng = np.random.default_rng(1)
    steps = 10 + 400
    waves = {False: 1 + 0.3 * np.sin(np.arange(steps) / 2) + rng.normal(scale=0.1, size=steps), True: 1 + rng.normal(scale=0.1, size=steps)}
    records = [planted(wave, inputs="catalogs", timed_steps=400, shuffle=shuffle) for shuffle, wave in waves.items()]
    frame = frame_of([*records, make_record()])
    assert frame["step_memory"].iloc[0] > 10 * ljung_box_bound() > frame["step_memory"].iloc[1] and pd.isna(frame["step_memory"].iloc[2])
    table = memory_frame([*records, make_record()])
    assert len(table) == 40 and table.groupby("shuffle")["ljung_box"].first().tolist() == pytest.approx(
        frame["step_memory"].iloc[:2].tolist()
    )
    assert figure_memory(table, "step time").finding.startswith("With own buckets, shuffling takes the memory out of step time")
    run = build_run(workload="nmt", model="nmt000", placement="ddp", batch_size=64, inputs="lengths_000")
    assert len(counted_memory(run)) == 20 and "a line a Record" not in figure_memory(table, "step time").caption
    assert "No Record has 100 timed steps" in figure_memory(table.iloc[:0], "step time").alt
    assert "No job was trained" in figure_convergence(pd.DataFrame(), pd.DataFrame()).alt


def test_the_title_on_memory_is_of_all_records_and_of_every_mode():
    """The first of five Records gave the figure, and a mode that shuffling did not help was not spoken of."""

    def rows(batching, shuffle, r, q, key):
        return {"batching": batching, "shuffle": shuffle, "lag": 1, "r": r, "ljung_box": q, "key": key}

    bound = ljung_box_bound()
    own = [rows("own", False, r, 9 * bound, f"a{r}") for r in (0.3, 0.2, 0.1)] + [
        rows("own", True, r, bound / 2, f"b{r}") for r in (0, 0.02)
    ]
    fixed = [rows("fixed", False, 0.6, 30 * bound, "c"), rows("fixed", True, 0.4, 9 * bound, "d")]
    table = pd.DataFrame(own + fixed)
    assert lag_one(table).loc[0, ["r", "low", "high", "n", "remembers"]].tolist() == [0.2, 0.1, 0.3, 3, 3]
    said = memory_finding(table, "step time")
    assert said == (
        "With own buckets, shuffling takes the memory out of step time: 0.20 to 0.01 at lag 1; with one width it takes not all of it "
        "(0.60 to 0.40)"
    )
    assert memory_finding(pd.DataFrame(fixed), "step time").startswith("With one width, shuffling takes not all memory out of step time")
    mixed = pd.DataFrame([*own[:3], rows("own", True, 0.0, bound / 2, "e"), rows("own", True, 0.2, 2 * bound, "f")])
    assert memory_finding(mixed, "step time") is None, "one of the two shuffled Records keeps a memory"


def test_the_page_compares_modes_of_one_way_and_leaves_out_what_has_one_mode_alone():
    """Points that only rebuild the document's tables (one process, the corrected batch) would stand under the headings of others."""
    text = {"inputs": "lengths_000", "sequence_length": None}
    records = [make_record("ddp", 2, rate, batching=mode, **text) for mode, rate in (("own", 1e6), ("shared", 1.5e6))]
    records += [make_record("exp4", 2, 7e5, **text, processes="one"), make_record("exp4", 2, 8e5, **text, batch_size=384)]
    records += [make_record("exp1", 2, 9e5, **text)]  # the same way as the modes that are compared
    html = page.modes_gt(modes_table(frame_of(records))).html
    assert "1.50" in html and ">900,000<" in html and ">700,000<" not in html and ">800,000<" not in html
    assert "Left out: 2 points of ways that were measured with own buckets alone." in html
    alone = page.modes_gt(modes_table(frame_of(records[:2]))).html
    assert "Left out" not in alone


def test_two_machines_share_no_table_and_no_line():
    """Own buckets on one GPU of either machine: 327,000 and 220,000 words/s under one title say nothing of either."""
    text, records = {"inputs": "lengths_000", "sequence_length": None}, []
    for machine, rates in ((make_machine(2), (327e3, 776e3, 762e3)), (make_machine(4), (220e3, 359e3, 456e3))):
        for devices, mode, rate in ((1, "own", rates[0]), (2, "own", rates[1]), (2, "shared", rates[2])):
            records.append(make_record("ddp", devices, rate, machine=machine, batching=mode, **text))
    records += [
        make_record("ddp", 4, rate, machine=make_machine(4), batching=mode, **text) for mode, rate in (("own", 9e5), ("shared", 8.9e5))
    ]
    modes = modes_table(frame_of(records))
    html = page.modes_gt(modes).html
    small, large = html.split("Lengths of 000; PyTorch, eager; 4x-nvidia-h200")
    assert "Lengths of 000; PyTorch, eager; 2x-nvidia-h200" in small
    assert ">0.98<" in small and ">1.27<" not in small and ">1.27<" in large and ">0.98<" not in large
    picture = figure_gain(modes, batching_frame(runs_by_mode((2, 4), ("lengths_000",))))
    assert picture.data["devices"].tolist() == [2, 4] and set(picture.data["machine"]) == {"4x-nvidia-h200"}
    assert "2x-nvidia-h200" not in picture.caption

    timed = []
    for record in records[:1] + records[3:4]:
        steps = record.run.warmup_steps + record.run.timed_steps
        planted = record.measurement.model_copy(update={"step_time_s": [[0.1 + 0.01 * (step % 7) for step in range(steps)]]})
        timed.append(record.model_copy(update={"measurement": planted, "input_fingerprint": text_source(record.run).fingerprint}))
    fits = page.fits_table(timed).html
    assert fits.count("<table") == 2 and "eager; 2x-nvidia-h200" in fits and "n = 2" not in fits


def test_fits_of_one_process_and_of_a_process_a_gpu_are_not_pooled():
    records = []
    for processes in ("per_device", "one"):
        record = make_record("exp4", 2, 1e6, inputs="lengths_000", sequence_length=None, processes=processes)
        measured, fingerprint = record.measurement, text_source(record.run).fingerprint
        steps = record.run.warmup_steps + record.run.timed_steps
        planted = measured.model_copy(update={"step_time_s": [[0.1 + 0.01 * (step % 7) for step in range(steps)]] * 2})
        records.append(record.model_copy(update={"measurement": planted, "input_fingerprint": fingerprint}))
    html = page.fits_table(records).html
    assert "PyTorch, eager, one process" in html and html.count("<table") == 2 and "n = 2" not in html
