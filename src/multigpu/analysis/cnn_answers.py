"""What the pages on image models answer first, in a few sentences; their parts begin with their findings in full."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.cnn_advice import SCALES, advice, advice_sentence, advised, least_scaled, scaled_points, scaling_sentence, told_rows
from multigpu.analysis.cnn_goals import goal_answer
from multigpu.analysis.cnn_updates import PARALLEL, SPECS, STAGED, WIRES, changes
from multigpu.analysis.strong import captured_ddp, strong_points
from multigpu.analysis.wording import describe, devices_text, joined, percent_text, plural

FURTHER = {
    "staging": STAGED,
    "an all-reduce a range of sizes": SPECS,
    "gradients in 16 bits": WIRES,
    "concatenated predictions": PARALLEL,
}
"""Document 001's further ways of updating, by what they add."""


def answers(frame: pd.DataFrame) -> list[str]:
    """Which models scale, what one batch for all loses, and what ResNet-50 keeps; the first says where nothing was measured, others are
    left out.
    """
    return [text for text in (_scaling(frame), _strong(frame), goal_answer(frame)) if text]


def update_answers(frame: pd.DataFrame, measured: pd.DataFrame) -> list[str]:
    """Which update is fastest, and what the document's further ways change.

    Args:
        frame: of one machine a model. measured: of all, each row under the machine that measured it.
    """
    return [_updates(frame), _further(measured)]


def _scaling(frame: pd.DataFrame) -> str:
    table = scaled_points(frame)
    if table.empty:
        return scaling_sentence(frame)
    exact = table["efficiency_low"].notna()
    keeps = exact & (table["efficiency_low"] >= SCALES)
    once = ~exact & (table["efficiency"] >= SCALES)
    may = exact & ~keeps & (table["efficiency_high"] >= SCALES)
    kept, less = int((keeps | once).sum()), int((~keeps & ~once & ~may).sum())
    also = f" ({once.sum()} of them measured once)" if once.any() else ""
    open_for = f", for {may.sum()} the interval leaves it open" if may.any() else ""
    least, every = least_scaled(frame)
    where = f"{describe(least, ['model', 'batch_size', 'execution'])} on {devices_text(least['devices'], least['device_type'])}"
    return (
        f"Under ddp {kept} of {plural(len(table), 'model')} keep {percent_text(SCALES)} of perfect scaling{also}{open_for}, and {less} "
        f"keep less; the least of all {plural(every, 'point')} is {percent_text(least['efficiency'])} ({where})."
    )


def _strong(frame: pd.DataFrame) -> str:
    """Of one joined batch on several devices: in how many points the smaller share takes more than merging; "" without any."""
    table = strong_points(captured_ddp(frame))
    own = table[table["of_batch"].notna()] if len(table) else table
    if own.empty:
        return ""
    more = int((own["lost_batch"] > own["lost_merging"]).sum())
    worst = own.sort_values("kept").iloc[0]
    return (
        f"One batch on more devices loses more to smaller shares than to merging in {more} of {plural(len(own), 'point')}: at worst "
        f"{percent_text(worst['kept'])} of perfect scaling is kept ({describe(worst, ['model'])}, {worst['joined']:,} images on "
        f"{devices_text(worst['devices'], worst['device_type'])})."
    )


def _further(measured: pd.DataFrame) -> str:
    """Of each of FURTHER on several devices: the median of its rates over those without it, and their range."""
    told = []
    for name, kinds in FURTHER.items():
        table = changes(measured, kinds)
        ratios = table.loc[table["devices"] > 1, "ratio"].dropna() if len(table) else pd.Series(dtype="float64")
        if ratios.empty:
            told.append(f"{name} not measured yet")
            continue
        ends = f"{ratios.min():.2f} to {ratios.max():.2f} in {plural(len(ratios), 'point')}" if len(ratios) > 1 else "one point"
        told.append(f"{name} {ratios.median():.2f} times ({ends})")
    return f"What the document's further ways do to the rate, in the median on several devices: {joined(told)}."


def _updates(frame: pd.DataFrame) -> str:
    """For how many models and forms of a step ddp is the fastest update or tied with it, the others, and how the document's advice does."""
    rows = told_rows(advice(frame))
    if not rows:
        return advice_sentence(frame)
    others = [row for row in rows if row["best"] != "ddp" and "ddp" not in {name for name, *_ in row["rivals"]}]
    once = sum(row["best"] in row["once"] for row in rows)
    said = (
        f"The fastest variable update is ddp, or not told apart from it, for {len(rows) - len(others)} of {len(rows)} models and forms of"
    )
    said += f" a step ({once} measured once)" if once else " a step"
    if others:
        framework = [["framework"] if row["framework"] != "torch" else [] for row in others]
        named = [f"{advised(row)} for {describe(row, ['model', 'execution', *own])}" for row, own in zip(others, framework, strict=True)]
        said += f"; elsewhere it is {joined(named)}"
    judged = [bool(row["agrees"]) for row in rows if row["agrees"] is not None]
    beside = f" The document's own choice is the fastest or tied with it for {sum(judged)} of the {len(judged)} where both were measured."
    return f"{said}.{beside if judged else ''}"
