"""What came of each expectation of the page on kinds of parallelism, and why, as sentences computed from step times and traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.metrics import summary
from multigpu.analysis.parallelism import LSTM, MLP, pipeline_points, points_of, ratio_cell, winners
from multigpu.analysis.parallelism_traces import launches_sentence, waiting_sentences
from multigpu.analysis.partition_bytes import LAYER_TYPES
from multigpu.analysis.style import look
from multigpu.analysis.wording import devices_text, joined, missing, percent_text, plural, ratio_text
from multigpu.record import Record

EVEN = 1.05
"""Ratios of points that were measured once say nothing below this."""
REPEATS = 5
"""Of each side, without which a claim stays undecided."""


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
    on = devices_text(int(table["devices"].iloc[0]), str(frame["device_type"].iloc[0]))
    return (
        f"With its matrices cut over {on}, a step takes {joined(said)} as long as with data parallelism (screening).{beside}"
        f"{lost_points(frame)}"
    )


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


def cut_claim_sentence(everything: pd.DataFrame) -> str | None:
    """At which joined batch and on how many devices of which machine cutting the documents' model gains: the verdict quotes one case."""
    table = _by_machine(everything, MLP[:1], "tensor_split")
    table = table[table["low"].notna()] if len(table) else table
    if table.empty:
        return None
    said = []
    for batch, own in table.groupby("batch_size"):
        each = [f"{ratio_cell(row)} on {devices_text(row['devices'], 'cuda')} of {row['machine']}" for _, row in own.iterrows()]
        said.append(f"at {int(str(batch)):,} rows {joined(each)}")
    gains, fails = table[table["low"] > 1], table[table["high"] < EVEN]
    end = (
        " It is the smaller batch that does not gain; at the larger one cutting pays, and a verdict over both batches does not say so."
        if len(gains) and len(fails) and fails["batch_size"].max() < gains["batch_size"].min()
        else ""
    )
    return (
        "C31 is asked of two joined batches, and one case that surely fails decides. Rates over one device, repeats pooled: "
        f"{'; '.join(said)}.{end}"
    )


def layers_claim_sentence(everything: pd.DataFrame) -> str | None:
    """What C40's bound can decide: on two devices it is a speedup of exactly 1; and what more devices give."""
    table = _by_machine(everything, LSTM[:1], "layer_split")
    table = table[table["speedup"].notna()] if len(table) else table
    if table.empty:
        return None
    first = (
        "C40 asks for less than half of linear speed. On two devices that is a speedup of exactly 1, which layers over devices give that "
        "gain nothing and lose nothing: there the bound lies on the expected value, and no number of repeats decides it."
    )
    more = table[table["devices"] > 2]
    most = more[more["devices"] == more["devices"].max()]
    if most.empty:
        return first
    said = [
        f"{percent_text(row['speedup'] / row['devices'], row['low'] / row['devices'], row['high'] / row['devices'])} at batch "
        f"{int(row['batch_size'])}"
        for _, row in most.iterrows()
    ]
    head = most.iloc[0]
    few = int(most["n_one"].min())
    why = f", of which one device was measured {plural(few, 'time')}, too few for a verdict" if few < REPEATS else ""
    return f"{first} On {devices_text(int(head['devices']), head['device_type'])} of {head['machine']} it is {joined(said)}{why}."


def _by_machine(everything: pd.DataFrame, models: Sequence[str], placement: str) -> pd.DataFrame:
    """`points_of` of one placement in one piece on several GPUs of every machine, each over its own one device; n_one: repeats there."""
    own = everything[everything["device_type"].eq("cuda") & everything["placement"].eq(placement)]
    own = own[own["model_parallel"].isna() & own["micro_batches"].isna()]
    parts = [points_of(rows, models) for _, rows in own.groupby("machine")]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if table.empty:
        return table
    ones = table[table["devices"] == 1].set_index(["machine", "batch_size"])["n"].groupby(level=[0, 1]).max()
    several = table[(table["devices"] > 1) & (table["n"] > 0)]
    return several.assign(n_one=[ones.get((row["machine"], row["batch_size"]), 0) for _, row in several.iterrows()])


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
