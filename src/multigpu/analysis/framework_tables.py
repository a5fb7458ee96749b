"""The tables that set TensorFlow beside PyTorch and beside document 000: cells in words, every missing one with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.documents import DOCUMENT_GPU
from multigpu.analysis.framework_traces import eager_or_graph, top_kernels, trace_summary, way_of
from multigpu.analysis.frameworks import (
    DOCUMENT_BATCH,
    DOCUMENT_STEPS,
    STRATEGIES,
    WAYS,
    document_experiments,
    experiments,
    forms,
    images,
    step_times_by_devices,
)
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import bytes_text, missing, percent_text
from multigpu.grid import EXPERIMENTS, cost_s, find_grid
from multigpu.record import Record

NOT_YET = "not measured"


def _number(value: float, form: str, factor: float = 1.0) -> str:
    return "–" if missing(value) else f"{factor * value:{form}}"


def documents_gt(frame: pd.DataFrame) -> Shown:
    """000's four tables, its figures and ours in every way: words/s and speedup over one GPU of the same placement, a table each."""
    ours, theirs = experiments(frame), document_experiments()
    most = int(ours["devices"].max()) if len(ours) else 0
    tables = [
        _experiment_gt(placement, ours[ours["placement"] == placement], theirs[theirs["placement"] == placement], most)
        for placement in EXPERIMENTS
    ]
    if not most:
        return Shown("".join(table.html for table in tables) + '<p class="muted">Ours: no Record of this model yet.</p>\n')
    pair = [(points["rate"] * points["step_time_s"] / (DOCUMENT_BATCH * points["devices"])).mean() for points in (theirs, ours)]
    note = (
        f"Document: {DOCUMENT_GPU}, TensorFlow 1.8, fp32, sentences of real length ({pair[0]:.0f} words a pair), {DOCUMENT_STEPS} batches "
        f"from the start. Ours: sentences of equal length ({pair[1]:.0f} words a pair), batch {DOCUMENT_BATCH} a GPU, weak scaling. "
        "Speedups are over one GPU of the same placement in the same way. One repeat is screening. Every way of ours names its "
        f"arithmetic: rates of two precisions are not to be divided. –: beyond the {most} GPUs that were measured."
    )
    return Shown("".join(table.html for table in tables) + f'<p class="muted">{note}</p>\n')


def _experiment_gt(placement: str, ours: pd.DataFrame, theirs: pd.DataFrame, most: int) -> Shown:
    document = theirs.set_index("devices")
    ways = sorted(WAYS, key=lambda way: not (ours["way"] == way.name).any())  # those without a figure last
    rows: list[dict[str, str]] = []
    repeats: dict[str, list[str]] = {way.name: [] for way in ways}
    for devices in sorted({*theirs["devices"], *ours["devices"]}):
        known = document.loc[devices] if devices in document.index else None
        row = {
            "GPUs": str(devices),
            "document: words/s": "–" if known is None else f"{known['rate']:,.0f}",
            "document: speedup": "–" if known is None else f"{known['speedup']:.2f}",
        }
        for way in ways:
            own = ours[(ours["way"] == way.name) & (ours["devices"] == devices)]
            rate, ratio = "–" if devices > most else NOT_YET, "–" if (ours["way"] == way.name).any() else ""
            if len(own):
                point = own.iloc[0]
                rate = f"{point['rate']:,.0f}"
                ratio = "no baseline" if missing(point["speedup"]) else f"{point['speedup']:.2f}"
                repeats[way.name].append(f"{point['n']} on {devices}")
            row |= {f"{way.name}: words/s": rate, f"{way.name}: speedup": ratio}
        rows.append(row)
    note = "; ".join(f"{name} {', '.join(counts)}" for name, counts in repeats.items() if counts)
    return table_html(pd.DataFrame(rows), look(placement).label, f"Repeats, on GPUs: {note}." if note else "", list(rows[0]))


