"""What batches ahead of their step give, and a stream of their own for the copies: each job fed alike but for these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from multigpu.analysis.feeding import JOB, SOURCES, job_text
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import joined, missing, percent_text, plural, ratio_text

WAYS: dict[str, tuple[int, bool, bool]] = {
    "none ahead": (0, False, False),
    "one ahead": (1, False, False),
    "two ahead": (2, False, False),
    "one, own stream": (1, True, False),
    "two, own stream": (2, True, False),
    "two, own stream, uint8": (2, True, True),
}
"""Column -> batches ahead, whether they are copied on a stream of their own, and whether they cross as uint8 rather than float32."""

ALONE = tuple(WAYS)[:5]
"""Ways that differ in nothing but how far ahead a batch is, and on which stream it is copied."""


def ahead(points: pd.DataFrame) -> Iterator[tuple[pd.Series, dict[str, pd.Series]]]:
    """Jobs fed in one way with no batch ahead and with some: a row of each, and its points by the name of the way."""
    fed = points[points["inputs"].isin(["synthetic_host", "jpeg_folder"]) & points["framework"].eq("torch")]
    for _, rows in fed.groupby([*JOB, "inputs", "input_workers"], dropna=False, sort=False):
        found = {name: row for _, row in rows.iterrows() for name, way in WAYS.items() if _way(row) == way}
        if "none ahead" in found and len(set(found) & {*ALONE}) > 1:
            yield found["none ahead"], {name: found[name] for name in WAYS if name in found}


def _way(row: pd.Series) -> tuple[int, bool, bool]:
    return int(row["prefetch"]), not missing(row["staging"]), not missing(row["image_dtype"])


def repeats_differ(points: pd.DataFrame) -> float:
    """By how much repeats of one job on its devices' own images differ, the fastest over the slowest: the most of all jobs (1: none was
    repeated).
    """
    own = points[points["inputs"].eq("synthetic") & points["n"].gt(1)]
    return float((own["high"] / own["low"]).max()) if len(own) else 1.0


def ahead_finding(points: pd.DataFrame) -> str:
    """What the best way of running ahead gains over none, against what repeats of a job differ by; "" where none was measured."""
    jobs = list(ahead(points))
    if not jobs:
        return ""
    gains = {}
    for none, ways in jobs:
        some = {name: row["sustained_per_s"] / none["sustained_per_s"] for name, row in ways.items() if name in ALONE[1:]}
        gains[f"{job_text(none)}, {SOURCES[none['inputs']]}"] = max(some.items(), key=lambda item: item[1])
    least, most = (pick(gain for _, gain in gains.values()) for pick in (min, max))
    named = {tuple(str(none[name]) for name in JOB) for none, _ in jobs}
    noise = repeats_differ(points[[tuple(str(row[name]) for name in JOB) in named for _, row in points.iterrows()]])
    extent = ratio_text(most) if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {ratio_text(most)}"
    said = (
        f"**Batches ahead**. In {plural(len(gains), 'job')} fed with none, one and two batches ahead, on the step's stream or their own, "
        f"the best way trains {extent} as fast as none ahead"
    )
    beyond = [f"{name} ({way}, {ratio_text(gain)})" for name, (way, gain) in gains.items() if gain > noise]
    if not beyond:
        return f"{said}; repeats of such steps on the device's own images differ by up to {ratio_text(noise)}, so no gain can be told."
    return f"{said}; more than repeats of such steps differ ({ratio_text(noise)}): {joined(beyond)}."


def ahead_table(points: pd.DataFrame) -> Shown:
    """Rates of every job that was fed with none and some batches ahead, a column a way."""
    rows = [_cells(none, ways) for none, ways in ahead(points)]
    columns = [name for name in WAYS if any(row[name] != "–" for row in rows)]
    kept = pd.DataFrame([{name: text for name, text in row.items() if name not in WAYS or name in columns} for row in rows])
    note = (
        "Images a second, second half of the timed steps; in brackets of the rate on images that stay on the device. A column is how many "
        "batches are on the device before their step asks, copied on the stream that computes unless it says so, as float32."
    )
    nothing = "No job was fed with none and with some batches ahead yet: the grid `inputs` does."
    return tables_by(kept, "images", note if rows else nothing, columns)


def _cells(none: pd.Series, ways: dict[str, pd.Series]) -> dict[str, Any]:
    every = {row["n"] for row in ways.values()}
    return {
        "images": SOURCES[none["inputs"]],
        "job": job_text(none),
        **{name: _rate(ways.get(name)) for name in WAYS},
        "n": str(every.pop()) if len(every) == 1 else f"{min(every)} to {max(every)}",
    }


def _rate(row: pd.Series | None) -> str:
    if row is None:
        return "–"
    return f"{row['sustained_per_s']:,.0f}" + ("" if missing(row["share"]) else f" ({percent_text(row['share'])})")
