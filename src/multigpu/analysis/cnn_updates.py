"""What document 001's further kinds of variable update cost or gain: staging, ranges of sizes, 16 bits on the wire, make_parallel."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd

from multigpu.analysis.cnn_page import repeats_cell
from multigpu.analysis.metrics import summary
from multigpu.analysis.pairs import EQUAL, FASTER, ONCE, SLOWER, Change, best_first, chosen, paired, ratio_cell
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import (
    MODEL_NAMES,
    bytes_text,
    describe,
    device_words,
    devices_text,
    field_text,
    joined,
    missing,
    plural,
    ratio_text,
)
from multigpu.grid import find_grid
from multigpu.run import Run

STAGED = (
    Change("staged, server on the CPU", {"placement": ("staged_cpu",)}, {"placement": "exp2"}),
    Change("staged, server on GPU 0", {"placement": ("staged_gpu0",)}, {"placement": "ps_gpu0"}),
)
"""Variables one step old against fresh ones, in the same place."""
SPECS = (Change("an all-reduce a range of sizes", {"all_reduce_spec": "*"}, {"all_reduce_spec": None}),)
"""Against one message that holds all gradients."""
WIRES = (Change("gradients in 16 bits", {"wire_dtype": "*"}, {"wire_dtype": None}),)
"""Against gradients in their own type."""
PARALLEL = (
    Change("make_parallel, variables on GPU 0", {"placement": ("make_parallel",)}, {"placement": "ps_gpu0"}),
    Change("make_parallel, variables on the CPU", {"placement": ("make_parallel_cpu",)}, {"placement": "exp2"}),
)
"""Predictions concatenated against gradients averaged, one process each."""
GRID = "cnn_updates"
GRID_DEVICES = (1, 2, 4, 8)
"""Numbers of GPUs for which the grid is asked what it plans."""


def changes(frame: pd.DataFrame, kinds: Sequence[Change]) -> pd.DataFrame:
    """`pairs.paired` of every change, those with an interval first, then in order of models and devices."""
    found = [table for change in kinds if len(table := paired(frame, change))]
    if not found:
        return pd.DataFrame()
    table = pd.concat(found, ignore_index=True)
    order = {name: index for index, name in enumerate(MODEL_NAMES)}
    by = ["change", "model", "batch_size", "devices", "framework", "machine"]
    return best_first(table.sort_values(by, key=lambda own: own.map(order) if own.name == "model" else own, kind="stable"))


def change_table(frame: pd.DataFrame, kinds: Sequence[Change]) -> Shown:
    """Each changed point beside its counterpart: what it was, its step and the counterpart's, the ratio of rates, what each moves."""
    table = changes(frame, kinds)
    if frame.empty:
        return table_html(table)
    if table.empty:
        names = joined([change.name for change in kinds])
        return table_html(table, note=f"Not measured yet: {names}. The grid {GRID} measures it.")
    rows = [
        {
            "machine": row["machine"],
            "model": describe(row, ["model", "batch_size"]),
            "GPUs": str(row["devices"]),
            "placement": look(row["placement"]).label,
            "how": describe(row, ["precision", "execution", *_one_process(row), *_framework(row), "all_reduce_spec", "wire_dtype"]),
            "step, ms (without)": f"{1e3 * row['step_time_s']:.2f} ({1e3 * row['base_step_time_s']:.2f})",
            "rate over without": ratio_cell(row),
            "repeats (without)": f"{repeats_cell(row['n'], row['launches'])} ({repeats_cell(row['base_n'], row['base_launches'])})",
            "so": row["verdict"],
            "moves (without)": f"{_bytes(row['moved_bytes'])} ({_bytes(row['base_moved_bytes'])})",
        }
        for _, row in table.iterrows()
    ]
    if set(table["verdict"]) == {ONCE}:  # the note says it once
        rows = [{name: cell for name, cell in row.items() if name != "so"} for row in rows]
    figures = ["GPUs", "step, ms (without)", "rate over without", "moves (without)"]
    note = (
        "Rates of the same Run with and without, both on the table's machine; 95% intervals, none where either side was measured once; not "
        "told apart: the interval holds 1. Repeats/launches, in brackets without. Moves: bytes a step, all GPUs. A process a device unless "
        "it says one." + (" All were measured once (screening)." if set(table["verdict"]) == {ONCE} else "")
    )
    return tables_by(pd.DataFrame(rows), "machine", note, figures)


