"""Points, pairs and baselines against a plain recomputation from raw Records, of one machine
always; every field is declared.
"""

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
import yaml
from scipy import stats

from multigpu import paths
from multigpu.analysis.advise import rankings
from multigpu.analysis.boots import TABLE as TABLE_OF_BOOTS
from multigpu.analysis.compare import (
    also,
    beside,
    compared,
    records_with,
    repeated,
    scaling,
    stacked,
    versus,
)
from multigpu.analysis.fields import FIELDS, POINT, ROLES, with_role
from multigpu.analysis.frame import COLUMNS, MEASURED, export, frame_of
from multigpu.analysis.points import Missing, as_it_comes, one, one_length, points, usual, where
from multigpu.analysis.query import command_of
from multigpu.analysis.read import frames, read_study, records_of
from multigpu.analysis.show import text
from multigpu.analysis.words import OF_A_JOB, SAYS, way_words
from multigpu.records.collective import CollectiveStore
from multigpu.records.record import RecordStore
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run
from tests.factory import make_machine, make_point, make_record, plant
from tests.multigpu.analysis.planted import study
from tests.multigpu.collectives.planted import make_record as make_all_reduce
from tests.refusals import refused

SPREADS = yaml.safe_load(TABLE_OF_BOOTS.read_text())
TABLE, EVERYWHERE = points(frame_of(study())), frames(paths.RUNS)[1]


def test_a_row_that_failed_before_its_input_was_made_is_of_the_point_of_that_input() -> None:
    """And not a point of its own, that was never measured."""
    read = make_record(repeat=0, input_label="lengths")
    failed = make_record(repeat=1, status="failed", input_label="")
    (row,) = points(frame_of([read, failed])).to_dict("records")
    assert (row["input_label"], row["n"], row["status"]) == ("lengths", 1, "ok")


def test_every_committed_point_equals_a_plain_recomputation() -> None:
    """Rates and intervals of all points from the raw Records, with no code of the core: loops and
    scipy's t. Which boot a silent Record is of is the frame's.
    """
    groups: dict[tuple[object, ...], list[tuple[float, float, str, str, str]]] = defaultdict(list)
    frame = frames(paths.RUNS)[0]
    boots = dict(zip(zip(frame["key"], frame["attempt"], strict=True), frame["boot"], strict=True))
    for record in records_of(paths.RUNS):
        if record.status == "ok" and record.measurement and not record.run.traced_steps:
            run = record.run.model_copy(update={"seed": 0, "data": None})
            place = record.machine.name, record.machine.cpu, record.framework_version
            name = (*place, run.digest, record.timing_version, record.input_label)
            groups[name].append(
                (
                    *(record.measurement.units, record.measurement.wall_s, record.launch_id),
                    *(boots[record.key, record.attempt], run.execution),
                )
            )
    expected = sorted(map(_recomputed, groups.values()))
    told = EVERYWHERE.loc[
        EVERYWHERE["n"] > 0, ["n", "rate", "rate_low", "rate_high", "spread", "launches"]
    ].to_numpy(dtype=float)
    found = sorted(
        (int(n), rate, (low, high), (spread, launches))
        for n, rate, low, high, spread, launches in told
    )
    assert len(found) == len(expected) > 1000
    for (n, rate, bounds, spread), (n0, rate0, bounds0, spread0) in zip(
        found, expected, strict=True
    ):
        assert n == n0 and rate == pytest.approx(rate0, rel=1e-12)
        assert bounds == pytest.approx(bounds0, rel=1e-9, nan_ok=True) and spread == pytest.approx(
            spread0, rel=1e-9
        )


