"""Why a fed step is longer: its parts from a trace, beside those of the same job on images that stay on the device."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.causes import PARTS, causes_frame
from multigpu.analysis.feeding import COMPARED, FED, JOB, SOURCES, crossing_text, job_text, workers_text
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.conditions import ON_DEVICE
from multigpu.record import Record


def fed_parts(records: Iterable[Record]) -> pd.DataFrame:
    """A row a way of feeding a job that was traced, of jobs that were traced on images of the device as well.

    Returns:
        JOB, FED and device_type, step_s, each of `causes.PARTS` as `<part>_s`, and `<part>_more_s`: more than with images that stay on
        the device; 0 for those. Means over the Records of a way.
    """
    causes = causes_frame(record for record in records if record.run.description.unit == "images")
    causes = causes[causes["inputs"].isin(COMPARED) & causes["device_ids"].isna() & causes["peer_access"].isna()]
    parts = [f"{name}_s" for name in PARTS]
    ways = causes.groupby([*JOB, *FED, "device_type"], dropna=False, sort=False)[["timed_step_s", *parts]].mean().reset_index()
    ways = ways.rename(columns={"timed_step_s": "step_s"})
    found = []
    for _, rows in ways.groupby(list(JOB), dropna=False, sort=False):
        own = rows[rows["inputs"].isin(ON_DEVICE)]
        if len(own) == 1 and len(rows) > 1:
            more = {f"{name}_more_s": rows[f"{name}_s"] - own.iloc[0][f"{name}_s"] for name in PARTS}
            found.append(rows.assign(**more))
    return pd.concat(found, ignore_index=True) if found else ways.iloc[:0].assign(**{f"{name}_more_s": [] for name in PARTS})


def fed_parts_findings(parts: pd.DataFrame) -> list[str]:
    """Of each job's longest fed step: how much longer it is, and which part grew most. Nothing where nothing was traced."""
    said = []
    for _, rows in parts.groupby(list(JOB), dropna=False, sort=False):
        own, worst = rows[rows["inputs"].isin(ON_DEVICE)].iloc[0], rows.sort_values("step_s").iloc[-1]
        longer = worst["step_s"] - own["step_s"]
        if worst["inputs"] in ON_DEVICE or longer <= 0:
            continue
        name = max(PARTS, key=lambda part: worst[f"{part}_more_s"])
        grown = worst[f"{name}_more_s"]
        said.append(
            f"{job_text(worst)}, {SOURCES[worst['inputs']]}: of the {1e3 * longer:.1f} ms that the step is longer than on the device's own "
            f'images ({1e3 * worst["step_s"]:.1f} and {1e3 * own["step_s"]:.1f} ms), {1e3 * grown:.1f} ms are "{PARTS[name][0]}", by the '
            "trace. Both are medians over all timed steps; the tables above take means over their second half."
        )
    return said


def fed_parts_table(parts: pd.DataFrame) -> Shown:
    """Every traced way of feeding, taken apart."""
    rows = [
        {
            "job": job_text(row),
            "images": SOURCES[row["inputs"]],
            "workers a device": workers_text(row),
            "cross as": crossing_text(row),
            "step": f"{1e3 * row['step_s']:.1f}",
            **{label: f"{1e3 * row[f'{name}_s']:.1f}" for name, (label, *_) in PARTS.items()},
        }
        for _, row in parts.iterrows()
    ]
    note = "ms of a timed step. The profiler slows the host: the host's parts are scaled to the step without it."
    missing = "No fed step has been traced beside one on the device's own images yet: the grid `inputs` does, on GPUs."
    return tables_by(pd.DataFrame(rows), "job", note if rows else missing, ["step", *(label for label, *_ in PARTS.values())])
