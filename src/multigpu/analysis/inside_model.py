"""Placements inside one model beside document 003: epochs, how the rows come in, and from where on two GPUs win.

Of a frame of Records; without any, every function says what is missing. An epoch is a Record that timed as many steps as the
document's rows make at its batch: Records of fewer steps are never counted as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.crossing import USUAL, crossing_text, crossings
from multigpu.analysis.formulas import Interval, ratio_interval
from multigpu.analysis.inside_document import DOCUMENT_NAMES, NAMES, companion_ratio, document_epoch
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.stage_words import stages_text
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, decimals, execution_text, joined, missing, plural
from multigpu.workloads.deepconn.description import EPOCH_ROWS, epoch_steps

ORDER = list(NAMES)
FEEDS = {
    None: "kept on the GPU",
    "arrays": "fed from arrays",
    "pipeline": "fed one step ahead",
    "strings": "fed with strings",
}
NO_RECORD = "No Record of document 003's model on a GPU yet: this page shows what will be measured and how it is computed."
WAY = ["framework", "execution", "processes", "feed", "embedding_gradients"]
WHERE = ["placement", "devices", "stage_devices"]
REPLICAS = ("replicated_allreduce", "ddp")
"""Placements with the whole model on every GPU."""


@dataclass(frozen=True)
class Point:
    """Repeats of one way of training. step_s: of each Record."""

    row: Mapping[str, Any]
    step_s: list[float]
    records: pd.DataFrame

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.step_s))

    @property
    def rows_per_step(self) -> int:
        return int(self.row["batch_size"]) * (int(self.row["devices"]) if self.row["scaling"] == "weak" else 1)

    @property
    def launches(self) -> int:
        return int(self.records["launch_id"].nunique())

    @property
    def is_epoch(self) -> bool:
        """Whether each Record timed a whole epoch of the document's rows."""
        return int(self.row["timed_steps"]) == epoch_steps(self.rows_per_step)

    @property
    def epoch_s(self) -> tuple[float, float | None]:
        """Mean seconds of an epoch of the document's rows, and their standard deviation over repeats (None of one)."""
        steps = epoch_steps(self.rows_per_step)
        return self.mean_s * steps, float(np.std(self.step_s, ddof=1)) * steps if len(self.step_s) > 1 else None


def plain_row(group: pd.DataFrame) -> dict[str, Any]:
    """What the rows of a group share, missing values as None."""
    return {str(name): None if missing(value) else value for name, value in group.iloc[0].items()}


def model_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The Records of document 003's question: its stages, and the replicas they are compared with."""
    own = frame[(frame["workload"] == "deepconn") & (frame["status"] == "ok") & frame["placement"].isin(ORDER)]
    return own[(own["scaling"] == "strong") & (own["precision"] == "fp32")]