def _recomputed(
    group: list[tuple[float, float, str, str, str]],
) -> tuple[int, float, tuple[float, float], tuple[float, int]]:
    """Of (units, seconds, launch, boot, execution) of each Record: how many, their rate and its
    bounds, by how much they differ over how many launches.
    """
    rates, n = [units / wall_s for units, wall_s, *_ in group], len(group)
    logs = [math.log(one) for one in rates]
    rate = sum(one[0] for one in group) / sum(one[1] for one in group)
    spread = (max(rates) - min(rates)) / fmean(rates), len({one[2] for one in group})
    if n < 2:
        return n, rate, (math.nan, math.nan), spread
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for log, (_, _, launch, boot, _) in zip(logs, group, strict=True):
        cells[boot][launch].append(log)
    if len(cells) == n:  # repeats of one boot each: their variance is that of launches of one boot
        cells = {"": {launch: [log] for launch, log in enumerate(logs)}}
    flat = {boot: [x for g in own.values() for x in g] for boot, own in cells.items()}
    launches = [(g, fmean(flat[boot])) for boot, own in cells.items() for g in own.values()]
    b, k = len(cells), len(launches)
    total = sum((x - fmean(own)) ** 2 for own in flat.values() for x in own)
    variance, freedom = total / (n - b), n - b
    if b < k < n:
        between = sum(len(g) * (fmean(g) - mean) ** 2 for g, mean in launches) / (k - b)
        within = max(0.0, sum((x - fmean(g)) ** 2 for g, _ in launches for x in g)) / (n - k)
        if between > 1e-24 and stats.f.sf(between / max(within, 1e-30), k - b, n - k) < 0.25:
            variance, freedom = between, k - b
    boots: dict[str, list[float]] = defaultdict(list)
    for log, (_, _, _, boot, _) in zip(logs, group, strict=True):
        boots[boot].append(log)
    form = {"compiled": "eager", "compiled_captured": "captured", "xla": "graph"}
    prior, of_boot = SPREADS[form.get(execution := group[0][4], execution)]["spread"] ** 2, 4
    if len(boots) > 1:
        own = stats.tvar([fmean(logs) for logs in boots.values()])
        own -= variance * fmean(1 / len(logs) for logs in boots.values())
        of_boot += len(boots) - 1
        prior = (4 * prior + (len(boots) - 1) * max(own, 0.0)) / of_boot
    prior *= sum((len(logs) / n) ** 2 for logs in boots.values())
    sum_ = variance / n + prior
    freedom = sum_**2 / ((variance / n) ** 2 / freedom + prior**2 / of_boot)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum_)
    return n, rate, (rate * math.exp(-half), rate * math.exp(half)), spread


def test_a_study_speaks_of_one_machine_and_machines_are_never_pooled(tmp_path: Path) -> None:
    two, four = make_machine(2), make_machine(4)
    rows = points(
        frame_of([*make_point([1e6, 1e6], machine=two), *make_point([2e6, 2e6], machine=four)])
    )
    assert dict(zip(rows["machine"], rows["rate"], strict=True)) == pytest.approx(
        {two.name: 1e6, four.name: 2e6}, rel=1e-3
    )
    assert versus(where(rows, machine=two.name), where(rows, machine=four.name), but=()).empty
    assert EVERYWHERE.groupby(list(POINT), dropna=False).size().max() == 1
    study = read_study(str(tmp_path), "8x-nvidia-h200")
    for frame in (study.points, study.collectives):
        assert frame.empty and len(frame.columns) > 5
    assert list(study.points.columns) == list(read_study().points.columns)
    refused("does not exist", read_study, str(tmp_path / "typo"))
    plant(
        RecordStore(tmp_path / "runs"),
        [
            make_record(machine=make_machine(2)),
            make_record(machine=make_machine(4), units_per_s=3e6),
        ],
    )
    assert set(read_study(str(tmp_path), "2x-nvidia-h200").points["machine"]) == {"2x-nvidia-h200"}
    assert read_study(str(tmp_path), "unknown").machine in {"2x-nvidia-h200", "4x-nvidia-h200"}
    store = CollectiveStore(tmp_path / "collectives")
    for gpus in (4, 8):
        store.write(make_all_reduce(devices=4, gpus=gpus, time_s=float(gpus)))
    study = read_study(str(tmp_path), "4x-nvidia-h200")
    assert [study.on(f"{gpus}x-nvidia-h200").collectives["time_s"].tolist() for gpus in (4, 8)] == [
        [4.0],
        [8.0],
    ]


def test_pairs_differ_in_the_named_fields_alone_and_several_counterparts_are_refused() -> None:
    pairs = versus(TABLE, where(TABLE, placement="ddp"))
    assert len(pairs) == (TABLE["n"] > 0).sum()
    eight = one(pairs, workload="nmt", placement="exp4", devices=8)
    assert eight["ratio"] == pytest.approx(0.5 / 0.9, rel=1e-3) and eight["verdict"] == "slower"
    assert one(pairs, workload="nmt", placement="ddp", devices=8)[
        ["ratio", "ratio_low", "ratio_high"]
    ].tolist() == [1.0, 1.0, 1.0]
    exp4, ddp = where(TABLE, placement="exp4"), where(TABLE, placement="ddp")
    there, back = versus(exp4, ddp), versus(ddp, exp4)
    assert (
        (there["ratio_low"] * back["ratio_high"]).to_numpy()
        == pytest.approx(1)
        == (there["ratio"] * back["ratio"]).to_numpy()
    )
    table = points(
        frame_of(
            [
                *make_point([1e6]),
                *make_point([2e6], placement="exp4"),
                *make_point([3e6], placement="exp2"),
            ]
        )
    )
    refused("differ in placement", versus, table, table)
    assert len(versus(table, table, but=())) == 3


