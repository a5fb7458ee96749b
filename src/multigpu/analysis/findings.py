"""Findings: sentences computed from the scaling table, or None where the data do not support one.

Nothing here is typed as a result. A difference is a finding only where the two intervals do not overlap; what was measured
once has no interval and supports none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import JOB, WAY
from multigpu.analysis.style import look
from multigpu.analysis.wording import (
    FRAMEWORK_NAMES,
    MODEL_NAMES,
    TELLING,
    bytes_text,
    decimals,
    describe,
    device_word,
    devices_text,
    percent_text,
    plural,
    telling,
)

PANEL = (*JOB, "scaling", *(field for field in WAY if field not in ("placement", "framework", "framework_version")))
"""What all lines of one panel have in common: they differ by placement and framework alone, of each framework one version."""


def rival_versions(table: pd.DataFrame) -> pd.Series:
    """Of each row its framework's version, "" where the table has no other of that framework: rows of two versions share no panel."""
    several = table.groupby("framework")["framework_version"].transform("nunique") > 1
    return table["framework_version"].where(several, "").rename("rival_version")


def panels(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table in panels by model and batch, each with its name: the model and what tells it from the other panels of that model."""
    if table.empty:
        return
    versions = rival_versions(table)
    ours = ("framework", "scaling", *(() if versions.ne("").any() else ("framework_version",)))  # "a GPU" says weak, "in all" strong
    fields = telling(table, [field for field in TELLING if field not in ours])
    groups = [(group.iloc[0], group) for _, group in table.groupby([*PANEL, versions], dropna=False, sort=False)]
    models = [*MODEL_NAMES, *sorted(set(table["model"]) - set(MODEL_NAMES))]
    groups.sort(key=lambda item: (models.index(item[0]["model"]), item[0]["batch_size"], [str(item[0][field]) for field in PANEL]))
    for row, group in groups:
        yield describe(row, fields[row["model"]]) or describe(row, ["model", "batch_size"]), group


def with_several_placements(named: Sequence[tuple[str, pd.DataFrame]]) -> list[tuple[str, pd.DataFrame]]:
    """The panels in which placements can be compared: two or more beside independent replicas, which are a ceiling."""
    return [(name, panel) for name, panel in named if (panel["placement"].drop_duplicates() != "independent").sum() > 1]


def line_name(row: Any, table: pd.DataFrame) -> str:
    """The placement's label, with the framework where the table has several."""
    label = look(row["placement"]).label
    return f"{label}, {FRAMEWORK_NAMES.get(row['framework'], row['framework'])}" if table["framework"].nunique() > 1 else label


def _most(rows: pd.DataFrame, column: str, sign: int = 1) -> pd.Series:
    """The row with the largest value (with `sign` -1: the smallest)."""
    return rows.iloc[int((sign * rows[column]).to_numpy().argmax())]


def extremes(panel: pd.DataFrame, value: str) -> tuple[pd.Series, pd.Series] | None:
    """(best, worst) row of the panel on its most devices, by `value`, if their intervals do not overlap.

    Independent replicas are a ceiling and no placement to choose, so they are left out.
    """
    rows = panel[(panel["placement"] != "independent") & panel[value].notna() & panel[f"{value}_low"].notna()]
    rows = rows[rows["devices"] == rows["devices"].max()]
    if len(rows) < 2 or rows["devices"].iloc[0] < 2:
        return None
    best, worst = _most(rows, value), _most(rows, value, -1)
    return (best, worst) if best[f"{value}_low"] > worst[f"{value}_high"] else None


def widest(table: pd.DataFrame, value: str) -> tuple[str, pd.Series, pd.Series] | None:
    """The panel's name, best and worst row of the largest ratio between placements that intervals support."""
    found = [(name, *pair) for name, panel in panels(table) if (pair := extremes(panel, value))]
    return max(found, key=lambda item: math.log(item[1][value] / item[2][value]), default=None)


def _where(name: str, table: pd.DataFrame) -> str:
    return f"{name}: " if sum(1 for _ in panels(table)) > 1 else ""


def _perfect(value: str, row: Any) -> str:
    """What 100% is: perfect scaling from the same placement on one device, or from the best single device."""
    return "of perfect scaling" + ("" if value == "efficiency" else f" from the best single {device_word(row['device_type'])}")


def _of_replicas(panel: pd.DataFrame, row: Any, value: str) -> str:
    """What independent replicas on as many devices reach: what they lack is the gain of another form of execution on one device."""
    beside = panel[(panel["placement"] == "independent") & (panel["devices"] == row["devices"]) & (panel["framework"] == row["framework"])]
    shares = beside[value].dropna()
    return f" (independent replicas {percent_text(shares.iloc[0])})" if len(shares) else ""


def scaling_finding(table: pd.DataFrame, value: str = "efficiency") -> str | None:
    """Which placement scales and which does not; `table` of `scaling_table`, `value` efficiency or efficiency_best."""
    found = widest(table, value)
    if found:
        name, best, worst = found
        on = devices_text(best["devices"], best["device_type"])
        reach, least = (percent_text(row[value]) for row in (best, worst))
        fast, slow = line_name(best, table), line_name(worst, table)
        ceiling = "" if value == "efficiency" else _of_replicas(dict(panels(table))[name], best, value)
        return f"{_where(name, table)}on {on} {fast} reaches {reach} {_perfect(value, best)}{ceiling}, {slow} {least}"
    rows = table[(table["placement"] != "independent") & table[f"{value}_low"].notna() & (table["devices"] > 1)]
    if rows.empty:
        return None
    row = _most(rows, "devices")
    several = rows[rows["devices"] == row["devices"]]
    on = devices_text(row["devices"], row["device_type"])
    if several["placement"].nunique() > 1:
        low, high = (percent_text(share) for share in (several[value].min(), several[value].max()))
        once = table[(table["placement"] != "independent") & table[f"{value}_low"].isna() & (table["devices"] == row["devices"])][value]
        first = f"On {on} intervals do not tell the placements apart: {low} to {high} {_perfect(value, row)}"
        return first if once.dropna().empty else f"{first}; measured once: {percent_text(once.min())} to {percent_text(once.max())}"
    reach = percent_text(row[value], row[f"{value}_low"], row[f"{value}_high"])
    return f"On {on} {line_name(row, table)} reaches {reach} {_perfect(value, row)}"


def throughput_finding(table: pd.DataFrame) -> str | None:
    """How much faster one placement is than another at most devices, in units/s."""
    found = widest(table, "rate")
    if not found:
        return None
    name, best, worst = found
    times = best["rate"] / worst["rate"]
    on = devices_text(best["devices"], best["device_type"])
    by = f"{times:.1f} times as fast as" if times >= 1.5 else f"{100 * (times - 1):.0f}% faster than"
    return f"{_where(name, table)}on {on} {line_name(best, table)} is {by} {line_name(worst, table)}"


def bytes_finding(table: pd.DataFrame) -> str | None:
    """Which placement copies most in a step, and how many times as much as the one that copies least. Counted: needs no interval.

    What is handed to an all-reduce is left out: how much of it travels depends on the library's algorithm.
    """
    found: list[tuple[float, str, pd.Series, pd.Series]] = []
    for name, panel in panels(table[table["moved_bytes"].gt(0) & table["moved_bytes_all_reduce"].eq(0)]):
        rows = panel[panel["devices"] == panel["devices"].max()]
        most, least = _most(rows, "moved_bytes"), _most(rows, "moved_bytes", -1)
        found.append((most["moved_bytes"] / least["moved_bytes"], name, most, least))
    if not found:
        return None
    times, name, most, least = max(found, key=lambda item: item[0])
    on = devices_text(most["devices"], most["device_type"])
    text = f"{_where(name, table)}on {on} a step of {line_name(most, table)} copies {bytes_text(most['moved_bytes'])}"
    return text + (f", {times:.1f} times as much as {line_name(least, table)}" if times >= 1.05 else "")


SETTLED = 1.05


def settled_step(warmup: Sequence[float], timed: Sequence[float]) -> int:
    """How many warm-up steps come before all others of them are as fast as timed ones.

    As fast: no slower than the slowest timed step, or than 1.05 times the median timed step.
    """
    limit = max(max(timed), SETTLED * median(timed))
    return max((index + 1 for index, time in enumerate(warmup) if time > limit), default=0)


def warmup_finding(first_ratios: Sequence[float], settled: Sequence[int], warmup: int) -> str | None:
    """How slow the first step is and when times settle; `first_ratios`: first step over median timed step, one a Run.

    Times that are not settled when the warm-up of `warmup` steps ends are said to be so.
    """
    if not first_ratios:
        return None
    slowest, latest = max(first_ratios), max(settled)
    if latest == 0:
        return "Steps are steady from the first"
    first = (
        f"The {'slowest ' if len(first_ratios) > 1 else ''}first step takes {slowest:.{decimals(slowest, 2)}f} times as long as a timed one"
    )
    after = (
        f"all times settle after {plural(latest, 'step')}" if latest < warmup else f"some have not settled after {plural(warmup, 'step')}"
    )
    return f"{first}; {after}"
