"""What each traced placement launches and copies in a step: kernels, launches, and copies by kind with their calls, bytes and time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd

from multigpu.analysis.causes import causes_frame
from multigpu.analysis.figure_causes import bar_name
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.traces import copies_frame
from multigpu.analysis.wording import bytes_text, describe, devices_text
from multigpu.measure.trace import COPIES
from multigpu.record import Record

TO_WORDS = dict(zip(COPIES, ("host to device", "device to host", "between devices"), strict=True))


def copy_points(records: Sequence[Record]) -> pd.DataFrame:
    """A row a traced Run, in the order of placements on every page: the columns of `causes_frame`; <kind>_calls, <kind>_bytes and
    <kind>_s a step, added up over all devices (0 without such copies); joined_bytes: what a step moves by kernels of the communication
    library, which are no copies, so all of moved_bytes that no copy accounts for (NaN where the Record did not count).
    """
    table, copies = causes_frame(records), copies_frame(records)
    each = copies.assign(calls=copies["calls_a_step"], bytes=copies["bytes_a_step"], s=copies["calls_a_step"] * copies["mean_s"])
    sums = each.groupby(["kind", "key"])[["calls", "bytes", "s"]].sum()
    for kind, name in product(COPIES, sums):
        own = sums[name].get(kind, pd.Series(dtype="float64"))
        table[f"{kind}_{name}"] = table["key"].map(own).astype("float64").fillna(0.0)
    counted = {r.key: sum(r.measurement.moved_bytes.values()) for r in records if r.measurement and r.measurement.moved_bytes is not None}
    copied = sum(table[f"{kind}_bytes"] for kind in COPIES)
    table["joined_bytes"] = (table["key"].map(counted).astype("float64") - copied).clip(lower=0)
    order = [look(name).order for name in table["placement"]]
    return table.assign(_order=order).sort_values(["processes", "_order"], ascending=[False, True]).drop(columns="_order")


def copy_table(records: Sequence[Record]) -> Shown:
    """`copy_points` of one job in words."""
    table = copy_points(records)
    rows = []
    for _, row in table.iterrows():
        cells = {"placement": bar_name(row), "kernels / launches": f"{row['kernels']:,.0f} / {row['launches']:,.0f}"}
        for kind, words in TO_WORDS.items():
            calls, size, time_ms = row[f"{kind}_calls"], row[f"{kind}_bytes"], 1e3 * row[f"{kind}_s"]
            cells[words] = f"{calls:.0f} × {bytes_text(size / calls)}, {time_ms:.1f} ms" if calls else "–"
        joined = row["joined_bytes"]
        rows.append(cells | {"by kernels": "–" if pd.isna(joined) or not joined else bytes_text(joined)})
    if not rows:
        return table_html(pd.DataFrame(), note="No Record holds a trace.")
    first = table.iloc[0]
    note = (
        "A step. Kernels and launches: of a replica; a captured step counts the kernels in its graph. Copies: of all devices, calls × mean "
        "size and the sum of their durations, which may overlap. By kernels: what the communication library's collectives, sends and "
        "receives are handed. A dash: none. n = 1 (screening), under the profiler."
    )
    name = f"{describe(first, ['model', 'batch_size', 'precision'])}, {devices_text(first['devices'], first['device_type'])}, "
    name += str(first["machine"])
    return table_html(pd.DataFrame(rows), name, note=note, right=[column for column in rows[0] if column != "placement"])
