"""What makes a model scale, in sentences: the ratio, one number of the family at a time, and how far links may be to blame."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from multigpu.analysis.picture import Shown, paragraphs, together
from multigpu.analysis.scales import SERVER, eager_is_faster, model_text, once_a_job, server_rows, server_table, sweep_rows
from multigpu.analysis.wording import decimals, devices_text, execution_text, joined, percent_text, plural
from multigpu.grid.family import family

GOOD = 0.90
"""Efficiency from which a model is said to scale."""

SCATTERED = 1.05
"""Where a single Run keeps more of perfect scaling than this, single Runs are as far off as what is lost below `GOOD`."""

LEAST_001 = 400_000
"""Parameters below which document 001 says that models may not be suitable, of models on small images with variables on the CPU."""

PREFERRED = ("captured", "compiled_captured", "compiled", "eager")
"""Forms of execution, those that wait least for the host first: what is lost then is the devices' and links'."""

FEWEST_RANKED = 5
"""Points below which a rank correlation says nothing."""

MARKED = 0.5
"""Of a rank correlation: from here on one number is said to go with another."""


class Line(NamedTuple):
    """Points of one form of execution on one number of devices."""

    where: str
    rows: pd.DataFrame


def preferred_line(rows: pd.DataFrame) -> Line | None:
    """Of a sweep, or of all points: the form of execution that waits least for the host and of it the devices with most points; None where
    there are not two values of `at` (of points: of bytes an operation).
    """
    by = "at" if "at" in rows else "bytes_per_flop"
    lines = [line for _, line in rows.groupby(["execution", "devices"]) if line[by].nunique() > 1] if len(rows) else []
    if not lines:
        return None
    chosen = min(lines, key=lambda line: (preference(line["execution"].iloc[0]), -line[by].nunique(), -line["devices"].iloc[0]))
    first = chosen.iloc[0]
    on = f"{devices_text(int(first['devices']), first['device_type'])}, {execution_text(first['execution'])}"
    return Line(on, chosen.sort_values(by))


def preference(execution: str) -> int:
    """The place of a form of execution in `PREFERRED`; behind all of them where it has none."""
    return PREFERRED.index(execution) if execution in PREFERRED else len(PREFERRED)


def smallest_that_scales(line: pd.DataFrame) -> pd.Series | None:
    """Along a line of widths, the member with fewest parameters from which on all keep 90%; None if not even the largest does."""
    found = None
    for _, row in line.sort_values("parameters", ascending=False).iterrows():
        if row["efficiency"] < GOOD:
            break
        found = row
    return found


def _repeats(rows: pd.DataFrame) -> str:
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return "measured once each" if high == 1 else f"n = {low}" if low == high else f"n = {low} to {high}"


def _between(rows: pd.DataFrame) -> str:
    return " to ".join(dict.fromkeys(percent_text(end) for end in (rows["efficiency"].min(), rows["efficiency"].max())))


def _job(row: pd.Series, often: bool = True) -> str:
    """often: whether to say that it was measured once."""
    once = ", measured once" if often and row["n"] == 1 else ""
    if eager_is_faster(row):
        once += f", slower than eager steps on as many devices: {row['rate']:,.0f} against {row['eager_rate']:,.0f} images/s"
    return f"{model_text(row['model'])}, batch {row['batch_size']:,}{once}"


def _bytes(row: pd.Series) -> str:
    value = 1e6 * row["bytes_per_flop"]
    return f"{value:,.{decimals(value, 2)}f}"


def _ratio_finding(points: pd.DataFrame) -> str:
    """Whether bytes an operation or parameters order efficiency, each job counted once; "" for too few points."""
    line = _jobs_line(points)
    if line is None or len(line.rows) < FEWEST_RANKED:
        return ""
    rows = line.rows
    ranks = rows[["bytes_per_flop", "parameters", "efficiency"]].rank()
    ratio, size = (float(ranks[name].corr(ranks["efficiency"])) for name in ("bytes_per_flop", "parameters"))
    told = f"rank correlations over {plural(len(rows), 'point')}: {ratio:.2f} and {size:.2f}"
    if ratio <= -MARKED < size:
        judged = f"efficiency falls with the bytes of gradients an operation, and not with the number of parameters ({told})"
    elif ratio <= -MARKED:
        judged = f"efficiency falls with the bytes of gradients an operation, and with the number of parameters too ({told})"
    else:
        judged = f"bytes of gradients an operation do not order efficiency ({told}, the latter with the number of parameters)"
    first, rest = _repeated_first(rows)
    low, high = first.iloc[0], first.iloc[-1]
    said = (
        f"**Ratio** ({line.where}): {judged}. At {_bytes(low)} bytes a million operations {percent_text(low['efficiency'])} of perfect "
        f"scaling is kept ({_job(low)}), at {_bytes(high)} bytes {percent_text(high['efficiency'])} ({_job(high)})"
    )
    also = [f"{percent_text(row['efficiency'])} at {_bytes(row)} bytes ({_job(row, often=False)})" for _, row in _ends(rest).iterrows()]
    return f"{said}; of what was measured once, {joined(also)}." if also else f"{said}."


def _jobs_line(points: pd.DataFrame) -> Line | None:
    """`preferred_line` with each job once."""
    line = preferred_line(points)
    return None if line is None else Line(line.where, once_a_job(line.rows))


def _repeated_first(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The repeated rows and those measured once; all and none where fewer than two were repeated: with these no range can be told."""
    repeated = rows["n"] > 1
    return (rows[repeated], rows[~repeated]) if repeated.sum() > 1 else (rows, rows.iloc[:0])


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """The first row and the last one."""
    return rows.iloc[[0, -1]] if len(rows) > 1 else rows


