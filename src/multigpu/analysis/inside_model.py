"""Placements inside one model beside document 003: epochs, copies, what the host costs, and what a search predicted.

Of a frame of Records and a table of traces (`inside_traces.trace_table`); without Records every function says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.crossing import crossing_text, crossings
from multigpu.analysis.formulas import Interval, ratio_interval
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, missing, plural
from multigpu.published import load_published
from multigpu.stages.placements import SPLIT
from multigpu.workloads.deepconn.description import EPOCH_ROWS, epoch_steps

DOCUMENT_NAMES = {"single": "single", "tower_per_gpu": "reasonable", "alternating": "exaggerated"}
"""Our placement -> the document's name of it."""
DOCUMENT_STEPS = 5 * epoch_steps(32)
"""Steps behind the document's profile: five epochs of 824 steps. Its calls over them are 19.0 and 23.0 copies a step."""
NAMES = {"single": "one GPU", "tower_per_gpu": "one tower a GPU", "alternating": "alternating GPUs", "searched": "found by search"} | {
    "replicated_allreduce": "two replicas of half the batch, one process",
    "ddp": "replicas, a process a GPU",
}
ORDER = list(NAMES)
FEEDS = {
    None: "kept on the GPU",
    "arrays": "Python's arrays, in the step",
    "pipeline": "one step ahead",
    "strings": "Python's strings, in the step",
}
NO_RECORD = "No Record of document 003's model on a GPU yet: this page shows what will be measured and how it is computed."
WAY = ["framework", "execution", "processes", "feed", "embedding_gradients"]


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
    """Every way in which this model was trained at this joined batch, in the order of the page."""
    own = model_rows(frame)
    own = own[(own["model"] == model) & (own["batch_size"] == batch)]
    found = []
    for _, group in own.groupby([*WAY, "placement", "devices", "stage_devices"], dropna=False, sort=False, observed=True):
        row = plain_row(group)
        found.append(Point(row, (group["wall_s"] / group["timed_steps"]).tolist(), group))
    return sorted(found, key=lambda one: (_way_order(one.row), ORDER.index(one.row["placement"]), one.row["devices"]))


def ratio(point: Point, base: Point) -> tuple[float, Interval]:
    """A point's time over another's, with its interval (NaN where either was measured once)."""
    a, b = point.records, base.records
    steps = [list(one["timed_steps"].astype(float)) for one in (a, b)]
    walls = [list(one["wall_s"].astype(float)) for one in (a, b)]
    low, high = ratio_interval(steps[1], walls[1], steps[0], walls[0], list(b["launch_id"]), list(a["launch_id"]))
    return point.mean_s / base.mean_s, Interval(low, high)


