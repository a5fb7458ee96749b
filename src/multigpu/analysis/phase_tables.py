"""The phases of each placement's step as a table: how long each lasted on the replicas, and what the replicas did apart."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.causes import SAME_POINT
from multigpu.analysis.figure_causes import bar_name
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text
from multigpu.measure.trace import PHASES

TOGETHER = "→"
"""In place of forward: it is told together with backward."""

WAITS = ("phases_overlap_s", "communication_s", "exposed_s")


def phase_ranges(phases: pd.DataFrame) -> pd.DataFrame:
    """A row a traced Run: of each phase and of `WAITS` the least and the most over replicas (medians over traced steps), in ms.

    Args:
        phases: of `traces.phases_frame`.

    Returns:
        the fields of the point; <phase>_low, <phase>_high, <wait>_low, <wait>_high (NaN where unknown); launch_skew_ms,
        pure_communication_ms, traced_step_ms (medians over steps), timed_step_ms; missing: why a phase is not known.
    """
    values = [f"{phase}_s" for phase in PHASES] + list(WAITS)
    whole = ("launch_skew_s", "pure_communication_s", "traced_step_s", "timed_step_s")
    rows = []
    for _, group in phases.groupby("key", sort=False):
        each = 1e3 * group.groupby("rank")[values].median()
        first: dict[str, Any] = {name: group[name].iloc[0] for name in ("key", *SAME_POINT, "missing")}
        first |= {f"{name.removesuffix('_s')}_low": each[name].min() for name in values}
        first |= {f"{name.removesuffix('_s')}_high": each[name].max() for name in values}
        rows.append(first | {f"{name.removesuffix('_s')}_ms": 1e3 * group[name].median() for name in whole})
    return pd.DataFrame(rows)


def range_text(low: float, high: float) -> str:
    """Two bounds in ms; one figure where they read the same, and a dash where there is none."""
    if pd.isna(low):
        return "–"
    least, most = f"{low:.1f}", f"{high:.1f}"
    return least if least == most else f"{least}–{most}"


def _phase_text(row: Any, phase: str) -> str:
    """The phase's range; where the border between forward and backward is not known, both together stand in the place of backward."""
    if phase in ("forward", "backward") and not pd.isna(row["forward_backward_low"]):
        return TOGETHER if phase == "forward" else range_text(row["forward_backward_low"], row["forward_backward_high"])
    return range_text(row[f"{phase}_low"], row[f"{phase}_high"])


def phase_table(phases: pd.DataFrame) -> Shown:
    """`phase_ranges` in words, a table a job, in the order of placements on every page."""
    table = phase_ranges(phases)
    if table.empty:
        return table_html(table, note="No Record holds a trace.")
    parts = []
    groups = [group for _, group in table.groupby(["model", "batch_size", "devices"], sort=False)]
    models = [*MODEL_NAMES]
    for group in sorted(
        groups, key=lambda group: models.index(group["model"].iloc[0]) if group["model"].iloc[0] in models else len(models)
    ):
        ordered = group.assign(_order=[look(name).order for name in group["placement"]]).sort_values(
            ["processes", "_order"], ascending=[False, True]
        )
        rows = [
            {
                "placement": bar_name(row),
                **{phase: _phase_text(row, phase) for phase in PHASES if phase != "forward_backward"},
                "exposed": range_text(row["exposed_low"], row["exposed_high"]),
                "step": f"{row['traced_step_ms']:.1f}",
            }
            for _, row in ordered.iterrows()
        ]
        first = ordered.iloc[0]
        why = sorted(
            {f"{look(row['placement']).label}, {row['execution']}: {row['missing']}" for _, row in ordered.iterrows() if row["missing"]}
        )
        note = (
            "ms; least to most over replicas, each the median of its traced steps. A phase reaches from its first to its last work on the "
            "device, gaps included. Exposed: communication while the device computes nothing, with what a "
            "collective waits for the last replica. Eager with a process a GPU unless it says otherwise. A dash: no such phase."
            + (f" An arrow: told with backward. Not known: {'; '.join(why)}." if why else "")
            + " n = 1 (screening), under the profiler."
        )
        name = f"{describe(first, ['model', 'batch_size', 'precision'])}, {devices_text(first['devices'], first['device_type'])}"
        right = [str(column) for column in rows[0] if column != "placement"]
        data = pd.DataFrame(rows)
        data = data.loc[:, [data[column].ne("–").any() for column in data]]
        parts.append(table_html(data, name, right=right).html + f'<p class="muted">{escape(note)}</p>\n')
    return Shown("".join(parts))