def _most_devices(points: pd.DataFrame) -> str:
    """The models on the most devices, where those are more than the ratio is told of: best and least kept, of repeated ones first."""
    line, most = _jobs_line(points), _jobs_line(points[points["devices"] == points["devices"].max()])
    if most is None or (line is not None and line.where == most.where and len(line.rows) >= FEWEST_RANKED):
        return ""
    first, rest = _repeated_first(most.rows.sort_values("efficiency"))
    least, best = (f"{percent_text(row['efficiency'])} ({_job(row)})" for _, row in _ends(first).iterrows())
    said = f"On {most.where}, {least} to {best} of perfect scaling are kept"
    also = [f"{percent_text(row['efficiency'])} ({_job(row, often=False)})" for _, row in _ends(rest).iterrows()]
    return f"{said}; of what was measured once, {joined(also)}." if also else f"{said}."


def _size_finding(points: pd.DataFrame) -> str:
    """Which number of parameters is needed, and where single Runs are too scattered to say."""
    sweep = sweep_rows(points, "width")
    line = preferred_line(sweep)
    if line is None:
        return ""
    rows, last = line.rows, ""
    smallest = rows.sort_values("parameters").iloc[0]
    said = (
        f"**Size** ({line.where}, {_repeats(rows)}): the family's {len(rows)} members of {smallest['parameters']:,} to "
        f"{rows['parameters'].max():,} parameters keep {_between(rows)} of perfect scaling."
    )
    if _scattered(rows):
        return f"{said} Single Runs as scattered as these name no minimum size."
    found = smallest_that_scales(rows)
    if found is None:
        last = f" No size from which on all keep {GOOD:.0%} was found: the largest member does not."
    elif found["parameters"] == smallest["parameters"]:
        last = f" Even the smallest keeps {percent_text(smallest['efficiency'])}: no minimum size was found."
    else:
        last = f" From {found['parameters']:,} parameters on all keep at least {GOOD:.0%}."
    others = sweep[sweep["execution"].ne(rows["execution"].iloc[0]) & sweep["devices"].eq(rows["devices"].iloc[0])]
    for execution, own in others.groupby("execution", sort=True):
        if own["at"].nunique() > 1 and _scattered(own):
            form = execution_text(execution)
            last += f" {form[:1].upper()}{form[1:]}, they keep {_between(own)}, {_repeats(own)}: too scattered to name a minimum."
    return said + last


def _scattered(rows: pd.DataFrame) -> bool:
    """Whether these are single Runs of which some keep more than can be kept."""
    return bool((rows["n"].eq(1) & rows["efficiency"].gt(SCATTERED)).any())


SWEPT = {
    "image_size": ("Images", " pixels a side"),
    "depth": ("Depth", " convolutions"),
    "dense_percent": ("Dense share", "% of the parameters"),
    "batch_size": ("Batch", " images a device"),
}
"""By what changes: how its sentence begins, and what its first number is."""


def _sweep_finding(points: pd.DataFrame, axis: str) -> str:
    line = preferred_line(sweep_rows(points, axis))
    if line is None:
        return ""
    name, unit = SWEPT[axis]
    kept = [f"{percent_text(row['efficiency'])} at {row['at']:,}" for _, row in line.rows.iterrows()]
    kept[0] += unit
    return (
        f"**{name}** ({line.where}, {_repeats(line.rows)}): {joined(kept)}; that is {_bytes(line.rows.iloc[0])} to "
        f"{_bytes(line.rows.iloc[-1])} bytes of gradients a million operations."
    )


def scale_answers(points: pd.DataFrame) -> list[str]:
    """What sets models apart."""
    if points.empty:
        return ["No Record on several devices yet: nothing can be said of what makes a model scale."]
    return [text for text in (_ratio_finding(points), _most_devices(points)) if text]


