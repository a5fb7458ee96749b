"""Advice, explanations and forecasts: of one machine, nothing that noise could have done, what
nobody measured as what was.
"""

import json
import re
import shlex
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu import paths
from multigpu.analysis.advise import Advice, advise, rankings
from multigpu.analysis.advise_text import advised, sentences
from multigpu.analysis.advise_text import as_text as advice_text
from multigpu.analysis.compare import best_single, ratio_columns
from multigpu.analysis.expected import expected
from multigpu.analysis.explain import (
    WAITS,
    Explanation,
    baselines,
    explain_fields,
    explain_key,
    faster,
)
from multigpu.analysis.explain_text import as_text, explained
from multigpu.analysis.explain_text import sentences as explanation
from multigpu.analysis.fields import JOB, SAME
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import bounds
from multigpu.analysis.memory import room_for
from multigpu.analysis.points import as_it_comes, points, usual, where
from multigpu.analysis.query import run_of, semantics
from multigpu.analysis.read import Study, frames, machines_of, records_of
from multigpu.build import build_run
from multigpu.cli.main import main
from multigpu.placements import find_placement
from multigpu.placements.memory import needed
from multigpu.records.record import Record, RecordStore
from multigpu.spec.parse import parse_fields
from multigpu.workloads import description_of
from tests.factory import make_machine, make_point, make_record, plant
from tests.further import but
from tests.multigpu.analysis.planted import study
from tests.refusals import refused

RUNS = paths.RUNS
FRAME, STUDY = frames(RUNS)


@pytest.mark.parametrize("first", but([0], [0, 3, 6]))
def test_the_best_is_the_plain_maximum_of_each_machines_medians_for_every_job(first: int) -> None:
    """Medians of raw Records' rates, by machine; of repeated ways that train the global batch's
    model, the largest is the advice.
    """
    measured = {record.key: record.measurement for record in records_of(RUNS)}
    rates = {key: one.units / one.wall_s for key, one in measured.items() if one}
    table, jobs = usual(STUDY), 0
    for _, job in [*table[table["n"] > 0].groupby(list(SAME), dropna=False, sort=False)][first::9]:
        rows = [
            row
            for _, row in where(job, n=[*range(2, 99)]).iterrows()
            if semantics(row).facts.is_equal_training
        ]
        if not rows:
            continue
        advice = advise(job, table)
        best = advice.best
        assert best is not None
        medians = {
            row["keys"]: median(rates[key] for key in row["keys"].split(", ") if key in rates)
            for row in rows
            # what was repeated less than a headline leads only where it is surely faster; what may
            # be far slower in another launch does not lead what surely is not
            if (row["tier"] == "headline" and 1.05 * row["rate_low"] >= best["rate_low"])
            or row["keys"] == best["keys"]
        }
        assert advice.best is not None and advice.best["machine"] == job["machine"].iloc[0]
        # pooled rate and median may order near-equals differently, by what repeats vary
        assert medians[advice.best["keys"]] >= max(medians.values()) * 0.97
        jobs += 1
    assert jobs > 20


def advice_of(records: list[Record], **fields: object) -> Advice:
    """Of planted Records, for the translator."""
    return rankings(points(frame_of(records)), {"workload": "nmt", **fields})[0][0]


@pytest.mark.parametrize(("faster", "best"), [(1.02, "exp4"), (1.5, "ddp")])
def test_two_repeats_lead_five_only_where_they_are_surely_faster(faster: float, best: str) -> None:
    often = make_point([1e6, 1.004e6, 0.996e6, 1.003e6, 0.997e6], placement="exp4", devices=4)
    seldom = [faster * 0.99e6, faster * 1.01e6]
    records = [*often, *make_point(seldom, "ab", placement="ddp", devices=4)]
    found = advice_of(records, devices=4).best
    assert found is not None and found["placement"] == best


