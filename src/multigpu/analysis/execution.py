"""What the host costs: one job under one placement, launched kernel by kernel, compiled, as one captured graph, and both."""

from __future__ import annotations

import math
from html import escape
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.causes import match
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import BUCKETS, USUAL_BUCKETS, in_blocks, usual_buckets
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import find_point, rate_cells, ratio_of
from multigpu.analysis.wording import describe, devices_text, execution_text, missing, percent_text, plural, ratio_text

FORMS = ("eager", "compiled", "captured", "compiled_captured")
DEFAULT_BUCKET_MIB = 25


def execution_points(frame: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """A row a point of `frame`, with times_eager (and bounds): its rate over that of the same point launched kernel by kernel;
    kernels and launches a replica and step, of the traced Run of the same point (NaN where there is none); blocks: whether torch.compile
    had the model's blocks alone (`ordinary.in_blocks`).
    """
    points, blocks = summary(frame), set(frame.loc[in_blocks(frame), "key"])
    rows = []
    for _, row in points.iterrows():
        base = find_point(points, row, execution="eager", **USUAL_BUCKETS)
        times, (low, high) = ratio_of(frame, row, base)
        trace = match(causes, row)
        counted: dict[str, Any] = {name: math.nan if trace is None else trace[name] for name in ("kernels", "launches")}
        counted["blocks"] = not blocks.isdisjoint(str(row["keys"]).split(", "))
        rows.append({**row, "times_eager": times, "times_eager_low": low, "times_eager_high": high, **counted})
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    order = {form: index for index, form in enumerate(FORMS)}
    keyed = table.assign(_form=table["execution"].map(order), _loss=table["cross_entropy"].fillna(""))
    keys = ["model", "batch_size", "devices", "_loss", "_form"]
    return keyed.sort_values(keys).drop(columns=["_form", "_loss"]).reset_index(drop=True)


def execution_table(frame: pd.DataFrame, causes: pd.DataFrame) -> Shown:
    """`execution_points` in words, a table a job; sizes of buckets other than the library's are left to `bucket_table`."""
    table = execution_points(usual_buckets(frame), causes)
    if table.empty:
        return table_html(table, note="No Record to show.")
    parts = []
    for _, group in table.groupby(["model", "batch_size"], sort=False):
        first, most = group.iloc[0], float(group["rate"].max())
        rows = [_row(row, most) for _, row in group.iterrows()]
        lacking = [form for form in FORMS if form not in set(group["execution"])]
        note = (
            "Against eager: the same loss on as many GPUs. Kernels and launches: a replica and step, from traces (a dash: not traced); a "
            "captured step counts the kernels in its graph. Between launches: (fastest - slowest) / mean (a dash: one launch)."
            + (f" Not measured: {', '.join(execution_text(form) for form in lacking)}." if lacking else "")
        )
        figures = [str(column) for column in rows[0] if column != "execution"]
        name = f"{describe(first, ['model', 'batch_size', 'precision'])}, {first['machine']}"
        parts.append(table_html(pd.DataFrame(rows), name, right=figures).html)
        parts.append(f'<p class="muted">{escape(note)}</p>\n')
    return Shown("".join(parts))


def _row(row: Any, most: float) -> dict[str, str]:
    return {
        "execution": describe(row, ["execution", "cross_entropy"]) + (", blocks alone" if row["blocks"] else ""),
        "GPUs": str(row["devices"]),
        **rate_cells(row, most),
        "step (ms)": "–" if not row["n"] else f"{1e3 * row['step_time_s']:.2f}",
        "against eager": "–" if missing(row["times_eager"]) else f"{row['times_eager']:.2f}",
        "kernels / launches": "–" if missing(row["kernels"]) else f"{row['kernels']:,.0f} / {row['launches']:,.0f}",
        "between launches": "–" if missing(row["launch_gap"]) else f"{100 * row['launch_gap']:.1f}%",
    }


def bucket_table(frame: pd.DataFrame) -> Shown:
    """The points of `frame` that differ by the size of their buckets alone: rate and step time, and the rate over the library's size."""
    points = summary(frame)
    sized = points[points["bucket_mib"].notna()]
    parts = []
    for _, group in sized.groupby(
        ["model", "batch_size", "devices", "execution", "bucket_update", "bucket_send"], sort=False, dropna=False
    ):
        base = find_point(points, group.iloc[0], bucket_mib=None)
        chosen = [row for _, row in group.iterrows()] + ([] if base is None else [base])
        most = max(float(row["rate"]) for row in chosen)
        rows = []
        for row in sorted(chosen, key=lambda row: DEFAULT_BUCKET_MIB if missing(row["bucket_mib"]) else int(row["bucket_mib"])):
            size = f"{DEFAULT_BUCKET_MIB} (the library's)" if missing(row["bucket_mib"]) else str(row["bucket_mib"])
            step = "–" if not row["n"] else f"{1e3 * row['step_time_s']:.2f}"
            ratio = ratio_of(frame, row, base)[0]
            against = {"against the library's": "–" if missing(ratio) else f"{ratio:.3f}"}
            rows.append({"buckets (MiB)": size, **rate_cells(row, most), "step (ms)": step, **against})
        first = group.iloc[0]
        job = describe(first, ["model", "batch_size", "execution", "cross_entropy", "bucket_update", "bucket_send"])
        name = f"{job}, {devices_text(first['devices'], first['device_type'])}, {first['machine']}"
        parts.append(table_html(pd.DataFrame(rows), name, right=[str(column) for column in rows[0]]).html)
    return Shown("".join(parts)) if parts else table_html(pd.DataFrame(), note="No other size of buckets was measured.")


BUCKET_WAYS = {
    "in_backward": ("bucket_update", "Updating each bucket in backward"),
    "grouped": ("bucket_send", "Sending gradients unpacked"),
    "grouped_small_last": ("bucket_send", "Sending them unpacked with a small last bucket"),
}
"""Other ways with buckets than the library's: the field that says so, and how a sentence begins that tells what one gained."""


def bucket_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a point with one of BUCKET_WAYS (at the library's size), beside the same without.

    Effects are as small as what two launches or two machines differ by, so only Records of the launches that measured both count.

    Returns:
        the fields of `summary`; changed: the way; usual_step_s; over_usual and over_alone (the rate over that of the library's buckets, and
        over that of independent replicas) with _low and _high (NaN: no such Record, or no interval).
    """
    rows = []
    for changed, (field, _) in BUCKET_WAYS.items():
        others = [name for name in BUCKETS if name != field]
        other = frame[frame[field].eq(changed) & frame[others].isna().all(axis=1)]
        own = frame[frame["launch_id"].isin(set(other["launch_id"]))]
        points = summary(own)
        chosen = points[(points["n"] > 0) & points[field].eq(changed) & points[others].isna().all(axis=1)]
        for _, row in chosen.iterrows():
            usual = find_point(points, row, **USUAL_BUCKETS)
            alone = find_point(points, row, **USUAL_BUCKETS, placement="independent")
            found = row.to_dict() | {"changed": changed, "usual_step_s": math.nan if usual is None else usual["step_time_s"]}
            for name, base in (("over_usual", usual), ("over_alone", alone)):
                ratio, bounds = ratio_of(own, row, base)
                found |= {name: ratio, f"{name}_low": bounds.low, f"{name}_high": bounds.high}
            rows.append(found)
    table = pd.DataFrame(rows)
    return table.sort_values(["model", "batch_size", "devices", "changed"], ignore_index=True) if len(table) else table


def bucket_finding(frame: pd.DataFrame) -> str:
    """What each of BUCKET_WAYS gained, "" where nothing measured it."""
    points = bucket_points(frame)
    points = points[points["over_usual_low"].notna()] if len(points) else points
    said: dict[str, list[str]] = {}
    for (changed, _), own in points.groupby(["changed", "devices"], sort=False) if len(points) else []:
        faster, slower = (own["over_usual_low"] > 1).sum(), (own["over_usual_high"] < 1).sum()
        low, high = 100 * (own["over_usual"].min() - 1), 100 * (own["over_usual"].max() - 1)
        text = (
            f"on {devices_text(int(own['devices'].iloc[0]), own['device_type'].iloc[0])} it changed the rate by {low:+.1f}% to {high:+.1f}%"
        )
        beyond = f"{text} ({faster} of {plural(len(own), 'point')} faster, {slower} slower, beyond their intervals)"
        said.setdefault(str(changed), []).append(beyond)
    return " ".join(f"{begins}: {'; '.join(said[changed])}." for changed, (_, begins) in BUCKET_WAYS.items() if changed in said)


def bucket_way_table(frame: pd.DataFrame) -> Shown:
    """`bucket_points` in words."""
    rows = [
        {
            "job": describe(row, ["model", "batch_size"]),
            "buckets": describe(row, list(BUCKETS)),
            "placement": look(str(row["placement"])).label,
            "devices": devices_text(row["devices"], row["device_type"]),
            "step (ms)": f"{1e3 * row['step_time_s']:.2f}",
            "usual (ms)": "–" if missing(row["usual_step_s"]) else f"{1e3 * row['usual_step_s']:.2f}",
            "n": str(row["n"]),
            "rate over usual": _ratio(row, "over_usual"),
            "rate over independent": _ratio(row, "over_alone"),
        }
        for _, row in bucket_points(frame).iterrows()
    ]
    note = (
        "PyTorch, captured. Usual: buckets packed, sent and updated as the library does, updates when backward has ended. Ratios with 95% "
        "intervals, of the launches that measured both sides; one of single measurements has none. Sizes of buckets are the library's."
    )
    grids = "updates_in_backward,sent_unpacked,small_last"
    empty = f"No Run sent or updated its buckets otherwise yet: python -m multigpu measure --grid {grids} does."
    machines = ", ".join(dict.fromkeys(frame["machine"])) if rows else ""
    return table_html(pd.DataFrame(rows), machines, note=note if rows else empty, right=["step (ms)", "usual (ms)", "n"])


def _ratio(row: Any, name: str) -> str:
    ratio, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if missing(ratio):
        return "–"
    return f"{ratio:.3f}" if missing(low) else f"{ratio:.3f} ({low:.3f} to {high:.3f})"


def execution_finding(frame: pd.DataFrame, causes: pd.DataFrame) -> str:
    """What capturing gives on the most devices, against the same loss launched kernel by kernel."""
    table = execution_points(usual_buckets(frame), causes)
    parts = []
    for _, group in table.groupby(["model", "batch_size"], sort=False) if len(table) else []:
        group = group[group["devices"] == group["devices"].max()]
        captured = group[(group["execution"] == "captured") & group["times_eager"].notna()]
        for _, row in captured.iterrows():
            once = "" if row["n"] > 1 and not missing(row["times_eager_low"]) else ", one side measured once (screening)"
            how = describe(row, ["model", "batch_size", "cross_entropy"])
            gain = ratio_text(row["times_eager"], row["times_eager_low"], row["times_eager_high"])
            parts.append(f"{how} on {devices_text(row['devices'], row['device_type'])}: captured trains {gain} what eager does{once}.")
    return " ".join(parts)


def steadiness(frame: pd.DataFrame) -> str:
    """The median difference between launches of all points measured in several, by form of execution."""
    points = summary(frame)
    points = points[points["launch_gap"].notna()]
    parts = [
        f"{execution_text(form)} {percent_text(median(group['launch_gap']))} ({plural(len(group), 'point')})"
        for form, group in points.groupby("execution")
    ]
    return f"Between its fastest and slowest launch a point differs by, in the median: {', '.join(parts)}." if parts else ""