def test_scaling_names_its_baselines_and_one_what_is_missing() -> None:
    row = one(scaling(TABLE), workload="nmt", placement="exp2", devices=8)
    expected = {
        "speedup_best": 0.64,
        "efficiency_best": 0.08,
        "speedup_same": 0.64 / 0.5,
        "of_independent": 0.1 / 0.98,
    }
    assert row[list(expected)].to_dict() == pytest.approx(expected, rel=1e-2)
    alone = make_point([2e6], placement="independent", devices=2, execution="captured")
    copied = make_point([1e6], devices=2, execution="captured", bucket_send="copied")
    sent = one(scaling(points(frame_of([*alone, *copied]))), placement="ddp")
    assert sent["of_independent"] == pytest.approx(0.5), "however gradients travel"
    refused("placement=exp1", one, TABLE, error=Missing, placement="exp1")
    refused("devices", one, TABLE, workload="nmt", placement="ddp")
    refused("150 GiB", one, TABLE, error=Missing, placement="exp2", devices=8, batch_size=256)
    refused("no column 'placment'", where, TABLE, placment="ddp")


def test_of_several_lengths_the_most_repeated_speaks() -> None:
    records = [
        *make_point([1e6] * 2, timed_steps=20),
        *make_point([1.1e6] * 5, timed_steps=50),
        *make_point([9e6] * 9, host_cores=4),
    ]
    table = points(frame_of(records))
    assert len(table) == 3 and one_length(table)["n"].tolist() == [5, 9]
    assert usual(table)["n"].tolist() == [5]
    table = points(frame_of([make_record(), make_record(host_cores=2), make_record(bucket_mib=1)]))
    assert len(usual(table)) == 2 and len(as_it_comes(table)) == 1
    refused("3 points have n=1: name bucket_mib or host_cores too", one, table, n=1)
    assert usual(table, host_cores=2)["host_cores"].tolist() == [2] and as_it_comes(
        table, bucket_mib=1
    )["bucket_mib"].tolist() == [1]
    records = [
        make_record(devices=1),
        make_record(devices=2),
        make_record(devices=4, traced_steps=2, traced_from=41),
    ]
    assert (
        records_with(records, devices=[1, 2]) == records[:2]
        and records_with(records, traced=True) == records[2:]
    )


def test_what_is_withdrawn_is_not_read_and_says_why(tmp_path) -> None:
    gone, peak, kept = make_record(repeat=0), make_record(repeat=1), make_record(repeat=2)
    plant(RecordStore(tmp_path / "runs"), [gone, peak, kept])
    (tmp_path / "withdrawn.csv").write_text(
        f"key,attempt,what,why\n{gone.key},0,all,planted\n{peak.key},0,peak_memory_gib,planted\n"
    )
    read = {record.key: record for record in records_of(tmp_path / "runs")}
    assert set(read) == {peak.key, kept.key}
    assert (
        read[peak.key].measurement.peak_memory_gib == []
        and read[kept.key].measurement.peak_memory_gib
    )


def test_rows_stand_beside_their_counterpart_and_are_put_together_under_their_names() -> None:
    two, eight = (where(TABLE, workload="nmt", devices=count) for count in (2, 8))
    named = also(two, pace="rate")
    assert (named["pace_low"] == two["rate_low"]).all() and "spread_low" not in also(
        two, spread="n"
    )
    both = beside(
        two, eight[eight["placement"].ne("exp2")], ["placement", "batch_size"], far="rate"
    ).set_index("placement")
    assert both["far"].isna().sum() == 1 and pd.isna(both.loc["exp2", "far"])
    assert both.loc["exp4", "far_high"] == one(eight, placement="exp4")["rate_high"]
    with pytest.raises(pd.errors.MergeError):
        beside(two, pd.concat([eight, eight]), ["placement", "batch_size"], far="rate")
    exp4, ddp = (where(TABLE, placement=name) for name in ("exp4", "ddp"))
    pd.testing.assert_frame_equal(
        compared(TABLE, placement=("exp4", "ddp")), versus(exp4, ddp, but=["placement"])
    )
    assert (repeated(TABLE, 5)["n"] >= 5).all() and len(repeated(TABLE, 0)) == len(TABLE)
    whole = stacked("count", {"two": two, "eight": eight})
    assert (
        whole["count"] == whole["devices"].map({2: "two", 8: "eight"})
    ).all() and whole.index.tolist() == [*range(len(whole))]
    assert text(two.head(1), "{model}, {framework}: {devices}").tolist() == [
        "LSTM translator, PyTorch: two GPUs"
    ]


