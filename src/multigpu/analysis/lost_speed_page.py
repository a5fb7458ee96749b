"""The page on 2018's lost speed in words: chains as tables, shares by cause, and what it takes to pass 7 on 8."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd

from multigpu.analysis.lost_speed import APART, CEILING, DOCUMENT, PROTOCOL, REST, START
from multigpu.analysis.lost_speed_causes import by_cause, told_apart
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import decimals, devices_text, joined, missing, ratio_text, scaled, with_interval

GOAL, OF = 7, 8
"""The speedup that the question asks for, and on how many devices."""

CAUSE_NAMES = {
    "protocol": "the protocol",
    "host": "the host",
    "links": "the links",
    "work": "the work in a step",
    APART: "causes not told apart",
    REST: "left over",
}

NOTHING = "No chain can be told yet: none of its ways was measured on one device and on several of one machine (grid causes)."


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """The measured ways of one chain's table as the corrected protocol has them, without the ceiling."""
    return table[table["speedup"].notna() & ~table["way"].eq(CEILING) & ~table["published"]]


def way_names(table: pd.DataFrame) -> list[str]:
    """What each row of `measured` is called: the protocol's own row is the first way with the warm-up left out."""
    first = table[table["published"]]["way"]
    return [f"{first.iloc[0]}, {PROTOCOL}" if name == PROTOCOL and len(first) else str(name) for name in measured(table)["way"]]


def unmeasured_last(table: pd.DataFrame) -> list[str]:
    """The ways after the last measured one, and the ceiling, that have no Record: what is left over holds what they would have changed."""
    rows = table[~table["way"].eq(REST)]
    known = rows.index[rows["speedup"].notna() & ~rows["way"].eq(CEILING)]
    after = rows.loc[rows.index > (known[-1] if len(known) else -1)]
    return [str(way) for way in after.loc[after["speedup"].isna(), "way"]]


def share_text(share: float, low: float = math.nan, high: float = math.nan) -> str:
    """A share in percent, at most one decimal: "14% (12 to 16%)", "−3.1%"."""

    def text(value: float) -> str:
        return f"{100 * value:.{min(1, max(0, decimals(100 * value, 2)))}f}".replace("-", "−")

    return f"{text(share)}%" if missing(low) else f"{text(share)}% ({text(low)} to {text(high)}%)"


def chain_html(tables: Sequence[pd.DataFrame], device_type: str = "cuda") -> Shown:
    """Every way of every chain with its speedup, the rate of all devices and its share of what the first way lost."""
    shown = [_one_chain(table, device_type) for table in tables if len(table)]
    return Shown("".join(part.html for part in shown)) if shown else table_html(pd.DataFrame(), note=NOTHING)


def on_this_computer(tables: Sequence[pd.DataFrame]) -> Shown | None:
    """`chain_html` of this computer's CPU processes under a heading of its own; None without Records."""
    if not any(len(table) for table in tables):
        return None
    said = (
        "CPU processes with a small model, as this computer has Records of them. They share its few cores, so their speedups say nothing "
        "about GPUs."
    )
    return Shown(f"<h2>On this computer</h2>\n<p>{said}</p>\n{chain_html(tables, 'cpu').html}")


def _one_chain(table: pd.DataFrame, device_type: str) -> Shown:
    known = table["rate"].dropna()
    factor, letter = scaled(float(known.max())) if len(known) else (1.0, "")
    places = decimals(float(known.max()) / factor) if factor > 1 and len(known) else 0
    unit = f"{letter.strip()} words/s".strip()
    rows = []
    for _, row in table.iterrows():
        left = row["way"] == REST
        told = with_interval(f"{row['speedup']:.2f}", row["low"], row["high"], ".2f") if not missing(row["speedup"]) else ""
        cause = CAUSE_NAMES.get(str(row["cause"]), "") if not missing(row["share"]) and not left else ""
        rows.append(
            {
                "way": str(row["way"])
                + _left_over(table) * left
                + (", timed as published" if row["published"] and not row["way"].startswith("Exp4") else ""),
                "speedup": told or ("" if left else str(row["why"])),
                unit: "" if missing(row["rate"]) else f"{row['rate'] / factor:,.{places}f}",
                "share of the loss": "" if missing(row["share"]) else share_text(row["share"], row["share_low"], row["share_high"]),
                "cause": f"{cause}: {row['spans']}" if row["spans"] else cause,
                "n (1; all)": f"{row['n_one']}; {row['n']}" if row["n"] and row["chain"] != DOCUMENT else "",
            }
        )
    devices = int(table["devices"].iloc[0])
    where = str(table["machine"].iloc[0])
    where = where if table["chain"].iloc[0] == DOCUMENT else f"{devices_text(devices, device_type)} of {where}"
    note = "" if table["chain"].iloc[0] != DOCUMENT else (
        "Its table of experiments, then its author's correction; every step changed several things at once, and lengths differ."
    )  # fmt: skip
    return table_html(pd.DataFrame(rows), f"{table['chain'].iloc[0]}, {where}", note, right=["speedup", unit, "share of the loss"])


