"""Which image models scale, and under which variable update (document 001's questions; C12, C42, C43): answers computed from Records.

An update is preferred where the interval of every other's rate over its own lies below 1. Where one holds 1 the two are not told apart,
which is no equality: the interval says how much choosing the other may lose.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.choose import overlaps
from multigpu.analysis.cnn_document import torch_points
from multigpu.analysis.metrics import scaling_table, summary
from multigpu.analysis.ordinary import BUCKETS
from multigpu.analysis.pairs import EQUAL, ONCE, Change, best_first, paired
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import (
    MODEL_NAMES,
    UNIT_NAMES,
    describe,
    devices_text,
    joined,
    missing,
    percent_text,
    plural,
    ratio_text,
    with_interval,
)
from multigpu.workloads import find_model

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
        that were measured once; slowest and times: the slowest, and how many times as fast the best is; says: what the document advises
        ("" if nothing); agrees: whether that is the best or one of its rivals.
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
            "advice": advised(row).replace(ONCE, "once"),
            "not told apart, keeps": "; ".join(_kept(rival) for rival in row["rivals"]),
            "slowest": f"{_unlisted(look(row['slowest']).label)} {percent_text(1 / row['times'])}",
            "agrees": {None: "–", True: "yes", False: "no"}[row["agrees"]],
        }
        for _, row in table.iterrows()
    ]
    note = (
        "Advice: the fastest update; once: measured once. Not told apart: updates whose rate over its own has an interval that "
        "holds 1, with that rate and interval: what choosing them keeps; without an interval, of what was measured once. Where "
        "fewer than two have an interval, those of one launch are compared. Slowest: with its share of the best rate. Agrees: "
        "whether the document's update is the fastest or not told apart from it; a dash where it was not measured. "
        f"{_document_advises(table)}"
    )
    return table_html(pd.DataFrame(rows), note=note.strip(), right=["GPUs"])


def _document_advises(table: pd.DataFrame) -> str:
    """What the document advises for the models of the table: "It advises Exp2 for ResNet-50 v1 and Inception-v3."."""
    models: dict[str, list[str]] = {}
    for _, row in table.drop_duplicates("model").iterrows():
        if row["says"]:
            models.setdefault(_unlisted(look(row["says"][0]).label), []).append(describe(row, ["model"]))
    told = [f"{update} for {joined(names)}" for update, names in models.items()]
    return f"It advises {'; '.join(told)}." if told else ""


def _unusual(row: Any) -> list[str]:
    """The fields to tell beside a job's, where one process drives all devices or the framework is not PyTorch."""
    return (["processes"] if row["processes"] == "one" else []) + (["framework"] if row["framework"] != "torch" else [])


def advised(row: Any) -> str:
    """The update that a row of `advice` names, with "(measured once)" where it was."""
    return _unlisted(look(row["best"]).label) + (f" ({ONCE})" if row["best"] in row["once"] else "")


def _kept(rival: tuple[str, float, float, float]) -> str:
    """A rival with the share of the best rate that it keeps: "Exp2 72% (49 to 106%)"."""
    name, share, low, high = rival
    return f"{_unlisted(look(name).label)} {percent_text(share, low, high)}" + (", once" if missing(low) else "")


def _unlisted(label: str) -> str:
    """A label without its comma, which would end it in a list: "all-reduce (no overlap)"."""
    first, comma, rest = label.partition(", ")
    return f"{first} ({rest})" if comma else label


FEW = 3
"""More models than this that were measured once are counted in the answer and named in the table alone."""


def told_rows(table: pd.DataFrame) -> list[Any]:
    """The row of `advice` that speaks for each model and form of execution: on its most devices, of those the one with most updates."""
    groups: Any = table.groupby(["model", "execution"], sort=False) if len(table) else []
    return [group[group["devices"] == group["devices"].max()].sort_values("candidates").iloc[-1] for _, group in groups]


