"""Page 09 on planted Records: epochs apart from shorter Runs, verdicts as on the scoreboard, the document's own busy share, every trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multigpu import paths, study
from multigpu.analysis import inside_busy, inside_document, inside_model, inside_page
from multigpu.analysis.figure_step import figure_step
from multigpu.analysis.frame import frame_of
from multigpu.analysis.step_traces import trace_table
from multigpu.analysis.traces import timed_step_s
from multigpu.analysis.wording import decimals
from multigpu.claims import evaluate_all, find_claim
from multigpu.grid import cost_s, find_grid
from multigpu.grid.inside_model import FRAMEWORKS
from multigpu.measure.trace import CopyTotals, TraceSummary
from multigpu.record import RecordStore
from tests.analysis.test_inside_model import both, point, trace_of, traced
from tests.factory import make_point, plant


def cells(html: str) -> str:
    """The table's rows and its note, without its style."""
    return html[html.index("</style>") :]


def mixed() -> pd.DataFrame:
    """Epochs in the document's order, and Runs of 100 steps in which one tower a GPU is the fastest."""
    return frame_of(
        [
            *[record for name, ms in (("single", 2.0), ("tower_per_gpu", 2.2), ("alternating", 2.5)) for record in point(name, ms)],
            *point("tower_per_gpu", 1.0, timed_steps=100),
            *point("single", 4.0, timed_steps=100),
        ]
    )


def test_only_whole_epochs_are_epochs() -> None:
    frame = mixed()
    assert [(one.row["placement"], one.row["timed_steps"], len(one.step_s), one.launches) for one in inside_model.epochs(frame)] == [
        ("single", 824, 5, 2),
        ("tower_per_gpu", 824, 5, 2),
        ("alternating", 824, 5, 2),
    ]
    html = cells(inside_model.epochs_table(frame).html)
    assert "1.645" in html and "10 Records of 100 steps at this batch: no epochs, left out." in html  # 824 x 2 ms / 1.002
    assert "3.289" not in html and "3.289" in cells(inside_model.epochs_table(frame, whole=False).html)
    assert "an epoch takes 1.64 s on one GPU (5 epochs); with one tower a GPU it takes 1.10 (" in inside_model.epoch_sentence(
        frame, "torch"
    )
    assert "1.645" in inside_model.host_table(frame).html and "3.289" not in inside_model.host_table(frame).html


def test_the_page_says_what_epochs_alone_give() -> None:
    said = inside_page.epochs_alone(mixed())
    assert said and "15 epochs and 10 Records of 100 steps." in said
    assert "Verdict: does not hold. The epochs alone: holds (" in said and "n = 5 over 2 launches" in said
    assert inside_page.epochs_alone(frame_of([*point("single", 2.0), *point("tower_per_gpu", 2.2)])) is None


def test_page_and_scoreboard_agree() -> None:
    """C37 is about any model: of the deepconn Records alone it would not be measured."""
    other = {"nmt": ("replicas of nmt000", {}), "cnn": ("replicas of ResNet-50", {"workload": "cnn"})}
    scaled = [
        record
        for _, fields in other.values()
        for devices, rate in ((1, 1e6), (2, 1.9e6))
        for record in make_point(
            [rate * (1 + 0.001 * index) for index in range(5)], placement="ddp", devices=devices, timed_steps=40, **fields
        )
    ]
    frame, traces = frame_of([*point("single", 2.0), *point("tower_per_gpu", 2.2), *point("alternating", 2.5), *scaled]), both(0.5, 2.5)
    scoreboard = {result.claim.number: result for result in evaluate_all(frame, traces=traces)}
    page = inside_page.verdicts(frame, traces)
    assert [(one.claim.number, one.verdict, one.figure) for one in page] == [
        (number, scoreboard[number].verdict, scoreboard[number].figure) for number in inside_page.CLAIMS
    ]
    assert {one.claim.number: one.verdict for one in page} == {"C35": "holds", "C36": "holds", "C37": "does not hold", "C51": "holds"}
    (alone,) = [one for one in inside_page.verdicts(study.published(frame, "deepconn"), traces) if one.claim.number == "C37"]
    assert alone.verdict == "not yet measured" and find_claim("C37") == alone.claim
    notebook = json.loads((paths.REPOSITORY / "notebooks" / "09-inside-one-model.ipynb").read_text())
    shown = ["".join(cell["source"]) for cell in notebook["cells"] if "page.verdicts(" in "".join(cell["source"])]
    assert shown == ["verdicts(page.verdicts(frame, every_trace))"] and any(
        "every_trace = study.observe_traces()" in "".join(cell["source"]) for cell in notebook["cells"]
    )