def _left_over(table: pd.DataFrame) -> str:
    lacking = unmeasured_last(table)
    return f", {len(lacking)} not measured" if lacking and table["chain"].iloc[0] != DOCUMENT else ""


def share_table(tables: Sequence[pd.DataFrame]) -> Shown:
    """A row a cause, a column a chain: its share of what that chain's first measured way lost, with bounds."""

    def text(row: pd.Series) -> str:
        return share_text(row["share"], row["share_low"], row["share_high"])

    note = "In brackets: devices, and 95% of a share. A dash: no step of this cause could be told. Each column adds up to 100%."
    return _cause_table(tables, "share", text, note)


def speed_table(tables: Sequence[pd.DataFrame]) -> Shown:
    """A row a cause, a column a chain: how many times as many words a second all devices train by it, with bounds."""

    def text(row: pd.Series) -> str:
        return with_interval(f"{row['faster']:.2f}", row["faster_low"], row["faster_high"], ".2f")

    note = (
        "Times as many words a second on all devices, from the first measured way to the last; in brackets: devices, and 95%. The factors "
        "of a column multiply to what the whole chain gives."
    )
    return _cause_table([table for table in tables if table["chain"].iloc[0] != DOCUMENT], "faster", text, note)


def _cause_table(tables: Sequence[pd.DataFrame], name: str, text: Callable[[pd.Series], str], note: str) -> Shown:
    each: dict[str, dict[str, str]] = {}
    for table in tables:
        rows = by_cause(table)
        known = rows[rows[name].notna()]
        each[f"{table['chain'].iloc[0]} ({table['devices'].iloc[0]})"] = {str(row["cause"]): text(row) for _, row in known.iterrows()}
    causes = [cause for cause in CAUSE_NAMES if any(cause in found for found in each.values())]
    rows = pd.DataFrame(
        [{"cause": CAUSE_NAMES[cause]} | {chain: found.get(cause, "–") for chain, found in each.items()} for cause in causes]
    )
    return table_html(rows, note=note if len(rows) else NOTHING, right=list(each))


def chain_finding(table: pd.DataFrame, device_type: str = "cuda") -> str:
    """Of one chain: from which speedup to which, the share of each cause, and which ways are missing."""
    told = table[table["speedup"].notna()]
    if told.empty:
        return NOTHING
    first, ways = told.iloc[0], measured(table)
    last, on = ways.iloc[-1], devices_text(int(first["devices"]), device_type)
    name = str(first["chain"])
    lacking = [str(way) for way in table.loc[table["why"].ne("") & ~table["way"].eq(CEILING), "way"]]
    without = f" Not measured, and so not told: {joined(lacking)}." if lacking else ""
    head = (
        f"**{name}**, {on} of {first['machine']}.{without} “{first['way']}”{' timed as published' if first['published'] else ''} gives "
        f"{ratio_text(first['speedup'])} one"
    )
    found = by_cause(table)
    found = found[found["share"].notna()]
    if found.empty:
        return f"{head}, which loses nothing that could be shared out."
    parts = found[~found["cause"].eq(REST)]
    end = f"; “{way_names(table)[-1]}” at the chain's end {ratio_text(last['speedup'])}" if len(ways) > 1 else ""
    faster = _faster(found, f"All {on} together train {ratio_text(last['rate'] / first['rate'])} as many words a second there")
    lost = int(first["devices"]) / first["speedup"]
    late = "" if first["way"] == START else " These are shares of what the first measured way loses: those before it could not be told."
    took = f"Of the factor of {lost:.2f} that the first one loses, {_shares(table)}."
    return f"{head}{end}. {faster}{took}{_surely(parts, table)}{late}{_once(table)}"


