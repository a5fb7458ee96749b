"""Efficiency of many models on their most devices, a row a job, a mark a placement: where small multiples of lines would be a page long.

A job's name stands above its marks and not beside them: the picture is so narrow that a telephone shows all of it. Models of unlike kinds
stand in blocks one below the other, each with its heading, its legend, and its axis above and below: the picture is longer than a screen.
"""

from __future__ import annotations

import textwrap
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT, CARETRIGHT

from multigpu.analysis.figure_scaling import BASELINES, several_devices
from multigpu.analysis.findings import panels, scaling_finding, with_several_placements
from multigpu.analysis.layout import BOTTOM, common, gaps, left_out
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.steady import WIDTH as AGREE
from multigpu.analysis.steady import narrow
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.wording import MODEL_NAMES, device_word, devices_text, execution_text, joined, missing, percent_text, plural
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET

WIDTH, SIDE, BESIDE = 5.2, 0.15, 0.55
"""Inches of the picture, of its margins, and of the right one where efficiencies are written at the edge."""
LETTERS, NAME, MARK = 68, 0.16, 0.065
"""Of a line of a row's name; inches of such a line, and from one mark of a row to the next."""
KEY_LETTER, KEY_ROOM, KEY_LINE = 0.078, 0.34, 0.17
"""Inches of a letter of the legend, of a key without its letters, and of a line of keys."""
RIGHTMOST = 1.6
"""Efficiencies beyond this are written at the edge: one slow launch on one device would flatten all others."""
WELL = 0.9
"""The share of perfect scaling that the finding counts."""
HEADING, TICKS = 0.3, 0.28
"""Inches of a block's heading and of the ticks above its rows."""
HEADINGS = {"": "Translation and other models", "imagenet": "Models for ImageNet's images", "cifar10": "Models for CIFAR-10's small images"}
"""Kinds of models, in the order of their blocks, with the blocks' headings."""

Job = tuple[str, pd.DataFrame]
"""A job's name and its rows."""
Block = tuple[str, list[Job]]
"""A heading and its jobs, each under the name that the picture shows."""


def figure_models(frame: pd.DataFrame, baseline: Literal["own", "best"] = "own", compared: bool = False, headline: bool = False) -> Picture:
    """How every job scales to its most devices: a row a job, a mark a placement (hollow in TensorFlow, half where it was measured once),
    with its interval.

    Args:
        frame: of `load_frame`; of several machines, if these differ in devices, which then stand beside a job's name.
        baseline: "own" divides by the same placement on one device, as the documents do; "best" by the fastest single device.
        compared: draw only the jobs with two placements or more beside the ceiling, where there are any.
        headline: draw only the points of the tier headline, where there are any; a baseline may be of any tier.
    """
    column = "efficiency" if baseline == "own" else "efficiency_best"
    table = scaling_table(frame)
    headline = headline and bool(table["tier"].eq("headline").any())
    table = table[table["tier"] == "headline"] if headline else table
    drawn = table[table[column].notna()]
    every = _jobs(drawn, baseline == "best")
    several = {name for name, _ in with_several_placements(_jobs(drawn, baseline == "best", most=False))} if compared else set()
    jobs = [job for job in every if job[0] in several] or every
    if not jobs:
        return message("No scaling to draw: no Record on several devices has its baseline on one device.")
    marks = pd.concat([rows for _, rows in jobs])
    marks = marks.assign(**{"efficiency" + end: marks[column + end] for end in ("", "_low", "_high")})
    jobs = [(name, marks.loc[rows.index]) for name, rows in jobs]
    counts = sorted({int(count) for count in marks["devices"]})
    names = [f"{name}\u00a0({rows['devices'].iloc[0]})" if len(counts) > 1 else name for name, rows in jobs]
    edge = min(RIGHTMOST, max(1.05, float(marks["efficiency"].max()) * 1.02))
    blocks = _blocks(list(zip(names, (rows for _, rows in jobs), strict=True)))
    with mpl.rc_context(RC):
        finding = _finding(marks) if baseline == "own" else scaling_finding(marks, column)
        _drawn(picture := Picture(WIDTH, head_height(finding, WIDTH) + 0.1 + sum(map(_block_height, blocks))), finding, blocks, edge)
    on = f"In brackets: of how many devices ({', '.join(map(str, counts))}). " if len(counts) > 1 else ""
    beyond = "Arrows: the interval goes on beyond the edge. " if len(_cut(marks, edge)) else ""
    picture.caption = (
        f"Efficiency: units/s on the most devices measured over as many times that of {BASELINES[baseline]} "
        f"{device_word(marks['device_type'].iloc[0])}. {_other_forms(marks) if baseline == 'best' else ''}{on}{_hollow(marks)}"
        f"Bars: 95%; half marks, without: they or their baseline were measured once. {beyond}{_above_ceiling(jobs)}"
        f"{common(marks)}{gaps(table)}{left_out(every, jobs)}"
    )
    fields = ["machine", "model", "batch_size", "precision", "execution", "placement", "framework", "devices", "n", "launches", "tier"]
    told = ["best_single"] if baseline == "best" else []
    picture.data = marks[[*fields, "efficiency", "efficiency_low", "efficiency_high", *told, "keys"]]
    picture.alt = (
        "Dots of efficiency, a row a model. " + "; ".join(_told(name, rows) for name, (_, rows) in zip(names, jobs, strict=True)) + "."
    )
    return picture


