"""What the page on the two frameworks says in sentences: each computed from Records, each naming precisions and repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.framework_traces import eager_or_graph, every_trace, sound, spread_text, step_times_s, trace_summary, way_of
from multigpu.analysis.frameworks import IN_GRAPH, LOOP, PRECISIONS, TENSORFLOW, WAYS, experiments, forms
from multigpu.analysis.style import look
from multigpu.analysis.wording import MODEL_NAMES, joined, percent_text, plural, rate_text, ratio_text
from multigpu.published import published_value
from multigpu.record import Record

NOTHING = "No Record of both frameworks yet."


def rates_sentence(frame: pd.DataFrame, placement: str = "exp4") -> str:
    """Each way's rate on the most GPUs that TensorFlow was measured on, with its interval or the word "once"."""
    table = experiments(frame)
    own = table[(table["placement"] == placement) & (table["way"] == TENSORFLOW)]
    if own.empty:
        return NOTHING
    devices = int(own["devices"].max())
    rows = table[(table["placement"] == placement) & (table["devices"] == devices)].sort_values("rate", ascending=False)
    parts = [f"{row['way']} {_rate(row)}" for _, row in rows.iterrows()]
    return (
        f"{look(placement).label} on {plural(devices, 'GPU')}: {joined(parts)}. Where arithmetic differs, so does the work of a step: "
        "the ratio of two such rates is not the framework's alone."
    )


def _rate(row: Any) -> str:
    text = rate_text(row["rate"], row["rate_low"], row["rate_high"])
    return text if row["n"] > 1 else f"{text} (once)"


@dataclass(frozen=True)
class Difference:
    """TensorFlow's step less PyTorch's with a process a GPU, in parts, seconds: whole = computing + communicating + idle.

    ours, theirs: names of the ways. communicating: nothing is computed meanwhile. kernels: of one GPU in a step, ours and theirs.
    apart: whether all steps of one, of untraced Records where there are any, lie on the same side of all of the other's. beyond: ways
    whose GPU is busy longer under the profiler than the whole step takes without it, with how much longer, s: of these communicating and
    idle mean nothing apart.
    """

    ours: str
    theirs: str
    whole: float
    computing: float
    communicating: float
    idle: float
    kernels: tuple[float, float]
    apart: bool
    beyond: tuple[tuple[str, float], ...] = ()


PARTS = ("timed_s", "computing_s", "exposed_s", "idle_s")


def difference(
    records: Sequence[Record], placement: str = "exp4", devices: int = 4, model: str = "nmt000", batch_norm: str | None = None
) -> Difference | None:
    """Of the traced Runs of median step, TensorFlow's with this batch norm. PyTorch's in TensorFlow's own precision stands beside it, or
    in another where there is none.

    Returns:
        None unless both were traced.
    """
    chosen = [
        record
        for record in eager_or_graph(records, placement, devices, model=model)
        if record.run.processes == ("one" if record.run.framework == "tensorflow" else "per_device") and record.run.execution != "xla"
    ]
    ours = [record for record in chosen if record.run.framework == "tensorflow" and record.run.batch_norm == batch_norm]
    theirs = [record for record in chosen if record.run.framework == "torch"]
    if not ours or not theirs:
        return None
    pair = (ours[0], min(theirs, key=lambda record: record.run.precision != ours[0].run.precision))
    table = trace_summary(pair)
    whole, computing, communicating, idle = (float(table[column][0] - table[column][1]) for column in PARTS)
    every = every_trace(records, placement, devices, model=model)
    times = [step_times_s(record for record in every if way_of(record) == way_of(one)) for one in pair]
    apart = max(times[0]) < min(times[1]) or max(times[1]) < min(times[0])
    names, kernels = list(table["way"]), [float(count) for count in table["kernels"]]
    beyond = tuple((name, -float(idle_s)) for name, idle_s in zip(names, table["idle_s"], strict=True) if idle_s < 0)
    return Difference(names[0], names[1], whole, computing, communicating, idle, (kernels[0], kernels[1]), apart, beyond)


