"""Levers of one model, each a pair of points that differ in what it names alone, as a staircase of
rates; and every repeated point of a machine as a banner.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.axes import hues, key_lines, side
from multigpu.analysis.compare import repeated, scaling, versus
from multigpu.analysis.estimate import FORMS
from multigpu.analysis.fields import LENGTH
from multigpu.analysis.picture import Picture, drawn
from multigpu.analysis.points import where
from multigpu.analysis.show import EXPLORER
from multigpu.analysis.style import INK
from multigpu.analysis.words import devices_text, job_words, way_words
from multigpu.placements import find_placement


def levers(
    points: pd.DataFrame, first: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Return a row a lever: the point with its fields changed beside the row before, all else equal
    but how many steps were timed.

    points: of one machine. first: fields of where it begins, the most repeated such point.
    changes: what a lever is called -> the fields that it changes. A lever that is pulled already,
    or without such a pair of repeated points, is left out; the next is beside the row before it.
    Returns the points' columns; lever; start (the rate of the row before, 0 for the first); gain
    with gain_low and gain_high (95%; NaN for the first); changed (names of the fields).
    """
    kept = repeated(points).sort_values("n", ascending=False, kind="stable")
    last = where(kept, **first).head(1)
    if last.empty:
        return kept.iloc[:0]
    name = next(iter(changes))
    found = [last.assign(lever=name, start=0.0, changed="")]
    for lever, fields in list(changes.items())[1:]:
        pair = versus(where(kept, **fields), last, but=[*fields, *LENGTH], name="gain").head(1)
        if pair.empty or pair["keys"].iloc[0] == last["keys"].iloc[0]:
            continue
        last = kept[kept["keys"].eq(pair["keys"].iloc[0])].head(1)
        found.append(pair.assign(lever=lever, start=pair["base_rate"], changed=", ".join(fields)))
    rows = pd.concat(found, ignore_index=True)
    return rows if len(rows) > 1 else rows.iloc[:0]


def best(points: pd.DataFrame, **fields: Any) -> pd.DataFrame:
    """Return of each model the repeated point with these fields whose rate is highest at the lower
    end of its interval, of those that train what one device on the global batch does: `scaling`'s
    columns, and how it is done in words.
    """
    rows = where(scaling(repeated(points)), **fields)
    equal = [find_placement(one).semantics.facts.is_equal_training for one in rows["placement"]]
    rows = rows[np.array(equal, dtype=bool) | rows["devices"].eq(1)]
    rows = rows.sort_values("rate_low", ascending=False, kind="stable").drop_duplicates("model")
    how = [way_words(row) for _, row in rows.iterrows()]
    alone = [f"one GPU, {words.partition(', ')[2]}".removesuffix(", ") for words in how]
    return rows.assign(how=np.where(rows["devices"].eq(1), alone, how))


def staircase(rows: pd.DataFrame, hue: str, title: str, caption: str, **words: str) -> Picture:
    """Draw `levers` as bars that each begin where the one above ends, with the interval of the
    rate and what the step multiplies it by; hue: the column that colours them.
    """
    colours, _ = hues(rows, hue)

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        most = group["rate"].max()
        for at, (_, row) in enumerate(group.iterrows()):
            colour = colours[str(row[hue])]
            ax.barh(at, row["rate"] - row["start"], left=row["start"], height=0.62, color=colour)
            ax.plot([row["rate_low"], row["rate_high"]], [at, at], color=INK, linewidth=1)
            times = "" if pd.isna(row["gain"]) else f"\u00d7{row['gain']:.2f}"
            says = f"{FORMS['rate'](row['rate'])}  {times}".rstrip()
            end = max(row["rate"], row["rate_high"])
            # beside the interval, whose line would read as a minus
            apart: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points"}
            ax.annotate(says, (end, at), va="center", fontweight="bold", **apart)
        ax.set_yticks(range(len(group)), list(group["lever"]))
        ax.set_xlim(0, 1.32 * most)
        ax.invert_yaxis()
        ax.locator_params(axis="x", nbins=5)
        side(ax, "rate", f"{group['unit'].iloc[0]}/s")

    told, key = ["lever", hue, "rate", "start", "gain"], key_lines(colours, {})
    return drawn(
        rows, draw, told, title, caption, None, (0.62, 0.3), 1, key, names="lever", **words
    )


APART = 0.035
"""Share of a banner's width within which dots of one row would touch."""


def banner(rows: pd.DataFrame, x: str, title: str, caption: str, **words: str) -> Picture:
    """Draw every row as a dot in its placement's colour, those of as many devices on one line;
    a dot says its point when it is pointed at or focused, and leads to it in the explorer.
    """
    rows = rows.sort_values(["devices", x], kind="stable").reset_index(drop=True)
    colours, markers = hues(rows, "placement")
    names = [devices_text(row["devices"], row["device_type"]) for _, row in rows.iterrows()]
    rows = rows.assign(line=names)
    said = {f"point{at}": _said(row, x) for at, row in rows.iterrows()}

    def draw(ax: Axes, group: pd.DataFrame) -> None:
        lines = list(dict.fromkeys(group["line"]))
        widest = APART * max(float(group[x].max()), 1.0)
        for number, line in enumerate(lines):
            own = group[group["line"].eq(line)]
            perfect = [int(own["devices"].iloc[0])] * 2
            dashes: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}
            ax.plot(perfect, [number - 0.44, number + 0.44], **dashes)
            for (at, row), up in zip(own.iterrows(), _spread(own[x], widest), strict=True):
                marker, colour = markers[row["placement"]], colours[row["placement"]]
                looks: dict[str, Any] = {"linestyle": "none", "markersize": 5, "gid": f"point{at}"}
                (dot,) = ax.plot([row[x]], [number + up], marker=marker, color=colour, **looks)
                dot.set_url(f"{EXPLORER}#key={row['keys'].split(', ')[0]}")
        ax.set_yticks(range(len(lines)), lines)
        ax.set_ylim(len(lines) - 0.4, -0.6)
        side(ax, "times", "times one GPU at its best with the same kernels")

    told = ["line", "placement", "model", "batch_size", "execution", x]
    key = key_lines(colours, markers)
    picture = drawn(
        rows, draw, told, title, caption, None, (0.5, 0.62), 1, key, names="line", **words
    )
    for one in (picture, picture.narrow):
        if one is not None:
            one.hovers = said
    return picture


def _said(row: pd.Series, x: str) -> str:
    """Say a point in a line: its job, its way, its rate, and how it stands to one GPU."""
    rate = f"{FORMS['rate'](row['rate'])} {row['unit']}/s"
    over = f"{FORMS['times'](row[x])} times one GPU"
    return f"{job_words(row)}: {way_words(row)}; {rate}, {over}, n = {row['n']}"


def _spread(values: pd.Series, apart: float) -> list[float]:
    """Return how far each of the sorted values stands from its line, so that near ones do not
    cover each other: 0, then up and down in turn.
    """
    found: list[float] = []
    held: list[tuple[float, float]] = []
    steps = [0.0, *(sign * step for step in np.arange(0.1, 0.5, 0.1) for sign in (-1, 1))]
    for value in values:
        taken = {up for other, up in held if value - other < apart}
        up = next((step for step in steps if step not in taken), 0.0)
        held.append((float(value), up))
        found.append(up)
    return found
