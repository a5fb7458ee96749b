"""Tables of all-reduces between hosts."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.all_reduce_findings import name_of
from multigpu.analysis.hosts import document_steps, growth, latency
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import missing, percent_text, plural, with_interval

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
    """Document 004's step and ours, a row each method and a column each number of processes: ms, and the share of linear speed left."""
    table = document_steps(frame, per_host)
    table = table[table["devices"] > 1].sort_values("devices", kind="stable")
    if table.empty:
        return table_html(pd.DataFrame(), note=NOTHING)
    hosts = table.drop_duplicates("devices").set_index("devices")["hosts"]
    heading = {devices: f"{devices} on {plural(int(count), 'host')}" for devices, count in hosts.items()}
    document = table.drop_duplicates("devices").set_index("devices")["document_s"].dropna()
    rows = [{"step (ms)": "document 004", **{heading[devices]: f"{1000 * seconds:,.0f}" for devices, seconds in document.items()}}]
    for method, line in table.groupby("method", sort=False):
        cells = {heading[row["devices"]]: f"{1000 * row['time_s']:,.0f} ({percent_text(row['efficiency'])})" for _, row in line.iterrows()}
        rows.append({"step (ms)": name_of(str(method)), **cells})
    data = pd.DataFrame(rows if len(document) else rows[1:], columns=["step (ms)", *heading.values()]).fillna("–")
    note = (
        "Processes on hosts, compute slept; in brackets the share of linear speed. The document's 2 and 4 GPUs share one machine. "
        "–: not measured."
    )
    return table_html(data, note=note, right=list(heading.values()))
