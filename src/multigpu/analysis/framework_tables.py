"""The tables that set TensorFlow beside PyTorch and beside document 000: cells in words, every missing one with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.documents import DOCUMENT_GPU
from multigpu.analysis.framework_images import images, images_gt
from multigpu.analysis.framework_traces import eager_or_graph, spread_text, top_kernels, trace_summary, way_of
from multigpu.analysis.frameworks import (
    ARITHMETIC,
    DOCUMENT_BATCH,
    DOCUMENT_STEPS,
    PRECISIONS,
    STRATEGIES,
    WAYS,
    document_experiments,
    experiments,
    forms,
)
from multigpu.analysis.picture import Shown, folded, paragraphs
from multigpu.analysis.style import look
from multigpu.analysis.tables import scaling_gt, table_html
from multigpu.analysis.wording import MODEL_NAMES, bytes_text, joined, missing, percent_text, plural
from multigpu.grid import EXPERIMENTS, cost_s, find_grid
from multigpu.record import Record

NOT_YET = "not measured"
NONE_LEFT = "none left"
FEW_BYTES = 2**20
"""Copies of fewer bytes a step take their start alone: their speed says nothing."""


def _number(value: float, form: str, factor: float = 1.0) -> str:
    return "–" if missing(value) else f"{factor * value:{form}}"


def documents_gt(frame: pd.DataFrame) -> Shown:
    """000's four tables, its figures and ours in every way: thousands of words/s (speedup over one GPU), a table each."""
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
        "Thousands of words a second; in brackets the speedup over one GPU, same placement and way. One repeat is screening. "
        f"Every way of ours names its arithmetic: rates of two precisions are not to be divided. –: beyond the {most} GPUs measured."
    )
    return Shown("".join(table.html for table in tables) + f'<p class="muted">{note}</p>\n')


def _experiment_gt(placement: str, ours: pd.DataFrame, theirs: pd.DataFrame, most: int) -> Shown:
    document = theirs.set_index("devices")
    counts = ours.groupby("way")["devices"].nunique()
    done = [way for way in WAYS if way.name in counts.index]
    ways = [way for way in done if counts[way.name] > 1] if counts.max() > 1 else done  # one count has no scaling to show
    rows: list[dict[str, str]] = []
    repeats: dict[str, list[str]] = {way.name: [] for way in ways}
    for devices in sorted({*theirs["devices"], *ours["devices"]}):
        known = document.loc[devices] if devices in document.index else None
        row = {"GPUs": str(devices), "document": "–" if known is None else _speed(known["rate"], known["speedup"])}
        for way in ways:
            own = ours[(ours["way"] == way.name) & (ours["devices"] == devices)]
            row[way.name] = "–" if devices > most else NOT_YET
            if len(own):
                point = own.iloc[0]
                row[way.name] = _speed(point["rate"], point["speedup"])
                repeats[way.name].append(f"{point['n']} on {devices}")
        rows.append(row)
    without = [way.name for way in WAYS if way not in done]
    note = "; ".join(f"{name} {', '.join(counts)}" for name, counts in repeats.items())
    note = f"Repeats, on GPUs: {note}." if note else ""
    alone = [_alone(ours[ours["way"] == way.name].iloc[0]) for way in done if way not in ways]
    note += f" On one number of GPUs alone: {'; '.join(alone)}." if alone else ""
    note += f" Not measured: {'; '.join(without)}." if without and ways else ""
    return table_html(pd.DataFrame(rows), look(placement).label, note.strip(), list(rows[0]))


def _alone(point: Any) -> str:
    """A way's only point: "PyTorch, TF32 590.8 on 1 (3 repeats)"."""
    return f"{point['way']} {point['rate'] / 1e3:,.1f} on {point['devices']} ({plural(int(point['n']), 'repeat')})"


