"""Tables of all-reduces between hosts."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.all_reduce_findings import name_of
from multigpu.analysis.hosts import document_steps, growth, latency
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import missing, percent_text, with_interval

NOTHING = "No all-reduce between hosts has been measured: `python -m multigpu hosts` does, as root on Linux."


def _ms(row: pd.Series, decimals: int = 0) -> str:
    low, high = (1000 * row[end] for end in ("low_s", "high_s"))
    return with_interval(f"{1000 * row['time_s']:,.{decimals}f}", low, high, f",.{decimals}f")


def growth_table(frame: pd.DataFrame) -> Shown:
    """Every method: time on each number of hosts, and its ratio to the formula's on the most."""
    table = growth(frame)
    rows = []
    for method, line in table.groupby("method", sort=False):
        cells = {"method": name_of(str(method))}
        cells |= {f"{int(row['devices'])} hosts (ms)": _ms(row) for _, row in line.iterrows()}
        last = line.iloc[-1]
        cells[f"formula on {int(last['devices'])} (ms)"] = f"{1000 * last['link_s']:,.0f}"
        cells["ours over formula"] = f"{last['ratio']:.2f}"
        carried = missing(last["way_bytes"]) or not last["way_bytes"]
        cells["bytes over formula"] = "–" if carried else f"{last['sent_bytes'] / last['way_bytes']:.3f}"
        rows.append(cells)
    data = pd.DataFrame(rows).fillna("not measured")
    note = "Intervals: the median of the samples, at 95%. Formula: bytes in a row over the link's rate less headers. One Record a point."
    return table_html(data, note=note if rows else NOTHING, right=[str(name) for name in data if name != "method"])


def latency_table(frame: pd.DataFrame) -> Shown:
    """Small late messages: time beside the delays of the messages in a row."""
    rows = []
    for method, line in latency(frame).groupby("method", sort=False):
        cells = {"method": name_of(str(method))}
        for _, row in line.iterrows():
            cells[f"{int(row['devices'])} hosts (ms)"] = _ms(row, 1)
        cells["delays in a row (ms)"] = ", ".join(f"{1000 * time:.0f}" for time in line["formula_s"])
        rows.append(cells)
    data = pd.DataFrame(rows).fillna("not measured")
    return table_html(
        data,
        note="4 KiB on each host. Delays in a row: on as many hosts as have a figure." if rows else NOTHING,
        right=[str(name) for name in data if name != "method"],
    )


def document_table(frame: pd.DataFrame, per_host: int) -> Shown:
    """Document 004's step and ours by method: time, and the share of linear speed that is left."""
    table = document_steps(frame, per_host)
    rows = []
    for devices, line in table[table["devices"] > 1].groupby("devices"):
        document = line["document_s"].iloc[0]
        cells = {"processes": f"{devices}", "hosts": f"{int(line['hosts'].iloc[0])}"}
        cells["document (ms)"] = "–" if missing(document) else f"{1000 * document:.0f}"
        for _, row in line.iterrows():
            cells[f"{name_of(str(row['method']))} (ms)"] = f"{1000 * row['time_s']:,.0f}, {percent_text(row['efficiency'])}"
        rows.append(cells)
    data = pd.DataFrame(rows).fillna("not measured")
    note = "Step with compute slept, and the share of linear speed. The document's 2 and 4 GPUs share one machine." if rows else NOTHING
    return table_html(data, note=note, right=[str(name) for name in data if name != "processes"])