def points(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> list[Point]:
    """Every way in which this model was trained at this joined batch and for so many steps, in the order of the page."""
    own = model_rows(frame)
    own = own[(own["model"] == model) & (own["batch_size"] == batch)]
    found = []
    for _, group in own.groupby([*WAY, *WHERE, "timed_steps"], dropna=False, sort=False, observed=True):
        row = plain_row(group)
        found.append(Point(row, (group["wall_s"] / group["timed_steps"]).tolist(), group))
    return sorted(
        found, key=lambda one: (_way_order(one.row), ORDER.index(one.row["placement"]), one.row["devices"], -one.row["timed_steps"])
    )


def epochs(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> list[Point]:
    """The points whose Records are whole epochs."""
    return [one for one in points(frame, model, batch) if one.is_epoch]


def left_out(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> str:
    """In words, the Records of this batch that are no epochs; "" without any."""
    short = [one for one in points(frame, model, batch) if not one.is_epoch]
    steps = sorted({int(one.row["timed_steps"]) for one in short})
    count = plural(sum(len(one.step_s) for one in short), "Record")
    return f"{count} of {joined([str(step) for step in steps])} steps at this batch: no epochs, left out." if short else ""


def ratio(point: Point, base: Point) -> tuple[float, Interval]:
    """A point's time over another's, with its interval (NaN where either was measured once)."""
    a, b = point.records, base.records
    steps = [list(one["timed_steps"].astype(float)) for one in (a, b)]
    walls = [list(one["wall_s"].astype(float)) for one in (a, b)]
    low, high = ratio_interval(steps[1], walls[1], steps[0], walls[0], list(b["launch_id"]), list(a["launch_id"]))
    return point.mean_s / base.mean_s, Interval(low, high)


def _way_order(row: Mapping[str, Any]) -> tuple[int, int, bool, list[str]]:
    """PyTorch first; plainly fed first, of these the framework's usual form first."""
    framework, other = row["framework"], row["execution"] != USUAL[row["framework"]]
    return list(FRAMEWORK_NAMES).index(framework), list(FEEDS).index(row["feed"]), other, [str(row[name]) for name in WAY]


def base_of(point: Point, everything: list[Point]) -> Point | None:
    """One GPU, in the same framework, fed and differentiated in the same way, for as many steps."""
    wanted = {name: point.row[name] for name in ("framework", "feed", "embedding_gradients", "execution", "timed_steps")}
    same = [one for one in everything if one.row["placement"] == "single" and all(one.row[name] == value for name, value in wanted.items())]
    return same[0] if same else None


def form_text(row: Mapping[str, Any], fed: bool = True) -> str:
    """How it is trained, in words, beside its framework: the form of execution, its gradients and, with `fed`, where rows come from.

    One replica alone is one GPU, whose step another engine runs: that is said here, and its placement is "one GPU".
    """
    sparse = ", sparse gradients" if row["embedding_gradients"] == "sparse" else ""
    source = f", {FEEDS[row['feed']]}" if fed and row["feed"] is not None else ""
    alone = ", as one replica" if is_replica(row) and int(row["devices"]) == 1 else ""
    return f"{execution_text(row['execution'])}{sparse}{source}{alone}"


def is_replica(row: Mapping[str, Any]) -> bool:
    """Whether the whole model is on every GPU."""
    return row["placement"] in REPLICAS


def placement_text(row: Mapping[str, Any]) -> str:
    """A placement in words; one that a search found then by what it puts on GPU 1, since it need not be what one finds now."""
    if isinstance(row["stage_devices"], str):
        return f"a search's, {stages_text(row)}"
    return NAMES["single" if is_replica(row) and int(row["devices"]) == 1 else row["placement"]]


def epochs_table(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32, whole: bool = True) -> Shown:
    """Seconds an epoch of every placement, its ratio to one GPU trained in the same way, and the document's.

    Args:
        whole: only Records that timed whole epochs; else any, scaled to an epoch from the steps that a column names.
    """
    everything = epochs(frame, model, batch) if whole else points(frame, model, batch)
    rows = []
    for one in everything:
        base, (mean_s, deviation) = base_of(one, everything), one.epoch_s
        rows.append(
            {
                "framework": FRAMEWORK_NAMES[one.row["framework"]],
                "placement": placement_text(one.row),
                "how": form_text(one.row),
                "GPUs": str(int(one.row["devices"])),
                "steps timed": "" if whole else str(one.row["timed_steps"]),
                "s an epoch": _with_deviation(mean_s, deviation),
                "n": f"{len(one.step_s)} ({one.launches})",
                "over one GPU": "" if base is None or base is one else _ratio_text(*ratio(one, base)),
            }
        )
    each = "each timed whole" if whole else "scaled from the steps timed"
    note = (
        f"An epoch is {EPOCH_ROWS:,} rows, {each}; ± is the standard deviation over the n repeats, in brackets their launches; ratios with "
        "95% intervals, over one GPU trained in the same way. Replicas share the batch. Rows are kept on the GPUs unless another source is "
        "named."
    )
    if not rows:
        note = NO_RECORD
    elif whole and (short := left_out(frame, model, batch)):
        note = f"{note} {short}"
    if rows and (model, batch) == ("deepconn", 32):
        rows += document_rows()
    right = ["s an epoch", "n", "over one GPU"]
    return tables_by(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["framework"]), "framework", note, right)


def document_rows() -> list[dict[str, str]]:
    """The document's own epochs as rows of `epochs_table`."""
    epochs_s = {name: document_epoch(name) for name in DOCUMENT_NAMES}
    single = epochs_s["single"]
    return [
        {
            "framework": "Document 003, TensorFlow",
            "placement": NAMES[name],
            "how": "",
            "GPUs": "1" if name == "single" else "2",
            "steps timed": "",
            "s an epoch": f"{seconds:.3f}",
            "n": "",
            "over one GPU": "" if name == "single" or not single else f"{seconds / single:.2f}",
        }
        for name, seconds in epochs_s.items()
        if seconds is not None
    ]


def _ratio_text(value: float, limits: Interval) -> str:
    """Three digits: repeats spread by a hundredth and more."""
    form = f".{decimals(value)}f"
    return f"{value:{form}}" if isnan(limits.low) else f"{value:{form}} ({limits.low:{form}} to {limits.high:{form}})"


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def _usual(row: Mapping[str, Any]) -> bool:
    """Whether a Run is the plain one of its framework: the batch kept on the GPU, kernel by kernel in PyTorch, a graph in TensorFlow."""
    plain = row["feed"] is None and row["embedding_gradients"] is None and row["placement"] == "single"
    return plain and row["execution"] == USUAL[row["framework"]]


def host_table(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> Shown:
    """One GPU, by how it is fed and started: seconds an epoch, and over the same framework's batch kept on the GPU."""
    everything = [one for one in epochs(frame, model, batch) if one.row["devices"] == 1]
    rows = []
    for one in everything:
        usual = [other for other in everything if _usual(other.row) and other.row["framework"] == one.row["framework"]]
        mean_s, deviation = one.epoch_s
        rows.append(
            {
                "framework": FRAMEWORK_NAMES[one.row["framework"]],
                "how": form_text(one.row, fed=False),
                "rows come from": FEEDS[one.row["feed"]],
                "s an epoch": _with_deviation(mean_s, deviation),
                "n": str(len(one.step_s)),
                "over the usual way": "" if not usual or one is usual[0] else _ratio_text(*ratio(one, usual[0])),
            }
        )
    columns = list(rows[0]) if rows else ["framework"]
    note = "Ratios with 95% intervals; the usual way: rows kept on the GPU, eager in PyTorch, a graph in TensorFlow." if rows else NO_RECORD
    return tables_by(pd.DataFrame(rows, columns=columns), "framework", note, ["s an epoch", "n", "over the usual way"])


def feeding_sentence(frame: pd.DataFrame, framework: str) -> str:
    """Whether feeding one step ahead is faster than feeding in the step, beside the document's companion text."""
    name, (fed_s, ahead_s, theirs) = FRAMEWORK_NAMES[framework], companion_ratio()
    beside = f"the document's companion text: {ahead_s:.1f} against {fed_s:.1f} s, {theirs:.2f}"
    known = {
        one.row["feed"]: one
        for one in epochs(frame)
        if (one.row["framework"], one.row["placement"], one.row["execution"]) == (framework, "single", USUAL[framework])
        and one.row["embedding_gradients"] is None
    }
    if not {"arrays", "pipeline"} <= set(known):
        return f"{name}: not yet measured fed in the step and one step ahead ({beside})."
    arrays, pipeline = known["arrays"], known["pipeline"]
    value, limits = ratio(pipeline, arrays)
    if value < 1:
        verdict = "as there, one step ahead is faster" if limits.high < 1 else "faster as there, but the interval holds 1"
    else:
        verdict = "the other way round than there" if limits.low > 1 else "the other way round than there, though the interval holds 1"
    return (
        f"{name}: fed one step ahead an epoch takes {pipeline.epoch_s[0]:.3f} s, fed in the step {arrays.epoch_s[0]:.3f} s: "
        f"{_ratio_text(value, limits)} times as long ({beside}): {verdict}."
    )


def crossing_table(frame: pd.DataFrame) -> Shown:
    """Where two GPUs begin to win, by framework, width and kind of placement, narrow models first."""
    rows = [
        {
            "framework": FRAMEWORK_NAMES[str(row["framework"])],
            "model": MODEL_NAMES.get(str(row["model"]), str(row["model"])),
            "2 GPUs as": NAMES[str(row["placement"])],
            "from which batch": from_which_batch(row),
            "n": str(row["n"]),
        }
        for row in sorted(crossings(model_rows(frame)).to_dict("records"), key=_crossing_order)
    ]
    columns = ["framework", "model", "2 GPUs as", "from which batch", "n"]
    return table_html(pd.DataFrame(rows, columns=columns), note="" if rows else NO_RECORD, wide=["from which batch"])


def _crossing_order(row: Mapping[Any, Any]) -> tuple[int, int, int]:
    return list(FRAMEWORK_NAMES).index(row["framework"]), list(MODEL_NAMES).index(row["model"]), ORDER.index(row["placement"])


def from_which_batch(row: Mapping[Any, Any]) -> str:
    """A row of `crossings` in words; where a point was measured once, to two digits: the line between two batches is worth no more."""
    if row["side"] == "inside" and (missing(row["low"]) or missing(row["high"])):
        batch = float(row["batch"])
        return f"2 GPUs win from about batch {round(batch, 1 - int(np.floor(np.log10(batch)))):.0f} on (measured once)"
    return crossing_text({str(name): value for name, value in row.items()})


def here(own: pd.DataFrame, model: str = "deepconn_small") -> Shown | None:
    """This computer's own Records of a small model under their heading; None without any, so that a page says nothing of it."""
    if not points(own, model):
        return None
    text = "This computer's own Records of a small model; without GPUs, CPU threads stand in for them."
    return Shown(f"<h2>On this computer</h2>\n{paragraphs(text, kind='said').html}\n{epochs_table(own, model, whole=False).html}")


def steps_by_way(frame: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """Mean seconds a step of whole epochs, by the values of WAY and WHERE."""
    return {tuple(one.row[name] for name in (*WAY, *WHERE)): one.mean_s for one in epochs(frame)}


def epoch_sentence(frame: pd.DataFrame, framework: str) -> str:
    """How much longer two GPUs take than one, batches kept on the devices, beside the document."""
    name, everything = FRAMEWORK_NAMES[framework], epochs(frame)
    usual = [
        one
        for one in everything
        if one.row["framework"] == framework and one.row["feed"] is None and one.row["execution"] == USUAL[framework]
    ]
    known = {one.row["placement"]: one for one in usual if one.row["processes"] == "one" and one.row["embedding_gradients"] is None}
    base = known.get("single")
    if base is None or not {"tower_per_gpu", "alternating"} & set(known):
        return f"{name}: not yet measured on one and two GPUs."
    parts = []
    for placement in ("tower_per_gpu", "alternating"):
        if placement in known:
            value, limits = ratio(known[placement], base)
            single, theirs = document_epoch("single"), document_epoch(placement)
            beside = f"; the document: {theirs / single:.2f}" if single and theirs else ""
            parts.append(f"with {NAMES[placement]} it takes {_ratio_text(value, limits)} times as long{beside}")
    return f"{name}: an epoch takes {base.epoch_s[0]:.2f} s on one GPU ({plural(len(base.step_s), 'epoch')}); {', and '.join(parts)}."