def advice_sentence(frame: pd.DataFrame) -> str:
    """The fastest update of each model, on its most devices in each form of execution, and what the updates that are not told apart from it
    may lose; those measured once are counted alone.
    """
    table = advice(frame)
    if table.empty:
        return "Which update suits which model cannot be said: no model has two of them measured on several GPUs."
    answers: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, Any]]] = {}
    for row in told_rows(table):
        alike = table[["model", "execution", "devices"]].eq(row[["model", "execution", "devices"]]).all(axis=1)
        batches = sorted(set(table.loc[alike, "batch_size"]))
        batch = ["batch_size"] if len(batches) > 1 else []
        way = describe(row, ["execution", *(["framework"] if row["framework"] != "torch" else [])])
        where = f"{way[:1].upper()}{way[1:]} on {devices_text(row['devices'], row['device_type'])}"
        same = (where, advised(row), tuple(name for name, *_ in row["rivals"]))
        answers.setdefault(same, []).append((describe(row, ["model", *batch]), row["rivals"]))
    parts: dict[str, list[str]] = {}
    for (where, answer, rivals), found in answers.items():
        models = [model for model, _ in found]
        once = ONCE in answer and len(models) > FEW
        said = f"{answer} for {plural(len(models), 'model') if once else joined(models)}"
        if rivals:
            lost = joined([_range([own[place] for _, own in found]) for place in range(len(rivals))])
            said += f", {EQUAL} from {lost} of its rate"
        parts.setdefault(where, []).append(said)
    told = (f"{where}: {'; '.join(sorted(said, key=lambda text: ONCE in text))}." for where, said in parts.items())
    return f"The fastest variable update by model. {' '.join(told)}"


def _range(rivals: list[tuple[str, float, float, float]]) -> str:
    """One placement over several models: "Exp2, which keeps 72% to 98% (intervals 49% to 131%)"."""
    ends = [percent_text(value) for value in (min(share for _, share, *_ in rivals), max(share for _, share, *_ in rivals))]
    lows, highs = [low for *_, low, _ in rivals if not missing(low)], [high for *_, high in rivals if not missing(high)]
    known = f"intervals {percent_text(min(lows))} to {percent_text(max(highs))}" if lows else "once"
    return f"{_unlisted(look(rivals[0][0]).label)}, which keeps {' to '.join(dict.fromkeys(ends))} ({known})"


SCALES = 0.9
"""Share of perfect scaling that document 001's large models keep (C12)."""
SCALED_WAYS = ("captured", "eager")
"""Forms of execution of which a model is told in one, the first of equally often repeated ones."""


