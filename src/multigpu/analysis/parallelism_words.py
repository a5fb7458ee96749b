"""What came of each expectation of the page on kinds of parallelism, and why, as sentences computed from step times and traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.parallelism import LSTM, MLP, pipeline_points, points_of, ratio_cell, winners
from multigpu.analysis.parallelism_traces import launches_sentence, waiting_sentences
from multigpu.analysis.partition_bytes import LAYER_TYPES
from multigpu.analysis.style import look
from multigpu.analysis.wording import devices_text, joined, missing, plural, ratio_text
from multigpu.record import Record

EVEN = 1.05
"""Ratios of points that were measured once say nothing below this."""


def _at_parts(points: pd.DataFrame) -> pd.DataFrame:
    """Measured points on several devices, with `longer`: the step over that of the same devices and batch in one piece."""
    if points.empty:
        return points
    own = points[(points["n"] > 0) & (points["devices"] > 1)]
    whole = own[own["parts"] == 1].set_index(["devices", "batch_size"])["step_time_s"]
    base = [whole.get((row["devices"], row["batch_size"]), float("nan")) for _, row in own.iterrows()]
    return own.assign(longer=own["step_time_s"] / base)


def slower_sentence(points: pd.DataFrame) -> str | None:
    """How often and by how much micro-batches made the step longer. points: of `pipeline_points`."""
    table = _at_parts(points)
    table = table[(table["parts"] > 1) & table["longer"].notna()] if len(table) else table
    if table.empty:
        return None
    slower, worst = table[table["longer"] > EVEN], table.iloc[int(table["longer"].to_numpy().argmax())]
    faster = int((table["longer"] < 1 / EVEN).sum())
    on = devices_text(int(worst["devices"]), worst["device_type"])
    return (
        f"Micro-batches make the step longer in {len(slower)} of {len(table)} cases and shorter in {faster}, at worst "
        f"{ratio_text(worst['longer'])} as long (batch {int(worst['batch_size'])} on {on}, {int(worst['parts'])} micro-batches)."
    )


def scaling_sentence(points: pd.DataFrame) -> str | None:
    """What a step's time follows: the number of micro-batches or the size of the batch. points: of `pipeline_points`."""
    table = _at_parts(points)
    if table.empty:
        return None
    steps = table.set_index(["devices", "batch_size", "parts"])["step_time_s"]
    counts, batches = sorted(set(table["parts"])), sorted(set(table["batch_size"]))
    few, many = counts[-2:] if len(counts) > 2 else (0, 0)
    doubled = [steps[d, b, many] / steps[d, b, few] for d, b, p in steps.index if p == many and (d, b, few) in steps.index]
    larger = [
        steps[d, b, p] / steps[d, batches[0], p]
        for d, b, p in steps.index
        if b == batches[-1] and b > batches[0] and p == many and (d, batches[0], p) in steps.index
    ]
    if not doubled or not larger:
        return None
    verdict = (
        "so what is timed is what each micro-batch costs to launch, whatever is in it" if max(larger) < min(doubled) else "so both count"
    )
    return (
        f"From {few} to {many} micro-batches a step grows to {_span(doubled)}; {batches[-1] // batches[0]} times the batch in {many} "
        f"micro-batches takes {_span(larger)} as long, {verdict}."
    )


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:.2f} to {high:.2f} times" if f"{low:.2f}" != f"{high:.2f}" else f"{low:.2f} times"


def layers_saw(frame: pd.DataFrame) -> str | None:
    """By how much cutting lost or won, kind by kind, over all batches; and the recurrent layer against the same loop."""
    table = winners(frame)
    if table.empty:
        return None
    said = []
    for name, kind in LAYER_TYPES.items():
        own = table[table["model"] == name]
        if len(own):
            ratios = [row["times"] if row["faster"] == "ddp" else 1 / row["times"] for _, row in own.iterrows()]
            said.append(f"{_span(ratios)} ({kind}, {plural(len(own), 'batch', 'batches')})")
    loop = _loop_ratios(frame)
    beside = f" The cut recurrent layer takes {_span(loop)} as long as the same loop of positions under data parallelism." if loop else ""
    return f"With its matrices cut, a step takes {joined(said)} as long as with data parallelism (screening).{beside}{lost_points(frame)}"


def lost_points(frame: pd.DataFrame) -> str:
    """Points of the layer types without a figure, each with its reason, as the end of a caption; "" without any."""
    table = summary(frame[frame["model"].isin(LAYER_TYPES)])
    gone = table[table["n"] == 0]
    said = [
        f"{look(row['placement']).label}, {LAYER_TYPES[row['model']]} layers, batch {int(row['batch_size']):,}: {row['reason']}"
        for _, row in gone.iterrows()
    ]
    return f" Without a figure: {'; '.join(said)}." if said else ""


def _loop_ratios(frame: pd.DataFrame) -> list[float]:
    """Step of the cut recurrent layer over that of the same loop under data parallelism, at each batch on the most devices."""
    table = summary(frame[frame["model"].eq("stack_recurrent") & frame["model_parallel"].isna()])
    table = table[(table["n"] > 0) & (table["devices"] == table["devices"].max())] if len(table) else table
    cut = table[table["placement"] == "tensor_split"].set_index("batch_size")["step_time_s"]
    loop = table[(table["placement"] == "ddp") & table["recurrence"].eq("stepwise").fillna(False)].set_index("batch_size")["step_time_s"]
    return [float(cut[batch] / loop[batch]) for batch in cut.index.intersection(loop.index)]