ALIKE = 1.05


def difference_sentence(
    records: Sequence[Record], placement: str = "exp4", devices: int = 4, model: str = "nmt000", batch_norm: str | None = None
) -> str:
    """What the difference of the two frameworks is made of, from traces of each."""
    found = difference(records, placement, devices, model, batch_norm)
    on = plural(devices, "GPU")
    label = f"{look(placement).label} on {on}" if model == "nmt000" else f"{MODEL_NAMES[model]}, {look(placement).label} on {on}"
    label += f", {batch_norm} batch norm in TensorFlow" if batch_norm else ""
    if found is None:
        return f"{label} was not traced in both frameworks yet, so what the difference is made of cannot be said."
    kernels = found.kernels
    alike = "They launch about as many kernels" if max(kernels) < ALIKE * min(kernels) else "They launch different numbers of kernels"
    word = "longer" if found.whole >= 0 else "shorter"
    precisions = [name.rsplit(", ", 1)[1] for name in (found.ours, found.theirs)]
    text = (
        f"{label}: TensorFlow's step ({precisions[0]}) is {1e3 * abs(found.whole):.1f} ms {word} than PyTorch's ({precisions[1]}, a "
        f"process a GPU). {_made_of(found)} {alike} ({kernels[0]:,.0f} and {kernels[1]:,.0f} a GPU and step)."
    )
    if precisions[0] != precisions[1]:
        text += " The two compute in different precisions, so the part of the kernels is not the frameworks' alone."
    spread = spread_text(records, placement, devices, model, (found.ours, found.theirs))
    return f"{text} {'' if found.apart else 'Between repeats their steps overlap, so which is longer is not decided. '}{spread}"


def _made_of(found: Difference) -> str:
    """The parts of the difference: three, or two where the profiler leaves no telling communication from waiting."""
    computing, rest = f"Of that, {1e3 * found.computing:+.1f} ms are kernels that compute", found.communicating + found.idle
    if not found.beyond:
        return (
            f"{computing}, {1e3 * found.communicating:+.1f} ms communication with nothing computed, {1e3 * found.idle:+.1f} ms a GPU that "
            "is not busy."
        )
    longer = joined([f"{1e3 * over:.1f} ms longer ({name})" for name, over in found.beyond])
    return (
        f"{computing} and {1e3 * rest:+.1f} ms communication and waiting, which cannot be told apart: under the profiler a GPU is busy "
        f"{longer} than the whole step takes without it; a collective that waits for a replica counts as busy."
    )


def precision_shares(frame: pd.DataFrame, placement: str = "exp4") -> pd.DataFrame:
    """TensorFlow's rate over that of PyTorch with a process a GPU, in one precision, on the fewest and the most GPUs that both have.

    Returns:
        precision, devices, share, ours_n, theirs_n.
    """
    table = experiments(frame)
    table = table[table["placement"] == placement]
    rows = []
    for ours in (way for way in WAYS if way.framework == "tensorflow"):
        theirs = next(
            (way for way in WAYS if (way.framework, way.processes, way.precision) == ("torch", "per_device", ours.precision)), None
        )
        if theirs is None:
            continue
        rates = [table[table["way"] == way.name].set_index("devices") for way in (ours, theirs)]
        shared = sorted(set(rates[0].index) & set(rates[1].index))
        for devices in dict.fromkeys(shared[:1] + shared[-1:]):
            a, b = (found.loc[devices] for found in rates)
            rows.append((ours.precision, int(devices), a["rate"] / b["rate"], int(a["n"]), int(b["n"])))
    return pd.DataFrame(rows, columns=["precision", "devices", "share", "ours_n", "theirs_n"])