def anomaly_gt(frame: pd.DataFrame, records: Iterable[Record]) -> Shown:
    """C11: a step's time on 1, 2, 3 and 4 GPUs with variables on the CPU, beside the document's; and what the traces say of it."""
    traces = trace_summary(
        record for placement in ("exp1", "exp2") for record in eager_or_graph(records, placement) if record.run.framework == "tensorflow"
    )
    rows = []
    for _, point in step_times_by_devices(frame).iterrows():
        own = traces[(traces["placement"] == point["placement"]) & (traces["devices"] == point["devices"])]
        trace = own.iloc[0] if len(own) else None
        spread = "once" if point["n"] == 1 else f"{1e3 * point['fastest_s']:.1f} to {1e3 * point['slowest_s']:.1f}"
        rows.append(
            {
                "placement": look(point["placement"]).label,
                "GPUs": str(point["devices"]),
                "document: step (ms)": _number(point["document_s"], ".0f", 1e3),
                "ours: step (ms)": f"{1e3 * point['step_time_s']:.1f}",
                "fastest to slowest (ms)": spread,
                "n": str(point["n"]) + (f" over {point['launches']}" if point["n"] > 1 else ""),
                **{
                    f"traced: {name}": "no trace" if trace is None else _number(trace[column], ".1f", 1e3)
                    for name, column in STAGES.items()
                },
            }
        )
    note = (
        "Document: its total over 50 batches of real lengths, so that a larger batch of longer sentences stands behind some steps. Ours: "
        "TensorFlow, TF32, every sentence 100 words. n: repeats over launches. Traced (three other steps, ms): rows and values on their "
        "way down; forward and backward; what follows the last backward, in which the host adds up and updates and no GPU computes; "
        "what a GPU computes in all."
    )
    return table_html(pd.DataFrame(rows), "", note, [name for name in (rows[0] if rows else {}) if name not in ("placement", "n")])


STAGES = {"down": "pull_s", "passes": "passes_s", "after backward": "tail_s", "computing": "computing_s"}


def forms_gt(frame: pd.DataFrame, devices: int) -> Shown:
    """Every way in which TensorFlow trained 000's model on `devices` GPUs: in-graph, its own strategies, cell by cell, real lengths."""
    rows = []
    for _, point in forms(frame, devices).iterrows():
        beside = "Exp4 in-graph" if point["group"] == STRATEGIES else "the same, fused"
        whole = point["of_reference"]
        rows.append(
            {
                "how": point["group"],
                "placement": look(point["placement"]).label,
                "words/s": f"{point['rate']:,.0f}",
                "step (ms)": f"{1e3 * point['step_time_s']:.1f}",
                "n": str(point["n"]),
                "of": "–" if missing(whole) or whole == 1 else f"{percent_text(whole)} of {beside}",
            }
        )
    note = (
        "TensorFlow, one process, TF32, batch 128 a GPU, weak scaling. n = 1 is screening: without intervals, small differences decide "
        "nothing. "
        "The document's lengths: other sentences, so their words/s are no share of the rows above."
    )
    return table_html(pd.DataFrame(rows), "", note if rows else "No TensorFlow Record on so many GPUs.", ["words/s", "step (ms)", "n"])


def images_gt(frame: pd.DataFrame, devices: int) -> Shown:
    """ResNet-50 on `devices` GPUs in one precision, bf16: here rates of the frameworks can be divided."""
    table = images(frame, devices)
    rows = []
    for _, point in table.iterrows():
        rows.append(
            {
                "placement": look(point["placement"]).label,
                **{
                    title: NOT_YET if missing(point[name]) else f"{point[name]:,.0f} (n = {point[f'{name}_n']})"
                    for name, title in IMAGE_WAYS.items()
                },
                "TensorFlow over PyTorch": _number(point["tensorflow"] / point["torch"], ".2f"),
                "TensorFlow over PyTorch, one process": _number(point["tensorflow"] / point["torch_one"], ".2f"),
            }
        )
    note = (
        f"Images/s on {devices} GPUs, ResNet-50 v1.5, 64 images a GPU, bf16, channels last, weak scaling; the last two columns are ratios."
    )
    return table_html(pd.DataFrame(rows), "", note, [name for name in rows[0] if name != "placement"])


IMAGE_WAYS = {"tensorflow": "TensorFlow, one process", "torch": "PyTorch, a process a GPU", "torch_one": "PyTorch, one process"}


