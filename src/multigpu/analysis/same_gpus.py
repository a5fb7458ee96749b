"""Do machines with the same GPUs agree? Runs that two of them measured, and how far their steps are apart.

`multigpu.same_gpus` reads the Records of such machines as one where a step needs only GPUs and did not wait for its host. Here is what
that rests on: Runs of both kinds, on both machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from multigpu.analysis.picture import Picture, head_height, message
from multigpu.analysis.style import INK, PALETTE, RC
from multigpu.analysis.wording import FRAMEWORK_NAMES, execution_text, percent_text, plural
from multigpu.older_programs import compiled_in_blocks
from multigpu.record import Record
from multigpu.same_gpus import ALIKE, STEADY, alike, kept_ahead, kind_of, needs_only_gpus, step_width

COLUMNS = {
    **dict.fromkeys(("run", "model", "framework", "execution", "gpu", "main", "other"), "string"),
    **dict.fromkeys(("devices", "main_n", "other_n"), "int64"),
    **dict.fromkeys(("main_step_s", "other_step_s", "ratio", "width"), "float64"),
    **dict.fromkeys(("steady", "joins", "only_gpus"), "bool"),
    "keys": "string",
}


def both_measured(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run that machines with the same GPUs measured (not traced), for each machine beside the one with most GPUs.

    Args:
        records: as they were measured, not read `as_one`. What was `compiled_in_blocks` is left out: it was another program.

    Returns:
        run (in words), its fields, gpu, main and other (machines), their repeats and median step times in seconds, ratio (of other over
        main), width (`step_width` of the other's, median over its repeats), only_gpus (`needs_only_gpus`), steady (whether such a Run
        waited for nothing by the other's Records alone, `kept_ahead`), joins (whether these are read as main's), keys (of all Records).
    """
    found: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in records:
        if kind_of(record.machine) and record.status == "ok" and not record.run.traced_steps and not compiled_in_blocks(record):
            found.setdefault((record.run.digest, kind_of(record.machine)), {}).setdefault(record.machine.name, []).append(record)
    rows = []
    for (_, gpu), machines in found.items():
        names = sorted(machines, key=lambda name: (-len(machines[name][0].machine.gpus), name))
        for name in names[1:]:
            main, other = machines[names[0]], machines[name]
            run, steps = other[0].run, [median(_step_s(record) for record in own) for own in (main, other)]
            only_gpus = needs_only_gpus(run)
            steady = only_gpus and kept_ahead(other)
            rows.append(
                {"run": run.label(), "model": run.model, "framework": run.framework, "execution": run.execution, "gpu": gpu}
                | {"main": names[0], "other": name, "devices": run.devices, "main_n": len(main), "other_n": len(other)}
                | {"main_step_s": steps[0], "other_step_s": steps[1], "ratio": steps[1] / steps[0]}
                | {"width": median(step_width(record) for record in other), "only_gpus": only_gpus}
                | {
                    "steady": steady,
                    "joins": steady and alike([*main, *other]),
                    "keys": ", ".join(record.key for record in (*main, *other)),
                }
            )
    table = {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    return pd.DataFrame(table).sort_values(["joins", "ratio"], ascending=[False, True], ignore_index=True)


def _step_s(record: Record) -> float:
    assert record.measurement
    return record.measurement.wall_s / record.run.timed_steps


def agreement_sentences(table: pd.DataFrame) -> list[str]:
    """What the machines agree on, and what they do not."""
    table = table[table["only_gpus"]]
    if table.empty:
        return ["No Run that needs only GPUs was measured on two machines with the same GPUs."]
    steady, waits = table[table["steady"]], table[~table["steady"]]
    said = []
    if len(steady):
        graphs = steady[steady["execution"].isin(("captured", "compiled_captured"))]
        first = f", {len(graphs)} of them whole CUDA graphs," if len(graphs) else ""
        apart = int((~steady["joins"]).sum())
        but = f", but for {apart} whose repeats on both differ by more than {percent_text(ALIKE)}: one of the two waited" if apart else ""
        said.append(
            f"{plural(len(steady), 'Run')}{first} that need only GPUs and by the second machine's repeats did not wait for its host took "
            f"{_between(steady)} as long on it, {steady['ratio'].median():.3f} times in the median. Such Records are read as one "
            f"machine's{but}."
        )
    if len(waits):
        said.append(
            f"{plural(len(waits), 'Run')} whose steps or launches vary, that have one launch, or whose GPUs wait for each other, took "
            f"{_between(waits)} as long, {waits['ratio'].median():.2f} times in the median, on the same GPUs: such figures are the host's "
            "too and stay with it."
        )
    return said


def _between(table: pd.DataFrame) -> str:
    return f"{table['ratio'].min():.3f} to {table['ratio'].max():.3f} times"


def figure_agreement(table: pd.DataFrame) -> Picture:
    """A mark a Run: how wide the middle half of its steps is on the other machine, and how much longer they take there."""
    table = table[table["only_gpus"]].reset_index(drop=True)
    if table.empty:
        return message("No Run that needs only GPUs was measured on two machines with the same GPUs.")
    steady, waits = table[table["steady"]], table[~table["steady"]]
    parts = [f"steady steps agree to {percent_text(float((steady['ratio'] - 1).abs().max()))}"] if len(steady) else []
    parts += [f"other steps differ by up to {percent_text(float((waits['ratio'] - 1).abs().max()))}"] if len(waits) else []
    finding = "on the same GPUs " + ", ".join(parts)
    ways = table.groupby(["framework", "execution"], sort=True)
    width, height = 6.4, 3.4
    with mpl.rc_context(RC):
        picture = Picture(width, height)
        picture.head(finding)
        top = head_height(finding, width) + 0.3
        ax = picture.add_axes((0.75 / width, 0.55 / height, (width - 1.0) / width, (height - top - 0.55) / height))
        handles = []
        for (_, own), colour, marker in zip(ways, PALETTE, "osX^vDP", strict=False):
            label = ", ".join((FRAMEWORK_NAMES[own["framework"].iloc[0]], execution_text(own["execution"].iloc[0])))
            ax.plot(own["width"], own["ratio"], marker=marker, color=colour, linestyle="none", markersize=4.5, alpha=0.8)
            handles.append(Line2D([], [], marker=marker, color=colour, linestyle="none", label=label))
        ax.axhline(1, color=INK, linewidth=0.8)
        ax.axvline(STEADY, color=INK, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.set_xscale("log")
        ticks = [tick for tick in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3) if table["width"].min() / 2 < tick < table["width"].max() * 2]
        ax.set_xticks(ticks)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("width of the middle half of the steps / median, on the other machine")
        ax.set_ylabel("step there / step here")
        picture.legend_line(handles)
    machines = "; ".join(f"{other} against {main}" for main, other in dict.fromkeys(zip(table["main"], table["other"], strict=True)))
    counts = f"{table['main_n'].min()} to {table['main_n'].max()} and {table['other_n'].min()} to {table['other_n'].max()}"
    picture.caption = (
        f"A mark a Run that needs only GPUs ({machines}); medians of {counts} repeats. Left of the broken line steps are steady within "
        "a launch; read as one machine's are whole CUDA graphs, and of these Runs those that are as long in every launch."
    )
    picture.alt = f"{len(table)} Runs of two machines with the same GPUs, by how much their steps vary; {finding}."
    picture.data = table.assign(**{name: np.where(table[name], "yes", "no") for name in ("steady", "joins")})
    return picture