RECORDS = [
    make_record(),
    make_record("exp2", status="timeout", reason="300 s"),
    make_record(device_type="cpu", precision="fp32"),
]
FRAME = frame_of(RECORDS)


def test_columns_by_hand_and_what_was_not_measured_is_missing():
    measured = {
        **{
            "wall_s": 8.0,
            "warmup_s": 9.0,
            "total_s": 20.0,
            "event_time_s": [7.0, 9.0],
            "units": 6000,
            "padded_units": 8000,
        },
        # the second rank is the slower one; its timed steps are 1 2 3 4 with median 2.5 and
        # deviations 1.5 0.5 0.5 1.5
        "step_time_s": [[9.0, 1.0, 1.0, 1.0, 1.0], [9.0, 1.0, 2.0, 3.0, 4.0]],
        **{"peak_memory_gib": [1.0, 3.0], "moved_bytes": {"all_reduce": 100, "host_to_device": 20}},
        **{"loss": [5.0, 4.0, 3.0, 2.0, 1.0], "flags": ["a", "b"]},
        "launch_s": 8e-6,
    }
    record = make_record(
        units_per_s=1000.0, timed_steps=4, warmup_steps=1, batch_size=10, measurement=measured
    )
    row = frame_of([record]).iloc[0]
    assert (row["step_time_s"], row["units_per_s"], row["padded_units_per_s"]) == (
        2.0,
        750.0,
        1000.0,
    )
    assert (row["event_step_time_s"], row["jitter_s"]) == (2.0, pytest.approx(1.4826))
    assert (
        row["moved_bytes"],
        row["moved_bytes_all_reduce"],
        row["moved_bytes_device_to_host"],
    ) == (120, 100, 0)
    assert (row["peak_memory_gib"], row["overhead_s"]) == (3.0, 3.0)
    assert row["launch_s"] == 8e-6
    assert (row["loss_first"], row["loss_last"], row["flags"]) == (5.0, 1.0, "a, b")
    assert (row["unit"], row["gpu"], row["framework_version"], row["sm_clock_mhz"]) == (
        "words",
        "NVIDIA H200",
        "2.13.0",
        1980.0,
    )
    assert len(FRAME) == 3 and list(FRAME.columns) == list(COLUMNS)
    row = FRAME[FRAME["status"] == "timeout"].iloc[0]
    assert row[list(MEASURED)].isna().all() and row["reason"] == "300 s"
    assert frame_of([]).dtypes.to_dict() == FRAME.dtypes.to_dict()


def test_export_reads_back(tmp_path):
    pd.testing.assert_frame_equal(
        pd.read_parquet(export(FRAME, tmp_path / "records.parquet")), FRAME
    )
    for back in (
        pd.read_csv(export(FRAME, tmp_path / "a.csv")),
        pd.read_json(export(FRAME, tmp_path / "a.json"), dtype=False),
    ):
        assert (
            list(back.columns) == list(FRAME.columns)
            and back["key"].tolist() == FRAME["key"].tolist()
        )
        assert back["units"].isna().tolist() == FRAME["units"].isna().tolist()
    for name in ("records.xlsx", "records", "no/such/folder/records.csv"):
        refused("cannot", export, FRAME, tmp_path / name)


def test_every_field_declares_what_it_is_and_none_is_declared_that_no_run_has() -> None:
    assert set(ROLES) == set(Run.model_fields), (
        "say in `fields.ROLES` what a new field is to those who compare Runs"
    )
    untold = {*with_role("way", "condition", "host", "length")} - {*SAYS, *OF_A_JOB, "placement"}
    assert not untold and set(SAYS) <= set(Run.model_fields), (
        "say in `words.SAYS` how its values are called"
    )


@pytest.mark.parametrize("name", [*with_role("way", "condition", "host")])
def test_ways_that_differ_in_one_field_are_called_differently(name: str) -> None:
    """`advise` would else print equal rows."""
    # named or not, it is the same way
    usual = {"cross_entropy": "library", "layout": "channels_last"}
    row = EVERYWHERE.iloc[0]
    values = [value for value in EVERYWHERE[name].dropna().unique() if value != usual.get(name)]
    texts = [way_words(pd.concat([row.drop(name), pd.Series({name: value})])) for value in values]
    assert len(set(texts)) == len(values)


