"""What hosts' Records say, as sentences, or None where they do not support one."""

from __future__ import annotations

import pandas as pd

from multigpu.analysis.all_reduce_findings import name_of
from multigpu.analysis.hosts import document_steps, growth, latency, latest, repeated_growth
from multigpu.analysis.wording import joined, percent_text, plural, ratio_text
from multigpu.collectives.run import size_text
from multigpu.hosts.grid import COMPUTE_MS, SCALE

LATE = 1.5
"""A sample that took so many times the median waited for a processor."""


def _ends(table: pd.DataFrame, method: str) -> tuple[pd.Series, pd.Series] | None:
    """The rows of the fewest and of the most hosts."""
    own = table[table["method"] == method].sort_values("devices")
    return (own.iloc[0], own.iloc[-1]) if len(own) > 1 else None


def link_text(rate_bytes_per_s: float) -> str:
    """A link's rate as the machine's words have it: "200 Mbit/s"."""
    return f"{8e-6 * rate_bytes_per_s:g} Mbit/s"


def growth_finding(frame: pd.DataFrame) -> str | None:
    """C25 between hosts: by how much the server's and the ring's time grow, of what was repeated, and so of what the claim rests on.

    Without repeats, `growth_once_finding`.
    """
    table, once = repeated_growth(frame), growth_once_finding(frame)
    own = {str(row["method"]): row for _, row in table.iterrows()}
    if not {"central_server", "ring"} <= set(own):
        return once
    server, ring = own["central_server"], own["ring"]
    if (server["few"], server["most"]) != (ring["few"], ring["most"]):
        return once
    grown = [f"**{ratio_text(row['ratio'], row['low'], row['high'])}**" for row in (server, ring)]
    few, most, link = int(ring["few"]), int(ring["most"]), link_text(ring["rate_bytes_per_s"])
    n, launches = (int(min(server[name], ring[name])) for name in ("n", "launches"))
    beside = f". Smaller and over faster links, where a late process weighs more: {once[:1].lower()}{once[1:]}" if once else ""
    return (
        f"From {few} to {most} hosts with links of {link} an all-reduce of {size_text(int(ring['bytes']))} takes {grown[0]} as long "
        f"through a central server (its formula: {ratio_text(server['formula'])}) and {grown[1]} in a ring (formula: "
        f"{ratio_text(ring['formula'])}), n = {n} over {plural(launches, 'launch', 'launches')}{beside}"
    )


def growth_once_finding(frame: pd.DataFrame) -> str | None:
    """The same of the figure's all-reduces, which are smaller, over faster links and measured once or seldom: by how much they grow."""
    table = growth(frame)
    server, ring = (_ends(table, method) for method in ("central_server", "ring"))
    if not server or not ring or server[1]["devices"] != ring[1]["devices"]:
        return None
    few, most = int(ring[0]["devices"]), int(ring[1]["devices"])
    grown = [end[1]["time_s"] / end[0]["time_s"] for end in (server, ring)]
    predicted = [end[1]["link_s"] / end[0]["link_s"] for end in (server, ring)]
    return (
        f"From {few} to {most} hosts with links of {link_text(ring[0]['rate_bytes_per_s'])} an all-reduce of "
        f"{size_text(int(ring[0]['bytes']))} takes {ratio_text(grown[0])} as long through a central server (its formula: "
        f"{ratio_text(predicted[0])}) and {ratio_text(grown[1])} in a ring ({ratio_text(predicted[1])}), {_how_often(table)}"
    )


def _how_often(table: pd.DataFrame) -> str:
    """How many Records the ends of the server's and the ring's lines rest on: "one Record a point (screening)"."""
    own = table[table["method"].isin(("central_server", "ring"))]
    least = int(own.groupby(["method", "devices"]).size().min())
    return "one Record a point (screening)" if least == 1 else f"{plural(least, 'Record')} a point or more"


def interface_finding(frame: pd.DataFrame) -> str | None:
    """How far what the busiest interface carried lies above the formula's bytes."""
    table = growth(frame)
    own = table[table["way_bytes"].notna()]
    if own.empty:
        return None
    over = own["sent_bytes"] / own["way_bytes"] - 1
    return (
        f"In {plural(len(own), 'measurement')} of algorithms written out here the busiest host's interface carried "
        f"{percent_text(over.min())} to {percent_text(over.max())} more bytes than the formula has, headers and acknowledgements included"
    )