@pytest.mark.parametrize(
    "way",
    [
        {"placement": "ddp", "top_k": 0.01, "warmup_steps": 5},
        {"placement": "ddp", "powersgd_rank": 4, "warmup_steps": 5},
        {"placement": "local_sgd"},
    ],
    ids=["top_k", "powersgd", "local_sgd"],
)
def test_what_trains_another_model_never_leads_however_fast(way: dict[str, object]) -> None:
    five = [1e6, 1.004e6, 0.996e6, 1.003e6, 0.997e6]
    other = make_point([3 * one for one in five], "vwxyz", devices=2, **way)
    advice = advice_of([*make_point(five, placement="ddp", devices=2), *other], devices=2)
    fastest, plain = (row for _, row in advice.ranked.iterrows())
    assert other[0].key in fastest["keys"] and fastest["standing"] == "not the same training"
    assert advice.best is not None and advice.best["keys"] == plain["keys"]
    assert semantics(fastest).facts.words in advice_text(advice)


@pytest.mark.parametrize(("faster", "best"), [(0.9, "exp4"), (1.02, "exp4"), (3, "ddp")])
def test_launched_steps_lead_captured_ones_only_where_they_are_told_apart(
    faster: float, best: str
) -> None:
    """Their host launches them at another speed in its next boot: the interval holds that."""
    five = [1e6, 1.004e6, 0.996e6, 1.003e6, 0.997e6]
    launched = make_point([faster * one for one in five], placement="ddp", devices=4)
    graphs = make_point(five, "abcde", placement="exp4", devices=4, execution="captured")
    found = advice_of([*launched, *graphs], devices=4).best
    assert found is not None and found["placement"] == best


def test_one_gpu_is_advised_where_two_are_slower_and_no_single_run_is() -> None:
    shares = {"ddp": (1.0, 0.4, 0.1), "independent": (1.0, 0.99, 0.98)}
    assert sentences(advice_of(study(shares=shares), devices=2))[0].startswith("Take one GPU")
    advice = advice_of([*study(), make_record("exp3", 2, units_per_s=5e6)], devices=2)
    assert advice.best is not None and advice.best["placement"] == "ddp"
    standing = advice.ranked.set_index("placement")["standing"]
    assert standing[["exp3", "independent"]].tolist() == [
        "faster, single run",
        "not the same training",
    ]
    assert "repeat it" in " ".join(sentences(advice))


def test_advice_as_text_and_json_say_the_same(tmp_path) -> None:
    plant(RecordStore(tmp_path / "runs"), study())
    fields = {"workload": "cnn", "devices": 8, "batch_size": 64}
    said = json.loads(advised(Study.of_runs(tmp_path / "runs"), fields, form="json"))["jobs"][0]
    text = advised(Study.of_runs(tmp_path / "runs"), fields)
    assert text.replace("\n", " ").startswith(said["advice"])
    assert [row["point"]["placement"] for row in said["ranked"]] == [
        "independent",
        "ddp",
        "exp4",
        "exp2",
    ]
    refused(
        "unknown model 'resnet'",
        advised,
        Study.of_runs(tmp_path / "runs"),
        {"workload": "cnn", "model": "resnet"},
    )
    assert "devices = 4 (measured are 1, 2, 8)" in advised(
        Study.of_runs(tmp_path / "runs"), fields | {"devices": 4}
    )


def test_every_point_is_its_runs() -> None:
    """The Run that a point's fields build has the digest of its Records' Run, paths of data and
    seed aside.
    """
    digests = {
        record.key: record.run.model_copy(update={"data": None, "seed": 0}).digest
        for record in records_of(RUNS)
    }
    for _, row in STUDY[STUDY["n"] > 0].iloc[::25].iterrows():
        if row["inputs"] in ("synthetic", "lengths_000"):
            assert run_of(row).digest == digests[row["keys"].split(", ")[0]]


@pytest.mark.parametrize("first", but([0], [0, 12, 24]))
def test_explanations_of_all_traced_points_add_up(first: int) -> None:
    """Parts add up to the step, none is negative or larger than it; what is lost is said only where
    an interval says it.
    """
    traced = [
        record for record in records_of(RUNS) if record.run.traced_steps and record.status == "ok"
    ]
    for record in traced[first::36]:
        found, why, _ = explain_key(Study.of_runs(RUNS), record.key)
        one = found[0]
        assert not why and one.parts is not None
        assert sum(one.parts.values()) == pytest.approx(one.step_s, rel=1e-6)
        assert min(one.parts.values()) >= -1e-9 and max(one.parts.values()) <= one.step_s * (
            1 + 1e-9
        )
        assert all(seconds <= one.step_s for _, seconds in one.causes())
    assert len(traced) > 100 and len(FRAME) > len(STUDY)


