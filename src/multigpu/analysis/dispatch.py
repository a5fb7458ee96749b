"""One process that dispatches for all devices, as the documents' systems did, beside one process a device."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.causes import match
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import find_point
from multigpu.analysis.wording import UNIT_NAMES, describe, joined, missing, plural, scaled

SHAPES = {"one": "one", "per_device": "each"}
"""Processes of a Run, and what the table calls them."""


def dispatch_points(frame: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """A row a job, placement and number of devices that was measured with one process.

    Returns:
        the point's fields (of one process); of each shape s in (one, per_device): s_rate, s_step_ms, s_speedup (over the same shape
        on one device), s_skew_ms (from the trace), s_further_ms (what each device after the first adds to the step,
        (t_N - t_1) / (N - 1)), NaN where not measured; one_over_per_device: ratio of rates.
    """
    points = summary(frame)
    rows = []
    for _, own in points[(points["processes"] == "one") & (points["n"] > 0)].iterrows():
        row: dict[str, Any] = dict(own)
        for shape in SHAPES:
            point = find_point(points, own, processes=shape)
            alone = find_point(points, own, processes=shape, devices=1)
            trace = None if point is None else match(causes, point)
            row |= {
                f"{shape}_rate": math.nan if point is None else point["rate"],
                f"{shape}_step_ms": math.nan if point is None else 1e3 * point["step_time_s"],
                f"{shape}_further_ms": _further_ms(point, alone),
                f"{shape}_speedup": math.nan if point is None or alone is None else point["rate"] / alone["rate"],
                f"{shape}_skew_ms": math.nan if trace is None else trace["skew_ms"],
            }
        row["one_over_per_device"] = row["one_rate"] / row["per_device_rate"]
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.sort_values(["model", "placement", "devices"]).reset_index(drop=True) if rows else table


def _further_ms(point: Any | None, alone: Any | None) -> float:
    if point is None or alone is None or point["devices"] < 2:
        return math.nan
    return 1e3 * float(point["step_time_s"] - alone["step_time_s"]) / (int(point["devices"]) - 1)


def dispatch_table(frame: pd.DataFrame, causes: pd.DataFrame) -> Shown:
    """`dispatch_points` in words, a table a job."""
    table = dispatch_points(frame, causes)
    if table.empty:
        return table_html(table, note="No Run with one process for all devices was measured.")
    parts = []
    for _, group in table.groupby(["model", "batch_size"], sort=False):
        first = group.iloc[0]
        factor, letter = scaled(float(max(group["one_rate"].max(), group["per_device_rate"].max())))
        unit, places = f"{letter.strip()} {UNIT_NAMES[first['unit']]}".strip(), 0 if factor == 1 else 2
        rows = []
        for _, row in group.iterrows():
            cells = {"placement": look(row["placement"]).label, "GPUs": str(row["devices"])}
            for shape, name in SHAPES.items():
                rate = row[f"{shape}_rate"]
                cells[f"{name}: {unit}"] = "not measured" if missing(rate) else f"{rate / factor:,.{places}f}"
                cells[f"{name}: speedup"] = _number(row[f"{shape}_speedup"])
                cells[f"{name}: further (ms)"] = _number(row[f"{shape}_further_ms"], 1)
                cells[f"{name}: skew (ms)"] = _number(row[f"{shape}_skew_ms"], 1)
            rows.append(cells)
        note = (
            "One: one process for all GPUs. Each: a process a GPU. Further: what each further GPU adds to the step, from one GPU to these. "
            "Speedup: over the same placement and shape on one GPU (a dash: that was not measured). Skew: as traced, under the profiler, "
            "which slows the host (a dash: not traced). One process was measured once a point (screening): no intervals."
        )
        figures = [name for name in rows[0] if name != "placement"]
        name = f"{describe(first, ['model', 'batch_size', 'precision', 'execution'])}, {first['machine']}"
        parts.append(table_html(pd.DataFrame(rows), name, right=figures).html + f'<p class="muted">{escape(note)}</p>\n')
    return Shown("".join(parts))


def _number(value: float, places: int = 2) -> str:
    return "–" if missing(value) else f"{value:.{places}f}"


STRAIGHT = 0.05
"""A step on a middle number of devices this share or more of itself away from the line through the ends: it is no straight line."""


def _extrapolation(group: pd.DataFrame, rows: pd.DataFrame) -> str:
    """What no number of devices could give if each further one added as much; where the counts between contradict it, that instead.

    Args:
        group: one process's rows of a job on every number of devices. rows: those on the most.
    """
    most = int(rows["devices"].iloc[0])
    line = rows.set_index("placement")
    between = group[(group["devices"] < most) & group["placement"].isin(line.index)]
    if between.empty:
        return ""
    ends = between["placement"].map(line["one_step_ms"]) - (most - between["devices"]) * between["placement"].map(line["one_further_ms"])
    away = between[((between["one_step_ms"] - ends).abs() >= STRAIGHT * between["one_step_ms"]).fillna(False)]
    if away.empty:
        further = rows["one_further_ms"]
        limits = (rows["one_step_ms"] - (most - 1) * further) / further
        on = joined([str(count) for count in sorted({1, *between["devices"], most})])
        return (
            f"; were it so for ever, no number of GPUs could give more than {limits.min():.1f} to {limits.max():.1f} times one (an "
            f"extrapolation from {on})"
        )
    row = away.iloc[int(away["one_further_ms"].argmax())]
    left = float(line["one_step_ms"][row["placement"]] - row["one_step_ms"])
    first = f"up to {row['devices']} GPUs each adds {row['one_further_ms']:.1f} ms"
    return (
        f" on average, and not alike: with {look(row['placement']).label} {first}, from there to {most} GPUs they add {left:+.1f} ms "
        f"together. So nothing is said of more than {most}"
    )


def dispatch_finding(frame: pd.DataFrame, causes: pd.DataFrame) -> str:
    """What more devices give with one process and with one a device, on the most devices."""
    table = dispatch_points(frame, causes)
    parts = []
    for _, group in table[table["devices"] > 1].groupby(["model", "batch_size"], sort=False) if len(table) else []:
        rows = group[group["devices"] == group["devices"].max()]
        known = {shape: rows[f"{shape}_speedup"].dropna() for shape in SHAPES}
        if any(values.empty for values in known.values()):
            continue
        one, many = (f"{values.min():.2f} to {values.max():.2f}" for values in known.values())
        count, further = rows["devices"].iloc[0], rows["one_further_ms"]
        parts.append(
            f"{describe(rows.iloc[0], ['model', 'batch_size'])}: {count} GPUs give {one} times one GPU with one process for all "
            f"({plural(len(known['one']), 'placement')}), {many} times with a process a GPU "
            f"({plural(len(known['per_device']), 'placement')}). With one process each further GPU lengthens the step by "
            f"{further.min():.1f} to {further.max():.1f} ms{_extrapolation(group, rows)}."
        )
    return " ".join(parts) or "One process for all devices was not measured on several devices."
