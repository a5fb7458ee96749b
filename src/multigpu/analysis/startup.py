"""From the start of a process to steady steps: start-up, building, the first step, warm-up; and epochs beside throughput."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import matplotlib as mpl
import numpy as np
import pandas as pd

from multigpu.analysis.layout import grid_of_axes, margin_for, rows_from_top
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import in_blocks, ordinary, usual_buckets
from multigpu.analysis.picture import Picture, Shown, folded, message, together
from multigpu.analysis.style import PALETTE, RC
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import of_one_job
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, devices_text, execution_text, joined, percent_text, plural, unbroken
from multigpu.record import Record
from multigpu.workloads.base import Model

CIFAR, IMAGENET = ("CIFAR-10", 50_000), ("ImageNet", 1_281_167)
"""Data sets and how many training images they have."""

GROUP = ["model", "framework", "execution"]
NO_CLOCK = "No Record holds step times by a device's clock."


def warmup_rows(frame: pd.DataFrame, changes: pd.DataFrame) -> pd.DataFrame:
    """The changes of `warmup.warmup_frame` with their Runs' fields."""
    return changes.merge(frame[["key", *GROUP, "devices", "batch_size", "placement", "warmup_steps"]], on="key")


def _name(values: tuple[str, str, str]) -> str:
    model, framework, execution = values
    return f"{MODEL_NAMES.get(model, model)}, {FRAMEWORK_NAMES[framework]}, {execution_text(execution)}"


def warmup_table(rows: pd.DataFrame) -> Shown:
    """Medians by model, framework and execution: what passes before steps are steady."""
    cells = []
    for name, group in rows.groupby(GROUP, sort=True):
        settled = group["settled_step_s"].median()
        cells.append(
            {
                "Runs": unbroken(*_name(name).split(", ")),  # type: ignore[arg-type]
                "Records": str(len(group)),
                "process starts (s)": f"{group['startup_s'].median():.1f}",
                "model is built (s)": f"{group['build_s'].median():.2f}",
                "first step (s)": f"{group['first_step_s'].median():.3f}",
                "of a steady one": f"{group['first_step_s'].median() / settled:,.1f}x",
                "slow steps": f"{group['steps'].median():.0f} ({group['steps'].quantile(0.05):.0f} to {group['steps'].quantile(0.95):.0f})",
                "they take (s)": f"{group['seconds'].median():.3f}",
                "steady from the first": percent_text(float(group["steps"].eq(0).mean())),
                "may reach into timed steps": percent_text(float(group["beyond"].mean())),
            }
        )
    note = (
        "Medians over Records whose steps were timed by the devices' clocks; slow steps with the range of 90% of the Records. A launch's "
        "start is shared by its Runs. May reach into timed steps: the change point's interval ends after the warm-up that was left out."
    )
    right = [name for name in (cells[0] if cells else {}) if name != "Runs"]
    return table_html(pd.DataFrame(cells), right=right, note=note if cells else NO_CLOCK, wide=["Runs"])


def warmup_finding(rows: pd.DataFrame) -> str:
    """Warm-up in steps and seconds over all Records, and where it outlasts what was left out."""
    if rows.empty:
        return NO_CLOCK
    slow = rows[rows["steps"] > 0]
    late = rows[rows["beyond"]]
    where = ", ".join(f"{execution_text(execution)} {plural(len(group), 'Record')}" for execution, group in late.groupby("execution"))
    return (
        f"{percent_text(len(slow) / len(rows))} of {plural(len(rows), 'Record')} begin slower than they go on: for "
        f"{plural(round(slow['steps'].median()), 'step')} and {slow['seconds'].median():.2f} s in the median, at most "
        f"{plural(int(slow['steps'].max()), 'step')} or "
        f"{slow['seconds'].max():.1f} s. "
        f"In {percent_text(len(late) / len(rows))} the end may lie beyond the warm-up that was left out"
        + (f" ({where}), where later steps are {100 * (late['slower'].median() - 1):.0f}% faster in the median." if len(late) else ".")
    )


def warmup_length(rows: pd.DataFrame, execution: str = "captured") -> str | None:
    """How long steps of one form are slower than those that follow, in steps and in seconds; None without any such Record.

    rows: of `warmup_rows`.
    """
    own = rows[rows["execution"].eq(execution)]
    if own.empty:
        return None
    low, high = own["seconds"].quantile(0.05), own["seconds"].quantile(0.95)
    return (
        f"{plural(round(own['steps'].median()), 'step')} and {own['seconds'].median():.2f} s in the median of "
        f"{plural(len(own), f'{execution_text(execution)} Record')} (90% of them {low:.2f} to {high:.2f} s)"
    )


def host_clocked(records: Iterable[Record]) -> str:
    """Which frameworks have no row among warm-ups since the host marks their steps, and how slow their warm-up is as a whole."""
    slower: dict[str, dict[str, list[float]]] = {}
    for record in records:
        run, m = record.run, record.measurement
        if record.status == "ok" and m is not None and m.step_clock == "host" and run.warmup_steps and not run.traced_steps:
            times = m.warmup_s / run.warmup_steps / (m.wall_s / run.timed_steps)
            slower.setdefault(run.framework, {}).setdefault(run.description.unit, []).append(times)
    said = []
    for framework, by_unit in sorted(slower.items()):
        told = [f"{median(times):.1f} with {unit} ({plural(len(times), 'Record')})" for unit, times in sorted(by_unit.items())]
        said.append(
            f"{FRAMEWORK_NAMES[framework]} has no row: its steps are marked by the host's clock, whose marks may lie before the work, so "
            "no change point can be told. Means can: the median ratio of the mean warm-up step to the mean timed one is "
            f"{joined(told)}. Claim C24 compares these means of image models."
        )
    return " ".join(said)