def _lines(name: str) -> list[str]:
    return textwrap.wrap(name, LETTERS)


def _row_height(name: str, rows: pd.DataFrame) -> float:
    """Inches of one job's row: its name, its marks one below the other, and a gap."""
    return NAME * len(_lines(name)) + MARK * max(len(rows), 2) + 0.1


def _keys_a_line(rows: pd.DataFrame) -> int:
    """How many keys of the legend the picture is wide enough for."""
    widest = max(len(look(name).label) for name in rows["placement"])
    return max(1, int((WIDTH - SIDE) / (KEY_ROOM + KEY_LETTER * widest)))


def _keys_height(rows: pd.DataFrame) -> float:
    """Inches of the legend of these rows."""
    return KEY_LINE * -(-rows["placement"].nunique() // _keys_a_line(rows))


def _kind(model: str) -> str:
    """Which of HEADINGS a model stands under."""
    kinds = {"imagenet": FOR_IMAGENET, "cifar10": FOR_CIFAR}
    return next((kind for kind, models in kinds.items() if model in {one.name for one in models}), "")


def _blocks(jobs: list[Job]) -> list[Block]:
    """The jobs by kind of model; one block has no heading."""
    kinds = [_kind(str(rows["model"].iloc[0])) for _, rows in jobs]
    found = [(heading, [job for job, own in zip(jobs, kinds, strict=True) if own == kind]) for kind, heading in HEADINGS.items()]
    found = [block for block in found if block[1]]
    return found if len(found) > 1 else [("", found[0][1])]


def _rows_height(block: Block) -> float:
    return sum(_row_height(name, rows) for name, rows in block[1])


def _block_height(block: Block) -> float:
    """Inches of a block: its heading, legend, rows, and ticks above and below them."""
    keys = _keys_height(pd.concat([rows for _, rows in block[1]]))
    return (HEADING if block[0] else 0.0) + keys + TICKS + _rows_height(block) + BOTTOM


def _drawn(picture: Picture, finding: str | None, blocks: list[Block], edge: float) -> None:
    """The finding and the blocks, from the top.

    edge: the efficiency at which the axes end.
    """
    picture.head(finding)
    width, height = picture.get_size_inches()
    top = height - head_height(finding, WIDTH)
    beyond = any(rows["efficiency"].gt(RIGHTMOST).any() for _, jobs in blocks for _, rows in jobs)
    for block in blocks:
        heading, jobs = block
        if heading:
            picture.text(0.1 / width, (top - 0.08) / height, heading, va="top", ha="left", fontsize=9.5, fontweight="bold")
        marks = pd.concat([rows for _, rows in jobs])
        keys_top = top - (HEADING if heading else 0.0) + 0.05
        _legend(picture, marks, keys_top / height)
        bottom = top - _block_height(block) + BOTTOM
        right = BESIDE if beyond else SIDE
        rows_height = _rows_height(block)
        ax = picture.add_axes((SIDE / width, bottom / height, (width - SIDE - right) / width, rows_height / height))
        _rows(ax, jobs, rows_height, edge)
        top -= _block_height(block)


def _rows(ax: Axes, jobs: list[Job], inside: float, edge: float) -> None:
    """A block's rows; heights within the axes are inches, of which there are `inside`."""
    ax.axvline(100, color=INK, linewidth=0.8, alpha=0.5)
    ax.set_xlim(0, 100 * edge)
    ax.set_ylim(0, inside)
    top, heads = inside, []
    for name, rows in jobs:
        heads.append(top - 0.02)
        _row(ax, top - 0.05 - NAME * len(_lines(name)), rows, edge)
        top -= _row_height(name, rows)
        ax.axhline(top, color=INK, linewidth=0.6, alpha=0.12)
    ax.set_yticks(heads, ["\n".join(_lines(name)) for name, _ in jobs], ha="left", va="top", fontsize=8)
    ax.tick_params(axis="y", length=0, pad=-2)
    ax.tick_params(axis="x", top=True, labeltop=True)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("efficiency (%)")


def _cut(marks: pd.DataFrame, edge: float) -> pd.DataFrame:
    """The marks within the axis whose intervals are not."""
    return marks[marks["efficiency"].le(RIGHTMOST) & (marks["efficiency_high"].gt(edge) | marks["efficiency_low"].lt(0))]


def _other_forms(marks: pd.DataFrame) -> str:
    """For a caption: of how many marks the best single device ran in another form of execution."""
    forms = marks["best_single"].str.rsplit(", ", n=1).str[-1]
    others = forms[forms != marks["execution"]]
    if others.empty:
        return ""
    names = "; ".join(sorted({execution_text(form) for form in others}))
    return (
        f"For {len(others)} of {plural(len(marks), 'mark')} that way is another form of execution ({names}): "
        "what they lack may be that form's gain and not scaling; the data name it. "
    )


def _hollow(marks: pd.DataFrame) -> str:
    return "Hollow: TensorFlow. " if marks["framework"].nunique() > 1 else ""


def _above_ceiling(jobs: list[Job]) -> str:
    """For a caption: how many eager marks lie above their job's independent replicas, which send nothing, and why they can."""
    above, beside = 0, 0
    for _, rows in jobs:
        ceiling = rows[rows["placement"].eq("independent") & rows["execution"].eq("eager")].set_index("framework")["efficiency"]
        own = rows[rows["placement"].ne("independent") & rows["execution"].eq("eager")]
        own = own[own["framework"].isin(ceiling.index)]
        beside += len(own)
        above += sum(row["efficiency"] > ceiling[row["framework"]] for _, row in own.iterrows())
    if not above:
        return ""
    verb = "lies" if above == 1 else "lie"
    return (
        f"{above} of {plural(beside, 'eager mark')} beside independent replicas {verb} above them, though these send nothing: eager steps "
        "wait for their host, whose speed differs between the launches that measured them. "
    )


def _jobs(drawn: pd.DataFrame, every: bool, most: bool = True) -> list[Job]:
    """Each job's rows on the most devices, by model and batch; of several machines fewer devices first, and no name of a machine.

    Args:
        every: also what was not measured on one device, since its baseline is another line's. most: False keeps all numbers of devices.
    """
    found: list[pd.DataFrame] = []
    for _, panel in panels(drawn):
        lines = panel[panel["devices"] > 1] if every else several_devices(panel)
        if len(lines):
            found.append(lines)
    marks = pd.concat(found).assign(machine="") if found else drawn.iloc[:0]
    found = [lines[lines["devices"] == lines["devices"].max()] for lines in found] if most else found
    names = {index: name for name, panel in panels(marks) for index in panel.index}  # by what tells these rows apart, and no machine
    models = list(MODEL_NAMES)

    def order(job: Job) -> tuple[int, int, int]:
        first = job[1].iloc[0]
        return models.index(first["model"]) if first["model"] in models else len(models), int(first["batch_size"]), int(first["devices"])

    return sorted(((names[rows.index[0]], rows) for rows in found), key=order)


def _legend(picture: Picture, marks: pd.DataFrame, top: float) -> None:
    """The placements of a block, in as many lines as the picture's width needs; `top`: a share of the picture's height."""
    keys = [_key(name) for name in sorted(set(marks["placement"]), key=lambda name: look(name).order)]
    picture.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(0.04 / picture.get_size_inches()[0], top),
        ncols=_keys_a_line(marks),
        columnspacing=1.2,
        borderpad=0,
        labelspacing=0.25,
        handletextpad=0.4,
    )


