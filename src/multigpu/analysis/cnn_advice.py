"""Which variable update suits which image model (document 001's question; C42, C43): answers computed from Records.

An update is preferred where the interval of every other's rate over its own lies below 1. Where one holds 1 the two are not told apart,
which is no equality: the interval says how much choosing the other may lose.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.choose import overlaps
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import BUCKETS
from multigpu.analysis.pairs import EQUAL, ONCE
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import (
    MODEL_NAMES,
    describe,
    devices_text,
    joined,
    missing,
    percent_text,
    plural,
)

UPDATES = ("exp2", "staged_cpu", "ps_gpu0", "staged_gpu0", "exp4", "replicated_copy", "replicated_allreduce", "ddp")
"""Document 001's kinds of variable update, with variables spread over GPUs and with all-reduce during backward."""

SAYS = {
    **dict.fromkeys((f"resnet{layers}_{form}" for layers in (50, 101, 152) for form in ("v1", "v1.5")), ("exp2",)),
    **dict.fromkeys(("inception3", "inception4"), ("exp2",)),
    **dict.fromkeys(("alexnet", "vgg11", "vgg16", "vgg19"), ("replicated_allreduce", "ddp")),
}
"""What the document advises: variables on the CPU for Inception and ResNet, replicas with NCCL for AlexNet and VGG."""

JOB = ("model", "batch_size", "scaling", "precision", "execution", "layout", "inputs", "optimizer", "devices", "framework", "processes")


