"""Staged variables on the page on training: each run beside the one that differs from it in nothing but the age of its gradients."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.picture import Picture, Shown, message, paragraphs
from multigpu.analysis.style import RC, in_order, look
from multigpu.analysis.tables import tables_by
from multigpu.analysis.training import WINDOW, curve_distance, job_name, windowed
from multigpu.analysis.wording import MODEL_NAMES, joined, plural
from multigpu.training.joined import staged_twins

NOTHING = (
    "No run with staged variables has been trained yet: `python -m multigpu train --grid training_staged_cpu` trains them on CPUs in ten "
    "minutes of two cores, and `--grid training_models` on one GPU."
)
JOB = ["machine", "model", "inputs", "devices", "batch_size", "epochs", "rate_scaling", "schedule", "precision", "execution"]
EQUAL = [*JOB, "scaling", "processes", "base_rate", "seed"]
"""What a staged run and its twin have in common: everything but the placement."""


def staged_pairs(frame: pd.DataFrame, curves: pd.DataFrame, reach: pd.DataFrame) -> pd.DataFrame:
    """A row a staged run that has its twin: columns of EQUAL, staged and twin (placements), level (a share of held-out items), distance
    (of the two curves, as `curve_distance`), and of both, the twin's with the suffix _twin: key, steps, last_loss, accuracy, diverged,
    steps_to (steps to the level; NaN: never).

    frame, curves, reach: as `training_page.Seen` has them.
    """
    levels = reach.drop_duplicates("key").set_index("key")
    own = frame[frame["status"] == "ok"].assign(
        level=frame["key"].map(levels["level"]), steps_to=frame["key"].map(levels["steps"]).astype("float64")
    )
    own = own[[*EQUAL, "placement", "key", "steps", "last_loss", "accuracy", "diverged", "level", "steps_to"]]
    staged = own[own["placement"].isin(staged_twins())]
    staged = staged.assign(twin=staged["placement"].map(staged_twins())).rename(columns={"placement": "staged"})
    twins = own.rename(columns={"placement": "twin"}).drop(columns="level")
    pairs = staged.merge(twins, on=[*EQUAL, "twin"], suffixes=("", "_twin"))
    losses = losses_of(curves)
    distances = [curve_distance(losses[a], losses[b]) for a, b in zip(pairs["key"], pairs["key_twin"], strict=True)]
    return pairs.assign(distance=pd.Series(distances, index=pairs.index, dtype="float64"))


def losses_of(curves: pd.DataFrame) -> dict[Any, np.ndarray]:
    """The loss at every point, by key."""
    return {key: group["loss"].to_numpy() for key, group in curves.groupby("key")}


def between_seeds(pairs: pd.DataFrame, curves: pd.DataFrame) -> float:
    """The median distance of two seeds of the twin, of pairs that differ in their seed alone: how far luck leads. NaN: one seed."""
    losses = losses_of(curves)
    found = [curve_distance(losses[a], losses[b]) for a, b in combinations(dict.fromkeys(pairs["key_twin"]), 2)]
    return float(np.median(found)) if found else math.nan


def staged_said(pairs: pd.DataFrame, curves: pd.DataFrame) -> Shown:
    """What staging does to each job at each rate, and whether it matters where the staged variables are; nothing without a pair."""
    said: list[str | None] = []
    for job, own in _jobs(pairs):
        effects = [f"at a rate of {rate:g} {_effect(at)}" for rate, at in own.groupby("base_rate")]
        said.append(f"{job[:1].upper()}{job[1:]}, variables one step old, scored every epoch: {'; '.join(effects)}.")
        said += [_where(rate, at, curves) for rate, at in own.groupby("base_rate")][:1]
    return paragraphs(*said, kind="said")


def _where(rate: Any, own: pd.DataFrame, curves: pd.DataFrame) -> str | None:
    """Whether it matters where the variables live: the median distance of two placements of one seed, staged and not, beside staging's."""
    losses = losses_of(curves)
    groups = [at for _, at in own.groupby("seed")]
    staged, fresh = (
        [curve_distance(losses[a], losses[b]) for at in groups for a, b in combinations(at[name], 2)] for name in ("key", "key_twin")
    )
    if not staged:
        return None
    return (
        f"There, at a rate of {rate:g}, two placements of variables lie {np.median(staged):.2g} of the loss apart where they stage and "
        f"{np.median(fresh):.2g} where they do not (medians of {plural(len(staged), 'pair')} of one seed, at the windows furthest apart); "
        f"staging lies {own['distance'].median():.2g} of it from not staging."
    )


