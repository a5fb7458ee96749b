"""What every placement reaches in every way of carrying it out: rate, share of independent replicas, bound, and why no more.

A way is the form of execution, the number of processes, the loss and the size of buckets; points of different ways never mix.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.causes import CAUSES, PARTS, all_like, first_like, match
from multigpu.analysis.formulas import NO_INTERVAL, Interval, pooled_rate, ratio_interval
from multigpu.analysis.limits import BINDINGS, bounds, point_bound
from multigpu.analysis.metrics import POINT, summary
from multigpu.analysis.ordinary import BUCKETS, USUAL_BUCKETS
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.traces import traced
from multigpu.analysis.wording import UNIT_NAMES, decimals, describe, devices_text, missing, percent_text, plural, scaled, status_text
from multigpu.placements import find_placement
from multigpu.placements.refusals import refusal
from multigpu.record import Record

WAYS = ("execution", "processes", "cross_entropy", *BUCKETS, "batch_norm")
"""Fields that say how a placement is carried out, beside its job."""

USUAL_WAYS = (("per_device", "eager"), ("one", "eager"), ("per_device", "captured"))
"""(processes, execution) in which the page asks for every placement."""

NOT_TRACED = "not traced"

REASON = "reason"
"""Column that says why a point's step is longer than the bound's: slow kernels and the largest wait, the larger first."""

SHORT = {
    "kernels": "kernels",
    "communication": "communication",
    "host_copies": "host copies",
    "host_work": "host updates",
    "skew": "launch skew",
    "launching": "launches",
}
"""What a reason names, in a cell; the note under the table says it in full."""

SLOW_KERNELS = ("kernels", "slow kernels")
"""Of what is no wait and yet keeps a step from its bound: how long the device computes beyond it."""

CHANGED = ("all_reduce_spec", "wire_dtype", "loss_scale", "model_parallel", "micro_batches")
"""Fields that make a point an answer to another question than what its placement costs."""


def of_one_job(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that, for one model, batch and precision, differ in their placement and WAYS alone: weak scaling, synthetic input, images
    with their channels last, and nothing of CHANGED. A table of several jobs would name different points alike.
    """
    layout = frame["layout"].isna() | frame["layout"].eq("channels_last")
    return frame[frame["scaling"].eq("weak") & frame["inputs"].eq("synthetic") & layout & frame[list(CHANGED)].isna().all(axis=1)]


def way_text(row: Any) -> str:
    """How a point was carried out: "eager, one process"; a process a device is the usual case and not said."""
    return describe(row, [name for name in WAYS if name != "processes" or row[name] == "one"])


def rate_cells(row: Any, most: float) -> dict[str, str]:
    """A point's rate and interval as two cells, in the unit that suits the table's largest rate; without an interval, "screening"."""
    factor, letter = scaled(most)
    name, form = f"{letter.strip()} {UNIT_NAMES[row['unit']]}".strip(), f",.{decimals(most / factor)}f"
    if not row["n"]:
        return {name: status_text(row), "95% interval": "–"}
    bounds = "screening" if missing(row["rate_low"]) else f"{row['rate_low'] / factor:{form}}–{row['rate_high'] / factor:{form}}"
    return {name: f"{row['rate'] / factor:{form}}", "95% interval": bounds}


def own_rows(frame: pd.DataFrame, row: Any) -> pd.DataFrame:
    """The frame's measured rows of one point of `summary`."""
    return frame[frame["key"].isin(str(row["keys"]).split(", ")) & frame["status"].eq("ok")]


def ratio_of(frame: pd.DataFrame, own: Any, base: Any | None) -> tuple[float, Interval]:
    """A point's rate over another's, with its interval (NaN where either was measured once); NaN without another."""
    if base is None or not own["n"] or not base["n"]:
        return math.nan, NO_INTERVAL
    if own["keys"] == base["keys"]:
        return 1.0, Interval(1.0, 1.0)
    mine, theirs = own_rows(frame, own), own_rows(frame, base)
    values = [(rows["units"].to_numpy(float), rows["wall_s"].to_numpy(float), list(rows["launch_id"])) for rows in (mine, theirs)]
    (units, wall_s, launches), (units0, wall0_s, launches0) = values
    ratio = pooled_rate(units, wall_s) / pooled_rate(units0, wall0_s)
    return ratio, ratio_interval(units, wall_s, units0, wall0_s, launches, launches0)