def _shares(table: pd.DataFrame) -> str:
    """The share of each cause, the largest first, marked where it rests on one measurement on a side, and what is left over."""
    found = by_cause(table)
    rest, parts = found[found["cause"].eq(REST)].iloc[0], found[~found["cause"].eq(REST)].sort_values("share", ascending=False)
    few = parts["share_low"].isna()
    each = [
        f"{CAUSE_NAMES[row['cause']]}{' took' * (place == 0)} {share_text(row['share'], row['share_low'], row['share_high'])}"
        + (" (n = 1)" if missing(row["share_low"]) and not few.all() else "")
        for place, (_, row) in enumerate(parts.iterrows())
    ]
    lacking = ["independent replicas" if way == CEILING else f"“{way}”" for way in unmeasured_last(table)]
    holds = f", which holds what was not measured: {joined(lacking)}" if lacking else ""
    return f"{joined(each)}{' (all rest on n = 1)' * bool(few.all())}; {share_text(rest['share'])} is left over{holds}"


def shares_findings(tables: Sequence[pd.DataFrame], device_type: str = "cuda") -> list[str]:
    """The page's answer in short: a paragraph a chain on whose share the loss was, those with 2018's way first, and of which chains that
    way was not measured (before all others where it was of none).
    """
    told = [table for table in tables if table["speedup"].notna().any() and by_cause(table)["share"].notna().any()]
    if not told:
        return [chain_finding(table, device_type) for table in tables]
    begun = [table for table in told if _first(table)["way"] == START]
    later = [table for table in told if _first(table)["way"] != START]
    said = []
    for table in [*begun, *later]:
        first = _first(table)
        whose = f"{first['chain']} on {devices_text(int(first['devices']), device_type)} of {first['machine']}"
        start = START if first["way"] == START else f"“{first['way']}”"
        said.append(f"**{whose}**, of what is lost from {start} on: {_shares(table)}.{_surely(by_cause(table), table)}")
    return [*said, _not_begun(later, device_type)] if begun else [_not_begun(later, device_type), *said]


def _not_begun(later: Sequence[pd.DataFrame], device_type: str) -> str:
    """Of which chains 2018's own way was not measured; "" where it was of all."""
    counts: dict[str, list[str]] = {}
    for table in later:
        first = _first(table)
        counts.setdefault(first["chain"], []).append(str(int(first["devices"])))
    devices = "GPUs" if device_type == "cuda" else "processes"
    where = joined([f"{chain} on {joined(own)} {devices}" for chain, own in counts.items()])
    return f"How 2018's whole loss divides is not known of {where}: its own way was not measured there." if where else ""


def _first(table: pd.DataFrame) -> pd.Series:
    return table[table["speedup"].notna()].iloc[0]


def _faster(found: pd.DataFrame, head: str) -> str:
    """What the chain gives in words a second, and by which causes; "" where it has one way alone."""
    known = found[found["faster"].notna()].sort_values("faster", ascending=False)
    if known.empty:
        return ""
    parts = [
        f"{CAUSE_NAMES[row['cause']]} {ratio_text(row['faster'], row['faster_low'], row['faster_high'])}" for _, row in known.iterrows()
    ]
    return f"{head}: {joined(parts)}. " if len(parts) > 1 else f"{head}. "


def _surely(found: pd.DataFrame, table: pd.DataFrame) -> str:
    """Which of these causes' shares are surely not 0, where they have bounds at all; and which single ways' are, where no cause's is."""
    parts = found[~found["cause"].eq(REST) & found["share"].notna()]
    if parts["share_low"].isna().any():
        return ""
    sure = told_apart(parts)
    if len(sure) == len(parts):
        return ""
    names = joined([CAUSE_NAMES[cause] for cause in sure])
    if sure:
        return f" Launches differ so much that only that of {names} is surely not 0."
    ways = table[table["share_low"].gt(0) | table["share_high"].lt(0)]
    single = joined([f"“{row['way']}” {share_text(row['share'], row['share_low'], row['share_high'])}" for _, row in ways.iterrows()])
    return f" Launches differ too much to tell any cause from 0{f'; of single changes: {single}' if single else ''}."