def _jobs(pairs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Every job with its name, the one of most pairs first."""
    groups: Any = pairs.groupby(JOB, sort=False, dropna=False)
    found = [(_job_text(own.iloc[0]), own) for _, own in groups]
    return sorted(found, key=lambda each: -len(each[1]))


def _job_text(row: pd.Series) -> str:
    return f"{job_name(row['model'], row['inputs'])}, {plural(int(row['devices']), 'device' if 'cpu' in row['machine'] else 'GPU')}"


def _effect(own: pd.DataFrame) -> str:
    """Of pairs at one rate: steps to the level, beside the twin's."""
    level, reached, twins = own["level"].iloc[0], int(own["steps_to"].notna().sum()), int(own["steps_to_twin"].notna().sum())
    if pd.isna(level):
        return f"the last loss is {own['last_loss'].mean():.3g}, and {own['last_loss_twin'].mean():.3g} without staging"
    if not twins:
        return (
            f"{reached} of {plural(len(own), 'run')} reach {level:.0%} and none without staging" if reached else f"none reaches {level:.0%}"
        )
    twin = f"{own['steps_to_twin'].mean():,.0f} steps{'' if twins == len(own) else f' ({twins} of {len(own)})'}"
    if not reached:
        how = "it never reaches" if len(own) == 1 else f"none of {len(own)} runs reaches"
        return f"{how} {level:.0%}, which takes {twin} without staging"
    some = "" if reached == len(own) else f" ({reached} of {len(own)} runs)"
    return f"it takes {own['steps_to'].mean():,.0f} steps{some} to {level:.0%}, and {twin} without staging"


def _finding(pairs: pd.DataFrame) -> str | None:
    """Of the job with most pairs: how many times the steps at every rate at which all get there, and where they do not."""
    _, own = _jobs(pairs)[0]
    if own["level"].isna().all() or own["steps_to_twin"].isna().any():
        return None
    level, parts = own["level"].iloc[0], []
    for rate, at in own.groupby("base_rate"):
        reached = int(at["steps_to"].notna().sum())
        if reached == len(at):
            parts.append(
                f"takes {at['steps_to'].sum() / at['steps_to_twin'].sum():.2g} times the steps to {level:.0%} at a rate of {rate:g}"
            )
        else:
            how = "never gets" if not reached else f"in {reached} of {len(at)} runs gets"
            parts.append(f"{how} {f'to {level:.0%}' if not parts else 'there'} at {rate:g}")
    return f"one step stale, {MODEL_NAMES.get(str(own['model'].iloc[0]), str(own['model'].iloc[0]))} {joined(parts)}"


def figure_staged(pairs: pd.DataFrame, curves: pd.DataFrame) -> Picture:
    """Training loss against epochs with staged variables and without, a panel a job and rate, a line a run."""
    if pairs.empty:
        return message(NOTHING)
    panels = [(f"{job}, rate {rate:g}", at) for job, own in _jobs(pairs) for rate, at in own.groupby("base_rate")]
    names, drawn = [name for name, _ in panels], []
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(panels), _finding(pairs), 3.4, 2.1, 2, legend=True, names=names)
        for ax, (name, own) in zip(axes, panels, strict=True):
            name_panel(ax, name)
            for placement, key in [*own[["twin", "key_twin"]].to_numpy(), *own[["staged", "key"]].to_numpy()]:
                line = curves[curves["key"] == key]
                loss = windowed(line["loss"].to_numpy())
                epochs = line["epoch"].to_numpy()[np.minimum(np.arange(1, len(loss) + 1) * WINDOW, len(line)) - 1]
                ax.plot(epochs, loss, color=look(placement).colour, linestyle=_dashes(placement), linewidth=1.2)
                drawn.append(pd.DataFrame({"panel": name, "placement": placement, "key": key, "epoch": epochs, "loss": loss}))
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.set_xlabel("epochs")
        axes[0].set_ylabel(f"training loss, mean of {WINDOW} points")
        shown = in_order({*pairs["twin"], *pairs["staged"]})
        handles = [Line2D([], [], color=look(p).colour, linestyle=_dashes(p), label=look(p).label) for p in shown]
        picture.legend_line(handles)
    seeds = pairs.groupby([*JOB, "base_rate"], dropna=False)["seed"].nunique()
    picture.caption = (
        "A line a run; broken lines: variables one step old. A staged run and its twin differ in nothing else. "
        f"{_least_to_most(seeds)} a panel; one is screening. {', '.join(dict.fromkeys(pairs['machine']))}."
    )
    picture.data = pd.concat(drawn, ignore_index=True)
    picture.alt = f"Training loss against epochs with variables one step old beside fresh ones. {picture.finding}"
    return picture