def figure_warmup(rows: pd.DataFrame) -> Picture:
    """Seconds until steps are steady, a row a kind of Run, a point a Record."""
    slow = rows[rows["steps"] > 0]
    if slow.empty:
        return message("No warm-up to draw: no Record begins slower than it goes on.")
    groups = [(_name(name), group) for name, group in slow.groupby(GROUP, sort=True)]  # type: ignore[arg-type]
    medians = {name: float(group["seconds"].median()) for name, group in groups}
    least, most = min(medians, key=lambda name: medians[name]), max(medians, key=lambda name: medians[name])
    finding = f"Warm-up takes {medians[least]:.2f} s ({least}) to {medians[most]:.1f} s ({most}) in the median"
    with mpl.rc_context(RC):
        height = 0.3 * len(groups) + 0.3
        picture, (ax,) = grid_of_axes(1, finding, 3.6, height, left=margin_for(name for name, _ in groups), columns=1)
        for place, (_, group) in enumerate(reversed(groups)):
            # one path a row: thousands of marks, each an element of its own, made this the largest file of all figures
            x = np.repeat(group["seconds"].to_numpy(float), 3)
            x[2::3] = np.nan
            ax.plot(x, np.tile([place - 0.28, place + 0.28, np.nan], len(group)), color=PALETTE[0], linewidth=1, alpha=0.6)
            ax.plot([group["seconds"].median()], [place], "D", color=PALETTE[1], markersize=5)
        ax.set_yticks(range(len(groups)), [name for name, _ in reversed(groups)])
        rows_from_top(ax, len(groups), len(groups))
        ax.set_xscale("log")
        ax.set_xlabel("seconds until steps are steady (log scale)")
    picture.caption = (
        "The sum of the steps before the change point of each Record that has one; diamond: median. Starting processes and building the "
        "model come before. Change point: two levels of logarithmic step times, believed if 95% of random orders fit worse."
    )
    picture.data = slow[["key", *GROUP, "devices", "batch_size", "steps", "low", "high", "seconds", "slower"]].reset_index(drop=True)
    picture.alt = "; ".join(f"{name}: median {group['seconds'].median():.3f} s over {len(group)} Records" for name, group in groups)
    return picture


def epoch_images(model: Model) -> tuple[str, int]:
    """The data set that a model is for, by the classes that it tells apart (LeNet takes small images, of ImageNet's classes), and how many
    training images it has.
    """
    return IMAGENET if model.config.classes > 100 else CIFAR


BLOCKS = "blocks alone"
"""What stands beside a job of whose model torch.compile had the blocks alone."""


def epoch_table(frame: pd.DataFrame) -> Shown:
    """Throughput beside the time of an epoch: the same figure, and what the first epoch takes longer; of points that were repeated, if any
    were, and folded the others.
    """
    from multigpu.workloads import find_model

    frame = ordinary(frame)  # a Run without peer access or with a counter has the same name and another rate
    images = of_one_job(frame[(frame["unit"] == "images") & (frame["framework"] == "torch") & (frame["placement"] == "ddp")])
    images = usual_buckets(images)
    table = summary(images) if len(images) else pd.DataFrame()
    if len(table):
        table = table.sort_values(["model", "precision", "execution", "batch_size", "devices"])
    cells, repeated = [], []
    for _, row in table[table["n"] > 0].iterrows() if len(table) else ():
        own = images[images["key"].isin(row["keys"].split(", "))]
        first_steps = own["warmup_s"] - own["warmup_steps"] * own["step_time_s"]
        before = (own["startup_s"] + own["build_s"] + first_steps).median()
        name, count = epoch_images(find_model(row["workload"], row["model"]))
        cells.append(
            {
                "job": unbroken(
                    MODEL_NAMES.get(row["model"], row["model"]),
                    f"batch {row['batch_size']}",
                    f"{row['precision']}, {execution_text(row['execution'])}",
                    *([BLOCKS] if in_blocks(own).any() else []),
                ),
                "on": devices_text(row["devices"], row["device_type"]),
                "images/s": f"{row['rate']:,.0f}",
                "data set": name,
                "an epoch (s)": f"{count / row['rate']:,.1f}",
                "before the first one (s)": f"{before:,.1f}",
                "of it first steps (s)": f"{first_steps.median():,.1f}",
                "that is": f"{100 * before / (count / row['rate']):,.1f}% of an epoch",
                "n": str(row["n"]),
            }
        )
        repeated.append(row["tier"] == "headline")
    note = (
        "An epoch: training images of the data set over images/s; nothing but steps. Before: starting processes, building, and what the "
        "first steps take beyond as many steady ones (choosing algorithms, compiling, capturing), medians each. The time of an epoch "
        "depends on the data set, throughput does not."
    )
    if any(BLOCKS in cell["job"].replace("\u00a0", " ") for cell in cells):
        note += f" {BLOCKS.capitalize()}: compiled before whole models were, and not to be compared with those."
    right = ["images/s", "an epoch (s)", "before the first one (s)", "of it first steps (s)", "that is", "n"]
    if not cells:
        return table_html(pd.DataFrame(), note="No Record of an image model.")
    every, chosen = pd.DataFrame(cells), pd.Series(repeated)
    if chosen.all() or not chosen.any():
        return table_html(every, right=right, note=note, wide=["job"])
    shown, rest = (table_html(every[which], right=right, note=text, wide=["job"]) for which, text in ((chosen, note), (~chosen, "")))
    few = f"{plural(int((~chosen).sum()), 'point')} measured too few times for an interval"
    return together(shown, folded(few, rest))