def _speed(rate: float, speedup: float) -> str:
    """Thousands of words a second, and the speedup in brackets."""
    return f"{rate / 1e3:,.1f} ({'no baseline' if missing(speedup) else f'{speedup:.2f}'})"


def forms_gt(frame: pd.DataFrame, devices: int) -> Shown:
    """Every way in which TensorFlow trained 000's model on `devices` GPUs, a row each: placements, strategies, other forms of the job."""
    rows = []
    for _, point in forms(frame, devices).iterrows():
        beside = "Exp4 in-graph" if point["group"] == STRATEGIES else "the same in-graph"
        whole = point["of_reference"]
        precision = f", {PRECISIONS[point['precision']]}" if point["group"] == ARITHMETIC else ""
        rows.append(
            {
                "how": point["group"],
                "placement": look(point["placement"]).label + precision,
                "words/s": f"{point['rate']:,.0f}",
                "step (ms)": f"{1e3 * point['step_time_s']:.1f}",
                "moved": "–" if missing(point["moved_bytes"]) or not point["moved_bytes"] else bytes_text(point["moved_bytes"]),
                "n": str(point["n"]),
                "of": "–" if missing(whole) or whole == 1 else f"{percent_text(whole)} of {beside}",
            }
        )
    note = (
        "TensorFlow, one process (a process a GPU: multi-worker, asynchronous server), TF32 where nothing else is said, batch 128 a GPU, "
        "weak scaling; tables' gradients dense, LSTMs cuDNN's. "
        "n = 1 is screening: without intervals, small differences decide nothing. Moved: by all GPUs in a step. Other arithmetic: under "
        "bf16 cuDNN's recurrence stays in float32. The document's lengths: other sentences, whose words/s are no share of those above."
    )
    right = ["words/s", "step (ms)", "moved", "n"]
    return table_html(pd.DataFrame(rows), "", note if rows else "No TensorFlow Record on so many GPUs.", right)


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


def smaller_section(frame: pd.DataFrame) -> Shown | None:
    """What another machine with the same GPUs trained in TensorFlow on the most of its own: its heading, ResNet-50 in both frameworks and
    every form of the NMT; None where it trained neither, so that a page says nothing of it.

    Args:
        frame: of that machine alone.
    """
    several = frame[frame["framework"].eq("tensorflow") & frame["status"].eq("ok") & (frame["devices"] > 1)]
    devices = int(several["devices"].max()) if len(several) else 0
    cnn, nmt = images(frame, devices), forms(frame, devices)
    if cnn.empty and nmt.empty:
        return None
    both = int(cnn[["torch", "torch_one"]].notna().any(axis=1).sum())
    parts = [f"ResNet-50 under {plural(len(cnn), 'placement')} in TensorFlow, {both} of them in PyTorch too"] if len(cnn) else []
    parts += [f"the NMT in {plural(len(nmt), 'form')} in TensorFlow"] if len(nmt) else []
    text = (
        f"Another machine with the same GPUs ({', '.join(dict.fromkeys(several['machine']))}) trained {joined(parts)}, on "
        f"{plural(devices, 'GPU')}. Its rates stand beside each other alone, and never beside those of another machine."
    )
    tables = [images_gt(frame, devices)] if len(cnn) else []
    tables += [forms_gt(frame, devices)] if len(nmt) else []
    return Shown(f"<h3>Again on another machine</h3>\n{paragraphs(text, kind='said').html}\n{''.join(table.html for table in tables)}")


def section_here(own: pd.DataFrame) -> Shown | None:
    """The rows of this computer in TensorFlow under their heading; None without any, so that a page says nothing of it."""
    rows = own[own["framework"].eq("tensorflow")]
    if rows.empty:
        return None
    text = "This computer's own TensorFlow Records; without GPUs, of logical CPU devices in place of them and of small models."
    return Shown(f"<h2>On this computer</h2>\n{paragraphs(text, kind='said').html}\n{scaling_gt(rows).html}")


