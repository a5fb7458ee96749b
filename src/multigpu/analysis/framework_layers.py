"""Stacks of one kind of layer on one device in both frameworks: what a step takes where nothing is merged, kind by kind."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.frameworks import PRECISIONS, Way, of_way
from multigpu.analysis.metrics import summary
from multigpu.analysis.partition_bytes import LAYER_TYPES
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import MODEL_NAMES, devices_text, joined, plural, ratio_text
from multigpu.claims import find_claim

FRAMEWORKS = {"tensorflow": "graph", "torch": "eager"}
"""Framework -> its plain form of execution; both with one process."""
COLUMNS = ("model", "batch_size", "precision", "device_type", "tensorflow_s", "torch_s", "n", "ratio", "low", "high")
ABSENT = "The stacks were not measured in both frameworks on one device yet"


def stack_records(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of stacks trained by one process on one device with nothing to merge, by either framework, their recurrence one call."""
    same = {"workload": "stacks", "placement": "independent", "processes": "one", "devices": 1, "optimizer": "default", "status": "ok"}
    own = frame[pd.concat([frame[name] == value for name, value in same.items()], axis=1).all(axis=1)]
    return own[own["recurrence"].fillna("fused").eq("fused")]


def both_frameworks(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the one machine on which most stacks have a ratio: the machine that shows a model best may have one framework alone."""
    found = {name: len(layers(rows)) for name, rows in frame.groupby("machine", sort=True)}
    best = max(found, key=lambda name: found[name], default="")
    return frame[frame["machine"].eq(best)]


def layers(frame: pd.DataFrame) -> pd.DataFrame:
    """The stacks on one device that both frameworks trained: a row a model, batch and precision, kinds in the order of every figure.

    Args:
        frame: of `load_frame`, of one machine.

    Returns:
        `COLUMNS`: tensorflow_s and torch_s (a step's time), n (the fewer repeats), and ratio: TensorFlow's step over PyTorch's, with
        its 95% interval (NaN where either was measured once).
    """
    own = stack_records(frame)
    points, rows = summary(own), []
    for job, group in points.groupby(["model", "batch_size", "precision"], sort=True):
        found = {name: of_way(group, Way(name, "one", form, str(job[2]))) for name, form in FRAMEWORKS.items()}
        if any(part.empty for part in found.values()):
            continue
        ours, theirs = (part.iloc[0] for part in found.values())
        ratio, (low, high) = ratio_of(own, theirs, ours)  # of steps a second, so the other way round
        times = [float(row["step_time_s"]) for row in (ours, theirs)]
        rows.append((*job, ours["device_type"], *times, min(int(ours["n"]), int(theirs["n"])), ratio, low, high))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    order = {name: place for place, name in enumerate([*LAYER_TYPES, *MODEL_NAMES])}
    return table.sort_values("model", key=lambda names: names.map(order), kind="stable").reset_index(drop=True)


def layers_gt(frame: pd.DataFrame) -> Shown:
    """`layers` in words."""
    rows = [
        {
            "layers": MODEL_NAMES.get(row["model"], row["model"]),
            "rows a step": f"{row['batch_size']:,}",
            "arithmetic": PRECISIONS.get(row["precision"], row["precision"]),
            "TensorFlow: step (ms)": f"{1e3 * row['tensorflow_s']:.2f}",
            "PyTorch: step (ms)": f"{1e3 * row['torch_s']:.2f}",
            "TensorFlow over PyTorch": ratio_text(row["ratio"], row["low"], row["high"]),
            "n": str(row["n"]),
        }
        for _, row in layers(frame).iterrows()
    ]
    note = (
        "One process and one device, nothing merged; TensorFlow one graph a step, PyTorch kernel by kernel; the recurrent layer in one "
        "call of the library. n: repeats of the framework that has fewer; n = 1 is screening, without an interval."
    )
    absent = f"{ABSENT}: on a machine with a GPU, python -m multigpu measure --grid tensorflow_layers --devices 1 does."
    figures = [name for name in (rows[0] if rows else {}) if name not in ("layers", "arithmetic")]
    return table_html(pd.DataFrame(rows), ", ".join(dict.fromkeys(frame["machine"])) if rows else "", note if rows else absent, figures)


def layers_sentence(frame: pd.DataFrame) -> str:
    """How far apart the frameworks are at most and at least, and how many of these steps stay within the document's bound (C44); ""
    without any, which the table says.
    """
    table = layers(frame)
    if table.empty:
        return ""
    predicate = find_claim("C44").predicate
    bound = predicate.contrasts[0].bound if predicate else math.nan
    apart = [abs(math.log(ratio)) for ratio in table["ratio"]]
    within = sum(each <= math.log(bound) for each in apart)
    ends = [table.iloc[place] for place in dict.fromkeys((apart.index(min(apart)), apart.index(max(apart))))]
    parts = [f"{ratio_text(row['ratio'], row['low'], row['high'])} as long in TensorFlow as in PyTorch with {_job(row)}" for row in ends]
    once = "" if (table["n"] > 1).all() else " What was measured once is screening, and decides nothing."
    where = devices_text(1, str(table["device_type"].iloc[0]))
    return (
        f"On {where} a step takes {joined(parts)}. Of {plural(len(table), 'such step', 'such steps')}, {within} "
        f"{'is' if within == 1 else 'are'} within the document's factor of {bound:g}.{once}"
    )


def _job(row: Any) -> str:
    name = MODEL_NAMES.get(row["model"], row["model"])
    return f"{name} at {plural(row['batch_size'], 'row')} ({PRECISIONS.get(row['precision'], row['precision'])})"