def steadiness_finding(frame: pd.DataFrame) -> str | None:
    """How steady the samples are, and how many points were measured once: processes share processors, with other programs too."""
    ok = latest(frame)
    if ok.empty:
        return None
    spread = ok["time_high_s"] / ok["time_s"]
    worst = ok.iloc[int(spread.argmax())]
    points = ok.groupby(["machine", "method", "bytes", "devices", "delay_us", "compute_ms"]).size()
    where = f"{name_of(str(worst['method']))} on {plural(int(worst['devices']), 'process', 'processes')}"
    return (
        f"In {(spread > LATE).sum()} of {plural(len(ok), 'measurement')} the slowest sample took more than {LATE:g} times the median; "
        f"the most, {ratio_text(spread.max())}, with {where}. "
        f"Of {plural(len(points), 'point')} {(points == 1).sum()} were measured once: screening"
    )


def latency_finding(frame: pd.DataFrame) -> str | None:
    """Which algorithms win where messages are small and late."""
    table = latency(frame)
    if table.empty:
        return None
    most = table[table["devices"] == table["devices"].max()].sort_values("time_s")
    first, last = most.iloc[0], most.iloc[-1]
    if len(most) < 2 or first["high_s"] >= last["low_s"]:
        return None
    return (
        f"With small messages, each late, on {int(first['devices'])} hosts {_in_a_sentence(first['method'])} "
        f"({plural(int(first['terms']), 'message')} in a row) is fastest and {_in_a_sentence(last['method'])} ({int(last['terms'])}) takes "
        f"**{ratio_text(last['time_s'] / first['time_s'])}** its time{_server_beside_ring(most)}"
    )


def _server_beside_ring(most: pd.DataFrame) -> str:
    """Whether the server beats the ring where messages are late, as was expected; "" where either is not measured."""
    sides = [most[most["method"] == method] for method in ("central_server", "ring")]
    if not all(map(len, sides)):
        return ""
    server, ring = (side.iloc[0] for side in sides)
    if server["high_s"] < ring["low_s"]:
        return f"; the central server takes {ratio_text(server['time_s'] / ring['time_s'])} the ring's"
    if ring["high_s"] < server["low_s"]:
        return f"; the ring takes {ratio_text(ring['time_s'] / server['time_s'])} the central server's"
    return "; intervals do not tell the central server from the ring"


def _in_a_sentence(method: object) -> str:
    """A method's name without a comma, which would end it in a list: "halving and doubling"."""
    return name_of(str(method)).replace(", ", " and ")


def document_finding(frame: pd.DataFrame, per_host: int) -> str | None:
    """Document 004's curve in miniature: the step on the most processes, by method, beside the document's."""
    table = document_steps(frame, per_host)
    several = table[table["devices"] > 1]
    if several.empty:
        return None
    most = int(several["devices"].max())
    rows = several[several["devices"] == most].sort_values("time_s")
    parts = [f"{_in_a_sentence(row['method'])} {1000 * row['time_s']:,.0f} ms ({row['speedup']:.1f}x)" for _, row in rows.iterrows()]
    document = rows["document_s"].iloc[0]
    beside = "" if pd.isna(document) else f"; the document's was {1000 * document:.0f} ms ({most * COMPUTE_MS / (1000 * document):.1f}x)"
    return (
        f"With compute stood in for by {COMPUTE_MS} ms of sleep, and bytes and bandwidth divided by {SCALE:g}, a step of {most} processes, "
        f"{per_host} a host, takes {joined(parts)}{beside}"
    )


def transfer_finding(frame: pd.DataFrame, per_host: int) -> str | None:
    """Whether the transfer alone accounts for what document 004's step grew by between one machine and several."""
    table = document_steps(frame, per_host)
    several = table[table["devices"] > per_host].dropna(subset=["document_s"])
    if several.empty:
        return None
    most = several[several["devices"] == several["devices"].max()]
    on_one = float(table["document_s"][table["devices"] == per_host].min())
    row = most.loc[most["time_s"].idxmin()]
    ours, theirs = 1000 * row["communication_s"], 1000 * (row["document_s"] - on_one)
    return (
        f"Between machines the document's step grew by {theirs:.0f} ms from {per_host} to {int(row['devices'])} GPUs; the fastest of ours "
        f"({name_of(str(row['method']))}), begun after the whole backward pass, needs {ours:.0f} ms for the same bytes at the same rate"
    )