def test_noise_is_called_noise_and_what_was_not_traced_names_the_command_and_what_is_faster(
    tmp_path,
) -> None:
    """Four GPUs at 1.01 of four times one, within the spread of repeats: no cause is named."""
    records = [
        *make_point([1e6, 1.03e6, 0.97e6], devices=1),
        *make_point([4.1e6, 4.0e6, 3.95e6], devices=4),
    ]
    plant(RecordStore(tmp_path / "runs"), records)
    one = explain_fields(Study.of_runs(tmp_path / "runs"), {"workload": "nmt", "devices": 4})[0][0]
    assert not one.lost and not any("ms" in line for line in explanation(one)[:2])
    plant(RecordStore(tmp_path / "study" / "runs"), study())
    text = explained(
        Study(tmp_path / "study", ""), ["workload=nmt", "placement=exp2", "devices=8"], details=True
    )
    assert (
        "traced_steps=3" in text
        and "slower than one" in text
        and "placement ddp instead of exp2" in text
    )
    refused("no Record is called 'zzz'", explained, Study(tmp_path / "study", ""), ["zzz"])


SHARE = re.compile(r"([\d.]+)%[^%;\n]*? of (?:perfect|its best|\d+ times)")
NEGATIVE = re.compile(r"(?<![\w.])-\d[\d.,]*\s*(?:ms|s|%|µs)")


def told(row: pd.Series, found: dict[str, pd.Series]) -> str:
    """The whole text of an explanation of which no step was traced."""
    return as_text(
        Explanation(row, found, None, (), float("nan"), {}, pd.DataFrame(), "measure"), details=True
    )


def check(text: str) -> None:
    assert all(float(share) <= 100 for share in SHARE.findall(text)), text
    assert not NEGATIVE.search(text), text


def test_no_committed_point_is_better_than_perfect() -> None:
    """Every measured point beside one device at its best."""
    table = STUDY[STUDY["n"] > 0].reset_index(drop=True)
    ones = best_single(table, form=())
    pairs = (
        table[[*JOB]]
        .assign(_row=table.index)
        .merge(ones[[*JOB]].assign(_one=ones.index), on=[*JOB])
    )
    own, base = (table.loc[pairs[name]].reset_index(drop=True) for name in ("_row", "_one"))
    ratios = ratio_columns(own, base, "ratio")
    for place in range(len(pairs)):
        row, ratio = own.iloc[place], ratios.iloc[place]
        ideal = (ratio / row["devices"]).rename(lambda name: name.replace("ratio", "of_ideal"))
        check(told(row, {"one_best": pd.concat([base.iloc[place], ratio, ideal])}))
    assert len(pairs) > 1000


@pytest.mark.parametrize(
    ("rates", "launches", "best"),
    [
        ([2_000.0], "f", "ddp"),  # of one repeat nothing is known
        ([1_040.0, 1_041.0], "ff", "ddp"),  # two may be lucky
        ([1_070.0, 1_071.0], "ff", "exp4"),
        ([1_040.0, 1_038.0, 1_041.0, 1_039.0, 1_042.0], "fghij", "exp4"),
    ],
)
def test_one_gpu_at_its_best_is_not_the_luckiest(
    rates: list[float], launches: str, best: str
) -> None:
    """Beside five launches of 985 to 1,015 that another way has."""
    steady = [985.0, 1_000.0, 1_015.0, 995.0, 1_005.0]
    often = make_point(steady, "abcde", placement="ddp", devices=1)
    other = make_point(rates, launches, placement="exp4", devices=1)
    assert best_single(points(frame_of([*often, *other])))["placement"].tolist() == [best]
    assert best_single(points(frame_of(other)))["placement"].tolist() == ["exp4"]