@pytest.mark.parametrize("name", FIELDS)
def test_a_filter_by_any_field_finds_its_records(name: str) -> None:
    """As `explain`, `advise` and `measure` read it, with the words of a command that they print."""
    for value in EVERYWHERE[name].dropna().unique():
        words = command_of({name: value.item() if hasattr(value, "item") else value}).split()
        (word,) = (word for word in words if word.startswith(f"{name}="))
        found = where(EVERYWHERE, **parse_fields([word.strip("'")]))
        assert len(found) == (EVERYWHERE[name] == value).sum() > 0, word


def test_a_speedup_needs_a_baseline_with_the_same_kernels() -> None:
    """One GPU ran the library's LSTM at 1.5 M words/s. Four run the persistent one at 10 M, beside
    independent replicas at 11 M: that is 3.6 of four GPUs with these kernels, and not 6.7.
    """
    fast = {
        "precision": "bf16",
        "recurrence": "persistent",
        "cross_entropy": "fused",
        "execution": "captured",
    }
    slow = fast | {"recurrence": None}
    records = [
        *make_point([1.5e6, 1.51e6, 1.49e6], devices=1, **slow),
        *make_point([10.0e6, 10.1e6, 9.9e6], devices=4, **fast),
        *make_point([11.0e6, 11.1e6, 10.9e6], devices=4, placement="independent", **fast),
    ]
    table = scaling(points(frame_of(records)))
    ddp = one(table, placement="ddp", devices=4)
    assert math.isnan(ddp["speedup_best"])
    assert ddp["like"] == "independent replicas"
    assert ddp["speedup_like"] == pytest.approx(4 * 10 / 11, rel=1e-3)
    assert ddp["speedup_like_low"] < ddp["speedup_like"] < ddp["speedup_like_high"] < 4
    (advice,), _ = rankings(usual(points(frame_of(records))), {"workload": "nmt", "devices": 4})
    assert advice.single is None and advice.over_single is not None
    assert advice.over_single.value == pytest.approx(4 * 10 / 11, rel=1e-3)

    alone = make_point([2.8e6, 2.81e6, 2.79e6], devices=1, **fast)
    like = one(scaling(points(frame_of([*records, *alone]))), placement="ddp", devices=4)
    assert like["like"] == "one GPU"
    assert like["speedup_best"] == pytest.approx(10 / 2.8, rel=1e-3)
    # a slower way on four GPUs is still judged by one GPU's best
    eager = [
        *make_point([2e6, 2.02e6, 1.98e6], devices=4, **(slow | {"cross_entropy": None})),
        *alone,
    ]
    assert one(scaling(points(frame_of(eager))), devices=4)["speedup_best"] < 1


def test_a_single_run_on_one_gpu_is_a_baseline_until_another_was_repeated() -> None:
    records = [make_record(units_per_s=1e6, devices=1), *make_point([1.8e6, 1.81e6, 1.79e6])]
    alone = one(scaling(points(frame_of(records))), devices=2)
    assert alone["speedup_best"] == pytest.approx(1.8, rel=1e-3)
    records += make_point([0.9e6, 0.91e6, 0.89e6], devices=1, placement="exp4")
    beside = one(scaling(points(frame_of(records))), devices=2)
    assert beside["speedup_best"] == pytest.approx(2.0, rel=1e-3)
    assert math.isnan(alone["speedup_best_low"]) and not math.isnan(beside["speedup_best_low"])


def test_an_efficiency_beyond_what_a_placement_can_reach_is_not_shown_as_one() -> None:
    """Two GPUs at 1.2 of perfect scaling: nothing that ddp does explains it, nor ZeRO's update; of
    Exp1, which alone is half as fast as one GPU at its best, it is possible.
    """
    ones = [*make_point([1e6] * 3, devices=1), *make_point([5e5] * 3, devices=1, placement="exp1")]
    two = {"ddp": 2.4e6, "zero1": 2.4e6, "exp1": 1.2e6, "exp4": 1.9e6}
    records = [own for name, rate in two.items() for own in make_point([rate] * 3, placement=name)]
    table = where(scaling(points(frame_of([*ones, *records]))), devices=2).set_index("placement")
    best, same = (table[f"efficiency_{name}"].round(3).fillna(0) for name in ("best", "same"))
    assert best.to_dict() == {"ddp": 0, "zero1": 0, "exp1": 0.6, "exp4": 0.95}
    assert same["ddp"] == 0 and same["exp1"] == 1.2
