"""A model's graph of stages, coloured by the device that runs each, a panel a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC
from multigpu.placements.traffic import HOST
from multigpu.stages.graph import StageGraph

COLOURS = {HOST: ("#808080", "..."), 0: ("#0072b2", ""), 1: ("#d55e00", "///"), 2: ("#009e73", "\\\\"), 3: ("#cc79a7", "xx")}
"""Of each place: colour and hatch."""

LANE, STEP, HIGH = 1.0, 1.0, 0.56


def place_name(place: int) -> str:
    """A place in words: "GPU 1", or "host"."""
    return "host" if place == HOST else f"GPU {place}"


def figure_stages(graph: StageGraph, panels: Mapping[str, Mapping[str, int]], rows: int) -> Picture:
    """The graph under each placement of `panels` (name -> stage -> place), with the bytes that cross for a batch of `rows`."""
    if not panels:
        return message("No placement to draw.")
    spots = positions(graph)
    wide = max(x for x, _ in spots.values())
    names = [f"{name}: {_moved(graph, places, rows)}" for name, places in panels.items()]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(panels), None, 5.6, 1.25, 1, left=0.1, legend=True, names=names, row_gap=0.35)
        for ax, name, places in zip(axes, names, panels.values(), strict=True):
            name_panel(ax, name)
            _draw(ax, graph, spots, places, rows)
            ax.set_xlim(-0.55, wide + 0.55)
            ax.set_ylim(min(y for _, y in spots.values()) - 0.5, max(y for _, y in spots.values()) + 0.5)
            ax.set_axis_off()
        used = sorted({place for places in panels.values() for place in places.values()})
        picture.legend_line(
            [Patch(facecolor=COLOURS[p][0], hatch=COLOURS[p][1], edgecolor=INK, linewidth=0.4, label=place_name(p)) for p in used]
        )
    picture.data = pd.DataFrame(
        [
            {"panel": name, "stage": stage.name, "place": place_name(places[stage.name]), "reads": ", ".join(stage.inputs)}
            for name, places in panels.items()
            for stage in graph.stages
        ]
    )
    picture.caption = (
        f"Stages of the model's forward pass for {rows} rows; each runs, and keeps its variables, on the device of its "
        "colour. Bold arrows cross between devices, with the tensor's MiB; its gradient travels back."
    )
    picture.alt = "; ".join(
        f"{name}: " + ", ".join(f"{stage.name} on {place_name(places[stage.name])}" for stage in graph.stages)
        for name, places in panels.items()
    )
    return picture


def positions(graph: StageGraph) -> dict[str, tuple[float, float]]:
    """Where each stage is drawn: as far right as the longest way to it, a line for each tower; what joins them between."""
    towers: Sequence[str] = list(dict.fromkeys(stage.tower for stage in graph.stages if stage.tower))
    found: dict[str, tuple[float, float]] = {}
    for stage in graph.stages:
        x = max((found[name][0] for name in stage.inputs), default=-STEP) + STEP
        y = -LANE * towers.index(stage.tower) if stage.tower else -LANE * (len(towers) - 1) / 2
        found[stage.name] = (x, y)
    return found


def _moved(graph: StageGraph, places: Mapping[str, int], rows: int) -> str:
    moved = graph.moved(places, rows).get("device_to_device", 0)
    crossings = [one for one in graph.crossings(places, rows) if HOST not in (one.start, one.end)]
    count = sum(1 + one.gradient for one in crossings)
    return f"{count} copies between GPUs a step, {moved / 2**20:.1f} MiB" if count else "nothing crosses between GPUs"


def _draw(ax: Axes, graph: StageGraph, spots: Mapping[str, tuple[float, float]], places: Mapping[str, int], rows: int) -> None:
    for stage in graph.stages:
        x, y = spots[stage.name]
        colour, hatch = COLOURS[places[stage.name]]
        box = FancyBboxPatch(
            (x - 0.4, y - HIGH / 2), 0.8, HIGH, boxstyle="round,pad=0,rounding_size=0.08", facecolor=colour, edgecolor=INK, linewidth=0.5,
            hatch=hatch, alpha=0.35,
        )  # fmt: skip
        ax.add_patch(box)
        label = stage.name.removeprefix(f"{stage.tower}_")
        ax.text(x, y, f"{stage.tower}\n{label}" if stage.tower else label, ha="center", va="center", fontsize=8, linespacing=1.1)
        for name in stage.inputs:
            x0, y0 = spots[name]
            crosses = places[name] != places[stage.name]
            arrow = FancyArrowPatch(
                (x0 + 0.4, y0),
                (x - 0.4, y),
                arrowstyle="-|>",
                mutation_scale=7,
                color=INK,
                linewidth=2.2 if crosses else 0.7,
                shrinkA=0,
                shrinkB=0,
            )
            ax.add_patch(arrow)
            if crosses:
                size = graph.bytes_of(name, rows) / 2**20
                text = f"{size:.1f}" if size >= 0.05 else "<0.1"
                rises = y > y0  # its size stands below it then: above is the other tower's arrow
                ax.text(
                    (x0 + x) / 2 + 0.1 * rises,
                    (y0 + y) / 2 + (-0.3 if rises else 0.33),
                    text,
                    ha="left" if rises else "center",
                    va="top" if rises else "bottom",
                    fontsize=7.5,
                )