def test_no_record_is_faster_than_its_bound(committed: list[Record]) -> None:
    limits = bounds(frame_of(committed))
    known = limits[limits["share_of_bound"].notna()]
    fastest = known.sort_values("share_of_bound").iloc[-1]
    assert len(known) > 500 and fastest["share_of_bound"] < 1, fastest["key"]


def table_of(*ways: tuple[str, int, float], repeats: int = 3) -> pd.DataFrame:
    """The points of placements on so many devices at these rates."""
    noise = (0.99, 1.0, 1.01)[:repeats]
    return points(
        frame_of(
            record
            for name, count, rate in ways
            for record in make_point([rate * one for one in noise], placement=name, devices=count)
        )
    )


def test_a_single_run_is_not_what_is_told_to_be_faster_where_others_were_repeated() -> None:
    table = pd.concat(
        [table_of(("exp2", 2, 1e6), ("exp4", 2, 2e6)), table_of(("ddp", 2, 3e6), repeats=1)],
        ignore_index=True,
    )
    found = faster(table, table.iloc[0])
    assert (
        list(found["placement"]) == ["exp4", "ddp"]
        and found["ratio"].iloc[0] < found["ratio"].iloc[1]
    )


def test_computing_that_merging_slows_is_told() -> None:
    """No wait is long, and yet the step is: its kernels are slower than those of replicas that
    merge nothing.
    """
    table = table_of(("ddp", 4, 6e6), ("independent", 4, 8e6), ("ddp", 1, 2e6))
    row, step_s = table.iloc[0], float(table["step_time_s"].iloc[0])
    parts = dict.fromkeys(WAITS, 0.0) | {"compute": step_s}
    for alone_s, longer in (
        (0.9 * step_s, True),
        (0.999 * step_s, False),
        (1.1 * step_s, False),
        (None, False),
    ):
        one = Explanation(
            row, baselines(table, row), parts, ("key",), 1.0, {}, pd.DataFrame(), "", alone_s
        )
        assert (
            "longer than in replicas that reduce no gradients beside it" in as_text(one)
        ) == longer
        assert not longer or f"{1e3 * (step_s - alone_s):.2g}" in as_text(one).splitlines()[1]


def test_a_single_gpu_in_slower_ways_only_is_no_baseline() -> None:
    """Four GPUs with a kernel that one GPU was never measured with are compared with replicas that
    have it, too.
    """
    table = table_of(("ddp", 1, 1e6), ("independent", 4, 8e6), ("ddp", 4, 6e6))
    _, free, row = (row for _, row in table.iterrows())
    first, second = told(row, baselines(table, row)).splitlines()[:2]
    assert (
        "keep 75% (" in first
        and "of independent replicas; one GPU was measured in slower ways only" in first
        and "measure" in second
    )
    assert "perfect scaling" in told(free, baselines(table, free)).splitlines()[0]
    table = table[table["placement"].eq("ddp")]
    assert (
        "times the rate of one GPU at its best" in told(row, baselines(table, row)).splitlines()[0]
    )


RATES = st.lists(st.floats(0.5e6, 2e6), min_size=1, max_size=4)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(RATES, RATES, RATES, st.sampled_from([1, 2, 8]))
def test_made_up_points_are_told_within_their_wholes(
    one: list[float], alone: list[float], many: list[float], devices: int
) -> None:
    """Rates of any spread: of one device, of a replica alone and of a placement that may be faster
    than perfect.
    """
    records = [*make_point(one, devices=1), *make_point(alone, placement="independent", devices=1)]
    records += make_point(
        [devices * rate for rate in many], placement="replicated_allreduce", devices=devices
    )
    table = points(frame_of(records))
    for _, row in table.iterrows():
        check(told(row, baselines(table, row)))
    for advice in rankings(table, {"workload": "nmt", "devices": devices})[0]:
        check(" ".join(sentences(advice)))
        assert devices > 1 or "independent" not in " ".join(sentences(advice))