def test_the_documents_gpus_were_idle_most_of_the_time() -> None:
    """By hand: 6.92109 / 0.1754 = 39.459 of 5 x 20.455 = 102.275 s; 10.0978 / 0.2008 = 50.288 of 2 x 112.5; 53.280 of 2 x 115.105."""
    busy = inside_document.document_busy()
    assert (busy["single"].gpu_s, busy["single"].wall_s) == (pytest.approx(39.459, abs=1e-3), pytest.approx(102.275))
    assert [round(one.share, 4) for one in busy.values()] == [0.3858, 0.2235, 0.2314]
    said = inside_document.document_sentence()
    assert "39.5 of 102.3 s" in said and "38.6%" in said and "22.4%" in said and "23.1%" in said
    assert "it was host-bound" in said and "10.1 s with one tower a GPU (10.2 s slower" in said and "long enough to be" in said
    assert "(39%)" in cells(inside_busy.busy_table(both(0.5, 2.5)).html) and "(22%)" in cells(inside_busy.busy_table(both(0.5, 2.5)).html)


def test_the_documents_sentence_follows_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the kernel's time on one GPU is 77% busy; a tenth of the copies' time explains no second of ten."""
    real = inside_document.load_published

    def other(name: str) -> pd.DataFrame:
        table = real(name)
        return table.assign(time_s=table["time_s"] * table["placement"].map({"single": 2.0}).fillna(0.1)) if name == "003_nvprof" else table

    monkeypatch.setattr(inside_document, "load_published", other)
    said = inside_document.document_sentence()
    assert "77.2%" in said and "it was bound now by the host, now by the GPU" in said and "too short to be all" in said


def test_totals_stand_beside_the_documents(tmp_path: Path) -> None:
    html = cells(inside_document.document_profile().html)
    assert "time (s)" in html and all(total in html for total in ("13.0696", "10.0978", "6.92109"))
    records = traced("tower_per_gpu", 2.0, trace_of(2, copies_ms=0.5, exposed_ms=0.3, sparse_ms=1.5))
    html = cells(inside_page.profile_table(frame_of(point("single", 2.0)), "torch", store=plant(RecordStore(tmp_path), records)).html)
    assert ">1.000<" in html and ">0.750<" in html, "of one step of two: two GPUs' copies of 1 ms each, the sparse kernels' 1.5 ms"
    assert ">19.0<" in html and ">0.00<" in html and "us)" not in html  # 2 x 19 calls in two steps
    shown, folded = html.split("<details>")
    assert "[memcpy PtoP]" in shown and "UnsortedSegment" not in shown and "UnsortedSegment" in folded and "1 profile in" in folded
    assert "alternating GPUs (&quot;exaggerated&quot;)" in inside_document.document_profile().html
    assert "of steps 835 to 836," in html and "traced_from" in html


def fed_trace() -> TraceSummary:
    """One GPU, to which two steps copied 4 arrays of 25,600 bytes."""
    trace = trace_of(1, 0, 0, sparse_ms=1.5)
    copies = [CopyTotals(kind="host_to_device", calls=4, bytes=102_400, total_s=4e-5, min_s=8e-6, max_s=1.2e-5)]
    return trace.model_copy(update={"replicas": [trace.replicas[0].model_copy(update={"copies": copies})]})


def test_traces_of_replicas_of_a_found_placement_and_of_fed_rows_are_shown(tmp_path: Path) -> None:
    two = trace_of(2, 0.5, 0.3, 1.5)
    many: list[tuple[str, float, TraceSummary, dict[str, Any]]] = [
        ("single", 2.2, fed_trace(), {"feed": "arrays"}),
        ("replicated_allreduce", 3.0, two, {}),
        ("searched", 2.4, two, {"stage_devices": "01111000000"}),
        ("single", 2.0, trace_of(1, 0, 0, 1.5), {}),
        ("single", 9.0, trace_of(1, 0, 0, 1.5), {"batch_size": 512}),
    ]
    records = [
        record
        for name, ms, trace, fields in many
        for record in make_point(
            [32 / ms * 1000] * 2, placement=name, measurement={"trace": trace}, traced_steps=2, timed_steps=100,
            **{"workload": "deepconn", "scaling": "strong", "processes": "one", "devices": 1 if name == "single" else 2} | fields,
        )
    ]  # fmt: skip
    frame, store = frame_of(point("single", 2.0)), plant(RecordStore(tmp_path), records)
    found = inside_page.traced_records(frame, "torch", store=store)
    assert [(one.run.placement, one.run.feed, one.repeat) for one in found] == [
        ("single", None, 0),
        ("searched", None, 0),
        ("replicated_allreduce", None, 0),
        ("single", "arrays", 0),
    ]
    html = cells(inside_page.profile_table(frame, "torch", store=store).html)
    assert "[memcpy HtoD]" in html and "fed from arrays" in html and "a search&#x27;s, user conv to dense on GPU 1" in html
    assert inside_document.NAMES["replicated_allreduce"] in html
    html = cells(inside_busy.busy_table(trace_table(records)).html)
    assert html.count("<tr>") == len(found) and ">2.000<" in html and "by an all-reduce's kernels is no copy" in html
    panels = list(figure_step(found).data["panel"].unique())
    assert (
        len(panels) == 4
        and any("fed from arrays" in name for name in panels)
        and any("user conv to dense on GPU 1" in name for name in panels)
    )


def test_a_step_is_that_of_whole_epochs_on_the_whole_page(tmp_path: Path) -> None:
    """Epochs of 2.0 and 3.0 ms a step, traced beside Runs of 2.0 and 2.2 ms: 1.0 ms longer and not 0.2, of which copies are 0.3."""
    made = [*point("single", 2.0), *point("tower_per_gpu", 3.0), *point("alternating", 4.0)]
    frame = frame_of(made)
    records = [*traced("single", 2.0, trace_of(1, 0, 0, 1.5), timed_steps=100)]
    records += traced("tower_per_gpu", 2.2, trace_of(2, 0.5, 0.3, 1.5), timed_steps=100)
    traces = inside_page.of_machines(trace_table(records), frame)
    said = inside_busy.cause_sentence(traces, "torch")
    assert "of the 1.00 ms that a step with one tower a GPU takes longer, copies that nothing hides make at most 30%" in said
    assert "busy 50% of a step on one GPU" in said and "each 33% with one tower a GPU" in said  # 1 ms of 2.0 and of 3.0
    assert "0.20 ms" in inside_busy.cause_sentence(trace_table(records), "torch"), "without epochs, the traced Runs' own"
    assert "2.994" in inside_busy.busy_table(traces).html and "2.694" in inside_busy.busy_table(traces).html
    alone = inside_page.traced_alone(traces)
    assert alone is not None and alone.endswith("one tower a GPU over one GPU in PyTorch 1.10, of whole epochs 1.50.")
    assert inside_page.traced_alone(inside_page.of_machines(trace_table(records), frame_of(point("single", 2.0)))) is None
    finding = inside_page.step_finding(frame, "torch")
    assert finding == "over whole epochs a step takes 2.00 ms on one GPU, 2.99 with one tower a GPU, 3.99 with alternating GPUs"
    assert inside_page.step_finding(frame, "tensorflow") is None
    found = inside_page.traced_records(frame, "torch", store=plant(RecordStore(tmp_path), records))
    assert [round(1e3 * timed_step_s(one), 3) for one in found] == [1.996, 2.994], "the picture's panels say the same"


@pytest.mark.parametrize(
    ("pipeline_ms", "verdict"),
    [(1.0, "as there, one step ahead is faster"), (2.3, "the other way round than there."), (2.002, "though the interval holds 1")],
)
def test_feeding_beside_the_companion_text(pipeline_ms: float, verdict: str) -> None:
    frame = frame_of([*point("single", 2.0, feed="arrays"), *point("single", pipeline_ms, feed="pipeline")])
    said = inside_model.feeding_sentence(frame, "torch")
    assert (
        verdict in said
        and "companion text: 30.9 against 59.8 s, 0.52" in said
        and f"{pipeline_ms / 2:.{decimals(pipeline_ms / 2)}f} (" in said
    )
    assert "not yet measured" in inside_model.feeding_sentence(frame, "tensorflow")


def test_the_grids_measure_what_the_page_shows_and_an_epoch_once() -> None:
    """A batch of 32 at the document's width is an epoch's; claims' placements are repeated in both frameworks, and fed ones traced."""
    planned = {name: find_grid(name, (1, 2)) for name in inside_page.GRIDS}
    assert not [one for one in planned["inside_model_crossing"] if (one.run.model, one.run.batch_size) == ("deepconn", 32)]
    for framework in FRAMEWORKS:
        for grid, names in (
            ("inside_model", ("single", "tower_per_gpu", "alternating")),
            ("inside_model_traces", ("single", "tower_per_gpu")),
        ):
            own = [one for one in planned[grid] if one.run.framework == framework and one.run.feed is None]
            assert {one.run.placement for one in own if one.tier == "headline"} >= set(names)
        traces = [one.run for one in planned["inside_model_traces"] if one.run.framework == framework]
        assert any(run.placement == "replicated_allreduce" and run.devices == 2 for run in traces)
        assert any(run.placement == "single" and run.feed == "arrays" for run in traces)
    html = cells(inside_page.grid_costs((1, 2)).html)
    assert all(f"{cost_s(one) / 60:.0f}" in html and name in html for name, one in planned.items())
