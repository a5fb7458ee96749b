"""What makes a model scale: the family's formula, the bounds by hand, and findings from planted Records."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import limits
from multigpu.analysis.figure_scales import figure_family, figure_ratio
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import Ceiling
from multigpu.analysis.scales import (
    BATCH,
    SERVER,
    bound_exposed,
    bound_hidden,
    exchange_ratio,
    job_names,
    once_a_job,
    own_bounds,
    scale_points,
    scale_table,
    server_rows,
    short_name,
    sweep_rows,
)
from multigpu.analysis.scales_findings import (
    bounds_finding,
    family_findings,
    preferred_line,
    scale_answers,
    server_findings,
    server_shown,
    smallest_that_scales,
)
from multigpu.grid.family import family
from multigpu.record import Record
from multigpu.workloads import find_model
from multigpu.workloads.cnn.family import CENTRE, MEMBERS, SWEEPS, Member, dense_share
from tests.factory import make_machine, make_point, make_record


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 TFLOP/s and links of 10 GB/s."""
    known = {name: Ceiling(name, value, "B/s", "measured", "planted", "") for name, value in (("bf16", 1e12), ("device_link", 1e10))}
    for module in ("multigpu.analysis.scales", "multigpu.analysis.figure_scales"):
        monkeypatch.setattr(f"{module}.ceilings", lambda gpu: known)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_members_keep_their_formula(member: Member) -> None:
    model = find_model("cnn", member.name)
    convolutions = [v for v in model.variables if v.kind == "convolution"]
    assert len(convolutions) == member.depth and convolutions[0].shape == (member.width, 3, 3, 3)
    assert convolutions[-1].shape[0] == 8 * member.width and model.config.image_shape == (3, member.image_size, member.image_size)
    if member.dense_percent:
        assert dense_share(model.variables) == pytest.approx(member.dense_percent / 100, abs=0.02)


