"""Placements inside one model on planted Records: epochs, copies, crossing points, verdicts, and the page without Records."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis import inside_busy, inside_document, inside_model, inside_page, inside_search, stage_words
from multigpu.analysis.crossing import alike, crossing_of, crossing_text, crossings
from multigpu.analysis.figure_stages import figure_stages
from multigpu.analysis.frame import frame_of
from multigpu.analysis.step_traces import SUMMARY, trace_summary, trace_table, window_of, write_trace_summary
from multigpu.analysis.wording import field_text
from multigpu.claims import evaluate, find_claim
from multigpu.measure.trace import Activity, CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary, joined, replica_trace
from multigpu.record import Record
from tests.factory import make_point, make_record

COMMON: dict[str, Any] = {"workload": "deepconn", "scaling": "strong", "processes": "one"}
DEVICES = {"single": 1, "tower_per_gpu": 2, "alternating": 2}


def point(placement: str, step_ms: float, batch: int = 32, **more: Any) -> list[Record]:
    """Five repeats over two launches, each at about this step time; epochs unless told otherwise."""
    rates = [batch / (step_ms / 1000) * (1 + 0.001 * index) for index in range(5)]
    fields = COMMON | {"devices": DEVICES.get(placement, 2), "batch_size": batch, "timed_steps": 824} | more
    return make_point(rates, placement=placement, **fields)


def trace_of(devices: int, copies_ms: float, exposed_ms: float, sparse_ms: float, busy_ms: float = 1.0) -> TraceSummary:
    """Two steps: on each device 9.5 copies a step of 10 us each, and two kernels."""
    step = StepTrace(
        start_s=0.0,
        end_s=0.002,
        host_s=0.001,
        phases={"forward": (0.0, 0.001), "backward": (0.001, 0.002)},
        kernels=30,
        launches=30,
        busy_s=busy_ms / 1000,
        communication_s=copies_ms / 1000,
        exposed_s=exposed_ms / 1000,
        exposed_copies_s=exposed_ms / 1000,
        communication=[],
    )
    copies = (
        [CopyTotals(kind="device_to_device", calls=19, bytes=1900, total_s=copies_ms / 500, min_s=4e-6, max_s=9e-4)] if copies_ms else []
    )
    replicas = [ReplicaTrace(rank=rank, steps=[step, step], copies=copies, device_time_s=0.01) for rank in range(devices)]
    kernels = [
        KernelTotals(name="UnsortedSegmentCustomKernel", calls=4, total_s=sparse_ms / 1000, min_s=1e-6, max_s=2e-3),
        KernelTotals(name="gemm", calls=8, total_s=0.001, min_s=1e-6, max_s=1e-3),
    ]
    return TraceSummary(source="kineto", replicas=replicas, kernels=kernels)


def traced(placement: str, step_ms: float, trace: TraceSummary, **more: Any) -> list[Record]:
    return point(placement, step_ms, measurement={"trace": trace}, traced_steps=2, **more)


def test_epochs_are_means_with_their_spread_beside_the_document() -> None:
    frame = frame_of(
        [*point("single", 2.0), *point("tower_per_gpu", 2.2), *point("alternating", 2.5, framework="tensorflow", execution="graph")]
    )
    known = {one.row["placement"]: one for one in inside_model.points(frame)}
    mean_s, deviation = known["single"].epoch_s
    assert mean_s == pytest.approx(824 * 0.002 / 1.002, rel=1e-3) and deviation == pytest.approx(824 * 0.002 * 0.00158, rel=0.02)
    value, limits = inside_model.ratio(known["tower_per_gpu"], known["single"])
    assert value == pytest.approx(1.1, rel=1e-3) and limits.low < 1.1 < limits.high < 1.12
    html = inside_model.epochs_table(frame).html
    assert "20.455" in html and "22.500" in html and "1.10 (" in html and ">1.13<" in html
    assert "with one tower a GPU it takes 1.10 (" in inside_model.epoch_sentence(
        frame, "torch"
    ) and "the document: 1.10" in inside_model.epoch_sentence(frame, "torch")
    assert inside_model.epoch_sentence(frame, "tensorflow") == "TensorFlow: not yet measured on one and two GPUs."


def test_the_documents_copies_a_step_are_19_and_23() -> None:
    known = inside_document.document_copies()
    assert round(known["tower_per_gpu"]["calls_a_step"], 1) == 19.0 and round(known["alternating"]["calls_a_step"], 1) == 23.0
    assert "single" not in known


def test_a_traces_row_and_its_summary_by_hand(tmp_path: Path) -> None:
    """A step of 2 ms; 0.3 ms of copies that nothing hides; copies take 2 x 2 x 0.5 ms of 2 x 10 ms on the devices."""
    (record, *_) = traced("tower_per_gpu", 2.0, trace_of(2, copies_ms=0.5, exposed_ms=0.3, sparse_ms=1.5))
    row = trace_table([record]).iloc[0]
    assert row["timed_step_s"] == pytest.approx(0.002) and row["busy_share"] == pytest.approx(0.5)
    assert row["step_without_copies_s"] == pytest.approx(0.0017) and row["copy_share"] == pytest.approx(0.1)
    assert row["peer_copies_a_step"] == 19.0 and row["sparse_over_next"] == pytest.approx(1.5)
    table = trace_summary(record)
    assert tuple(table.columns) == SUMMARY
    copies = table[table["operation"] == "[memcpy PtoP]"].iloc[0]
    assert (copies["calls"], copies["bytes"], copies["calls_a_step"]) == (38, 3800, 19.0)
    assert copies["min_us"] == pytest.approx(4) and copies["max_us"] == pytest.approx(900) and copies["time_percent"] == pytest.approx(10)
    assert window_of(record) == (835, 836)
    written = pd.read_csv(write_trace_summary(record, tmp_path / "trace.csv"))
    assert list(written["key"].unique()) == [record.key] and set(written["first_step"]) == {835} and len(written) == 3
    with pytest.raises(ValueError, match=r"ends with \.csv"):
        write_trace_summary(record, tmp_path / "trace.txt")
    with pytest.raises(ValueError, match="holds no trace"):
        trace_summary(make_record(placement="single", devices=1, **COMMON))


def test_kernels_and_all_that_a_device_did_keep_their_shortest_and_longest() -> None:
    def did(name: str, start: int, end: int, step: int | None = 0) -> Activity:
        return Activity(name, "compute", start, end, step, "forward", 1)

    part = replica_trace(
        0, [did("gemm", 0, 100), did("gemm", 200, 500), did("add", 0, 40), did("late", 0, 9, None)], [], [(0, 600)], "kineto", {}
    )
    summary = joined([part, part], first_step=41)
    (gemm, add) = summary.kernels
    assert (gemm.calls, gemm.min_s, gemm.max_s) == (4, pytest.approx(1e-7), pytest.approx(3e-7)) and add.total_s == pytest.approx(
        1e-7, abs=4e-8
    )
    assert summary.replicas[0].device_time_s == pytest.approx(4.4e-7) and summary.first_step == 41


def test_a_crossing_lies_between_its_neighbours_in_logarithms() -> None:
    """Ratios 0.5 and 2 at 100 and 400: half way in logarithms, 200."""
    found = crossing_of({100: [10.0], 400: [10.0]}, {100: [5.0], 400: [20.0]})
    assert found and found.batch == pytest.approx(200) and (found.low, found.high) == (None, None)
    behind = crossing_of({100: [10.0], 400: [10.0]}, {100: [5.0], 400: [9.0]})
    ahead = crossing_of({100: [10.0], 400: [10.0]}, {100: [11.0], 400: [12.0]})
    assert behind and behind.side == "above" and ahead and ahead.side == "below"
    # ahead once, behind again: it wins for good only later
    late = crossing_of({1: [1.0], 2: [1.0], 4: [1.0], 8: [1.0]}, {1: [2.0], 2: [1.5], 4: [0.5], 8: [2.0]})
    assert late and 4 < (late.batch or 0) < 8
    assert crossing_of({1: [1.0]}, {1: [2.0]}) is None


def test_a_crossing_has_an_interval_of_its_repeats() -> None:
    records = [record for batch, one, two in ((32, 2.0, 2.4), (512, 4.0, 4.0), (2048, 16.0, 9.0)) for record in (
        *point("single", one, batch, timed_steps=100), *point("tower_per_gpu", two, batch, timed_steps=100))]  # fmt: skip
    (row,) = crossings(frame_of(records)).to_dict("records")
    assert row["low"] <= row["batch"] <= row["high"] and row["n"] == 5 and 32 < row["batch"] < 2048
    assert crossing_text(row).startswith("2 GPUs win from batch ")
    assert crossing_text(row | {"low": math.nan, "high": math.nan}).endswith("on (no interval)")
    assert crossing_text(row | {"side": "above"}) == "1 GPU wins up to 2048, the largest batch measured"
    assert "2 GPUs win from batch" in inside_model.crossing_table(frame_of(records)).html


def test_a_crossing_compares_runs_of_as_many_steps() -> None:
    """At 32 one GPU has five epochs and one Run of 100 steps, the pair both: the epochs count; at 64 nothing is alike."""
    one, two = {32: {824: [10.0] * 5, 100: [90.0]}, 64: {100: [1.0]}}, {32: {824: [20.0] * 5, 100: [1.0]}, 64: {30: [1.0]}}
    assert alike(one, two) == ({32: [10.0] * 5}, {32: [20.0] * 5})
    records = [
        *point("single", 2.0), *point("tower_per_gpu", 4.0), *point("single", 20.0, timed_steps=100),
        *point("single", 4.0, 512, timed_steps=100),
        *point("tower_per_gpu", 2.0, 512, timed_steps=100), *point("single", 400.0, framework="tensorflow", execution="eager"),
    ]  # fmt: skip
    (row,) = crossings(frame_of(records)).to_dict("records")
    assert row["batch"] == pytest.approx((32 * 512) ** 0.5, rel=1e-3)  # ratios 0.5 and 2: half way in logarithms


def both(copies_ms: float, tower_ms: float) -> pd.DataFrame:
    one, two = trace_of(1, 0, 0, sparse_ms=2.0), trace_of(2, copies_ms, copies_ms, sparse_ms=0.5)
    return trace_table([*traced("single", 2.0, one), *traced("tower_per_gpu", tower_ms, two)])


def test_c36_holds_if_the_copies_make_the_difference_and_not_if_the_host_does() -> None:
    claim = find_claim("C36")
    assert evaluate(claim, both(copies_ms=0.5, tower_ms=2.5)).verdict == "holds"
    assert evaluate(claim, both(copies_ms=0.05, tower_ms=2.5)).verdict == "does not hold"
    assert evaluate(claim, trace_table([])).verdict == "not yet measured"
    assert "copies can explain the difference" in inside_busy.cause_sentence(both(0.5, 2.5), "torch")
    assert "copies alone do not explain it" in inside_busy.cause_sentence(both(0.05, 2.5), "torch")
    assert "there is nothing to explain" in inside_busy.cause_sentence(both(0.05, 1.9), "torch")


def test_c51_asks_whether_the_sparse_gradients_kernels_lead() -> None:
    claim = find_claim("C51")
    for sparse_ms, verdict in ((2.0, "holds"), (0.5, "does not hold")):
        table = trace_table(traced("single", 2.0, trace_of(1, 0, 0, sparse_ms)))
        assert evaluate(claim, table).verdict == verdict


def test_the_page_stands_without_records_and_with_them() -> None:
    nothing, empty = frame_of([]), trace_table([])
    assert inside_page.answers(nothing, empty) == [inside_model.NO_RECORD]
    for shown in (
        inside_model.epochs_table(nothing),
        inside_busy.busy_table(empty),
        inside_model.crossing_table(nothing),
        inside_model.host_table(nothing),
        inside_page.profile_table(nothing, "torch"),
        inside_search.search_table([], nothing),
    ):
        assert "yet" in shown.html
    assert inside_page.epochs_alone(nothing) is None and all("not yet measured" in text for text in inside_page.feeding(nothing))
    assert [result.verdict for result in inside_page.verdicts(nothing, empty)] == ["not yet measured"] * 4
    frame = frame_of([*point("single", 2.0), *point("tower_per_gpu", 2.2), *point("single", 5.0, feed="arrays")])
    traces = both(0.5, 2.5)
    assert len(inside_page.answers(frame, traces)) == 2
    assert (
        "2.50" in inside_model.host_table(frame).html
        and "4 (19)" not in (html := inside_busy.busy_table(traces).html)
        and "19 (19)" in html
    )
    assert "[CUDA memcpy PtoP]" in inside_document.document_profile().html


def test_one_replica_is_one_gpu_and_rows_say_how_many_gpus() -> None:
    """Captured steps run by the engine of replicas, on one GPU: no second GPU made them fast."""
    fast = point("ddp", 0.5, devices=1, processes="per_device", execution="captured")
    slow = point("ddp", 3.0, devices=2, processes="per_device")
    frame = frame_of([*point("single", 2.0), *fast, *slow])
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row)[:3] for row in inside_model.epochs_table(frame).html.split("<tr>")]
    assert ["one GPU", "captured, as one replica", "1"] in rows and ["replicas, a process a GPU", "eager", "2"] in rows
    assert [one.row["execution"] for one in inside_model.epochs(frame)] == ["eager", "eager", "captured"], "the usual form first"
    assert (
        "captured, as one replica" in inside_model.host_table(frame).html and "a process a GPU" not in inside_model.host_table(frame).html
    )


def test_a_placement_is_named_by_what_is_on_gpu_1() -> None:
    graph = inside_page.graph()
    named = {digits: stage_words.other_gpus_text(graph, digits) for digits in ("01111000011", "10000111100", "01010001010", "0" * 11)}
    assert named == {
        "01111000011": "user conv to dense, item dense and rating on GPU 1",
        "10000111100": "user conv to dense, item dense and rating on GPU 1",  # equal GPUs, the other way round
        "01010001010": "user conv, user flatten, item pool and item dense on GPU 1",
        "0" * 11: "all on one GPU",
    }
    assert stage_words.other_gpus_text(graph, "00000011112") == "item conv to dense on GPU 1; rating on GPU 2"
    row = frame_of(point("searched", 2.0, stage_devices="01111000000")).iloc[0]
    assert inside_model.placement_text(row) == "a search's, user conv to dense on GPU 1"
    assert field_text(row, "stage_devices") == "user conv to dense on GPU 1"


def test_this_computers_records_have_a_heading_only_where_there_are_any() -> None:
    assert inside_model.here(frame_of([])) is None and inside_model.here(frame_of(point("single", 2.0))) is None
    shown = inside_model.here(frame_of(point("single", 2.0, model="deepconn_small", timed_steps=20)))
    assert shown is not None and "<h2>On this computer</h2>" in shown.html and "No Record" not in shown.html and "20" in shown.html


def test_a_crossing_measured_once_is_rounded_and_rows_stand_in_order() -> None:
    """Where one GPU takes 1 and 2 ms at 100 and 1,000 and two take 1.25 and 1.6, the lines cross at 316: sqrt(100 x 1,000)."""
    times = {("single", 100): 1.0, ("single", 1000): 2.0, ("tower_per_gpu", 100): 1.25, ("tower_per_gpu", 1000): 1.6}

    def points(repeats: int, **more: Any) -> list[Record]:
        return [
            record
            for (name, batch), ms in times.items()
            for record in make_point(
                [1000 * batch / ms] * repeats, placement=name, devices=DEVICES[name], batch_size=batch, **COMMON | more
            )
        ]

    once = [*points(1, model="deepconn_x4"), *points(1), *points(1, framework="tensorflow", execution="graph")]
    html = inside_model.crossing_table(frame_of(once)).html
    assert "from about batch 320 on (measured once)" in html and "316" not in html and "no interval" not in html
    assert "2 GPUs win from batch 316 on (316 to 316)" in inside_model.crossing_table(frame_of(points(5))).html
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row)[:2] for row in html.split("<tr>")]
    assert [row for row in rows if row] == [["PyTorch", "DeepCoNN"], ["PyTorch", "DeepCoNN, 4 x as wide"], ["TensorFlow", "DeepCoNN"]]


def test_the_graph_is_drawn_with_what_crosses() -> None:
    picture = figure_stages(inside_page.graph(), inside_page.panels([]), 32)
    assert "item conv" in picture.alt.replace("_", " ") and set(picture.data["place"]) == {"GPU 0", "GPU 1"}
    titles = [ax.get_title(loc="left") for ax in picture.axes]
    assert any("4 copies between GPUs" in text for text in titles) and any("nothing crosses" in text for text in titles)
    strings = figure_stages(
        inside_page.graph(strings=True),
        {"a": inside_page.graph(strings=True).check({s.name: 0 for s in inside_page.graph().placed}, 1)},
        32,
    )
    assert set(strings.data["place"]) == {"GPU 0", "host"}
