"""What image models keep of perfect scaling under ddp (C12), and what capturing their steps gives.

A model is told by a point that no host set (`steady`), where it has one: eager points wander with their host by more than merging takes.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from multigpu.analysis.cnn_document import torch_points
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.ordinary import BUCKETS
from multigpu.analysis.pairs import Change, best_first, paired
from multigpu.analysis.steady import WIDTH, eager_ahead, once_text, steady
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

SCALES = 0.9
"""Share of perfect scaling that document 001's large models keep (C12)."""
SCALED_WAYS = ("captured", "eager")
"""Forms of execution of which a model is told in one, the first of equally often repeated ones."""
NOTHING = "Which models scale cannot be said: none was measured under ddp on one GPU and on several."
ROUGH = f"eager points alone, measured once or with an interval of more than {percent_text(WIDTH)} to a side"
"""What is no steady point."""


def ddp_points(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `scaling_table` under ddp on several devices whose one device was measured."""
    table = scaling_table(torch_points(frame))
    return table[table["placement"].eq("ddp") & table["devices"].gt(1) & table["efficiency"].notna() & table["execution"].isin(SCALED_WAYS)]


def scaled_points(frame: pd.DataFrame) -> pd.DataFrame:
    """A row of `scaling_table` a model under ddp on several devices, with `steady`: whether no host set it.

    Of a model's points a steady one, with an interval before measured once, captured before eager, on most devices, at the model's own
    batch, then at the largest.
    """
    own = ddp_points(frame)
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    usual = [row["batch_size"] == find_model(row["workload"], row["model"]).config.default_batch for _, row in own.iterrows()]
    keyed = own.assign(
        steady=steady(own, "efficiency"),
        _once=own["efficiency_low"].isna(),
        _form=own["execution"].map(SCALED_WAYS.index),
        _other=[not value for value in usual],
        _model=own["model"].map(order),
    )
    by = ["_model", "steady", "_once", "_form", "devices", "_other", "batch_size"]
    keyed = keyed.sort_values(by, ascending=[True, False, True, True, False, True, False], kind="stable")
    return keyed.drop_duplicates("model").drop(columns=["_once", "_form", "_other", "_model"]).reset_index(drop=True)


def scaling_answer(frame: pd.DataFrame) -> str:
    """Which models' steady points keep SCALES of perfect scaling, the least of captured points, and of how many models nothing is told."""
    table = scaled_points(frame)
    if table.empty:
        return NOTHING
    told = table[table["steady"]]
    exact, once = told[told["efficiency_low"].notna()], told[told["efficiency_low"].isna()]
    low, high, share = exact["efficiency_low"] >= SCALES, exact["efficiency_high"] >= SCALES, percent_text(SCALES)
    groups = [
        (exact[low], f"{share} of perfect scaling with the whole interval"),
        (once[once["efficiency"] >= SCALES], f"{share} in one measurement"),
        (exact[~low & high], f"{share} or less, within its interval"),
        (exact[~high], f"less than {share}"),
        (once[once["efficiency"] < SCALES], f"less than {share} in one measurement"),
    ]
    parts = [f"{_names(own)} {'keeps' if len(own) == 1 else 'keep'} {words}" for own, words in groups if len(own)]
    said = [f"Under ddp, in steps that no host paces (captured, or repeated within {percent_text(WIDTH)}), {'; '.join(parts)}."]
    said = [*(said if parts else []), *filter(None, [_least_sentence(frame)])]
    rest = len(table) - len(told)
    if rest:
        of = f"other {rest} of {plural(len(table), 'model')}" if parts else plural(rest, "model")
        said.append(f"Of {'the ' if parts else ''}{of} only points that their host sets were measured: they tell no scaling.")
    return " ".join(said)


def _names(own: pd.DataFrame) -> str:
    return joined([describe(row, ["model"]) for _, row in own.iterrows()])


def _least_sentence(frame: pd.DataFrame) -> str:
    """The captured point of the least efficiency; "" without any."""
    found = least_captured(frame)
    if found is None:
        return ""
    row, every = found
    least = f"{percent_text(row['efficiency'], row['efficiency_low'], row['efficiency_high'])}"
    where = f"{describe(row, ['model', 'batch_size'])} on {devices_text(row['devices'], row['device_type'])}{once_text(row, 'efficiency')}"
    of = f"The least of {every} captured points is" if every > 1 else "The one captured point is"
    return f"{of} {least} ({where}{eager_ahead(frame, row)})."


def least_captured(frame: pd.DataFrame) -> tuple[Any, int] | None:
    """The captured point of the least efficiency under ddp, of all and not only of those that speak for their models; and how many there
    are. None without any.
    """
    own = ddp_points(frame)
    own = own[own["execution"].eq("captured")]
    return (own.iloc[int(own["efficiency"].to_numpy().argmin())], len(own)) if len(own) else None


def scaling_sentence(frame: pd.DataFrame) -> str:
    """Which models keep SCALES of perfect scaling under ddp by their steady points: those whose interval says so, those whose interval
    leaves it open, those measured once; the other models; and the least of all captured points, whichever stands for its model.
    """
    table = scaled_points(frame)
    if table.empty:
        return NOTHING
    told, rest = table[table["steady"]], table[~table["steady"]]
    exact, once = told[told["efficiency_low"].notna()], told[told["efficiency_low"].isna()]
    low, high, share = exact["efficiency_low"] >= SCALES, exact["efficiency_high"] >= SCALES, percent_text(SCALES)
    enough = once["efficiency"] >= SCALES
    groups = [
        (exact[low], "keep", f"{share} of perfect scaling with the whole interval", _each),
        (exact[~low & high], "have", f"an interval that holds {share}", _each),
        (exact[~high], "keep", f"less than {share}", _each),
        (once[enough], "keep", f"{share} in one captured measurement", _each),
        (once[~enough], "keep", "less in one captured measurement", _each),
        (rest, "have", f"{ROUGH}, which tell no scaling", _together),
    ]
    singular = {"keep": "keeps", "have": "has"}
    parts = [f"{plural(len(own), singular[verb], verb)} {words} ({named(own)})" for own, verb, words, named in groups if len(own)]
    return f"Of {plural(len(table), 'model')} under ddp, {joined(parts)}. {_least_sentence(frame)}".strip()


def _each(own: pd.DataFrame) -> str:
    return "; ".join(_scaled(row) for _, row in own.iterrows())


def _together(own: pd.DataFrame) -> str:
    """The models, and the least and the most of their efficiencies."""
    ends = dict.fromkeys(f"{100 * value:.0f}%" for value in (own["efficiency"].min(), own["efficiency"].max()))
    return f"{_names(own)}: {' to '.join(ends)}"


def _scaled(row: Any) -> str:
    """A model with its efficiency: "VGG-16 94.8% (94.7 to 94.9%), captured on 2 GPUs"."""
    low, high = (100 * row[f"efficiency_{end}"] for end in ("low", "high"))
    share = with_interval(f"{100 * row['efficiency']:.1f}%", low, high, ".1f").replace(")", "%)")
    return f"{describe(row, ['model'])} {share}, {row['execution']} on {devices_text(row['devices'], row['device_type'])}"


def good_models(frame: pd.DataFrame) -> str | None:
    """The models whose steady point keeps SCALES with its whole interval; None without any."""
    points = scaled_points(frame)
    sure = points[points["steady"] & points["efficiency_low"].ge(SCALES)] if len(points) else points
    if sure.empty:
        return None
    how = f"captured or within {percent_text(WIDTH)} to either side"
    return f"those that keep {percent_text(SCALES)} with the whole interval, {how}: {_each(sure)}"


CAPTURED = Change("a captured step", {"execution": ("captured",)}, {"execution": "eager"})


def captured_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """A row of `pairs.paired` a model, batch, number of devices and machine: captured over eager steps of the same Run under ddp on several
    devices; with an interval before measured once, the smallest ratio first.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).
    """
    table = paired(frame, CAPTURED)
    if table.empty:
        return table
    table = table[table["placement"].eq("ddp") & table["devices"].gt(1) & table[[*BUCKETS, "wire_dtype"]].isna().all(axis=1)]
    return best_first(table.sort_values("ratio", kind="stable"))


def captured_range(table: pd.DataFrame) -> str:
    """The smallest and the largest ratio of `captured_pairs` with their points: "0.94 (VGG-16, batch 64 a GPU, on 4 GPUs, once) to 3.63
    (AlexNet (CIFAR), batch 128 a GPU, on 2 GPUs, once) times as fast as eager in 15 points, 1.01 to 1.13 in the 5 repeated".
    """
    ordered, repeated = table.sort_values("ratio", kind="stable"), table[table["ratio_low"].notna()]
    ends = [f"{row['ratio']:.2f} ({_where(row)}{once_text(row, 'ratio')})" for _, row in ordered.iloc[[0, -1]].iterrows()]
    said = f"{' to '.join(dict.fromkeys(ends))} times as fast as eager" + (f" in {len(table)} points" if len(table) > 1 else "")
    if not 0 < len(repeated) < len(table):
        return said
    low, high = repeated["ratio"].min(), repeated["ratio"].max()
    return f"{said}, {' to '.join(dict.fromkeys(f'{value:.2f}' for value in (low, high)))} in the {len(repeated)} repeated"


def captured_sentence(frame: pd.DataFrame) -> str | None:
    """Of `captured_pairs` the smallest and the largest gain, and both rates of those that were repeated; None where no step was measured
    both ways.
    """
    table = captured_pairs(frame)
    if table.empty:
        return None
    extent = f"Captured, ddp is {captured_range(table)}. " if len(table) > 1 else ""
    repeated = [_beaten(row) for _, row in table.iterrows() if len(table) == 1 or not missing(row["ratio_low"])]
    return f"{extent}{'Captured steps beside eager ones, ddp: ' + '; '.join(repeated) + '.' if repeated else ''}".strip()


def _where(row: Any) -> str:
    """A point's job: "VGG-16, batch 64 a GPU, on 4 GPUs"."""
    return f"{describe(row, ['model', 'batch_size'])}, on {devices_text(row['devices'], row['device_type'])}"


def _beaten(row: Any) -> str:
    """Both rates of a point: "AlexNet (CIFAR), batch 128 a GPU, on 2 GPUs: 268,996 against 74,113 images/s (3.63 times, once)"."""
    rates = f"{row['rate']:,.0f} against {row['rate'] / row['ratio']:,.0f} {UNIT_NAMES[row['unit']]}"
    return f"{_where(row)}: {rates} ({ratio_text(row['ratio'], row['ratio_low'], row['ratio_high'])}{once_text(row, 'ratio')})"
