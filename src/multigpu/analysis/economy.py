"""What a sweep costs beyond the steps it is for, and how long it takes to measure a grid again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, percent_text, plural
from multigpu.grid import find_grid
from multigpu.record import Record

GOAL_S = 3.0
"""The most that a Run may cost beyond its own warm-up and timed steps, in the median."""

GROUP = ("framework", "execution", "processes", "devices")


def economy(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a framework, form of execution, number of processes and of devices, over Records with status ok.

    Returns:
        n; medians in s: overhead_s (all of the Run less warm-up and timed steps), build_s (of it: until the model stands), rest_s (of
        it: reading the counters, checking the replicas, clearing), first_steps_s (in the warm-up: what it took beyond as many
        timed steps, that is capturing, compiling, choosing algorithms), startup_s (of a launch, shared by its Runs); largest_s: the
        largest overhead_s; within_goal: share of Records with overhead_s <= 3 s; between_s: mean time from one Record to the
        next of the same launch and devices less the Run's own, from time stamps in whole seconds (NaN without two neighbours).
    """
    ok = frame[frame["status"] == "ok"].copy()
    if ok.empty:
        return pd.DataFrame()
    ok["rest_s"] = ok["overhead_s"] - ok["build_s"]
    ok["first_steps_s"] = ok["warmup_s"] - ok["warmup_steps"] * ok["step_time_s"]
    ok["_at"] = pd.to_datetime(ok["measured_at"])
    ok = ok.sort_values("_at", kind="stable")
    gaps = ok.groupby(["launch_id", "devices"])["_at"].diff().dt.total_seconds()
    ok["between_s"] = gaps - ok["total_s"]
    rows = []
    for key, group in ok.groupby(list(GROUP), sort=True):
        medians = {name: float(group[name].median()) for name in ("overhead_s", "build_s", "rest_s", "first_steps_s", "startup_s")}
        rows.append(
            {**dict(zip(GROUP, key if isinstance(key, tuple) else (key,), strict=True)), "n": len(group), **medians}
            | {"largest_s": float(group["overhead_s"].max()), "within_goal": float((group["overhead_s"] <= GOAL_S).mean())}
            | {"between_s": float(group["between_s"].mean())}
        )
    return pd.DataFrame(rows)


def economy_table(frame: pd.DataFrame) -> Shown:
    """`economy` in words."""
    table = economy(frame)
    rows = [
        {
            "framework": FRAMEWORK_NAMES.get(row["framework"], row["framework"]),
            "execution": str(row["execution"]).replace("_", " and "),
            "processes": "one" if row["processes"] == "one" else "one a device",
            "GPUs": str(row["devices"]),
            "Records": str(row["n"]),
            "overhead (s)": f"{row['overhead_s']:.2f}",
            "largest (s)": f"{row['largest_s']:.2f}",
            f"within {GOAL_S:.0f} s": percent_text(row["within_goal"]),
            "first steps (s)": f"{row['first_steps_s']:.2f}",
            "start (s)": f"{row['startup_s']:.1f}",
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Medians. Overhead: all of a Run less its own warm-up and timed steps, which holds building the model. First steps: what the "
        "warm-up took beyond as many timed steps (capturing, compiling, choosing algorithms); it is not in the overhead. Start: of a "
        "launch, paid once and shared by its Runs."
    )
    right = [str(name) for name in rows[0] if name not in ("framework", "execution", "processes")] if rows else []
    if not rows:
        return table_html(pd.DataFrame(), note="No Record to show.")
    return Shown(f'{table_html(pd.DataFrame(rows), right=right).html}<p class="muted">{escape(note)}</p>\n')


def economy_finding(frame: pd.DataFrame) -> str:
    """The overhead against the goal, by framework, and what capturing or compiling adds to a warm-up."""
    ok = frame[frame["status"] == "ok"]
    table = economy(frame)
    parts = []
    for framework, group in ok.groupby("framework"):
        own = table[table["framework"] == framework]
        starts = float(group.groupby("launch_id")["startup_s"].max().sum()) / len(group)
        worst = own.iloc[int(own["overhead_s"].argmax())]
        late = int((group["overhead_s"] > GOAL_S).sum())
        launches = plural(group["launch_id"].nunique(), "launch", "launches")
        parts.append(
            f"{FRAMEWORK_NAMES.get(str(framework), str(framework))}: a Run costs {group['overhead_s'].median():.2f} s beyond its own steps "
            f"in the median of {plural(len(group), 'Record')}, at most {worst['overhead_s']:.2f} s in the median of any row; the goal is "
            f"{GOAL_S:.0f} s. {plural(late, 'Record')} took longer. The start of {launches}, shared out, adds {starts:.2f} s a Run."
        )
    dear = table.iloc[int(table["first_steps_s"].argmax())] if len(table) else None
    if dear is not None:
        form, most = str(dear["execution"]).replace("_", " and "), int(dear["devices"])
        name = FRAMEWORK_NAMES.get(dear["framework"], dear["framework"])
        parts.append(f"The dearest first steps are {name}'s {form} on {plural(most, 'GPU')}: {dear['first_steps_s']:.1f} s in the median.")
    return " ".join(parts) or "No Record to show."


def grid_minutes(records: Iterable[Record], grids: Sequence[str], devices: Sequence[int]) -> pd.DataFrame:
    """A row a grid and number of devices: how many of the grid's Runs have a Record here, and the minutes these took (all of each Run
    and, once a launch, its start), from the Records alone.

    Raises:
        ValueError: no such grid.
    """
    known: dict[str, list[Record]] = {}
    for record in records:
        known.setdefault(record.run.digest, []).append(record)
    rows: list[dict[str, Any]] = []
    for grid in grids:
        planned = find_grid(grid, devices)
        for count in devices:
            runs = {entry.run.digest for entry in planned if entry.run.devices == count}
            found = [record for digest in runs for record in known.get(digest, []) if record.measurement]
            starts: dict[str, float] = {}
            for record in found:
                assert record.measurement
                starts[record.launch_id] = max(starts.get(record.launch_id, 0.0), record.measurement.startup_s)
            seconds = sum(record.measurement.total_s for record in found if record.measurement) + sum(starts.values())
            rows.append(
                {"grid": grid, "devices": count, "planned_runs": len(runs), "runs": sum(digest in known for digest in runs)}
                | {"records": len(found), "minutes": seconds / 60 if found else np.nan}
            )
    return pd.DataFrame(rows)


def rebuild_table(records: Iterable[Record], grids: Sequence[str], devices: Sequence[int]) -> Shown:
    """The command that measures each grid again, with the minutes its Records took."""
    table = grid_minutes(list(records), grids, devices)
    rows = []
    for grid, group in table.groupby("grid", sort=False):
        counts = ",".join(str(count) for count in group["devices"])
        rows.append(
            {
                "command": f"python -m multigpu measure --grid {grid} --devices {counts}",
                "Runs with a Record": f"{group['runs'].sum()} of {group['planned_runs'].sum()}",
                "Records": str(group["records"].sum()),
                "minutes": "not measured" if group["minutes"].isna().all() else f"{group['minutes'].sum():.1f}",
            }
        )
    note = "Minutes: the Records' own time and each launch's start, on the machine above. What has a Record is not measured twice."
    return table_html(pd.DataFrame(rows), right=["Records", "minutes"], note=note)
