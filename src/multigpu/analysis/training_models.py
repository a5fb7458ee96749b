"""Document 001's models on small images, trained alike on one GPU: what each reaches, and what it takes to a level that all are held to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from multigpu.analysis.layout import grid_of_axes, label_lines, margin_for, name_panel
from multigpu.analysis.picture import Picture, Shown, message, paragraphs
from multigpu.analysis.style import CEILING, PALETTE, RC
from multigpu.analysis.tables import tables_by
from multigpu.analysis.training import INPUT_NAMES, reach_frame
from multigpu.analysis.wording import MODEL_NAMES, joined, plural
from multigpu.conditions import LEAST_ENERGY_S
from multigpu.training.record import TrainingRecord

NOTHING = (
    "Document 001's models on small images have not been trained side by side yet: `python -m multigpu train --grid training_models` does "
    "so on one GPU in about six minutes."
)
LEAST_MODELS = 3
"""Models that make a comparison of them."""
LEVEL_SHARE = 0.95
"""The level that all are held to is this share of the best accuracy that any of them reached, in whole percent."""

ALIKE = ["machine", "inputs", "joined_batch", "epochs", "execution", "seed"]
"""What is equal of runs whose models are compared; rates are each model's own."""


def alike(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs of `frame` that compare models: ddp on one GPU at a constant rate, of at least LEAST_MODELS models trained alike."""
    where = {"status": "ok", "placement": "ddp", "devices": 1, "device_type": "cuda", "schedule": "constant", "rate_scaling": "none"}
    own = frame[pd.concat([frame[name] == value for name, value in where.items()], axis=1).all(axis=1) & frame["accuracy"].notna()]
    own = own[own["scaling"] == "weak"]  # strong scaling is the one model under every placement
    return own[own.groupby(ALIKE)["model"].transform("nunique") >= LEAST_MODELS] if len(own) else own


def model_points(records: Iterable[TrainingRecord], frame: pd.DataFrame) -> pd.DataFrame:
    """A row a run of `alike`: its columns of `training_frame`, and level (a share of held-out images, one for all that are compared),
    steps_to, seconds_to (of training, on one GPU: GPU-seconds; NaN: never), power_w (mean of the whole run; NaN where the run is too short
    for the counters, or has none), joules_to (power_w times seconds_to).
    """
    own, by_key = alike(frame), {record.key: record for record in records}
    parts = []
    groups: Any = own.groupby(ALIKE, sort=False)
    for _, group in groups:
        level = math.floor(100 * LEVEL_SHARE * group["best_accuracy"].max()) / 100
        found = reach_frame([by_key[key] for key in group["key"]], [level])[["key", "level", "steps", "seconds"]]
        parts.append(group.merge(found.rename(columns={"steps": "steps_to", "seconds": "seconds_to"}), on="key"))
    if not parts:
        return own.assign(**{name: pd.Series(dtype="float64") for name in ("level", "steps_to", "seconds_to", "power_w", "joules_to")})
    table = pd.concat(parts, ignore_index=True)
    long_enough = table["energy_s"] >= LEAST_ENERGY_S
    table["power_w"] = (table["energy_j"] / table["energy_s"]).where(long_enough)
    return table.assign(joules_to=table["power_w"] * table["seconds_to"])


def finding_of(points: pd.DataFrame) -> str | None:
    """Which model is first at the level, and which reaches most in the end."""
    reached = points[points["seconds_to"].notna()]
    if reached.empty:
        return None
    by_time, most = reached.sort_values("seconds_to", kind="stable"), points.sort_values("accuracy", kind="stable").iloc[-1]
    first, slow = by_time.iloc[0], by_time.iloc[-1]
    said = f"{_name(first)} is first at {first['level']:.0%}, after {first['seconds_to']:.1f} s of one GPU"
    if slow["key"] != first["key"]:
        said += f", {slow['seconds_to'] / first['seconds_to']:.0f} times sooner than {_name(slow)}"
    return f"{said}; {_name(most) if most['key'] != first['key'] else 'it'} reaches most, {most['accuracy']:.1%}"


def _name(row: pd.Series) -> str:
    return f"{MODEL_NAMES.get(row['model'], row['model'])} in {row['precision']}"


def models_said(points: pd.DataFrame) -> Shown:
    """What bf16 leaves of accuracy, model by model, and which models never reach the level; nothing without Records."""
    wide = points.pivot_table(index=["machine", "inputs", "model"], columns="precision", values="accuracy", sort=False)
    said = []
    if {"bf16", "fp32"} <= set(wide.columns):
        apart = (wide["bf16"] - wide["fp32"]).dropna()
        said.append(
            f"In bf16 {plural(len(apart), 'model')} {'ends' if len(apart) == 1 else 'end'} {100 * apart.min():+.1f} to "
            f"{100 * apart.max():+.1f} percentage points of accuracy from fp32, one run each (screening)."
        )
    never = points[points["seconds_to"].isna()]
    if len(never):
        said.append(f"{joined([_name(row) for _, row in never.iterrows()])} never reach{'es' if len(never) == 1 else ''} the level.")
    return paragraphs(*said, kind="said")


def figure_models(points: pd.DataFrame, scores: pd.DataFrame) -> Picture:
    """Held-out accuracy against seconds of training, a panel a precision, a line a model. scores: of `scores_frame`."""
    if points.empty:
        return message(NOTHING)
    first = points[(points["machine"] == points["machine"].iloc[0]) & (points["inputs"] == points["inputs"].iloc[0])]
    panels = list(dict.fromkeys(first["precision"]))
    models = list(dict.fromkeys(first.sort_values("units_per_s", ascending=False)["model"]))
    colours = dict(zip(models, PALETTE, strict=False))
    names = {model: MODEL_NAMES.get(model, model) for model in models}
    lines = first.merge(scores[scores["score"] == "accuracy"], on="key")
    lines = lines[lines["step"] > 0]
    with mpl.rc_context(RC):
        picture, axes = grid_of_axes(len(panels), finding_of(first), 3.0, 2.6, 2, label_width=margin_for(names.values()), names=panels)
        for ax, precision in zip(axes, panels, strict=True):
            name_panel(ax, precision)
            ends = []
            own = lines[lines["precision"] == precision]
            for model in models:
                line = own[own["model"] == model].sort_values("seconds")
                if line.empty:
                    continue
                ax.plot(line["seconds"], line["value"], "-o", color=colours[model], markersize=3.5)
                ends.append((line["seconds"].iloc[-1], line["value"].iloc[-1], names[model], colours[model]))
            ax.axhline(first["level"].iloc[0], color=CEILING, linestyle=":")
            ax.set_xscale("log")
            ax.set_xlim(lines["seconds"].min() / 1.3, lines["seconds"].max() * 1.3)
            ax.set_ylim(0, 1.02)
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
            ax.set_xlabel("seconds of training on one GPU")
            label_lines(ax, ends, 2.6)
        axes[0].set_ylabel("accuracy on held-out images")
    row = first.iloc[0]
    picture.caption = (
        f"A mark an epoch, {row['epochs']:.0f} of {INPUT_NAMES.get(row['inputs'], row['inputs'])}, batch {row['joined_batch']}, ddp on one "
        "GPU, whole steps as one CUDA graph, each model at its own constant rate. Dotted: the level, 95% of the best accuracy that any "
        f"model reached. One run each (screening). {row['machine']}."
    )
    columns = ["model", "precision", "epoch", "seconds", "value", "level", "key"]
    picture.data = lines[columns].rename(columns={"value": "accuracy"})
    picture.alt = f"Held-out accuracy against seconds of training for {joined(list(names.values()))}. {picture.finding}"
    return picture


def models_table(points: pd.DataFrame) -> Shown:
    """Accuracy, rate, and steps, seconds and joules to the level, a row a model and precision."""
    rows = []
    for _, row in points.iterrows():
        reached = not pd.isna(row["seconds_to"])
        rows.append(
            {
                "Machine": row["machine"],
                "Model": MODEL_NAMES.get(row["model"], row["model"]),
                "Precision": row["precision"],
                "Rate": f"{row['base_rate']:g}",
                "Images/s": f"{row['units_per_s']:,.0f}",
                "Accuracy": f"{row['accuracy']:.1%}" + (" (diverged)" if row["diverged"] else ""),
                "Level": f"{row['level']:.0%}",
                "Steps to it": f"{row['steps_to']:,.0f}" if reached else "never",
                "GPU-s to it": f"{row['seconds_to']:.1f}" if reached else "never",
                "J to it": "" if pd.isna(row["joules_to"]) else f"{row['joules_to']:,.0f}",
            }
        )
    note = (
        "Equal epochs and batches, each model at its own constant rate, one run each (screening). Level: 95% of the best accuracy that any "
        "model reached, as evaluations after every epoch tell; on one GPU seconds are GPU-seconds. Joules to it: the run's mean power "
        f"times these seconds, of runs of at least the {LEAST_ENERGY_S} s that the counters need."
    )
    right = ["Rate", "Images/s", "Accuracy", "Level", "Steps to it", "GPU-s to it", "J to it"]
    return tables_by(pd.DataFrame(rows), "Machine", note, right) if rows else paragraphs(kind="said")