def _least_to_most(seeds: pd.Series) -> str:
    low, high = int(seeds.min()), int(seeds.max())
    return plural(low, "seed") if low == high else f"{low} to {plural(high, 'seed')}"


def _dashes(placement: str) -> Any:
    return (0, (4, 1.6)) if placement in staged_twins() else "-"


def staged_table(pairs: pd.DataFrame, curves: pd.DataFrame) -> Shown:
    """Every staged placement beside its twin, a row a job and rate: means over seeds."""
    rows = []
    for job, own in _jobs(pairs):
        groups: Any = own.groupby(["base_rate", "staged"], sort=True)
        for (rate, staged), at in groups:
            luck, far = between_seeds(at, curves), at["distance"].median()
            rows.append(
                {
                    "Job": job,
                    "Rate": f"{rate:g}",
                    "Placement": look(staged).label,
                    "Beside": look(at["twin"].iloc[0]).label,
                    "Seeds": f"{at['seed'].nunique()}",
                    "Last loss": _beside(at["last_loss"].mean(), at["last_loss_twin"].mean(), ".3f") + _diverged(at),
                    "Accuracy": _beside(at["accuracy"].mean(), at["accuracy_twin"].mean(), ".1%"),
                    "Level": "" if pd.isna(at["level"].iloc[0]) else f"{at['level'].iloc[0]:.0%}",
                    "Steps to it": "" if pd.isna(at["level"].iloc[0]) else f"{_steps(at['steps_to'])}; {_steps(at['steps_to_twin'])}",
                    "Distance of curves": _two_digits(far),
                    "Of seeds": "" if math.isnan(luck) else _two_digits(luck),
                }
            )
    note = (
        "Staged; beside it. Means over seeds. Last loss: of the last tenth. Level: 95% of the best accuracy of the job, at both rates; "
        "steps as evaluations after every epoch tell, means of those that reach it. Distance: the largest relative difference of means "
        f"over {WINDOW} points, the median over seeds; of seeds: the median distance of two seeds of the twin."
    )
    right = ["Rate", "Seeds", "Last loss", "Accuracy", "Level", "Steps to it", "Distance of curves", "Of seeds"]
    return tables_by(pd.DataFrame(rows), "Job", note, right) if rows else paragraphs(kind="said")


def _beside(staged: float, twin: float, form: str) -> str:
    return "" if pd.isna(staged) and pd.isna(twin) else f"{staged:{form}}; {twin:{form}}"


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def _diverged(at: pd.DataFrame) -> str:
    count = int(at["diverged"].sum())
    return f" ({count} diverged)" if count else ""


def _steps(values: pd.Series) -> str:
    """Mean of those that reached the level, and how many, where some did not."""
    known = values.dropna()
    return "never" if known.empty else f"{known.mean():,.0f}" + ("" if len(known) == len(values) else f" ({len(known)} of {len(values)})")