def flat_sentence(frame: pd.DataFrame) -> str | None:
    """How little a step of a stack grows with its batch, cut and under data parallelism; None where it grows to more than twice."""
    rows = frame[frame["model"].isin(LAYER_TYPES) & frame["model_parallel"].isna() & frame["recurrence"].isna()]
    table = summary(rows)
    table = table[(table["n"] > 0) & (table["devices"] == table["devices"].max())] if len(table) else table
    grown: dict[str, list[float]] = {}
    batches: list[tuple[int, int]] = []
    for (_, placement), own in table.groupby(["model", "placement"]) if len(table) else ():
        own = own.sort_values("batch_size")
        if own["batch_size"].nunique() > 1:
            batches.append((int(own["batch_size"].iloc[0]), int(own["batch_size"].iloc[-1])))
            grown.setdefault(str(placement), []).append(float(own["step_time_s"].iloc[-1] / own["step_time_s"].iloc[0]))
    if "tensor_split" not in grown or max(grown["tensor_split"]) > 2 or min(last / first for first, last in batches) < 8:
        return None
    beside = f"; with data parallelism {_span(grown['ddp'])}" if "ddp" in grown else ""
    return (
        f"From the smallest joined batch to the largest, which is {min(b // a for a, b in batches):,} times as large or more, so that "
        f"as many more bytes cross, a step with cut matrices grows only to {_span(grown['tensor_split'])} its length{beside}. At these "
        "sizes starting kernels and messages takes most of a step, so the bytes of the model above do not decide."
    )


def speedup_saw(frame: pd.DataFrame) -> str | None:
    """The fully connected model's speedups at its largest batch, from the fewest to the most GPUs."""
    table = points_of(frame[frame["model_parallel"].isna()], MLP)
    table = table[(table["n"] > 0) & (table["devices"] > 1) & table["speedup"].notna()] if len(table) else table
    if table.empty:
        return None
    own = table[table["batch_size"] == table["batch_size"].max()]
    said, falls = [], []
    for name in ("tensor_split", "ddp"):
        line = own[own["placement"] == name].sort_values("devices")
        if len(line):
            values = [f"{ratio_cell(row)} on {row['devices']}" for _, row in line.iterrows()]
            said.append(f"{look(name).label} {joined(values)}")
            best = line.iloc[int(line["speedup"].to_numpy().argmax())]
            if line["high"].iloc[-1] < best["low"]:
                falls.append(f"{look(name).label} is slower on {line['devices'].iloc[-1]} than on {best['devices']}")
    batch = f"{int(own['batch_size'].iloc[0]):,}"
    end = f" Beyond intervals {joined(falls)}." if falls else ""
    return f"Speedup of the fully connected model at a batch of {batch}: {'; '.join(said)}.{end}"


def layers_over_saw(points: pd.DataFrame) -> str | None:
    """Layers over GPUs beside one GPU, and idle time beside what operations allow. points: of `pipeline_points`."""
    table = points[(points["n"] > 0) & (points["devices"] > 1) & points["speedup"].notna()] if len(points) else points
    if table.empty:
        return None
    whole, cut = table[table["parts"] == 1], table[table["parts"] > 1]
    apart = [row for _, row in whole.iterrows() if _apart(row)]
    told = "no interval tells any from one" if not apart else f"{len(apart)} of {len(whole)} differ from one beyond their intervals"
    first = f"Without micro-batches layers over GPUs reach {_span(whole['speedup'])} the speed of one GPU; {told}." if len(whole) else ""
    above = int((cut["idle"] > cut["idle_by_work"]).sum())
    second = f" With them GPUs idle for longer than the stages' operations say in {above} of {len(cut)} cases." if len(cut) else ""
    return (first + second).strip()


def _apart(row: Any) -> bool:
    return not missing(row["low"]) and (row["low"] > 1 or row["high"] < 1)


def beside_data_parallel(frame: pd.DataFrame) -> str | None:
    """The same model and joined batch under data parallelism, on the most GPUs, against layers over them."""
    table = summary(frame[frame["model"].isin(LSTM) & frame["placement"].isin(("ddp", "layer_split")) & frame["micro_batches"].isna()])
    table = table[(table["n"] > 0) & (table["devices"] > 1) & table["model_parallel"].isna()] if len(table) else table
    table = table[table["devices"] == table["devices"].max()] if len(table) else table
    said = []
    for batch, own in table.groupby("batch_size") if len(table) else ():
        rates = own.set_index("placement")["rate"]
        if {"ddp", "layer_split"} <= set(rates.index):
            said.append(f"{rates['ddp'] / rates['layer_split']:.2f} times as fast at a batch of {int(str(batch))}")
    if not said:
        return None
    on = devices_text(int(table["devices"].iloc[0]), table["device_type"].iloc[0])
    return f"Data parallelism trains the same joined batch of the translation model on {on} {joined(said)} as layers over them (screening)."


def saw(frame: pd.DataFrame) -> list[str]:
    """What came of each expectation, in their order."""
    points = pipeline_points(frame)
    found = [layers_saw(frame), speedup_saw(frame), layers_over_saw(points), beside_data_parallel(frame)]
    return [text for text in found if text]


def why(frame: pd.DataFrame, records: Iterable[Record]) -> list[str]:
    """Why so, from step times and traces."""
    records, points = list(records), pipeline_points(frame)
    found = [
        flat_sentence(frame),
        *waiting_sentences(records),
        slower_sentence(points),
        scaling_sentence(points),
        launches_sentence(records),
    ]
    return [text for text in found if text]
