"""What the pages on image models answer first, in a few sentences; their parts begin with their findings in full."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.cnn_advice import advice, advice_sentence, advised, decided
from multigpu.analysis.cnn_goals import goal_answer
from multigpu.analysis.cnn_scaling import scaling_answer
from multigpu.analysis.cnn_updates import PARALLEL, SPECS, STAGED, WIRES, changes
from multigpu.analysis.steady import WIDTH, steady
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
    return [text for text in (scaling_answer(frame), _strong(frame), goal_answer(frame)) if text]


def update_answers(frame: pd.DataFrame, measured: pd.DataFrame) -> list[str]:
    """Which update is fastest, and what the document's further ways change.

    Args:
        frame: of one machine a model. measured: of all, each row under the machine that measured it.
    """
    return [_updates(frame), _further(measured)]


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
    """Of each of FURTHER on several devices: the median of its rates over those without it, and their range, of points that no host set;
    how many others there are.
    """
    told, hosts = [], 0
    for name, kinds in FURTHER.items():
        table = changes(measured, kinds)
        table = table[table["devices"].gt(1) & table["ratio"].notna()] if len(table) else table
        if table.empty:
            told.append(f"{name} not measured yet")
            continue
        sure = steady(table, "ratio")
        ratios, hosts = table.loc[sure, "ratio"], hosts + int((~sure).sum())
        ends = f"{ratios.min():.2f} to {ratios.max():.2f} in {plural(len(ratios), 'point')}" if len(ratios) > 1 else "one point"
        told.append(f"{name} {ratios.median():.2f} times ({ends})" if len(ratios) else f"{name} not told")
    rest = f" Left out: {plural(hosts, 'point')} that hosts set." if hosts else ""
    return (
        "What the document's further ways do to the rate on several devices, in the median of steps that no host paces (captured, or "
        f"repeated within {percent_text(WIDTH)}): {joined(told)}.{rest}"
    )


def _updates(frame: pd.DataFrame) -> str:
    """In how many jobs of which two updates have intervals ddp is the fastest or tied with it, the others by name, and how the document's
    advice does.
    """
    table = advice(frame)
    if table.empty:
        return advice_sentence(frame)
    told = [ddp_told(table)] if ddp_rows(table)[0] else []
    judged = [bool(row["agrees"]) for _, row in table.iterrows() if decided(row) and row["agrees"] is not None]
    if judged:
        told.append(
            f"The document's own choice is the fastest or tied with it in {sum(judged)} of the {len(judged)} where it has an interval too."
        )
    rest = sum(not decided(row) for _, row in table.iterrows())
    if rest:
        told.append(f"Of {plural(rest, 'further job')} fewer than two updates have intervals: not told apart.")
    return " ".join(told)


def _of_ddp(row: Any) -> bool:
    """Whether ddp and another update of a job have intervals."""
    return decided(row) and "ddp" in row["known"]


def ddp_rows(table: pd.DataFrame) -> tuple[list[Any], list[Any]]:
    """Of `cnn_advice.advice` the jobs in which ddp and another update have intervals, and those of them in which one is faster than ddp."""
    rows = [row for _, row in table.iterrows() if _of_ddp(row)]
    return rows, [row for row in rows if row["best"] != "ddp" and "ddp" not in {name for name, *_ in row["rivals"]}]


def ddp_told(table: pd.DataFrame) -> str:
    """`ddp_rows` in words: in how many jobs no update is faster than ddp, and the exceptions with what ddp keeps."""
    rows, others = ddp_rows(table)
    said = (
        f"The fastest variable update is ddp, or not told apart from it, in {len(rows) - len(others)} of {plural(len(rows), 'job')} with "
        "intervals (a model, batch, form of a step and number of GPUs)"
    )
    return f"{said}{f'; elsewhere it is {joined([_ahead(row) for row in others])}' if others else ''}."


def _ahead(row: Any) -> str:
    """The update that is faster than ddp, for which job, and what ddp keeps of its rate."""
    _, share, low, high = next(found for found in row["shares"] if found[0] == "ddp")
    named = describe(row, ["model", "batch_size", "execution", *(["framework"] if row["framework"] != "torch" else [])])
    on = devices_text(row["devices"], row["device_type"])
    return f"{advised(row)} for {named} on {on}, of whose rate ddp keeps {share:.3f} ({low:.3f} to {high:.3f})"