def traces_gt(records: Sequence[Record], placement: str, devices: int, model: str = "nmt000") -> Shown:
    """What a step of one placement is made of in each way that was traced: a column a way."""
    table = trace_summary(eager_or_graph(records, placement, devices, model=model))
    on = plural(devices, "GPU")
    if table.empty:
        return table_html(pd.DataFrame(), note=f"{MODEL_NAMES[model]}, {look(placement).label} on {on} has no trace yet.")
    columns = {row["way"]: row for _, row in table.iterrows()}
    rows: list[dict[str, Any]] = []
    for title, column, form, factor in ROWS:
        cells = {way: _number(float(row[column]), form, factor) for way, row in columns.items()}
        if column == "copy_bytes_per_s":
            cells = {way: cell if columns[way]["copied_bytes"] >= FEW_BYTES else "–" for way, cell in cells.items()}
        if column == "idle_s":
            cells = {way: NONE_LEFT if float(columns[way][column]) < 0 else cell for way, cell in cells.items()}
        rows.append({"in a step": title, **cells})
    rows.insert(-1, {"in a step": "copied, all GPUs", **{way: _copied(row) for way, row in columns.items()}})
    note = (
        f"{MODEL_NAMES[model]}, {look(placement).label} on {on}; means over GPUs and the traced steps of one Run each. Kernels, launches, "
        "busy and phases come from the profiler, which slows the host down; the first line does not. –: nothing is copied (NCCL's sends "
        f"are kernels and count as communicating), or too little to have a speed. {_beyond(table)}"
        f"{spread_text(records, placement, devices, model=model)}"
    )
    return table_html(pd.DataFrame(rows), "", note, list(columns))


def _beyond(table: pd.DataFrame) -> str:
    """Where nothing of the step is left beside what the GPU did under the profiler: of which ways, and by how much that was longer."""
    over = table[table["idle_s"] < 0]
    named = "; ".join(f"{row['way']} by {-1e3 * row['idle_s']:.1f} ms" for _, row in over.iterrows())
    return f"{NONE_LEFT.capitalize()}: busy under the profiler is longer than the step without it ({named}). " if named else ""


def _copied(row: Any) -> str:
    return bytes_text(row["copied_bytes"]) if row["copied_bytes"] else "–"


def kernels_gt(records: Sequence[Record], placement: str, devices: int, model: str = "nmt000", most: int = 6) -> Shown:
    """The dearest kernels of each way, a table a way, folded: time and calls of one GPU in one step."""
    tables = []
    for record in eager_or_graph(records, placement, devices, model=model):
        rows = [
            {
                "ms": f"{1e3 * kernel['time_s']:.2f}",
                "of busy (%)": "–" if math.isnan(kernel["share"]) else f"{100 * kernel['share']:.1f}",
                "calls": f"{kernel['calls']:,.0f}",
                "kernel": kernel["kernel"].replace("_", "_\u200b"),  # a long name may break there
            }
            for _, kernel in top_kernels(record, most).iterrows()
        ]
        tables.append(table_html(pd.DataFrame(rows), way_of(record).name, "", ["ms", "of busy (%)", "calls"]).html)
    note = (
        f"Of one GPU in one step, {MODEL_NAMES[model]}, {look(placement).label} on {plural(devices, 'GPU')}; names as the profiler gives "
        "them, without their arguments."
    )
    if not tables:
        return Shown('<p class="muted">No trace yet.</p>\n')
    return folded(f"The {most} dearest kernels of each way", *map(Shown, tables), Shown(f'<p class="muted">{note}</p>\n'))


GRIDS_HERE = (
    *("tensorflow_nmt", "tensorflow_anomaly", "tensorflow_forms", "tensorflow_traces", "tensorflow_distribute", "tensorflow_cnn"),
    *("tensorflow_models", "tensorflow_layers", "cnn_captured", "cnn_models"),
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