def precision_sentence(frame: pd.DataFrame, placement: str = "exp4") -> str:
    """`precision_shares` in words."""
    label = look(placement).label
    parts = [
        f"{percent_text(row['share'])} in {PRECISIONS[row['precision']]} on {plural(row['devices'], 'GPU')} (n = {row['ours_n']} and "
        f"{row['theirs_n']})"
        for _, row in precision_shares(frame, placement).iterrows()
    ]
    if not parts:
        return f"{label} was not measured in one precision in both frameworks yet."
    return f"In one precision, TensorFlow's {label} reaches these shares of PyTorch's rate with a process a GPU: {joined(parts)}."


def one_process_sentence(records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> str:
    """What it costs each framework that one process dispatches for all GPUs."""
    chosen = [record for record in eager_or_graph(records, placement, devices) if record.run.processes == "one"]
    ours = [record for record in chosen if record.run.framework == "tensorflow"]
    theirs = [record for record in chosen if record.run.framework == "torch"]
    if not ours or not theirs:
        return f"{look(placement).label} on {devices} GPUs was not traced with one process in both frameworks yet."
    table = trace_summary([ours[0], theirs[0]])
    (idle, idle_torch), (step, step_torch), (late, late_torch) = (1e3 * table[column] for column in ("idle_s", "timed_s", "late_s"))
    return (
        f"With one process for {devices} GPUs, a GPU is not busy for {idle_torch:.1f} of a step's {step_torch:.1f} ms in PyTorch, whose "
        f"Python thread launches forward for one GPU after the other (the last begins {late_torch:.1f} ms after the first), and for "
        f"{idle:.1f} of {step:.1f} ms in TensorFlow, whose executor launches for all of them at once ({late:.1f} ms)."
    )


def loop_sentence(frame: pd.DataFrame, records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> str:
    """What a loop of cells costs against cuDNN's one call: rates, and kernels where traces count them."""
    table = forms(frame, devices)
    table = table[(table["placement"] == placement) & table["group"].isin([IN_GRAPH, LOOP])]
    rows: dict[Any, Any] = table.set_index("group").to_dict("index")
    label = look(placement).label
    if IN_GRAPH not in rows or LOOP not in rows:
        return f"{label} on {devices} GPUs was not measured both ways yet."
    fused, loop = rows[IN_GRAPH], rows[LOOP]
    times = ratio_text(fused["rate"] / loop["rate"])
    text = (
        f"{label} on {devices} GPUs: with cuDNN's LSTM a second brings {times} the words of a loop of cells (repeats: {fused['n']} "
        f"and {loop['n']})."
    )
    counts = [trace_summary(eager_or_graph(records, placement, devices, kind)) for kind in ("fused", "stepwise")]
    own = [each[each["way"] == TENSORFLOW]["kernels"] for each in counts]
    theirs = [published_value("000_correction", name) for name in ("kernel_launches_cudnn", "kernel_launches_stepwise")]
    count = f"{own[0].iloc[0]:,.0f} with cuDNN" if len(own[0]) else "not traced with cuDNN"
    count += f", {own[1].iloc[0]:,.0f} in the loop" if len(own[1]) else "; the loop is not traced yet"
    return f"{text} Kernels a GPU and step: {count} (the document's author counted {theirs[0]:,.0f} and {theirs[1]:,.0f})."


def soundness_sentence(records: Sequence[Record]) -> str:
    """Whether TensorFlow's traces can be trusted, and which of their phases is not read here."""
    table = sound(records)
    if table.empty:
        return "There is no TensorFlow trace yet."
    return (
        f"{plural(len(table), 'TensorFlow trace')}: the shortest time from a launch to its kernel is {1e6 * table['lead_s'].min():.1f} µs "
        f"({'never negative, so the clocks agree' if table['lead_s'].min() >= 0 else 'negative: the clocks disagree'}), and "
        f"{100 * table['unlinked'].max():.1f}% of what devices did has no launch. Where forward ends is not read here: it reaches "
        f"{1e3 * table['forward_late_s'].mean():.0f} ms past the start of backward on the mean, since the executor runs what is ready, and "
        "since traces taken before copies were told from passes count the copy of a table's gradient rows as forward."
    )
