"""What became of the three expectations of the page on the two frameworks: each answer computed from Records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.framework_images import images
from multigpu.analysis.framework_traces import eager_or_graph, trace_summary
from multigpu.analysis.framework_words import precision_shares
from multigpu.analysis.frameworks import PYTORCH_ONE, TENSORFLOW, document_experiments, experiments, longer
from multigpu.analysis.style import look
from multigpu.analysis.wording import joined, percent_text, plural, ratio_text
from multigpu.record import Record


def answers(frame: pd.DataFrame, records: Sequence[Record]) -> list[str]:
    """What became of the page's three expectations: one process and several GPUs, a slow second GPU, two frameworks in one precision."""
    return [_busy_answer(frame, records), _second_gpu_answer(frame), _alike_answer(frame)]


MOSTLY = 0.5
"""A GPU that is busy for a larger share of a step than this is kept busy."""


def _busy_answer(frame: pd.DataFrame, records: Sequence[Record], placement: str = "exp4") -> str:
    table = experiments(frame)
    traces = trace_summary(eager_or_graph(records, placement))
    document = document_experiments()
    theirs = document[document["placement"] == placement].set_index("devices")["speedup"]
    parts = []
    for way in (TENSORFLOW, PYTORCH_ONE):
        own = table[(table["placement"] == placement) & (table["way"] == way) & table["speedup"].notna() & (table["devices"] > 1)]
        if own.empty:
            continue
        row = own.sort_values("devices").iloc[-1]
        trace = traces[(traces["way"] == way) & (traces["devices"] == row["devices"])]
        share = 1 - float(trace["idle_s"].iloc[0] / trace["timed_s"].iloc[0]) if len(trace) else math.nan
        told = "not traced" if math.isnan(share) else f"a GPU busy for {percent_text(min(1.0, share))} of a step"
        seen = "" if math.isnan(share) else ", not as expected" if share > MOSTLY else ", as expected"
        speedup = ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"])
        parts.append(f"{plural(int(row['devices']), 'GPU')} give {speedup} one with {way} ({told}{seen})")
    if not parts:
        return "**One process and several GPUs**: not measured on one and several GPUs yet."
    return (
        f"**One process and several GPUs** ({look(placement).label}): {'; '.join(parts)}. In the document {theirs.idxmax()} gave most, "
        f"{theirs.max():.2f} times one."
    )


def _second_gpu_answer(frame: pd.DataFrame) -> str:
    found = [one for one in (longer(frame, name, 2, 3) for name in ("exp1", "exp2")) if one is not None]
    if not found:
        return "**A step longer on two GPUs than on three**: not measured on both yet."
    seen = [one for one in found if one.verdict == "longer"]
    each = ", ".join(f"{look(one.placement).label} {'measured once' if one.verdict == 'once' else one.verdict}" for one in found)
    return f"**A step longer on two GPUs than on three**: seen under {len(seen)} of {plural(len(found), 'placement')} ({each})."


def _alike_answer(frame: pd.DataFrame) -> str:
    shares = {"on the NMT": list(precision_shares(frame)["share"])}
    cnn = [images(frame, int(devices)).set_index("placement") for devices in sorted(set(frame["devices"]))]
    own: list[Any] = [rows.loc["exp4"] for rows in cnn if "exp4" in rows.index]
    for name, told in (("tensorflow", "on ResNet-50"), ("persistent", "there with cuDNN's persistent batch norm")):
        ratios = [float(row[name] / row["torch"]) for row in own]
        shares[told] = [ratio for ratio in ratios if not math.isnan(ratio)]
    parts = [f"{_range(found)} {told}" for told, found in shares.items() if found]
    if not parts:
        return "**Two frameworks in one precision**: not measured in both yet."
    return f"**Two frameworks in one precision** (Exp4): of PyTorch's rate with a process a GPU, TensorFlow reaches {joined(parts)}."


def _range(shares: list[float]) -> str:
    return " to ".join(dict.fromkeys(percent_text(end) for end in (min(shares), max(shares))))
