"""What the page on image models answers first, in a few sentences; its parts begin with their findings in full."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.cnn_advice import SCALES, advice, advice_sentence, advised, least_scaled, scaled_points, scaling_sentence, told_rows
from multigpu.analysis.cnn_goals import goal_answer
from multigpu.analysis.wording import describe, devices_text, joined, percent_text, plural


def answers(frame: pd.DataFrame) -> list[str]:
    """Which models scale, which update is fastest, and what ResNet-50 keeps; each says where nothing was measured, the last is left out."""
    return [text for text in (_scaling(frame), _updates(frame), goal_answer(frame)) if text]


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