def _way_order(row: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """PyTorch first; plainly fed first."""
    return list(FRAMEWORK_NAMES).index(row["framework"]), list(FEEDS).index(row["feed"]), [str(row[name]) for name in WAY]


def base_of(point: Point, everything: list[Point]) -> Point | None:
    """One GPU, in the same framework and fed and differentiated in the same way."""
    wanted = {name: point.row[name] for name in ("framework", "feed", "embedding_gradients", "execution")}
    same = [one for one in everything if one.row["placement"] == "single" and all(one.row[name] == value for name, value in wanted.items())]
    return same[0] if same else None


def way_text(row: Mapping[str, Any]) -> str:
    """How it is trained, in words."""
    sparse = ", sparse gradients" if row["embedding_gradients"] == "sparse" else ""
    return f"{FRAMEWORK_NAMES[row['framework']]}, {row['execution'].replace('_', ' and ')}{sparse}"


def document_epoch(placement: str) -> float | None:
    """The document's seconds an epoch."""
    table = load_published("003_epochs").set_index("placement")["seconds_per_epoch"]
    name = DOCUMENT_NAMES.get(placement)
    return float(table[name]) if name is not None and name in table else None


def epochs_table(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> Shown:
    """Seconds an epoch of every placement, its ratio to one GPU trained in the same way, and the document's."""
    everything = points(frame, model, batch)
    rows = []
    for one in everything:
        base, (mean_s, deviation) = base_of(one, everything), one.epoch_s
        beside = document_epoch(one.row["placement"]) if (model, batch) == ("deepconn", 32) else None
        single = document_epoch("single")
        rows.append(
            {
                # what a search found then need not be what one finds now
                "placement": f"a search's, {digits}"
                if isinstance(digits := one.row["stage_devices"], str)
                else NAMES[one.row["placement"]],
                "devices": str(one.row["devices"]),
                "how": way_text(one.row),
                "rows come from": FEEDS[one.row["feed"]],
                "s an epoch": f"{mean_s:.3f}",
                "±": "once" if deviation is None else f"{deviation:.3f}",
                "n": str(len(one.step_s)),
                "over one GPU": "" if base is None or base is one else _ratio_text(*ratio(one, base)),
                "document, s": "" if beside is None else f"{beside:.3f}",
                "its ratio": "" if beside is None or single is None or beside == single else f"{beside / single:.3f}",
            }
        )
    note = (
        f"{NO_RECORD}"
        if not rows
        else f"An epoch is {EPOCH_ROWS:,} rows; ± is the standard deviation over repeats; ratios with 95% intervals."
    )
    return table_html(
        pd.DataFrame(rows, columns=list(rows[0]) if rows else ["placement"]),
        note=note,
        right=["s an epoch", "±", "n", "over one GPU", "document, s", "its ratio"],
    )


def _ratio_text(value: float, limits: Interval) -> str:
    return f"{value:.3f}" if isnan(limits.low) else f"{value:.3f} ({limits.low:.3f} to {limits.high:.3f})"


def document_copies() -> dict[str, dict[str, float]]:
    """Our placement -> the document's profile line of copies between GPUs: share, calls_a_step, average_us, min_us, max_us, total_s."""
    lines = {str(row["placement"]): row for row in load_published("003_nvprof").to_dict("records")}
    found = {}
    for ours, theirs in DOCUMENT_NAMES.items():
        row = lines[theirs]
        if "PtoP" in row["operation"]:
            found[ours] = {
                "share": row["time_percent"] / 100,
                "calls_a_step": row["calls"] / DOCUMENT_STEPS,
                **{name: row[name] for name in ("average_us", "min_us", "max_us")},
            }
    return found


def traced_groups(traces: pd.DataFrame, model: str = "deepconn") -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Traced Records of the model's placements, repeats together."""
    if traces.empty:
        return
    own = traces[(traces["model"] == model) & traces["placement"].isin(SPLIT)]
    for _, group in own.groupby([*WAY, "placement", "devices"], dropna=False, sort=False, observed=True):
        yield plain_row(group), group


def busy_table(traces: pd.DataFrame, model: str = "deepconn") -> Shown:
    """Of each placement: the step, how long GPUs were busy in it, and what copies between them took and could have cost."""
    theirs, rows = document_copies(), []
    for row, group in sorted(traced_groups(traces, model), key=lambda item: (way_text(item[0]), ORDER.index(item[0]["placement"]))):
        mean = {
            name: float(group[name].astype(float).mean())
            for name in ("timed_step_s", "busy_share", "copy_share", "peer_copies_a_step", "step_without_copies_s")
        }
        document = theirs.get(row["placement"])
        rows.append(
            {
                "placement": NAMES[row["placement"]],
                "how": way_text(row) + ("" if row["feed"] is None else f", {FEEDS[row['feed']]}"),
                "step (ms)": f"{1e3 * mean['timed_step_s']:.3f}",
                "GPUs busy": _percent(mean["busy_share"]),
                "copies a step": f"{mean['peer_copies_a_step']:.1f}",
                "document": "" if document is None else f"{document['calls_a_step']:.1f}",
                "share of GPU time": _percent(mean["copy_share"]),
                "document, share": "" if document is None else _percent(document["share"]),
                "step without copies (ms)": f"{1e3 * mean['step_without_copies_s']:.3f}",
                "n": str(len(group)),
            }
        )
    note = "GPUs busy: share of the unprofiled step in which a GPU does anything, mean over the GPUs. Without copies: at least this long."
    return table_html(
        pd.DataFrame(rows, columns=list(rows[0]) if rows else ["placement"]),
        note=note if rows else NO_RECORD,
        right=[
            "step (ms)",
            "GPUs busy",
            "copies a step",
            "document",
            "share of GPU time",
            "document, share",
            "step without copies (ms)",
            "n",
        ],
    )


def _percent(share: float) -> str:
    """A share in percent; a dash where it is not known."""
    return "–" if isnan(share) else f"{100 * share:.1f}%"


def crossing_table(frame: pd.DataFrame) -> Shown:
    """Where two GPUs begin to win, by framework, width and kind of placement."""
    rows = [
        {
            "model": MODEL_NAMES.get(str(row["model"]), str(row["model"])),
            "framework": FRAMEWORK_NAMES[str(row["framework"])],
            "2 GPUs as": NAMES[str(row["placement"])],
            "from which batch": crossing_text({str(name): value for name, value in row.items()}),
            "n": str(row["n"]),
        }
        for row in crossings(model_rows(frame)).to_dict("records")
    ]
    columns = ["model", "framework", "2 GPUs as", "from which batch", "n"]
    return table_html(pd.DataFrame(rows, columns=columns), note="" if rows else NO_RECORD, wide=["from which batch"])


def epoch_sentence(frame: pd.DataFrame, framework: str) -> str:
    """How much longer two GPUs take than one, batches kept on the devices, beside the document."""
    name, everything = FRAMEWORK_NAMES[framework], points(frame)
    usual = [
        one
        for one in everything
        if one.row["framework"] == framework and one.row["feed"] is None and one.row["execution"] in ("eager", "graph")
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
    return f"{name}: an epoch takes {base.epoch_s[0]:.2f} s on one GPU ({plural(len(base.step_s), 'measurement')}); {', and '.join(parts)}."


def cause_sentence(traces: pd.DataFrame, framework: str) -> str:
    """Whether the copies or the host explain what the second GPU costs, from traces of batches kept on the devices."""
    name = FRAMEWORK_NAMES[framework]
    known = {
        row["placement"]: group
        for row, group in traced_groups(traces)
        if row["framework"] == framework and row["feed"] is None and row["embedding_gradients"] is None
    }
    if not {"single", "tower_per_gpu"} <= set(known):
        return f"{name}: no trace of one and two GPUs yet, so nothing says whether copies or the host make the difference."
    one, two = known["single"], known["tower_per_gpu"]
    base, step, least = (
        float(group[column].mean()) for group, column in ((one, "timed_step_s"), (two, "timed_step_s"), (two, "step_without_copies_s"))
    )
    busy = [100 * float(group["busy_share"].mean()) for group in (one, two)]
    opening = f"{name}: the GPU is busy {busy[0]:.0f}% of a step on one GPU and {busy[1]:.0f}% on two;"
    if step <= base:
        return f"{opening} two GPUs are not slower ({1e3 * step:.3f} against {1e3 * base:.3f} ms), so there is nothing to explain."
    share = min(1.0, max(0.0, (step - least) / (step - base)))
    verdict = "copies can explain the difference" if least <= 1.05 * base else "copies alone do not explain it"
    return (
        f"{opening} of the {1e3 * (step - base):.3f} ms that a step with one tower a GPU takes longer, copies that nothing hides make at "
        f"most {100 * share:.0f}%: {verdict}."
    )
