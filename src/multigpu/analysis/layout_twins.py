"""NCHW over NHWC in fp32 on one GPU, TensorFlow beside PyTorch: the document's question in its own framework and in the other."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_page import repeats_cell
from multigpu.analysis.formats import layouts, published_row
from multigpu.analysis.pairs import ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, joined, missing

FORMS = {"tensorflow": "graph", "torch": "eager"}
PLACEMENTS = {"tensorflow": "exp4", "torch": "ddp"}
"""On one GPU neither merges anything."""
ABSENT = "Not measured in TensorFlow yet: python -m multigpu measure --grid tensorflow_models --devices 1 does."


def twins(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a model and batch that TensorFlow trained in both layouts, in the models' order.

    frame: each row under the machine that measured it (`cnn_page.as_measured`).

    Returns:
        model, batch_size; of each framework <name> (and bounds), NCHW's rate over NHWC's, both of <name>_on, the machine that repeated it
        most, with <name>_n and <name>_launches of NCHW (NaN, "" and 0: not measured); document: its typical gain.
    """
    table = layouts(frame)
    if table.empty:
        return table
    plain = table["precision"].eq("fp32") & table["devices"].eq(1)
    alike = [FORMS[name] == form and PLACEMENTS[name] == where for name, form, where in _ways(table)]
    rows: list[dict[str, Any]] = []
    for (model, batch), own in table[plain & pd.Series(alike, table.index)].groupby(["model", "batch_size"], sort=False):
        of = {name: own[own["framework"].eq(name)].sort_values("n", kind="stable").tail(1) for name in FORMS}
        if len(of["tensorflow"]):
            row = {"model": model, "batch_size": batch, "document": published_row(own.iloc[0])}
            rows.append(row | {key: value for name, found in of.items() for key, value in _side(name, found).items()})
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    found = pd.DataFrame(rows)
    return found.sort_values("model", key=lambda names: names.map(order), ignore_index=True) if rows else found


def _ways(table: pd.DataFrame) -> zip[tuple[str, str, str]]:
    return zip(table["framework"], table["execution"], table["placement"], strict=True)


def _side(name: str, found: pd.DataFrame) -> dict[str, Any]:
    """One framework's columns of `twins`."""
    if found.empty:
        return {name: math.nan, f"{name}_low": math.nan, f"{name}_high": math.nan, f"{name}_n": 0, f"{name}_launches": 0, f"{name}_on": ""}
    row = found.iloc[0]
    bounds = {f"{name}{end}": row[f"ratio{end}"] for end in ("", "_low", "_high")}
    return bounds | {f"{name}_n": int(row["n"]), f"{name}_launches": int(row["launches"]), f"{name}_on": row["machine"]}


def twins_table(frame: pd.DataFrame) -> Shown:
    """`twins` in words."""
    rows = [
        {
            "model, batch": f"{MODEL_NAMES[row['model']]}, {row['batch_size']}",
            **{
                key: cell
                for name in FORMS
                for key, cell in (
                    (FRAMEWORK_NAMES[name], ratio_cell(row, name)),
                    (
                        f"{FRAMEWORK_NAMES[name]}'s repeats",
                        repeats_cell(row[f"{name}_n"], row[f"{name}_launches"]) if row[f"{name}_n"] else "–",
                    ),
                )
            },
            "the document": f"{row['document']:.2f}",
        }
        for _, row in twins(frame).iterrows()
    ]
    note = (
        "Images/s with NCHW over those with NHWC, fp32, one GPU; TensorFlow one graph (Exp4), PyTorch eager (`ddp`), each framework's two "
        "layouts on one machine, 95% intervals. The document: typical gain on Tesla M60, TensorFlow 1.3."
    )
    return table_html(pd.DataFrame(rows), note=note if rows else ABSENT, right=[*(FRAMEWORK_NAMES[name] for name in FORMS), "the document"])


def twins_sentence(frame: pd.DataFrame) -> str:
    """Of which models NCHW is faster and of which slower in TensorFlow, and whether PyTorch's order is the same."""
    table = twins(frame)
    if table.empty:
        return f"NCHW against NHWC in fp32: {ABSENT[0].lower()}{ABSENT[1:]}"
    told = [f"{_ratio(row)} ({MODEL_NAMES[row['model']]})" for _, row in table.sort_values("tensorflow").iterrows()]
    once = ", measured once" if table["tensorflow_low"].isna().all() else ""
    text = f"In TensorFlow, the document's framework, NCHW in fp32 on one GPU gives {joined(told)} times the rate of NHWC{once}"
    both = table[table["torch"].notna()]
    if both.empty:
        return f"{text}; PyTorch has no such pair yet."
    told = [
        f"{row['torch']:.2f}" if not row["torch_low"] <= 1 <= row["torch_high"] else "not told apart from 1" for _, row in both.iterrows()
    ]
    other = [f"{ratio} ({MODEL_NAMES[name]})" for ratio, name in zip(told, both["model"], strict=True)]
    lacking = [MODEL_NAMES[name] for name in table.loc[table["torch"].isna(), "model"]]
    absent = f"; not measured there: {joined(lacking)}" if lacking else ""
    return f"{text}; in PyTorch {joined(other)}{absent}."


def _ratio(row: Any) -> str:
    return "–" if missing(row["tensorflow"]) else f"{row['tensorflow']:.2f}"