def _one_process(row: Any) -> list[str]:
    """The field to tell, where one process drives all devices."""
    return ["processes"] if row["processes"] == "one" else []


def _framework(row: Any) -> list[str]:
    """The field to tell, where the framework is not PyTorch."""
    return ["framework"] if row["framework"] != "torch" else []


def _bytes(count: Any) -> str:
    return "–" if missing(count) else bytes_text(float(count)) if count else "0"


def change_sentence(frame: pd.DataFrame, change: Change) -> str:
    """How often the change helped on several GPUs, with the least and the largest ratio; that it was not measured, if so."""
    table = paired(frame, change)
    table = table[table["devices"] > 1] if len(table) else table
    if table.empty:
        return f"{_capital(change.name)}: not measured yet."
    least, most = (table.iloc[int((sign * table["ratio"]).to_numpy().argmax())] for sign in (-1, 1))
    if len(table) == 1:
        return f"{_capital(change.name)}: {_extent(most)} the rate without it ({_where(most)}; {most['verdict']})."
    counts = table["verdict"].value_counts()
    said = [f"{word} in {counts[word]}" for word in (FASTER, SLOWER, EQUAL) if counts.get(word)]
    if counts.get(ONCE):
        said.append(f"measured once in {counts[ONCE]} (median ratio {median(table.loc[table['verdict'] == ONCE, 'ratio']):.2f})")
    where = list(dict.fromkeys((_where(least), _where(most))))
    ends = (f"{_extent(row)}{f' ({_where(row)})' if len(where) > 1 else ''}" for row in (least, most))
    of = f" ({where[0]})" if len(where) == 1 else ""
    return f"{_capital(change.name)}, in {plural(len(table), 'point')}: {joined(said)}; from {' to '.join(ends)} the rate without it{of}."


def measured_sentence(frame: pd.DataFrame, kinds: Sequence[Change]) -> str:
    """Of which models, on how many devices and how often these changes were measured, and of which that `GRID` has too they were not."""
    planned = dict.fromkeys(entry.run.model for entry in find_grid(GRID, GRID_DEVICES) if any(_asks(entry.run, kind) for kind in kinds))
    points = summary(frame)
    points = points[points["n"] > 0]
    found = [own for kind in kinds if len(own := chosen(points, kind.own))]
    told = pd.concat(found, ignore_index=True) if found else points.iloc[:0]
    parts = []
    for model, own in told.groupby("model", sort=False):
        counts = sorted({int(count) for count in own["devices"]})
        kind = own["device_type"].iloc[0]
        on = devices_text(counts[0], kind) if len(counts) == 1 else f"{joined([str(count) for count in counts])} {device_words(kind)}"
        often = ", once each" if own["n"].max() == 1 else f", {int((own['n'] > 1).sum())} of {plural(len(own), 'point')} repeatedly"
        parts.append(f"{MODEL_NAMES.get(str(model), str(model))} on {on}{often}")
    lacking = [MODEL_NAMES.get(name, name) for name in planned if name not in set(told["model"])]
    said = f"Measured of {'; of '.join(parts)}." if parts else "Measured of no model."
    return said + (f" Not measured of {joined(lacking)}, which the grid `{GRID}` has too." if lacking else "")


def _asks(run: Run, change: Change) -> bool:
    """Whether a planned Run has the values of the change's own points (`pairs.chosen`)."""
    found = {name: getattr(run, name) for name in change.own}
    return all(found[name] is not None if isinstance(values, str) else found[name] in values for name, values in change.own.items())


def _extent(row: Any) -> str:
    return ratio_text(row["ratio"], row["ratio_low"], row["ratio_high"])


def _where(row: Any) -> str:
    return f"{field_text(row, 'model')} on {plural(int(row['devices']), 'GPU')}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
