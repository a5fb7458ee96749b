"""What an image or word costs in joules: windows of energy, those of one job pooled, a table and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, devices_text, execution_text, field_text, joined, plural, unbroken
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.record import Record

COUNTER_STEP_S = 0.1
"""The longest time between two movements of NVML's counter of energy; over a window, what one reading may miss at either end."""
JOB = ["unit", "devices", "model", "batch_size", "placement", "execution", "precision"]
NO_ENERGY = "Energy has not been measured yet."

ENERGY_COLUMNS = {
    **dict.fromkeys(("key", "machine", "model", "placement", "execution", "precision", "unit"), "string"),
    **dict.fromkeys(("devices", "batch_size"), "int64"),
    **dict.fromkeys(("window_s", "joules", "joules_per_unit", "power_w", "units_per_s", "uncertain"), "float64"),
}


def energy_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record with a window of energy, over all its GPUs.

    joules: what the counters moved; joules_per_unit: over the units trained within the window; power_w: mean of all GPUs together;
    uncertain: the share of a window that the counters' steps leave open at its two ends. All of these are NaN where a window is
        shorter than 10 s, on which no figure may rest: `energy_table` names it.
    """
    rows = []
    for record in records:
        run, m = record.run, record.measurement
        if m is None or not m.energy:
            continue
        window_s = min(window.window_s for window in m.energy)
        joules, units = sum(w.end_j - w.start_j for w in m.energy), sum(w.units for w in m.energy)
        figures = {
            "joules": joules,
            "joules_per_unit": joules / units,
            "power_w": sum((w.end_j - w.start_j) / w.window_s for w in m.energy),
            "units_per_s": units / window_s,
            "uncertain": 2 * COUNTER_STEP_S / window_s,
        }
        if window_s < LEAST_ENERGY_S:
            figures = dict.fromkeys(figures, math.nan)
        fields = {name: getattr(run, name) for name in ("model", "placement", "execution", "precision", "devices", "batch_size")}
        rows.append(
            {
                "key": record.key,
                "machine": record.machine.name,
                "unit": run.description.unit,
                **fields,
                "window_s": window_s,
                **figures,
            }
        )
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in ENERGY_COLUMNS.items()})


def energy_points(frame: pd.DataFrame, *also: str) -> pd.DataFrame:
    """The windows of `energy_frame` that are long enough, those of a job pooled.

    Args:
        also: columns beside `JOB` that tell points apart, such as the machine.

    Returns:
        joules_per_unit: the mean; least, most: of the windows; units_per_s, power_w, window_s: means; uncertain: the largest of what
        counters' steps leave open; n.
    """
    known = frame[frame["joules_per_unit"].notna()]
    grouped = known.groupby([*JOB, *also], sort=True, dropna=False)
    joules = grouped["joules_per_unit"]
    means = grouped[["joules_per_unit", "units_per_s", "power_w", "window_s"]].mean()
    return means.assign(least=joules.min(), most=joules.max(), uncertain=grouped["uncertain"].max(), n=grouped.size()).reset_index()


def energy_table(frame: pd.DataFrame) -> Shown:
    """Joules a unit and power, a row a job and machine with the extent of its windows; what is too short is left out and named."""
    short = frame[frame["joules"].isna()]
    named = [f"Record {row['key']} ({row['window_s']:.1f} s)" for _, row in short.iterrows()]
    left_out = f" Left out, for their windows are shorter than {LEAST_ENERGY_S} s: {joined(named)}." if named else ""
    points = energy_points(frame, "machine").sort_values(["model", "batch_size", "execution", "precision", "devices"])
    rows = [
        {
            "job": unbroken(*_job(row).split(", ", 1)),
            "GPUs": str(row["devices"]),
            "machine": row["machine"],
            "joules a unit": _joules(row),
            "units/s": f"{row['units_per_s']:,.0f}",
            "power a GPU (W)": f"{row['power_w'] / row['devices']:.0f}",
            "window (s)": f"{row['window_s']:.1f}",
            "counter's step": f"± {100 * row['uncertain']:.1f}%",
            "n": str(row["n"]),
        }
        for _, row in points.iterrows()
    ]
    note = (
        "Energy of the GPUs alone, by NVML's counters at both ends of a window of training; the host's is not in it. Means of n windows, "
        "in brackets the least and the most; n = 1 is screening."
    )
    why = "No window of energy yet: `python -m multigpu measure --grid hardware` measures windows of 12 s on GPUs."
    right = ["joules a unit", "units/s", "power a GPU (W)", "window (s)"]
    return table_html(pd.DataFrame(rows), right=right, note=(note if rows else why) + left_out, wide=["job"])


def _joules(row: pd.Series) -> str:
    extent = f" ({row['least']:.3g} to {row['most']:.3g})" if row["n"] > 1 else ""
    return f"{row['joules_per_unit']:.3g} J a{'n image' if row['unit'] == 'images' else ' ' + row['unit'][:-1]}{extent}"


def _job(row: Mapping[str, Any] | pd.Series) -> str:
    name = MODEL_NAMES.get(row["model"], row["model"])
    return f"{name}, batch {row['batch_size']}, {row['precision']}, {execution_text(row['execution'])}"


def energy_finding(frame: pd.DataFrame) -> str:
    """The least and the most joules a unit on the fewest GPUs, and how many times as much one takes on more."""
    points = energy_points(frame)
    fewest = [_extent(unit_rows[unit_rows["devices"] == unit_rows["devices"].min()]) for _, unit_rows in points.groupby("unit", sort=True)]
    return " ".join([*fewest, *_against_one(points)]) or NO_ENERGY


def energy_on_more(frame: pd.DataFrame) -> list[str]:
    """The least and the most joules a unit on more GPUs than `energy_finding` tells, a sentence a unit and number of them."""
    points = energy_points(frame)
    more = points[points["devices"] > points.groupby("unit")["devices"].transform("min")]
    return [_extent(rows) for _, rows in more.groupby(["unit", "devices"], sort=True)]


def _extent(points: pd.DataFrame) -> str:
    """The least and the most joules a unit of points of one unit and number of GPUs."""
    ordered = points.sort_values("joules_per_unit")
    least, most = ordered.iloc[0], ordered.iloc[-1]
    one = str(least["unit"]).removesuffix("s")
    figures = f"{least['joules_per_unit']:.3g} J ({_job(least)})"
    figures += f" to {most['joules_per_unit']:.3g} J ({_job(most)})" if len(points) > 1 else ""
    low, high = int(points["n"].min()), int(points["n"].max())
    repeats = "each measured once" if high == 1 else f"n = {low}" if low == high else f"n = {low} to {high}"
    return (
        f"On {devices_text(int(least['devices']), 'cuda')} training takes {figures} {'an' if one == 'image' else 'a'} {one}, by the "
        f"GPUs' own counters (± {100 * points['uncertain'].max():.1f}% at most; {plural(len(points), 'job')}, {repeats}); the host's "
        "energy is not in it."
    )


def _against_one(points: pd.DataFrame) -> list[str]:
    """What a unit takes on several GPUs over what it takes on one, a sentence a number of GPUs; a job measured on both alone counts."""
    job = [name for name in JOB if name != "devices"]
    alone = points[points["devices"] == 1]
    said = []
    for (unit, devices), rows in points[points["devices"] > 1].groupby(["unit", "devices"]):
        own = rows.merge(alone, on=job, suffixes=("", "_one"))
        if own.empty:
            continue
        ratios = own["joules_per_unit"] / own["joules_per_unit_one"]
        ends = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (ratios.min(), ratios.max())))
        once = ", each measured once" if own[["n", "n_one"]].to_numpy().max() == 1 else ""
        one = str(unit).removesuffix("s")
        named = f"{'an' if one == 'image' else 'a'} {one}"
        said.append(
            f"On {devices_text(int(str(devices)), 'cuda')} {named} takes {ends} times as much as on one ({plural(len(own), 'job')}{once})."
        )
    return said


USUAL = {"precision": "bf16", "execution": "captured"}
"""Beside which other precisions and forms of a step are set."""


def energy_otherwise(frame: pd.DataFrame) -> list[str]:
    """What a unit takes in another precision or form of a step over the same job in the usual one, a sentence a job."""
    points = energy_points(frame)
    said: dict[str, list[str]] = {}
    for name, usual in USUAL.items():
        job = [field for field in JOB if field != name]
        own = points[points[name] != usual].merge(points[points[name] == usual], on=job, suffixes=("", "_usual"))
        for _, row in own.iterrows():
            words = field_text(row, name) if name == "precision" else execution_text(row[name])
            once = ", once" if min(row["n"], row["n_usual"]) == 1 else ""
            where = f"{_job({**row, name: usual})} on {devices_text(int(row['devices']), 'cuda')}"
            said.setdefault(where, []).append(f"{words} {row['joules_per_unit'] / row['joules_per_unit_usual']:.2f} times{once}")
    return [f"Beside the energy of {where}: {'; '.join(parts)}." for where, parts in said.items()]
