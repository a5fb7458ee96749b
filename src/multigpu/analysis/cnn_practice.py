"""What to do with an image model on these GPUs, in a list: what the pages on image models found, each item with its figure.

An item whose Records are absent is left out.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis import cnn_advice, cnn_forms, feeding, formats, ladders
from multigpu.analysis.cnn_answers import ddp_rows
from multigpu.analysis.cnn_scaling import captured_pairs, captured_range
from multigpu.analysis.feeding_findings import best_fed
from multigpu.analysis.metrics import summary
from multigpu.analysis.pairs import FASTER, SLOWER
from multigpu.analysis.picture import Shown, bulleted
from multigpu.analysis.steady import steady
from multigpu.analysis.ways import find_point
from multigpu.analysis.wording import describe, devices_text, joined, percent_text, plural, rate_text, ratio_text

FED = "resnet50_v1.5"
"""The model whose batch and feeding are told: the one with most points of either."""


def practice(ours: pd.DataFrame, measured: pd.DataFrame, fed: pd.DataFrame, halves: pd.DataFrame) -> Shown | None:
    """`advised` as a page shows it; None without any item."""
    told = advised(ours, measured, fed, halves)
    gpus = joined(sorted(set(ours["gpu"].dropna())))
    return bulleted(f"**In short**, what to do with an image model on {gpus}:", told) if told else None


def advised(ours: pd.DataFrame, measured: pd.DataFrame, fed: pd.DataFrame, halves: pd.DataFrame) -> dict[str, str]:
    """What is to be chosen -> what was found of it.

    ours: image models' Records, of a machine a model. measured: all machines', each row under the machine that measured it
    (`cnn_page.as_measured`). fed: of `feeding.feeding_points`. halves: of `sixteen_bits.sixteen_bit_points`.
    """
    same = measured[measured["gpu"].isin(set(ours["gpu"].dropna()))]
    parts = {
        "Update": _update(ours),
        "Form": _capture(same),
        "Layout": _layout(same),
        "Precision": _precision(same, halves[halves["kind"].isin(set(same["gpu"]))]),
        "Batch": enough(ours),
        "Kernels": _compiled(same),
        "Input": _workers(fed),
    }
    return {name: f"{text}." for name, text in parts.items() if text}


def _update(ours: pd.DataFrame) -> str:
    rows, others = ddp_rows(cnn_advice.advice(ours))
    if not rows:
        return ""
    return f"ddp; no other is faster in {len(rows) - len(others)} of {plural(len(rows), 'job')} with intervals"


def _capture(same: pd.DataFrame) -> str:
    table = captured_pairs(same)
    return f"the step as one CUDA graph; ddp captured is {captured_range(table)}" if len(table) else ""


def _surest(table: pd.DataFrame) -> pd.DataFrame:
    """The steady PyTorch rows with an interval, captured ones alone where there are any."""
    exact = table[table["ratio_low"].notna() & table["framework"].eq("torch") & steady(table, "ratio")] if len(table) else table
    captured = exact[exact["execution"].eq("captured")] if len(exact) else exact
    return captured if len(captured) else exact


def _layout(same: pd.DataFrame) -> str:
    """Which layout is faster in bf16, as far as intervals tell."""
    table = formats.layouts(same)
    own = _surest(table[table["precision"].eq("bf16")] if len(table) else table)
    if own.empty:
        return ""
    verdicts = set(own["verdict"])
    advice = "channels last (NHWC)" if verdicts == {SLOWER} else "channels first (NCHW)" if verdicts == {FASTER} else "either layout"
    return f"{advice}; NCHW has {_ends(own)} the rate of NHWC in bf16"


def _precision(same: pd.DataFrame, halves: pd.DataFrame) -> str:
    """The repeated precision that gives most over fp32, and what it gives; and where fp16 gives more than bf16."""
    own = _surest(formats.precisions(same))
    if own.empty or own["ratio"].max() <= 1:
        return ""
    best = str(own.groupby("precision")["ratio"].median().idxmax())
    said = f"{best}; {_ends(own[own['precision'].eq(best)])} the rate of fp32"
    more = halves[halves["ratio_low"] > 1]
    if best != "bf16" or more.empty:
        return said
    row = more.iloc[0]
    times = ratio_text(row["ratio"], row["ratio_low"], row["ratio_high"]).removesuffix(")")
    return f"{said}; fp16 trains up to {times}; {describe(row, ['model'])}, n = {min(row['n_fp16'], row['n_bf16'])}) as fast as bf16"


def _ends(table: pd.DataFrame) -> str:
    """The least and the largest ratio, each with its interval, job and repeats: "0.56 times (0.53 to 0.61; ResNet-50, eager, n = 5)"."""
    ordered = table.sort_values("ratio", kind="stable")
    rows = [ordered.iloc[0]] if len(ordered) == 1 else [ordered.iloc[0], ordered.iloc[-1]]
    return " to ".join(_figure(row) for row in rows)


def _figure(row: Any) -> str:
    times = ratio_text(row["ratio"], row["ratio_low"], row["ratio_high"]).removesuffix(")")
    return f"{times}; {describe(row, ['model', 'execution'])}, n = {min(row['n'], row['base_n'])})"


def enough(ours: pd.DataFrame) -> str | None:
    """From which batch on the captured FED reaches most of its best rate on one device; None without a ladder of it."""
    table = ladders.ladder_rows(ours)
    wanted = {"placement": "ddp", "execution": "captured"}
    chosen = [all(row["ladder"][name] == value for name, value in wanted.items()) for _, row in table.iterrows()]
    own = table[chosen] if len(table) else table
    own = own[own["model"].eq(FED) & own["devices"].eq(1)] if len(own) else own
    if own.empty:
        return None
    row = own.iloc[0]
    point = find_point(summary(ours), row["ladder"], batch_size=row["enough"])
    often = "" if point is None else f"n = {point['n']}; "
    share = f"{100 * ladders.FULL:.0f}% of its best rate from {row['enough']:,} images a GPU on"
    return f"{describe(row['ladder'], ['model'])}, captured, reaches {share} ({often}best: {rate_text(row['best'], unit=row['unit'])})"


def _compiled(same: pd.DataFrame) -> str:
    said = cnn_forms.form_answer(same)
    return said[:1].lower() + said[1:].rstrip(".") if said else ""


def _workers(fed: pd.DataFrame) -> str:
    """What an input worker makes, and what the captured FED keeps of its rate with how many."""
    if fed.empty:
        return ""
    rates = [
        feeding.knee([int(count) for count in rows["input_workers"]], rows["sustained_per_s"].tolist()).per_worker / row["devices"]
        for row, rows in feeding.sweeps(fed)
    ]
    ends = " to ".join(dict.fromkeys(f"{rate:,.0f}" for rate in (min(rates), max(rates)))) if rates else ""
    told = [f"a worker makes {ends} images/s of JPEG files ({plural(len(rates), 'sweep')})"] if rates else []
    best = best_fed(fed)
    best = best[best["model"].eq(FED) & best["execution"].eq("captured")].sort_values(["n", "devices"], ascending=False)
    if len(best):
        row = best.iloc[0]
        named = f"captured {describe(row, ['model'])} on {devices_text(row['devices'], 'cuda')}"
        told.append(f"fed by {row['input_workers']} a GPU {named} keeps {percent_text(row['share'])} of its rate (n = {row['n']})")
    return "; ".join(told)