def _ddp_points(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `scaling_table` under ddp on several devices whose one device was measured."""
    table = scaling_table(torch_points(frame))
    return table[table["placement"].eq("ddp") & table["devices"].gt(1) & table["efficiency"].notna() & table["execution"].isin(SCALED_WAYS)]


def scaled_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row of `scaling_table` a model under ddp on several devices: with an interval before measured once, captured before eager, on most
    devices, at the model's own batch, then at the largest.
    """
    own = _ddp_points(frame)
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    usual = [row["batch_size"] == find_model(row["workload"], row["model"]).config.default_batch for _, row in own.iterrows()]
    keyed = own.assign(
        _once=own["efficiency_low"].isna(),
        _form=own["execution"].map(SCALED_WAYS.index),
        _other=[not value for value in usual],
        _model=own["model"].map(order),
    )
    by = ["_model", "_once", "_form", "devices", "_other", "batch_size"]
    keyed = keyed.sort_values(by, ascending=[True, True, True, False, True, False], kind="stable")
    return keyed.drop_duplicates("model").drop(columns=["_once", "_form", "_other", "_model"]).reset_index(drop=True)


SINGULAR = {"keep": "keeps", "have": "has"}


def scaling_sentence(frame: pd.DataFrame) -> str:
    """Which models keep SCALES of perfect scaling under ddp: those whose interval says so, those whose interval leaves it open, those
    measured once; and the least of all points, whichever stands for its model.
    """
    table = scaled_points(frame)
    if table.empty:
        return "Which models scale cannot be said: none was measured under ddp on one GPU and on several."
    exact, once = table[table["efficiency_low"].notna()], table[table["efficiency_low"].isna()]
    low, high, share = exact["efficiency_low"] >= SCALES, exact["efficiency_high"] >= SCALES, percent_text(SCALES)
    enough = once["efficiency"] >= SCALES
    groups = [
        (exact[low], "keep", f"{share} of perfect scaling with the whole interval", _each),
        (exact[~low & high], "have", f"an interval that holds {share}", _together),
        (exact[~high], "keep", f"less than {share}", _each),
        (once[enough], "keep", f"{share} in one measurement", None),
        (once[~enough], "keep", "less in one measurement", _each),
    ]
    parts = [
        f"{plural(len(own), SINGULAR[verb], verb)} {words}{f' ({named(own)})' if named else ''}"
        for own, verb, words, named in groups
        if len(own)
    ]
    least, every = least_scaled(frame)
    return (
        f"Of {plural(len(table), 'model')} under ddp, {joined(parts)}. The least of all {plural(every, 'point')} of theirs: "
        f"{_scaled(least)}, {describe(least, ['batch_size', 'precision'])}."
    )


def least_scaled(frame: pd.DataFrame) -> tuple[Any, int]:
    """The point of the least efficiency under ddp, of all and not only of those that speak for their models; and how many there are."""
    every = _ddp_points(frame)
    return every.iloc[int(every["efficiency"].to_numpy().argmin())], len(every)


def _each(own: pd.DataFrame) -> str:
    return "; ".join(_scaled(row) for _, row in own.iterrows())


def _together(own: pd.DataFrame) -> str:
    """The models, and the least and the most of their efficiencies."""
    ends = dict.fromkeys(f"{100 * value:.1f}%" for value in (own["efficiency"].min(), own["efficiency"].max()))
    return f"{joined([describe(row, ['model']) for _, row in own.iterrows()])}: {' to '.join(ends)}"


def _scaled(row: Any) -> str:
    """A model with its efficiency: "VGG-16 94.8% (94.7 to 94.9%), captured on 2 GPUs"."""
    low, high = (100 * row[f"efficiency_{end}"] for end in ("low", "high"))
    share = with_interval(f"{100 * row['efficiency']:.1f}%", low, high, ".1f").replace(")", "%)")
    return f"{describe(row, ['model'])} {share}, {row['execution']} on {devices_text(row['devices'], row['device_type'])}"


CAPTURED = Change("a captured step", {"execution": ("captured",)}, {"execution": "eager"})


def captured_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row of `pairs.paired` a model: captured over eager steps of the same Run under ddp on several devices, with an interval before
    measured once, on its most devices; the largest ratio first.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    table = paired(frame, CAPTURED)
    if table.empty:
        return table
    table = table[table["placement"].eq("ddp") & table["devices"].gt(1) & table[[*BUCKETS, "wire_dtype"]].isna().all(axis=1)]
    ordered = best_first(table.sort_values(["devices", "ratio"], ascending=False, kind="stable"))
    return ordered.drop_duplicates("model").sort_values("ratio", ascending=False, ignore_index=True)


def captured_sentence(frame: pd.DataFrame) -> str | None:
    """Of `captured_points` the largest and the smallest gain, and both rates of those that were repeated; None where no step was measured
    both ways.
    """
    table = captured_points(frame)
    if table.empty:
        return None
    ends = [f"{row['ratio']:.2f} ({describe(row, ['model'])})" for row in (table.iloc[0], table.iloc[-1])]
    extent = f"Captured, ddp is {' to '.join(ends)} times as fast as eager in {plural(len(table), 'point')}. " if len(table) > 1 else ""
    repeated = [_beaten(row) for _, row in table.iterrows() if len(table) == 1 or not missing(row["ratio_low"])]
    return f"{extent}{'Captured steps beside eager ones, ddp: ' + '; '.join(repeated) + '.' if repeated else ''}".strip()


def _beaten(row: Any) -> str:
    """Both rates of a model: "AlexNet (CIFAR), batch 128 a GPU, on 2 GPUs: 268,996 against 74,113 images/s (3.63 times, once)"."""
    once = ", once" if missing(row["ratio_low"]) else ""
    on = f"{describe(row, ['model', 'batch_size'])}, on {devices_text(row['devices'], row['device_type'])}"
    rates = f"{row['rate']:,.0f} against {row['rate'] / row['ratio']:,.0f} {UNIT_NAMES[row['unit']]}"
    return f"{on}: {rates} ({ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])}{once})"


def lacking_sentence(frame: pd.DataFrame, models: tuple[str, ...]) -> str | None:
    """Which of these models have no advice yet, or None."""
    table = advice(frame)
    known = set(table["model"]) if len(table) else set()
    lacking = [MODEL_NAMES.get(name, name) for name in models if name not in known]
    return f"Not measured yet: {plural(len(lacking), 'model')} ({joined(lacking)})." if lacking else None