def _once(table: pd.DataFrame) -> str:
    """Which measured ways rest on one measurement on a side: their shares, and those of the ways after them, are screening."""
    few = table["speedup"].notna() & table[["n_one", "n"]].min(axis=1).eq(1) & ~table["way"].eq(PROTOCOL)
    names = [f"“{way}”" for way in table.loc[few, "way"]]
    return f" Measured once, so that shares beside them are screening: {joined(names)}." if names else ""


def passing(table: pd.DataFrame) -> tuple[pd.Series | None, list[str]]:
    """The first measured way of a chain that surely gives 7/8 of perfect scaling (its lower bound, where it has one), and the names of
    those before it that reach it within their interval only.
    """
    ways = measured(table)
    unsure: list[str] = []
    for name, (_, row) in zip(way_names(table), ways.iterrows(), strict=True):
        goal = GOAL / OF * int(row["devices"])
        if (row["speedup"] if missing(row["low"]) else row["low"]) >= goal:
            return row, unsure
        if row["speedup"] >= goal or (not missing(row["high"]) and row["high"] >= goal):
            unsure.append(name)
    return None, unsure


def seven_finding(tables: Sequence[pd.DataFrame], device_type: str = "cuda") -> str:
    """What it takes to pass 7 times one on 8, or the same share of perfect scaling on as many devices as were measured."""
    parts = []
    for table in tables:
        ways = measured(table)
        if ways.empty:
            continue
        devices, chain = int(table["devices"].iloc[0]), str(table["chain"].iloc[0])
        goal, on = GOAL / OF * devices, devices_text(devices, device_type)
        row, unsure = passing(table)
        names = way_names(table)
        near = f" ({joined([f'“{name}”' for name in unsure])} may: {goal:g} lies within the interval)" if unsure else ""
        if row is None:
            best = int(ways["speedup"].to_numpy().argmax())
            parts.append(
                f"{chain} on {on}: no measured way surely passes {goal:g}{near}; “{names[best]}” comes nearest with "
                f"{ratio_text(ways['speedup'].iloc[best], ways['low'].iloc[best], ways['high'].iloc[best])} one."
            )
            continue
        at = list(ways.index).index(row.name)
        before = f", after {joined([f'“{name}”' for name in names[:at]])}" if at else ", the first that was measured"
        once = ", measured once" if missing(row["low"]) else ""
        after = [name for name, below in zip(names[at + 1 :], ways["speedup"].iloc[at + 1 :].lt(goal), strict=True) if below]
        but = f" {joined([f'“{name}”' for name in after])} after it falls below." if after else ""
        parts.append(
            f"{chain} on {on} passes {goal:g} with “{names[at]}”, {ratio_text(row['speedup'], row['low'], row['high'])} one{once}{before}"
            f"{near}.{but}"
        )
    if not parts:
        return NOTHING
    most = max(int(table["devices"].iloc[0]) for table in tables if len(table))
    if most >= OF:
        return f"**What passing {GOAL} on {OF} takes.** {' '.join(parts)}"
    many = devices_text(OF, device_type)
    return (
        f"**What passing {GOAL} on {OF} takes** is not known yet: no chain was measured on {many}. The same share of perfect scaling, "
        f"{100 * GOAL / OF:g}%, on the most devices that were: {' '.join(parts)}"
    )


def findings(tables: Sequence[pd.DataFrame], fuller: Sequence[pd.DataFrame] = (), device_type: str = "cuda") -> list[str]:
    """The page's answer: whose share the loss was, and what passing 7 on 8 takes.

    fuller: of `fuller_grounds`, which tell more of a chain on fewer devices.
    """
    if not tables:
        return [NOTHING]
    return [*filter(None, shares_findings([*fuller, *tables], device_type)), seven_finding(tables, device_type)]


def answer(tables: Sequence[pd.DataFrame], fuller: Sequence[pd.DataFrame] = (), device_type: str = "cuda") -> list[str]:
    """What the page says first: the first and the last of `findings`."""
    said = findings(tables, fuller, device_type)
    return said if len(said) < 3 else [said[0], said[-1]]


def further(tables: Sequence[pd.DataFrame], fuller: Sequence[pd.DataFrame] = (), device_type: str = "cuda") -> list[str]:
    """The `findings` between those: the other chains' shares."""
    return findings(tables, fuller, device_type)[1:-1]