def test_what_was_measured_lies_in_the_band_of_the_same_model_at_batches_beside_it() -> None:
    """Plain points of one device of the richest machine, asked for at a batch one larger: it
    changes by less than the band is wide.
    """
    machine = machines_of(STUDY)["machine"].iloc[0]
    table = usual(
        where(
            STUDY[STUDY["n"] > 0], machine=machine, devices=1, framework="torch", execution="eager"
        )
    )
    ones = where(table, placement="ddp", inputs="synthetic", precision="bf16").drop_duplicates(
        ["model", "batch_size"]
    )
    inside = []
    for _, row in ones.head(12).iterrows():
        beside = {"batch_size": int(row["batch_size"]) + 1, "precision": "bf16"}
        found = expected(
            Study.of_runs(RUNS), {"workload": row["workload"], "model": row["model"], **beside}
        )
        assert found is not None and found.rate.low < found.rate.value < found.rate.high
        inside.append(found.rate.low < row["rate"] < found.rate.high)
    assert np.mean(inside) >= 0.75 and len(inside) >= 5, "bands are of 95%, and twelve are few"


def test_a_forecast_is_no_surer_than_the_repeats_that_it_rests_on() -> None:
    job = {"model": "resnet50_v1.5", "placement": "ddp", "execution": "eager", "batch_size": 256}
    found = expected(Study.of_runs(RUNS), job | {"devices": 8}, "4x-nvidia-h200")
    known = STUDY[(STUDY["n"] > 2) & STUDY["devices"].isin([1, 2, 4])]
    rates = as_it_comes(where(known, machine="4x-nvidia-h200", precision="bf16", **job))
    assert found is not None and "1, 2 and 4 devices" in found.basis
    assert found.rate.low / found.rate.value <= (rates["rate_low"] / rates["rate"]).min() + 1e-3


def test_a_larger_model_s_step_is_no_floor_of_a_smaller_one_s() -> None:
    """Twice the batch of a tiny model takes as long: the shortest step that is launched so."""
    study, machine = Study.of_runs(RUNS), "4x-nvidia-h200"
    job = {"workload": "gpt", "devices": 1, "execution": "captured"}
    tiny, twice, smaller = (
        expected(study, job | {"model": model, "batch_size": batch}, machine)
        for model, batch in (("gpt_tiny", 8), ("gpt_tiny", 16), ("gpt2_350m", 8))
    )
    larger = where(STUDY, machine=machine, model="gpt2_774m", batch_size=8, **job)["rate"].max()
    assert tiny is not None and twice is not None and smaller is not None
    assert smaller.rate.value > 1.1 * larger and tiny.rate.value > 10 * larger
    assert twice.rate.value == pytest.approx(2 * tiny.rate.value)


def test_what_names_no_model_or_cannot_be_has_no_forecast() -> None:
    assert (
        expected(Study.of_runs(RUNS), {"devices": 8})
        is expected(Study.of_runs(RUNS), {"model": "vgg16", "devices": 2, "batch_size": 0})
        is None
    )
    job = {"workload": "cnn", "model": "vgg16", "devices": 2}
    broken = mock.Mock(side_effect=ValueError("no refusal"))
    with mock.patch("multigpu.analysis.expected.build_run", broken):
        refused("no refusal", expected, Study.of_runs(RUNS), job)


def test_explain_and_advise_forecast_more_devices_and_say_so() -> None:
    text = explained(Study.of_runs(RUNS), ["workload=cnn", "model=vgg16", "devices=8"])
    assert (
        "No Record has devices = 8" in text
        and "Forecast, not a measurement: ddp" in text
        and "1, 2 and 4 devices" in text
    )
    assert "python -m multigpu measure" in text and "devices=8" in text
    found = json.loads(
        advised(
            Study.of_runs(RUNS), {"workload": "cnn", "model": "vgg16", "devices": 8}, form="json"
        )
    )
    said = found["forecast"]
    assert (
        found["jobs"] == []
        and said["rate_low"] < said["rate"] < said["rate_high"]
        and 0.5 < said["scaling"] < 1
    )
    assert (
        json.loads(
            explained(
                Study.of_runs(RUNS), ["workload=cnn", "model=vgg16", "devices=2"], form="json"
            )
        )["forecast"]
        is None
    )


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_batch_in_parts_takes_as_many_steps_of_a_part_and_merges_once_or_at_each(
    devices: int,
) -> None:
    job = {
        "workload": "cnn",
        "model": "resnet50_v1.5",
        "layout": "channels_last",
        "precision": "bf16",
        "placement": "ddp",
    }
    ways = (
        {"batch_size": 64, "execution": "eager"},
        *({"batch_size": 256, "micro_steps": 4, "micro_sync": one} for one in (None, "each")),
    )
    part, once, each = (
        expected(Study.of_runs(RUNS), job | {"devices": devices} | way, "4x-nvidia-h200")
        for way in ways
    )
    assert part is not None and once is not None and each is not None
    assert once.rate.low <= part.rate.value * 1.05 < part.rate.value * 1.2 > once.rate.value
    assert (
        each.rate.value == once.rate.value
        if devices == 1
        else each.rate.value < once.rate.value and each.rate.low < once.rate.low
    )


