"""What the page on the two frameworks says in sentences: each computed from Records, each naming precisions and repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.framework_traces import eager_or_graph, sound, trace_summary
from multigpu.analysis.frameworks import IN_GRAPH, LOOP, WAYS, Longer, experiments, forms, images, longer
from multigpu.analysis.style import look
from multigpu.analysis.wording import joined, missing, percent_text, plural, rate_text, ratio_text
from multigpu.published import published_value
from multigpu.record import Record

TENSORFLOW, PYTORCH = WAYS[0].name, WAYS[3].name
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


def difference(records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> dict[str, float] | None:
    """TensorFlow's step less that of PyTorch with a process a GPU, in parts, seconds: step = computing + communicating + not busy.

    Returns:
        whole, computing, communicating (nothing computed meanwhile), idle; None unless both were traced.
    """
    table = trace_summary(eager_or_graph(records, placement, devices)).drop_duplicates("way").set_index("way")
    if TENSORFLOW not in table.index or PYTORCH not in table.index:
        return None
    less = {name: float(table[column][TENSORFLOW] - table[column][PYTORCH]) for name, column in DIFFERENCE.items()}
    return less


ALIKE = 1.05
DIFFERENCE = {"whole": "timed_s", "computing": "computing_s", "communicating": "exposed_s", "idle": "idle_s"}


def difference_sentence(records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> str:
    """What the difference of the two frameworks is made of, from one trace of each."""
    parts = difference(records, placement, devices)
    label = look(placement).label
    if parts is None:
        return f"{label} on {devices} GPUs was not traced in both frameworks yet, so what the difference is made of cannot be said."
    table = trace_summary(eager_or_graph(records, placement, devices)).drop_duplicates("way").set_index("way")
    kernels = [float(table["kernels"][name]) for name in (TENSORFLOW, PYTORCH)]
    alike = "They launch about as many kernels" if max(kernels) < ALIKE * min(kernels) else "They launch different numbers of kernels"
    word = "longer" if parts["whole"] >= 0 else "shorter"
    return (
        f"{label} on {devices} GPUs: TensorFlow's step (TF32) is {1e3 * abs(parts['whole']):.1f} ms {word} than PyTorch's (bf16, a process "
        f"a GPU). Of that, {1e3 * parts['computing']:+.1f} ms are kernels that compute, {1e3 * parts['communicating']:+.1f} ms "
        f"communication with nothing computed, {1e3 * parts['idle']:+.1f} ms a GPU that is not busy. {alike} "
        f"({kernels[0]:,.0f} and {kernels[1]:,.0f} a GPU and step). Traced once each."
    )


def one_process_sentence(records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> str:
    """What it costs each framework that one process dispatches for all GPUs."""
    table = trace_summary(eager_or_graph(records, placement, devices)).drop_duplicates("way").set_index("way")
    name = WAYS[4].name
    if TENSORFLOW not in table.index or name not in table.index:
        return f"{look(placement).label} on {devices} GPUs was not traced with one process in both frameworks yet."
    idle, step, late = ({way: 1e3 * float(table[column][way]) for way in (TENSORFLOW, name)} for column in ("idle_s", "timed_s", "late_s"))
    return (
        f"With one process for {devices} GPUs, a GPU is not busy for {idle[name]:.1f} of a step's {step[name]:.1f} ms in PyTorch, whose "
        f"Python thread launches forward for one GPU after the other (the last begins {late[name]:.1f} ms after the first), and for "
        f"{idle[TENSORFLOW]:.1f} of {step[TENSORFLOW]:.1f} ms in TensorFlow, whose executor launches for all of them at once "
        f"({late[TENSORFLOW]:.1f} ms)."
    )


def images_sentence(frame: pd.DataFrame, devices: int = 4, placement: str = "exp4") -> str:
    """The two frameworks in one precision: ResNet-50 in bf16."""
    row: dict[Any, Any] = images(frame, devices).set_index("placement").to_dict("index")[placement]
    if any(missing(row[name]) for name in ("tensorflow", "torch", "torch_one")):
        return f"ResNet-50 was not measured in both frameworks on {devices} GPUs yet."
    counts = f"n = {int(row['tensorflow_n'])}, {int(row['torch_n'])} and {int(row['torch_one_n'])}"
    return (
        f"In one precision, ResNet-50 in bf16 under {look(placement).label} on {devices} GPUs: TensorFlow reaches "
        f"{percent_text(row['tensorflow'] / row['torch'])} of PyTorch's rate with a process a GPU, and "
        f"{percent_text(row['tensorflow'] / row['torch_one'])} of that with one process ({counts}; what was measured once has no interval)."
    )


def anomaly_sentences(frame: pd.DataFrame, records: Sequence[Record]) -> list[str]:
    """C11: whether a step on 2 GPUs takes longer than one on 3, where else a step on fewer takes longer, and what traces say."""
    sentences = []
    for placement in ("exp1", "exp2"):
        found = longer(frame, placement, 2, 3)
        if found is not None:
            sentences.append(_longer_sentence(found))
    found = longer(frame, "exp2", 3, 4)
    if found is not None:
        sentences.append(_longer_sentence(found))
    sentences.append(_tail_sentence(records))
    return sentences


def _bounds(found: Longer) -> str:
    return f"95%: {found.bounds.low:.2f} to {found.bounds.high:.2f}"


VERDICTS = {
    "longer": "it is longer",
    "shorter": "it is shorter",
    "not told apart": "the interval holds 1: the two are not told apart",
    "once": "one of the two was measured once: nothing is decided",
}


def _longer_sentence(found: Longer) -> str:
    label = look(found.placement).label
    if found.verdict == "once":
        interval = theirs = ""
    else:
        interval = f" ({_bounds(found)})"
        theirs = f", {'inside' if found.bounds.low <= found.document <= found.bounds.high else 'outside'} this interval"
    verdict = VERDICTS[found.verdict]
    if found.verdict in ("longer", "shorter"):
        verdict += ", as in the document" if (found.verdict == "longer") == (found.document > 1) else ": the document's order is not found"
    return (
        f"{label}: a step on {found.first} GPUs takes {found.ratio:.2f} times as long as one on {found.second}{interval}; in the document "
        f"{found.document:.2f} times{theirs}. Here {verdict}."
    )


def _tail_sentence(records: Sequence[Record], placement: str = "exp2") -> str:
    """How the traced counts of GPUs differ: where the time between them lies."""
    own = [record for record in eager_or_graph(records, placement) if record.run.framework == "tensorflow"]
    table = trace_summary(own).drop_duplicates("devices").set_index("devices").sort_index()
    if len(table) < 2:
        return f"{look(placement).label} was not traced on two numbers of GPUs yet, so no trace can say why."
    few, many = int(table.index[0]), int(table.index[-1])
    first, last = ({column: 1e3 * float(table[column][count]) for column in TAIL} for count in (few, many))
    why = " Why it takes longer for fewer towers no Record says: traces hold the host's phases and not its threads."
    return (
        f"{look(placement).label} traced on {few} and {many} GPUs: a step takes {first['timed_s']:.0f} and {last['timed_s']:.0f} ms; "
        f"values come down in {first['pull_s']:.0f} and {last['pull_s']:.0f} ms, forward and backward take {first['passes_s']:.0f} and "
        f"{last['passes_s']:.0f} ms, and what follows the last backward {first['tail_s']:.0f} and {last['tail_s']:.0f} ms. In this last "
        f"part the host adds up gradients and updates, and no GPU computes.{why if first['tail_s'] > 1.1 * last['tail_s'] else ''}"
    )


def loop_sentence(frame: pd.DataFrame, records: Sequence[Record], placement: str = "exp4", devices: int = 4) -> str:
    """What a loop of cells costs against cuDNN's one call: rates, and kernels where traces count them."""
    table = forms(frame, devices)
    rows: dict[Any, Any] = table[table["placement"] == placement].set_index("group").to_dict("index")
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


TAIL = ("timed_s", "pull_s", "passes_s", "tail_s")