def family_findings(points: pd.DataFrame) -> list[str]:
    """A sentence for each number of the family that was changed."""
    if points.empty:
        return []
    said = [_size_finding(points), *(_sweep_finding(points, axis) for axis in SWEPT)]
    if not points["model"].str.startswith("family_").any():
        said.append("The made-up family has no Record yet: minimum size, image size and dense share are not separated.")
    return [text for text in said if text]


def bounds_finding(points: pd.DataFrame) -> str:
    """How many points lose no more than links alone would take unhidden, and which one loses most beyond that."""
    line = preferred_line(points[points["own_exposed"].notna()]) if len(points) else None
    if line is None:
        return ""
    rows = line.rows
    between = rows["efficiency"].ge(rows["own_exposed"]) & rows["efficiency"].lt(rows["own_hidden"])
    below = rows["efficiency"].lt(rows["own_exposed"])
    said = (
        f"On {line.where}, {between.sum()} of {plural(len(rows), 'point')} lie between their two bounds by links: what they lose is no "
        "more than summing takes at least if nothing of it is hidden, so it may be the links' doing."
    )
    if not below.any():
        return said
    worst = rows.iloc[int((rows["own_exposed"] - rows["efficiency"]).to_numpy().argmax())]
    return (
        f"{said} {below.sum()} lie below both: links at their measured best do not explain all that these lose; most of all, "
        f"{percent_text(worst['efficiency'])} is kept where exposed summing would leave {percent_text(worst['own_exposed'])} "
        f"({_job(worst)})."
    )


def server_findings(rows: pd.DataFrame) -> list[str]:
    """What the family says of document 001's smallest size with variables on the CPU, and what is not measured; rows of `server_rows`.

    Whether the members below that size keep less than those above is said of repeated Runs and of single ones alike, with their number of
    repeats; not of single Runs as far off as what is lost.
    """
    planned = {entry.run.model for entry in family((1, 2)) if entry.run.placement == SERVER}
    lacking = len(planned - set(rows["model"]))
    command = f"`python -m multigpu measure --grid family placement={SERVER} --devices 1,2`"
    if rows.empty:
        return [
            f"**Variables on the CPU**: not measured yet for the family's {plural(len(planned), 'member')} of different width, so nothing "
            f"here tests the document's smallest size of about {LEAST_001:,} parameters; {command} measures them."
        ]
    left = f"{lacking} of the family's {len(planned)} widths are not measured yet; {command} measures them." if lacking else ""
    line = preferred_line(rows)
    if line is None:
        row = rows.iloc[0]
        one = f"**Variables on the CPU**: {model_text(row['model'])} keeps {percent_text(row['efficiency'])} of perfect scaling"
        return [f"{one}; one size alone says nothing of a smallest one. {left}".strip()]
    return [text for text in (_server_finding(line), left) if text]


def _server_finding(line: Line) -> str:
    """The members below the document's smallest size and those above it, and how much the same ones keep under all-reduce."""
    rows = line.rows
    said = f"**Variables on the CPU** ({line.where}, {_repeats(rows)}): the family keeps {_between(rows)} of perfect scaling"
    beside = rows[rows["summed"].notna()]
    if len(beside):
        summed = " to ".join(dict.fromkeys(percent_text(end) for end in (beside["summed"].min(), beside["summed"].max())))
        said += f", and {summed} under all-reduce during backward ({plural(len(beside), 'member')})"
    small, large = rows[rows["parameters"] < LEAST_001], rows[rows["parameters"] >= LEAST_001]
    if small.empty or large.empty:
        side = "below" if large.empty else "at or above"
        return f"{said}. All members measured lie {side} the document's smallest size of about {LEAST_001:,} parameters: it is not tested."
    few = plural(len(small), "member")
    said += f"; {_between(small)} below the document's {LEAST_001:,} parameters ({few}), {_between(large)} from there on"
    if _scattered(rows):
        return f"{said}. Single Runs as scattered as these neither bear out its smallest size nor refute it."
    if small["efficiency"].max() < large["efficiency"].min():
        return f"{said}. Every smaller member keeps less than every larger one, as the document says."
    return f"{said}. Not every smaller member keeps less than every larger one: the family does not show the document's smallest size."


def server_shown(server: pd.DataFrame, points: pd.DataFrame) -> Shown:
    """The family with variables on the CPU: what it says, and the table where there is a Record.

    Args:
        server, points: of `scale_points`, with variables on the CPU and under all-reduce during backward.
    """
    rows = server_rows(server, points)
    said = paragraphs(*server_findings(rows), kind="said")
    return together(said, server_table(rows)) if len(rows) else said
