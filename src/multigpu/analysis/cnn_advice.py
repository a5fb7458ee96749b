"""Which variable update for which image model (document 001's question; C42, C43): advice computed from Records.

An update is preferred where its interval lies above all others'; where it does not, "no difference" is the answer and names those
among which there is none.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.choose import overlaps
from multigpu.analysis.metrics import summary
from multigpu.analysis.ordinary import BUCKETS
from multigpu.analysis.pairs import ONCE
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import MODEL_NAMES, describe, devices_text, joined, percent_text, plural

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
        the job's fields; best: the fastest placement; equals: those whose interval overlaps the best one's (with those measured once, as
        long as any was); single: whether the best or any rival that could beat it was measured once; slowest and times: the slowest, and
        how many times as fast the best is; says: what the document advises ("" if nothing); agrees: whether that is the best or its equal.
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
        equals = [row["placement"] for _, row in ordered.iloc[1:].iterrows() if overlaps(best, row)]
        says = SAYS.get(str(best["model"]), ())
        measured = set(ordered["placement"]) & set(says)
        rows.append(
            {name: best[name] for name in (*JOB, "device_type", "unit")}
            | {"best": best["placement"], "equals": equals, "once": list(group.loc[group["rate_low"].isna(), "placement"])}
            | {"rate": best["rate"], "candidates": len(group), "slowest": worst["placement"], "times": best["rate"] / worst["rate"]}
            | {"says": says, "agrees": bool({best["placement"], *equals} & measured) if measured else None}
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    keyed = table.assign(_model=table["model"].map(order))
    return keyed.sort_values(["_model", "batch_size", "execution", "devices"]).drop(columns="_model").reset_index(drop=True)


def advice_table(frame: pd.DataFrame) -> Shown:
    """`advice` in words, beside what the document advises."""
    table = advice(frame)
    if table.empty:
        return table_html(table, note="No model has two updates measured on several GPUs.")
    rows = [
        {
            "model": describe(row, ["model"]) + (f" (the document: {look(row['says'][0]).label})" if row["says"] else ""),
            "job": describe(row, ["batch_size", "precision", "execution", *_unusual(row)]),
            "GPUs": str(row["devices"]),
            "advice": _advised(row),
            "of (once)": f"{row['candidates']} ({len(row['once'])})",
            "slowest": f"{look(row['slowest']).label}, {percent_text(1 / row['times'])}",
            "agrees": {None: "–", True: "yes", False: "no"}[row["agrees"]],
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Advice: the update whose interval lies above all others', or those that intervals do not tell apart. Where fewer than two have an "
        "interval, those of one launch are compared. Of: updates measured, and how many of them once. Slowest: with its share of the best "
        "rate. Agrees: with the document; a dash where its update was not measured."
    )
    return tables_by(pd.DataFrame(rows), "model", note, ["GPUs", "of (once)"])


def _unusual(row: Any) -> list[str]:
    """The fields to tell beside a job's, where one process drives all devices or the framework is not PyTorch."""
    return (["processes"] if row["processes"] == "one" else []) + (["framework"] if row["framework"] != "torch" else [])


def _advised(row: Any) -> str:
    names = [_unlisted(look(name).label) for name in (row["best"], *row["equals"])]
    if len(names) > 1:
        return f"no difference between {joined(names)}"
    return names[0] + (f" ({ONCE})" if row["best"] in row["once"] else "")


def _unlisted(label: str) -> str:
    """A label without its comma, which would end it in a list: "all-reduce (no overlap)"."""
    first, comma, rest = label.partition(", ")
    return f"{first} ({rest})" if comma else label


FEW = 3
"""More models than this that were measured once are counted in the answer and named in the table alone."""


def advice_sentence(frame: pd.DataFrame) -> str:
    """Which models each answer holds for, on their most devices in each form of execution; those measured once are counted alone."""
    table = advice(frame)
    if table.empty:
        return "Which update suits which model cannot be said: no model has two of them measured on several GPUs."
    answers: dict[tuple[str, str], list[str]] = {}
    for _, group in table.groupby(["model", "execution"], sort=False):
        row = group[group["devices"] == group["devices"].max()].sort_values("candidates").iloc[-1]
        batches = sorted(set(group.loc[group["devices"] == row["devices"], "batch_size"]))
        batch = ["batch_size"] if len(batches) > 1 else []
        way = describe(row, ["execution", *(["framework"] if row["framework"] != "torch" else [])])
        where = f"{way[:1].upper()}{way[1:]} on {devices_text(row['devices'], row['device_type'])}"
        answers.setdefault((where, _advised(row)), []).append(describe(row, ["model", *batch]))
    parts: dict[str, list[str]] = {}
    for (where, answer), models in answers.items():
        once = ONCE in answer and len(models) > FEW
        parts.setdefault(where, []).append(f"{answer} for {plural(len(models), 'model') if once else joined(models)}")
    told = (f"{where}: {'; '.join(sorted(said, key=lambda text: ONCE in text))}." for where, said in parts.items())
    return f"The fastest variable update by model. {' '.join(told)}"


def lacking_sentence(frame: pd.DataFrame, models: tuple[str, ...]) -> str | None:
    """Which of these models have no advice yet, or None."""
    table = advice(frame)
    known = set(table["model"]) if len(table) else set()
    lacking = [MODEL_NAMES.get(name, name) for name in models if name not in known]
    return f"Not measured yet: {plural(len(lacking), 'model')} ({joined(lacking)})." if lacking else None