def _key(placement: str) -> Line2D:
    style = look(placement)
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", markersize=5, label=style.label)


def _row(ax: Axes, top: float, rows: pd.DataFrame, edge: float) -> None:
    """One job's marks below `top`, a little below each other in the order of all pages; what lies beyond the edge is written there."""
    ordered = rows.assign(_order=[look(name).order for name in rows["placement"]]).sort_values("_order")
    top -= MARK * (0.5 if len(ordered) > 1 else 1)
    for index, (_, row) in enumerate(ordered.iterrows()):
        style, y = look(row["placement"]), top - MARK * index
        if row["efficiency"] > RIGHTMOST:
            text = f"▸ {percent_text(row['efficiency'])}"
            ax.text(1.01, y, text, transform=ax.get_yaxis_transform(), color=style.colour, fontsize=8, va="center")
            continue
        if not missing(row["efficiency_low"]):
            low, high = (100 * row[f"efficiency_{end}"] for end in ("low", "high"))
            ends = [max(low, 0.0), min(high, 100 * edge)]
            ax.plot(ends, [y, y], color=style.colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt")
            for end, arrow in [(0.0, CARETLEFT)] * (low < 0) + [(100 * edge, CARETRIGHT)] * (high > 100 * edge):
                ax.plot([end], [y], marker=arrow, color=style.colour, markersize=5, linestyle="none", clip_on=False)
        ax.plot(
            *([100 * row["efficiency"]], [y]),
            marker=style.marker,
            color=style.colour,
            markersize=4.5,
            linestyle="none",
            zorder=3,
            **_fill(row),
        )


def _fill(row: Any) -> dict[str, Any]:
    """How a mark is filled: not in TensorFlow, half where it or its baseline was measured once."""
    if row["framework"] == "tensorflow":
        return {"mfc": "none", "mew": 1.3}
    return {"fillstyle": "left", "markerfacecoloralt": "none", "mew": 0.8} if missing(row["efficiency_low"]) else {}


def _finding(marks: pd.DataFrame) -> str | None:
    """Of the two placements that were repeated for most jobs within AGREE, in how many each keeps `WELL` of perfect scaling."""
    own = marks[(marks["placement"] != "independent") & narrow(marks, "efficiency")]
    often = own["placement"].value_counts()
    if len(often) < 2:
        return None
    chosen = sorted(sorted(often.index, key=lambda name: (-often[name], look(name).order))[:2], key=lambda name: look(name).order)
    parts = []
    for name in chosen:
        rows = own[own["placement"] == name]
        parts.append(f"{look(name).label} in {int(rows['efficiency_low'].ge(WELL).sum())} of {len(rows)}")
    counts = sorted({int(count) for count in own["devices"]})
    on = (
        devices_text(counts[-1], own["device_type"].iloc[0]) if len(counts) == 1 else f"2 to {counts[-1]} GPUs" if counts[0] == 2 else "all"
    )
    return f"On {on}, jobs repeated within {AGREE:.0%} that keep {WELL:.0%} of perfect scaling: {joined(parts)}"


def _told(name: str, rows: pd.DataFrame) -> str:
    def text(row: Any) -> str:
        return f"{look(row['placement']).label} {percent_text(row['efficiency'], row['efficiency_low'], row['efficiency_high'])}"

    return f"{name}: " + ", ".join(text(row) for _, row in rows.sort_values("efficiency", ascending=False).iterrows())