def test_a_forecast_of_a_grid_can_be_written_and_measured_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "more" / "forecast.csv"
    words = ["measure", "--grid", "persistent", "--devices", "1", "batch_size=384", "--forecast"]
    assert main([*words, str(file)]) == 0
    table = pd.read_csv(file)
    assert (
        len(table)
        and (table["rate_low"] <= table["rate"]).all()
        and (table["rate"] <= table["rate_high"]).all()
    )
    assert all(
        build_run(**parse_fields(words.split())).model == "nmt000" for words in table["fields"]
    )


def test_a_job_that_is_too_large_for_ddp_is_told_what_fits() -> None:
    """One H200 ran out of memory with 4,096 images of ResNet-50, where 2,048 had passed; a batch of
    64 fits under everything.
    """
    fields = {
        "workload": "cnn",
        "model": "resnet50_v1.5",
        "placement": "ddp",
        "precision": "bf16",
        "layout": "channels_last",
    }
    large, small = (
        room_for(Study.of_runs(RUNS), build_run(**fields, batch_size=batch, devices=2))
        for batch in (6144, 64)
    )
    assert large is not None and large.needed_gib > large.has_gib and not large.others
    assert (
        large.instead is not None
        and large.instead.micro_steps
        and large.instead.micro_steps >= large.needed_gib / large.has_gib
    )
    assert small is not None and small.needed_gib < small.has_gib and small.text() == ""
    fields = {
        "workload": "nmt",
        "model": "nmt000",
        "placement": "replicated_copy",
        "precision": "bf16",
        "sequence_length": 100,
    }
    between = room_for(Study.of_runs(RUNS), build_run(**fields, batch_size=128, devices=512))
    assert (
        between is not None
        and between.needed_gib > between.has_gib
        and "zero1" in between.others
        and "zero1" in between.text()
    )


@pytest.mark.parametrize(
    ("model", "optimizer", "gib"),
    [("vgg16", "adam", 1.5), ("resnet50_v1.5", "adam", 0.2), ("alexnet", "momentum", 0.6)],
)
def test_a_model_made_too_large_for_ddp_is_told_which_placement_fits_it(
    tmp_path, model: str, optimizer: str, gib: float
) -> None:
    """Models never measured on a machine whose GPUs are too small for a copy of the rule's states
    each, and for ddp alone.
    """
    small = make_machine(8, name="small").model_copy(update={"gpu_memory_gib": [gib] * 8})
    plant(RecordStore(tmp_path / "runs"), make_point([1e6], machine=small))
    fields = {"workload": "cnn", "model": model, "optimizer": optimizer, "devices": 8}
    replicated = build_run(placement="ddp", batch_size=32, **fields)
    assert needed(replicated, description_of(replicated)).least > gib * 2**30
    text = advised(Study.of_runs(tmp_path / "runs"), fields, "small")
    command = text.rsplit("`", 2)[1]
    run = build_run(
        **parse_fields(shlex.split(command.removeprefix("python -m multigpu measure ")))
    )
    placement = find_placement(run.placement)
    assert (
        needed(run, description_of(run)).least <= gib * 2**30
        and placement.semantics.facts.is_equal_training
        and not placement.uses_host
    )
    assert run.placement in text and run.model_dump(include=set(fields)) == fields