def test_sweeps_change_one_number_and_pull_bytes_and_operations_apart() -> None:
    for axis, members in SWEEPS.items():
        assert CENTRE in members and len({getattr(member, axis) for member in members}) == len(members)
        fixed = [name for name in ("depth", "width", "image_size", "dense_percent") if name != axis]
        assert all(getattr(member, name) == getattr(CENTRE, name) for member in members for name in fixed)
    models = {axis: [find_model("cnn", member.name) for member in members] for axis, members in SWEEPS.items()}
    assert len({model.parameters for model in models["image_size"]}) == 1
    assert models["image_size"][-1].forward_flops_per_unit == pytest.approx(49 * models["image_size"][0].forward_flops_per_unit, rel=0.01)
    small, large = models["dense_percent"][0], models["dense_percent"][-1]
    assert large.parameters > 40 * small.parameters and large.forward_flops_per_unit < 1.5 * small.forward_flops_per_unit
    assert models["width"][0].parameters < 100_000 < 70_000_000 < models["width"][-1].parameters


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [((6, 8, 32, 0), "depth 6 does not fill 4 stages"), ((4, 8, 4, 0), "cannot be halved 3 times"), ((4, 8, 32, 100), "dense_percent 100")],
)
def test_members_that_cannot_be_are_refused(numbers: tuple[int, int, int, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Member(*numbers)


def test_bounds_by_hand() -> None:
    # 2 devices: 1e9 bytes at 1e10 bytes/s take 0.1 s; 1e11 operations at 1e12 a second as long
    assert exchange_ratio(1e9, 1e11, 2, 1e12, 1e10) == pytest.approx(1.0)
    assert exchange_ratio(1e9, 1e11, 4, 1e12, 1e10) == pytest.approx(1.5) and exchange_ratio(1e9, 1e11, 1, 1e12, 1e10) == 0
    assert (bound_hidden(0.5), bound_hidden(2.0), bound_exposed(1.0)) == (1.0, 0.5, 0.5)
    # links take 0.1 s: hidden behind a step of 0.05 s or after it, behind one of 0.3 s or after it; one device has nothing to sum
    assert own_bounds(1e9, 0.05, 2, 1e10) == pytest.approx((1 / 2, 1 / 3)) and own_bounds(1e9, 0.3, 2, 1e10) == pytest.approx((1, 3 / 4))
    assert own_bounds(1e9, 1, 1, 1e10) == (1, 1)


def planted(member: Member, efficiency: float, single: float = 100.0, devices: int = 2, **more: Any) -> list[Record]:
    fields: dict[str, Any] = {"workload": "cnn", "model": member.name, "execution": "captured", **more}
    return [make_record("ddp", 1, single, **fields), make_record("ddp", devices, devices * single * efficiency, **fields)]


def sweep(axis: str, kept: tuple[float, ...], **more: Any) -> list[Record]:
    return [record for member, share in zip(SWEEPS[axis], kept, strict=True) for record in planted(member, share, **more)]


def test_the_smallest_model_that_scales_is_the_one_from_which_on_all_do() -> None:
    kept = (0.5, 0.92, 0.7, 0.91, 0.95, 0.99)  # the second is an exception, and no beginning
    points = scale_points(frame_of(sweep("width", kept)))
    assert len(points) == 6 and points["efficiency"].tolist() == pytest.approx(sorted(kept, key=list(points["efficiency"]).index))
    found = smallest_that_scales(points)
    assert found is not None and found["model"] == "family_d8_w64_s64_f0"
    assert any(said.endswith("From 4,738,596 parameters on all keep at least 90%.") for said in family_findings(points))
    assert list(sweep_rows(points, "width")["at"]) == [8, 16, 32, 64, 128, 256]
    row = points[points["model"] == CENTRE.name].iloc[0]
    model = find_model("cnn", CENTRE.name)
    flops = 3 * 64 * model.forward_flops_per_unit
    assert row["bytes_per_flop"] == pytest.approx(4 * model.parameters / flops)
    assert row["ratio"] == pytest.approx((4 * model.parameters / 1e10) / (flops / 1e12))
    assert "depth 8, width 64, 64 pixels" in scale_table(points).html.replace("\u00a0", " ")
    picture = figure_ratio(points)
    assert "Efficiency is 99% at" in str(picture.finding) and "99% at 59 and" in str(picture.finding)
    assert len(picture.data) == 6 and set(figure_family(points).data["axis"]) == {"width"}
    assert "width " in figure_family(points).alt and "object at" not in figure_family(points).alt


def points_of(records: list[Record]) -> pd.DataFrame:
    """Sweeps share their centre, and efficiencies the Record of one device: each is taken once."""
    return scale_points(frame_of(list({record.key: record for record in records}.values())))


def said_of(records: list[Record], start: str) -> str:
    points = points_of(records)
    (said,) = [text for text in [*scale_answers(points), *family_findings(points)] if text.startswith(f"**{start}**")]
    return said


def test_a_size_that_all_keep_is_no_minimum_and_scattered_runs_name_none() -> None:
    kept, scattered = (0.93, 0.97, 0.95, 0.96, 0.95, 0.95), (0.82, 0.86, 0.96, 1.09, 0.73, 0.94)
    said = said_of(sweep("width", kept) + sweep("width", scattered, execution="eager"), "Size")
    assert said.startswith("**Size** (2 GPUs, captured, measured once each): the family's 6 members of 80,348 to 75,134,820 parameters")
    assert "keep 93% to 97% of perfect scaling. Even the smallest keeps 93%: no minimum size was found." in said
    assert said.endswith("Eager, they keep 73% to 109%, measured once each: too scattered to name a minimum.")
    alone = said_of(sweep("width", scattered, execution="eager"), "Size")
    assert alone.endswith("Single Runs as scattered as these name no minimum size.") and " on all keep" not in alone
    assert said_of(sweep("width", (0.5,) * 6), "Size").endswith("was found: the largest member does not.")


def test_every_sweep_has_its_sentence_with_the_batch_among_them() -> None:
    records = sweep("image_size", (0.92, 0.96, 0.98, 0.98)) + sweep("dense_percent", (0.96, 0.95, 0.77, 0.78))
    batches = [record for batch, share in ((16, 0.91), (256, 0.99)) for record in planted(CENTRE, share, batch_size=batch)]
    records += batches + planted(CENTRE, 0.5, devices=4) + planted(CENTRE, 0.4, execution="eager")  # lonely points, no line
    assert "92% at 32 pixels a side, 96% at 64, 98% at 128 and 98% at 224; that is 236 to 4.8 bytes" in said_of(records, "Images")
    assert "96% at 0% of the parameters, 95% at 50, 77% at 90 and 78% at 98; that is 59 to 2,288 bytes" in said_of(records, "Dense share")
    assert "91% at 16 images a device, 96% at 64 and 99% at 256; that is 236 to 15 bytes" in said_of(records, "Batch")
    picture = figure_family(points_of(records))
    assert set(picture.data["axis"]) == {"image_size", "dense_percent", "batch_size"}
    assert set(picture.data["execution"]) == {"captured"} and set(picture.data["devices"]) == {2}
    assert picture.finding == "Captured, efficiency varies most with dense share: from 77% to 96%"


def test_the_ratio_and_not_the_size_orders_efficiency() -> None:
    """Efficiency falls as images shrink, at one number of parameters, and does not move with the width."""
    records = sweep("image_size", (0.7, 0.9, 0.96, 0.98)) + sweep("width", (0.9, 0.91, 0.89, 0.9, 0.9, 0.9))[:4]
    said = said_of(records + planted(Member(8, 8, 64, 0), 0.3, execution="eager"), "Ratio")
    assert "(2 GPUs, captured): efficiency falls with the bytes of gradients an operation, and not with the number" in said
    assert "over 6 points" in said and "98% of perfect scaling is kept (depth 8, width 64, 224 pixels, batch 64, measured once)" in said
    assert "at 236 bytes 70% (depth 8, width 64, 32 pixels, batch 64, measured once)." in said
    rising = sweep("image_size", (0.98, 0.96, 0.9, 0.7)) + planted(Member(8, 8, 64, 0), 0.9)
    assert "do not order efficiency" in said_of(rising, "Ratio")


def test_captured_steps_speak_first_and_of_them_the_devices_with_most_points() -> None:
    images = sweep("image_size", (0.9,) * 4)
    wider = [record for member in SWEEPS["image_size"][:2] for record in planted(member, 0.8, devices=4)]
    points = points_of(images + wider + sweep("image_size", (0.9,) * 4, execution="eager"))
    line = preferred_line(points)
    assert line is not None and line.where == "2 GPUs, captured" and len(line.rows) == 4
    assert preferred_line(points[points["model"] == CENTRE.name]) is None


def test_both_bounds_stand_beside_what_was_measured() -> None:
    """The centre's 4,738,596 gradients need 1.895 ms; a step of 1.895 ms on one device keeps all of it hidden and half of it exposed."""
    single = 64 / (4 * 4_738_596 / 1e10)
    records = planted(CENTRE, 0.7, single) + planted(CENTRE, 0.4, single / 4, batch_size=16)
    records += planted(CENTRE, 0.8, 4 * single, batch_size=256)
    points = points_of(records).sort_values("batch_size")
    assert points["own_hidden"].tolist() == pytest.approx([1, 1, 1]) and points["own_exposed"].tolist() == pytest.approx([0.5] * 3)
    said = bounds_finding(points)
    assert said.startswith("On 2 GPUs, captured, 2 of 3 points lie between their two bounds by links") and "may be the links' doing" in said
    assert said.endswith(
        "most of all, 40% is kept where exposed summing would leave 50% (depth 8, width 64, 64 pixels, batch 16, measured once)."
    )
    html = scale_table(points).html
    assert ">50%<" in html and "Hidden: 100% in every row" in html and "only a trace tells" in html and "take nothing" not in html
    assert "lie below both" not in bounds_finding(points[points["batch_size"] > 16])
    slower = points_of(planted(CENTRE, 0.2, 4 * single))  # links need four times the step
    assert ">25%<" in scale_table(slower).html and ">20%<" in scale_table(slower).html and "every row" not in scale_table(slower).html
    assert bounds_finding(points.assign(own_exposed=math.nan)) == "" and bounds_finding(points.iloc[:0]) == ""


def test_rows_of_one_job_say_what_tells_them_apart() -> None:
    records = planted(CENTRE, 0.9) + planted(CENTRE, 0.8, layout="channels_first") + planted(CENTRE, 0.7, bucket_update="in_backward")
    records += planted(SWEEPS["width"][0], 0.9)
    points = points_of(records)
    names = {name.replace("\u00a0", " ") for name in job_names(points)}
    common = "depth 8, width 64, 64 pixels, batch 64, bf16, captured"
    apart = {f"{common}, channels last", f"{common}, channels first", f"{common}, channels last, updates in backward"}
    assert names == {*apart, "depth 8, width 8, 64 pixels, batch 64, bf16, captured"}
    assert "channels\u00a0first" in scale_table(points).html


def test_a_run_watched_by_a_counter_is_no_second_point_of_its_job() -> None:
    points = points_of([*planted(CENTRE, 0.9), *planted(CENTRE, 0.7, energy_window_s=12)])
    assert list(points["efficiency"]) == [pytest.approx(0.9)] and "energy_window_s" in points


def test_a_job_of_two_machines_names_them_and_counts_once() -> None:
    """Six members whose efficiency falls with their bytes; one of them five times more on another machine, five times as often."""
    there = make_machine(4)
    rising = sweep("image_size", (0.7, 0.9, 0.96, 0.98)) + planted(Member(8, 8, 64, 0), 0.95)
    more = [
        make_record("ddp", count, 100.0 * (1, 2 * 0.97)[count - 1], repeat, "ab"[repeat % 2], machine=there, **CAPTURED)
        for count in (1, 2)
        for repeat in range(5)
    ]
    points = points_of(rising + more)
    names = [name.replace("\u00a0", " ") for name in job_names(points)]
    assert len(set(names)) == len(names) == 6
    assert {name for name in names if "64 pixels, batch 64, bf16, captured" in name and "width 64" in name} == {
        f"depth 8, width 64, 64 pixels, batch 64, bf16, captured, {name}" for name in ("8x-nvidia-h200", there.name)
    }
    alone = once_a_job(points)
    assert len(alone) == 5 and list(alone.loc[alone["model"] == CENTRE.name, "n"]) == [5], "the one that was repeated"
    (said,) = [text for text in scale_answers(points) if text.startswith("**Ratio**")]
    assert "rank correlations over 5 points" in said and len(figure_ratio(points).data) == 5


CAPTURED: dict[str, Any] = {"workload": "cnn", "model": CENTRE.name, "execution": "captured"}


def often(member: Member, efficiency: float, devices: int = 2, **more: Any) -> list[Record]:
    """`planted` with five repeats over two launches."""
    fields: dict[str, Any] = {"workload": "cnn", "model": member.name, "execution": "captured", **more}
    return [
        record
        for count, rate in ((1, 100.0), (devices, 100.0 * devices * efficiency))
        for record in make_point([rate] * 5, placement="ddp", devices=count, **fields)
    ]


def test_repeated_points_lead_and_a_single_one_that_is_slower_than_eager_says_so() -> None:
    """On four devices two sizes of images keep 95% and 99%, repeated; a third 60%, once, which eager steps exceed: 240 against 280."""
    small, middle, large, largest = SWEEPS["image_size"]
    records = often(small, 0.95, 4) + often(large, 0.99, 4) + planted(middle, 0.6, devices=4)
    records += planted(middle, 0.7, devices=4, execution="eager") + planted(largest, 0.8, devices=4)
    said = scale_answers(points_of(records))
    assert said == [
        "On 4 GPUs, captured, 95% (depth 8, width 64, 32 pixels, batch 64) to 99% (depth 8, width 64, 128 pixels, batch 64) of perfect "
        "scaling are kept; of what was measured once, 60% (depth 8, width 64, 64 pixels, batch 64, slower than eager steps on as many "
        "devices: 240 against 280 images/s) and 80% (depth 8, width 64, 224 pixels, batch 64)."
    ]
    html = scale_table(points_of(records)).html.replace("\u00a0", " ")
    assert html.count("captured, slower than eager<") == 1 and "slower than eager: on as many devices" in html
    alone = scale_answers(points_of(records[10:20] + records[20:22]))
    assert "60% (depth 8, width 64, 64 pixels, batch 64, measured once) to 99%" in alone[0], "one repeated point is no range"
    ratio = said_of(often(small, 0.7) + often(large, 0.95) + sweep("width", (0.9, 0.91, 0.89, 0.9, 0.9, 0.9)), "Ratio")
    assert (
        "scaling is kept (depth 8, width 64, 128 pixels, batch 64), at 236 bytes 70% (depth 8, width 64, 32 pixels, batch 64); of" in ratio
    )
    assert ratio.endswith("90% at 60 bytes (depth 8, width 8, 64 pixels, batch 64).")


def test_captured_points_lie_above_faint_eager_ones_and_the_extremes_are_named() -> None:
    records = sweep("image_size", (0.7, 0.9, 0.96, 0.98)) + sweep("image_size", (1.2, 0.8, 0.9, 0.6), execution="eager")
    (ax,) = figure_ratio(points_of(records)).axes
    eager, captured = (next(line for line in ax.get_lines() if line.get_label() == form) for form in ("eager", "captured"))
    assert eager.get_alpha() < 0.5 and eager.get_zorder() < captured.get_zorder() and captured.get_alpha() is None
    names = [text.get_text() for text in ax.texts]
    assert {"32 pixels", "224 pixels"} <= set(names)
    assert ax.yaxis.get_major_formatter()(0.8) == "80%"
    assert short_name(pd.Series({"model": "vgg16", "batch_size": 64})) == "VGG-16, 64"
    assert short_name(pd.Series({"model": CENTRE.name, "batch_size": 1024})) == "batch 1,024"
    assert short_name(pd.Series({"model": CENTRE.name, "batch_size": BATCH})) == "the family's centre"


def test_no_point_of_the_ratio_lies_outside_its_panel_and_fewer_devices_are_drawn() -> None:
    """Two devices with a sweep, four with one ratio: the sweep is drawn, up to an efficiency of 1.4."""
    points = points_of(sweep("image_size", (0.9, 0.9, 0.9, 1.4), execution="eager") + planted(CENTRE, 0.9, devices=4))
    picture = figure_ratio(points)
    assert set(picture.data["devices"]) == {2} and picture.axes[0].get_ylim()[1] > 1.4
    lonely = figure_ratio(points[points["model"] == CENTRE.name])
    assert set(lonely.data["devices"]) == {4}, "without several ratios anywhere, the most devices"


def test_without_records_the_page_says_what_is_missing() -> None:
    points = points_of([])
    assert "No Record on several devices yet" in scale_answers(points)[0] and not family_findings(points)
    assert "Nothing to draw" in figure_ratio(points).alt and "--grid family" in figure_family(points).alt
    lonely = points_of([make_record("ddp", 2, 10.0, workload="cnn")])
    assert lonely.empty and "efficiency" in lonely


def test_a_machine_without_ceilings_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multigpu.analysis.scales.ceilings", lambda gpu: {})
    points = points_of(planted(CENTRE, 0.9))
    assert math.isnan(points["ratio"].iloc[0]) and points["efficiency"].iloc[0] == pytest.approx(0.9)
    assert limits.TRAINING_PASSES == 3


def on_server(kept: tuple[float, ...], **more: Any) -> list[Record]:
    """The family's widths, fewest filters first, with variables on the CPU of one host, eager."""
    fields: dict[str, Any] = {"workload": "cnn", "execution": "eager", **more}
    records: list[Record] = []
    for member, share in zip(SWEEPS["width"], kept, strict=False):
        records += [make_record("exp2", devices, 100.0 * (1, 2 * share)[devices - 1], model=member.name, **fields) for devices in (1, 2)]
    return records


def server_said(records: list[Record]) -> tuple[list[str], str]:
    """The sentences and the HTML of the family with variables on the CPU."""
    frame = frame_of(records)
    server, points = scale_points(frame, SERVER), scale_points(frame)
    return server_findings(server_rows(server, points)), server_shown(server, points).html


def test_without_records_of_a_server_on_the_cpu_the_page_says_how_to_measure_them() -> None:
    """Of all-reduce alone, or of nothing."""
    for records in ([], sweep("width", (0.5, 0.92, 0.7, 0.91, 0.95, 0.99))):
        (said,), html = server_said(records)
        assert said == (
            "**Variables on the CPU**: not measured yet for the family's 6 members of different width, so nothing here tests the "
            "document's smallest size of about 400,000 parameters; `python -m multigpu measure --grid family placement=exp2 --devices 1,2` "
            "measures them."
        )
        assert "<table" not in html and "<code>python -m multigpu measure --grid family" in html


def test_the_command_for_a_server_on_the_cpu_measures_what_the_page_reads() -> None:
    runs = [entry.run for entry in family((1, 2)) if entry.run.placement == SERVER]
    assert len(runs) == 12 and {run.model for run in runs} == {member.name for member in SWEEPS["width"]}
    assert {(run.devices, run.batch_size, run.execution) for run in runs} == {(count, BATCH, "eager") for count in (1, 2)}


def test_smaller_members_that_keep_less_on_a_server_bear_the_document_out() -> None:
    """Two widths have less than 400,000 parameters; all-reduce, eager too, was measured of all six."""
    summed = sweep("width", (0.8, 0.85, 0.9, 0.9, 0.95, 0.97), execution="eager")
    said, html = server_said(on_server((0.4, 0.5, 0.6, 0.8, 0.9, 0.95)) + list({record.key: record for record in summed}.values()))
    assert said == [
        "**Variables on the CPU** (2 GPUs, eager, measured once each): the family keeps 40% to 95% of perfect scaling, and 80% to 97% "
        "under all-reduce during backward (6 members); 40% to 50% below the document's 400,000 parameters (2 members), 60% to 95% from "
        "there on. Every smaller member keeps less than every larger one, as the document says."
    ]
    assert html.index("80,348") < html.index("75,134,820") and ">40%<" in html and ">80%<" in html and "n = 1: screening" in html


def test_a_server_where_size_does_not_order_the_members_or_runs_scatter() -> None:
    said, html = server_said(on_server((0.7, 0.5, 0.6, 0.8, 0.9, 0.95)))
    assert said[0].endswith(
        "Not every smaller member keeps less than every larger one: the family does not show the document's smallest size."
    )
    assert "all-reduce" not in said[0] and "Not measured: all-reduce." in html
    scattered, _ = server_said(on_server((0.4, 0.5, 1.3, 0.8, 0.9, 0.95)))
    assert scattered[0].endswith("Single Runs as scattered as these neither bear out its smallest size nor refute it.")


def test_what_of_the_server_is_lacking_is_said_beside_what_there_is() -> None:
    said, _ = server_said(on_server((0.4, 0.5)))
    assert said[0].endswith("All members measured lie below the document's smallest size of about 400,000 parameters: it is not tested.")
    assert said[1].startswith("4 of the family's 6 widths are not measured yet; `python -m multigpu measure --grid family placement=exp2 ")
    (alone,), html = server_said(on_server((0.4,)))
    assert alone.startswith(
        "**Variables on the CPU**: depth 8, width 8, 64 pixels keeps 40% of perfect scaling; one size alone says nothing"
    )
    assert "5 of the family's 6 widths are not measured yet" in alone and "<table" in html
    captured = sweep("width", (0.8,) * 6)
    assert "under all-reduce" not in server_said(on_server((0.4, 0.5)) + captured)[0][0], "captured steps are not the same Runs"