def find_point(points: pd.DataFrame, row: Any, **other: Any) -> pd.Series | None:
    """The measured point that equals `row` in every field of `POINT` but for those named in `other`; None: the field is empty."""
    return first_like(points[points["n"] > 0], {name: other.get(name, row[name]) for name in POINT})


def placement_costs(frame: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """A row a point on the job's most devices, of every placement and way in `frame`, fastest first within a job.

    Args:
        causes: of `causes.causes_frame`.

    Returns:
        the fields of `POINT` and of `summary`; of_independent (and bounds): against independent replicas with a process a device
        in the same form of execution; bound (units/s), binding, reached; bound_ms: what a step would take at the bound; step_ms
        and <part>_ms (of the traced Run's step without a profiler; NaN: not traced), largest cause; kernels_ms: computing
        beyond bound_ms (NaN without either); distance: the larger of kernels and the largest cause ("" where neither is known).
    """
    points, limits = summary(frame), bounds(frame)
    points = points[points["devices"] == points.groupby(["model", "batch_size"])["devices"].transform("max")]
    rows = []
    for _, row in points.iterrows():
        base = find_point(points, row, placement="independent", processes="per_device", **USUAL_BUCKETS)
        ratio, (low, high) = ratio_of(frame, row, base)
        bound, binding, reached = point_bound(limits, row)
        trace = match(causes, row)
        rows.append(
            {**row, "of_independent": ratio, "of_independent_low": low, "of_independent_high": high}
            | {"bound": bound, "binding": binding, "reached": reached}
            | {"bound_ms": 1e3 * row["step_time_s"] * reached if binding else math.nan}
            | {"step_ms": math.nan if trace is None else 1e3 * trace["timed_step_s"]}
            | {f"{name}_ms": math.nan if trace is None else 1e3 * trace[f"{name}_s"] for name in PARTS}
            | {"largest": "" if trace is None else trace["largest"]}
        )
        rows[-1] |= distance_of(rows[-1])
    table = pd.DataFrame(rows)
    return table.sort_values(["model", "batch_size", "rate"], ascending=[True, True, False]).reset_index(drop=True) if rows else table


def distance_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """`kernels_ms` and `distance` of one row of `placement_costs`."""
    beyond, cause = row["compute_ms"] - row["bound_ms"], row["largest"]
    waits = row[f"{cause}_ms"] if cause else 0.0
    return {"kernels_ms": beyond, "distance": SLOW_KERNELS[0] if beyond > waits else cause}


def reason_cells(row: Any) -> dict[str, str]:
    """Why the point's step is longer than its bound's, from the trace of the same point: the device's own time, and what computing takes
    beyond the bound beside the largest wait, the larger of the two first, as shares of the step (of the wait alone without a bound).
    """
    if not row["n"] or missing(row["step_ms"]):
        return {"computes / step (ms)": "–", REASON: str(row["reason"]) if not row["n"] else NOT_TRACED}

    def part(name: str) -> str:
        return f"{SHORT[name]} {percent_text(row[f'{name}_ms'] / row['step_ms'])}"

    told = [part(row["largest"]) if row["largest"] else "no wait"]
    if row["kernels_ms"] > 0:  # NaN without a bound; below 0 where links set it
        told.insert(0 if row["distance"] == SLOW_KERNELS[0] else 1, part("kernels"))
    return {"computes / step (ms)": f"{row['compute_ms']:.1f} / {row['step_ms']:.1f}", REASON: ", ".join(told)}


def cost_table(frame: pd.DataFrame, causes: pd.DataFrame) -> Shown:
    """`placement_costs` in words, a table a job."""
    table = placement_costs(frame, causes)
    if table.empty:
        return table_html(table, note="No Record to show.")
    parts: list[str] = []
    for _, group in table.groupby(["model", "batch_size"], sort=False):
        first, most = group.iloc[0], float(group["rate"].max())
        rows = [
            {"placement": f"{look(row['placement']).label}, {way_text(row).replace('eager, one process', 'one process')}"}
            | rate_cells(row, most)
            | {
                "of the ceiling": _of_ceiling(row),
                "of the bound": "–" if missing(row["reached"]) else percent_text(row["reached"]),
            }
            | reason_cells(row)
            for _, row in group.iterrows()
        ]
        on = devices_text(first["devices"], first["device_type"])
        name = f"{describe(first, ['model', 'batch_size', 'precision'])}, {on}, {first['machine']}"
        figures = [str(column) for column in rows[0] if column not in ("placement", REASON)]
        note = "" if parts else CELLS  # once, under the first table
        note += UNKNOWN if group["of_independent"].isna().any() else ""
        parts.append(table_html(pd.DataFrame(rows), name, right=figures).html)
        parts.append(f'<p class="muted">{note.strip()}</p>\n' if note else "")
        alone = traced_alone(group, causes)
        more = f"{_bound_text(group)} {absent(group, dict.fromkeys(name for name, *_ in alone), alone)}".strip()
        parts.append(f"<details><summary>{SUMMARY}</summary><p>{escape(more)}</p></details>\n" if more else "")
    return Shown("".join(parts))


CELLS = (
    "A process a GPU unless it says one process, which runs eagerly. Of the ceiling: with its 95% interval where both sides have one. "
    "Computes / step: of the traced Run. Reason, for the distance from the bound: what computing takes beyond it (kernels) and the largest "
    "wait (exposed communication, copies to and from the host, the host's merges and updates, launch skew, launches by the host), the "
    "larger first, as shares of the step."
)
UNKNOWN = " A dash under the ceiling: no independent replicas were measured in that way."
SUMMARY = "What sets the bound; which ways are absent, and why"


def _of_ceiling(row: Any) -> str:
    if missing(row["of_independent"]):
        return "–"
    share, low, high = (row[f"of_independent{end}"] for end in ("", "_low", "_high"))
    short = f" ({100 * low:.0f}–{100 * high:.0f})" if not missing(low) and low != high else ""  # "96% (95 to 97%)" made tables too wide
    return percent_text(share) + short


def traced_alone(group: pd.DataFrame, causes: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(placement, processes, execution) of a job's ways that were traced on as many devices and have no untraced Record: no row."""
    first, names = group.iloc[0], ("machine", "model", "batch_size", "precision", "devices")
    own = all_like(causes[causes["untraced"] == 0], {name: first[name] for name in names})
    here = {(row["placement"], row["processes"], row["execution"]) for _, row in group.iterrows()}
    found = ((row["placement"], row["processes"], row["execution"]) for _, row in own.iterrows())
    return [way for way in dict.fromkeys(found) if way not in here]


def _bound_text(group: pd.DataFrame) -> str:
    """What sets the bound of which placements, and how long a step at it would take."""
    parts = []
    for kind, own in group[group["bound_ms"].notna()].groupby("binding", sort=False):
        names = "; ".join(dict.fromkeys(look(name).label for name in own["placement"])) if group["binding"].nunique() > 1 else "all"
        times = [f"{value:.1f}" for value in (own["bound_ms"].min(), own["bound_ms"].max())]
        parts.append(f"{BINDINGS.get(str(kind), 'unknown')} ({names}), at which a step would take {' to '.join(dict.fromkeys(times))} ms")
    return f"Bound set by {'; by '.join(parts)}." if parts else ""


def absent(group: pd.DataFrame, names: Iterable[str] = (), alone: Collection[tuple[str, str, str]] = ()) -> str:
    """Which of `USUAL_WAYS` the placements of `group` (and `names`) lack in it, and why: not possible, with the reason, or not measured.

    Args:
        alone: of `traced_alone`.
    """
    here = {(row["placement"], row["processes"], row["execution"]) for _, row in group.iterrows()}
    why: dict[str, list[str]] = {}
    for name in dict.fromkeys([*group["placement"], *names]):
        for processes, execution in USUAL_WAYS:
            if (name, processes, execution) in here:
                continue
            refused = refusal(find_placement(name), "torch", processes, execution)
            form = "one process" if processes == "one" else execution
            lacking = "traced alone, never timed without the profiler" if (name, processes, execution) in alone else "not measured"
            why.setdefault(refused.why if refused else lacking, []).append(f"{look(name).label} ({form})")
    return " ".join(f"Absent: {'; '.join(sorted(who))}: {reason}." for reason, who in why.items())


def cost_findings(frame: pd.DataFrame, causes: pd.DataFrame) -> list[str]:
    """The page's answer, two sentences a job: of each job the cheapest and dearest traced placement, and what most placements wait for."""
    table = placement_costs(frame, causes)
    table = table[table["step_ms"].notna() & table["placement"].ne("independent")] if len(table) else table
    parts = []
    for _, group in table.groupby(["model", "batch_size"], sort=False) if len(table) else []:
        best, worst = group.iloc[int(group["rate"].argmax())], group.iloc[int(group["rate"].argmin())]
        shares = {cause: (group[f"{cause}_ms"] / group["step_ms"]) for cause in CAUSES}
        first = max(CAUSES, key=lambda cause: sum(group["largest"] == cause))
        own = shares[first][group["largest"] == first]
        waits = (
            f"In {len(own)} of {plural(len(group), 'traced way')} (independent replicas aside) the largest wait is “{PARTS[first][0]}”, "
            f"{percent_text(own.min())} to {percent_text(own.max())} of a step{_beyond(group)}."
            if len(own)
            else f"None of {plural(len(group), 'traced way')} waits for anything named here."
        )
        parts.append(
            f"{describe(best, ['model', 'batch_size'])} on {devices_text(best['devices'], best['device_type'])}: a step takes "
            f"{best['step_ms']:.1f} ms with {look(best['placement']).label} ({way_text(best)}) and {worst['step_ms']:.1f} ms with "
            f"{look(worst['placement']).label} ({way_text(worst)}), of which the device computes {best['compute_ms']:.1f} and "
            f"{worst['compute_ms']:.1f} ms. {waits}"
        )
    return parts or ["No placement was traced yet."]


def _beyond(group: pd.DataFrame) -> str:
    """In how many of these traced ways kernels, and no wait, are the largest part of the distance from the bound."""
    known = group[group["kernels_ms"].notna()]
    if known.empty:
        return ""
    return f"; in {(known['distance'] == SLOW_KERNELS[0]).sum()} of {len(known)} kernels take longer beyond the bound than any wait"


def distance_finding(frame: pd.DataFrame, causes: pd.DataFrame) -> str:
    """How much of the distance between a step and its bound is the device's own kernels, over all traced points of each job."""
    table = placement_costs(frame, causes)
    table = table[table["step_ms"].notna() & table["bound_ms"].notna()] if len(table) else table
    parts = []
    for _, group in table.groupby(["model", "batch_size"], sort=False) if len(table) else []:
        shares = (group["compute_ms"] - group["bound_ms"]) / (group["step_ms"] - group["bound_ms"])
        parts.append(
            f"{describe(group.iloc[0], ['model', 'batch_size'])}: a step at the bound would take {group['bound_ms'].median():.1f} ms, and "
            f"the device computes {group['compute_ms'].min():.1f} to {group['compute_ms'].max():.1f} ms. Kernels slower than the bound are "
            f"{percent_text(shares.min())} to {percent_text(shares.max())} of a step's distance from it."
        )
    return " ".join(parts) or "No placement was traced yet."


def in_order(records: Iterable[Record]) -> list[Record]:
    """By placement, shape of processes and form of execution: a figure that shows the first few then never depends on files' names."""
    return sorted(records, key=lambda record: (record.run.placement, record.run.processes, record.run.execution))


def traced_keys(records: Iterable[Record]) -> Shown:
    """The keys of the Records that hold a trace, folded."""
    keys = [record.key for record, _ in traced(records)]
    listed = ", ".join(f"<code>{key}</code>" for key in keys)
    return Shown(f"<details><summary>{plural(len(keys), 'traced Record')}</summary><p>{listed}</p></details>")