ROWS: tuple[tuple[str, str, str, float], ...] = (
    ("a step, not profiled (ms)", "timed_s", ".1f", 1e3),
    ("a step under the profiler (ms)", "traced_s", ".1f", 1e3),
    ("kernels on a GPU", "kernels", ",.0f", 1.0),
    ("launches for a GPU", "launches", ",.0f", 1.0),
    ("GPU busy (ms)", "busy_s", ".1f", 1e3),
    ("of it computing (ms)", "computing_s", ".1f", 1e3),
    ("of it only communicating (ms)", "exposed_s", ".1f", 1e3),
    ("not busy: step less busy (ms)", "idle_s", ".1f", 1e3),
    ("values on their way down (ms)", "pull_s", ".1f", 1e3),
    ("last GPU begins forward after the first (ms)", "late_s", ".1f", 1e3),
    ("forward and backward (ms)", "passes_s", ".1f", 1e3),
    ("after the last backward (ms)", "tail_s", ".1f", 1e3),
    ("speed of its copies (GB/s)", "copy_bytes_per_s", ".0f", 1e-9),
)


def traces_gt(records: Sequence[Record], placement: str, devices: int) -> Shown:
    """What a step of one placement is made of in each way that was traced: a column a way."""
    table = trace_summary(eager_or_graph(records, placement, devices))
    if table.empty:
        return table_html(pd.DataFrame(), note=f"{look(placement).label} on {devices} GPUs has no trace yet.")
    columns = {row["way"]: row for _, row in table.iterrows()}
    rows: list[dict[str, Any]] = []
    for title, column, form, factor in ROWS:
        cells = {way: _number(float(row[column]), form, factor) for way, row in columns.items()}
        rows.append({"in a step": title, **cells})
    rows.insert(-1, {"in a step": "copied, all GPUs", **{way: _copied(row) for way, row in columns.items()}})
    note = (
        f"{look(placement).label} on {devices} GPUs; means over GPUs and three traced steps of one Run each. Kernels, launches, busy and "
        "phases come from the profiler, which slows the host down; the first line does not. –: nothing is copied (NCCL's sends are "
        "kernels and count as communicating)."
    )
    return table_html(pd.DataFrame(rows), "", note, list(columns))


def _copied(row: Any) -> str:
    return bytes_text(row["copied_bytes"]) if row["copied_bytes"] else "–"


def kernels_gt(records: Sequence[Record], placement: str, devices: int, most: int = 6) -> Shown:
    """The dearest kernels of each way, a table a way: time and calls of one GPU in one step."""
    tables = []
    for record in eager_or_graph(records, placement, devices):
        rows = [
            {
                "ms": f"{1e3 * kernel['time_s']:.2f}",
                "of busy (%)": "–" if math.isnan(kernel["share"]) else f"{100 * kernel['share']:.1f}",
                "calls": f"{kernel['calls']:,.0f}",
                "kernel": kernel["kernel"],
            }
            for _, kernel in top_kernels(record, most).iterrows()
        ]
        tables.append(table_html(pd.DataFrame(rows), way_of(record).name, "", ["ms", "of busy (%)", "calls"]).html)
    note = f"Of one GPU in one step, {look(placement).label} on {devices} GPUs; names as the profiler gives them, without their arguments."
    return Shown("".join(tables) + f'<p class="muted">{note if tables else "No trace yet."}</p>\n')


GRIDS_HERE = (
    *("tensorflow_nmt", "tensorflow_anomaly", "tensorflow_forms", "tensorflow_traces", "tensorflow_distribute", "tensorflow_cnn"),
    "tensorflow_layers",
    *("documents_tf32", "headline", "documents_precision", "placements_screening", "dispatch", "traces"),
)


def rebuild_gt(devices: Sequence[int]) -> Shown:
    """The commands that measure what a page on both frameworks shows, with the minutes that each may take."""
    counts = ",".join(map(str, devices))
    rows = [
        {
            "command": f"python -m multigpu measure --grid {name} --devices {counts}",
            "minutes": f"{cost_s(find_grid(name, devices)) / 60:.0f}",
        }
        for name in GRIDS_HERE
    ]
    return table_html(
        pd.DataFrame(rows), "", "At most, from the grids' own estimates; what has a Record is not measured twice.", ["minutes"]
    )