def advice(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a model, batch, form of execution and number of devices (two or more) on which two updates or more were measured.

    Returns:
        the job's fields; best: the fastest placement; rivals: those not told apart from it, a tuple each of placement, its rate over the
        best one's, and the interval's ends (NaN where either was measured once, and intervals of rates alone overlap); once: placements
        that were measured once; known: those with an interval; shares: all others than the best, as rivals are; slowest and times: the
        slowest, and how many times as fast the best is; says: what the document advises ("" if nothing); agrees: whether that is the best
        or one of its rivals.
    """
    points = summary(frame)
    usual = points[[*BUCKETS, "all_reduce_spec", "wire_dtype", "loss_scale", "batch_norm"]].isna().all(axis=1)
    points = points[usual & points["placement"].isin(UPDATES) & (points["devices"] > 1) & (points["n"] > 0)]
    launches = dict(zip(frame["key"], frame["launch_id"], strict=True))
    rows = []
    for _, group in points.groupby(list(JOB), dropna=False, sort=False):
        known = group[group["rate_low"].notna()]
        if len(known) < 2:  # the host's speed differs between launches, which one measurement cannot tell from the update's
            own = group["keys"].map(launches)
            group = group[own.isna() | own.eq(own.mode().iloc[0])] if own.notna().any() else group
        if len(group) < 2:
            continue
        ordered = (known if len(known) > 1 else group).sort_values("rate", ascending=False)
        best, worst = ordered.iloc[0], group.sort_values("rate").iloc[0]
        shares = [(row, *ratio_of(frame, row, best)) for _, row in ordered.iloc[1:].iterrows()]
        rivals = [(row["placement"], share, *ends) for row, share, ends in shares if _may_equal(best, row, ends[1])]
        says = SAYS.get(str(best["model"]), ())
        measured = set(ordered["placement"]) & set(says)
        rows.append(
            {name: best[name] for name in (*JOB, "device_type", "unit")}
            | {"best": best["placement"], "rivals": rivals, "once": list(group.loc[group["rate_low"].isna(), "placement"])}
            | {"known": list(known["placement"]), "shares": [(row["placement"], share, *ends) for row, share, ends in shares]}
            | {"rate": best["rate"], "candidates": len(group), "slowest": worst["placement"], "times": best["rate"] / worst["rate"]}
            | {"says": says, "agrees": bool({best["placement"], *(name for name, *_ in rivals)} & measured) if measured else None}
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    keyed = table.assign(_model=table["model"].map(order))
    return keyed.sort_values(["_model", "batch_size", "execution", "devices"]).drop(columns="_model").reset_index(drop=True)


def _may_equal(best: Any, row: Any, high: float) -> bool:
    """Whether nothing tells a point from the best one: the interval of their ratio, whose upper end this is, or those of the rates."""
    return overlaps(best, row) if missing(high) else high >= 1


def advice_table(frame: pd.DataFrame) -> Shown:
    """`advice` in words, beside what the document advises."""
    table = advice(frame)
    if table.empty:
        return table_html(table, note="No model has two updates measured on several GPUs.")
    rows = [
        {
            "job": describe(row, ["model", "batch_size", "precision", "execution", *_unusual(row)]),
            "GPUs": str(row["devices"]),
            "advice": advised(row) if decided(row) else f"{EQUAL}; ahead: {advised(row).replace(ONCE, 'once')}",
            "not told apart, keeps": "; ".join(_kept(rival) for rival in row["rivals"]),
            "slowest": f"{unlisted(look(row['slowest']).label)} {percent_text(1 / row['times'])}",
            "agrees": {None: "–", True: "yes", False: "no"}[row["agrees"] if decided(row) else None],
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Advice: the fastest update, where two have intervals. Not told apart: updates whose rate over its own has an interval that "
        "holds 1, with that rate and interval: what choosing them keeps; without an interval, of what was measured once. Where "
        "fewer than two have an interval, none is advised: the one that was ahead in one launch is named. Slowest: with its share of the "
        "best rate. Agrees: whether the document's update is the fastest or not told apart from it; a dash where it was not measured, or "
        "none is advised. "
        f"{_document_advises(table)}"
    )
    return table_html(pd.DataFrame(rows), note=note.strip(), right=["GPUs"])


def _document_advises(table: pd.DataFrame) -> str:
    """What the document advises for the models of the table: "It advises Exp2 for ResNet-50 v1 and Inception-v3."."""
    models: dict[str, list[str]] = {}
    for _, row in table.drop_duplicates("model").iterrows():
        if row["says"]:
            models.setdefault(unlisted(look(row["says"][0]).label), []).append(describe(row, ["model"]))
    told = [f"{update} for {joined(names)}" for update, names in models.items()]
    return f"It advises {'; '.join(told)}." if told else ""


def _unusual(row: Any) -> list[str]:
    """The fields to tell beside a job's, where one process drives all devices or the framework is not PyTorch."""
    return (["processes"] if row["processes"] == "one" else []) + (["framework"] if row["framework"] != "torch" else [])


def advised(row: Any) -> str:
    """The update that a row of `advice` names, with "(measured once)" where it was."""
    return unlisted(look(row["best"]).label) + (f" ({ONCE})" if row["best"] in row["once"] else "")


def _kept(rival: tuple[str, float, float, float]) -> str:
    """A rival with the share of the best rate that it keeps: "Exp2 72% (49 to 106%)"."""
    name, share, low, high = rival
    return f"{unlisted(look(name).label)} {percent_text(share, low, high)}" + (", once" if missing(low) else "")


def unlisted(label: str) -> str:
    """A label without its comma, which would end it in a list: "all-reduce (no overlap)"."""
    first, comma, rest = label.partition(", ")
    return f"{first} ({rest})" if comma else label


def decided(row: Any) -> bool:
    """Whether two updates of a job have intervals: of fewer, nothing is told apart."""
    return len(row["known"]) > 1


def advice_sentence(frame: pd.DataFrame) -> str:
    """Of every job of which two updates have intervals the fastest one, and what those that are not told apart from it may lose; the other
    jobs are counted.
    """
    table = advice(frame)
    if table.empty:
        return "Which update suits which model cannot be said: no model has two of them measured on several GPUs."
    answers: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, Any]]] = {}
    rows = [row for _, row in table.iterrows() if decided(row)]
    for row in rows:
        batches = {other["batch_size"] for other in rows if other["model"] == row["model"]}
        batch = ["batch_size"] if len(batches) > 1 else []
        precisions = {other["precision"] for other in rows}
        precision = ["precision"] if len(precisions) > 1 else []
        way = describe(row, ["execution", *precision, *(["framework"] if row["framework"] != "torch" else [])])
        where = f"{way[:1].upper()}{way[1:]} on {devices_text(row['devices'], row['device_type'])}"
        same = (where, advised(row), tuple(name for name, *_ in row["rivals"]))
        answers.setdefault(same, []).append((describe(row, ["model", *batch]), row["rivals"]))
    parts: dict[str, list[str]] = {}
    for (where, answer, rivals), found in answers.items():
        said = f"{answer} for {joined([model for model, _ in found])}"
        if rivals:
            lost = joined([_range([own[place] for _, own in found]) for place in range(len(rivals))])
            said += f", {EQUAL} from {lost} of its rate"
        parts.setdefault(where, []).append(said)
    told = [f"{where}: {'; '.join(said)}." for where, said in sorted(parts.items())]
    said = f"The fastest variable update by model. {' '.join(told)}" if told else "No job has two variable updates with intervals."
    rest = len(table) - len(rows)
    return f"{said} Of {plural(rest, 'further job')} fewer than two updates have intervals: {EQUAL}." if rest else said


def _range(rivals: list[tuple[str, float, float, float]]) -> str:
    """One placement over several models: "Exp2, which keeps 72% to 98% (intervals 49% to 131%)"."""
    ends = [percent_text(value) for value in (min(share for _, share, *_ in rivals), max(share for _, share, *_ in rivals))]
    lows, highs = [low for *_, low, _ in rivals if not missing(low)], [high for *_, high in rivals if not missing(high)]
    known = f"intervals {percent_text(min(lows))} to {percent_text(max(highs))}" if lows else "once"
    return f"{unlisted(look(rivals[0][0]).label)}, which keeps {' to '.join(dict.fromkeys(ends))} ({known})"


def lacking_sentence(frame: pd.DataFrame, models: tuple[str, ...]) -> str | None:
    """Which of these models have no advice yet, or None."""
    table = advice(frame)
    known = set(table["model"]) if len(table) else set()
    lacking = [MODEL_NAMES.get(name, name) for name in models if name not in known]
    return f"Not measured yet: {plural(len(lacking), 'model')} ({joined(lacking)})." if lacking else None
