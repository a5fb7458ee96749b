"""What all-reduces alone say, as sentences computed from Records, or None where they do not support one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.all_reduce import at, find_point, gradient_bytes, points, stretches, transfer, winners
from multigpu.analysis.figure_collectives import link_limit, method_look
from multigpu.analysis.limits import ceilings
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.wording import decimals, devices_text, joined, percent_text, plural, ratio_text
from multigpu.collectives.record import bus_factor
from multigpu.collectives.run import size_text
from multigpu.published import load_published

COMPARED = ("nccl", "gloo", "two_shot", "ring", "halving_doubling", "tree", "central_server", "everyone")
OTHERS = ("nccl", "gloo", "ring", "torus", "hierarchical", "everyone_bf16", "everyone_fp16")
"""Methods of one figure: no more than seven lines on any kind of device."""
HALVED = ("everyone_bf16", "everyone_fp16")
"""Methods that round on the wire."""

DOCUMENT_FORMULAS: dict[str, tuple[str, Callable[[int], float]]] = {
    "ring": ("2N(P-1)/P", lambda devices: 2 * (devices - 1) / devices),
    "central_server": ("2N(P-1)", lambda devices: 2.0 * (devices - 1)),
}
"""Document 002's two figures, in words and over N."""


def device_counts(frame: pd.DataFrame) -> tuple[int, int]:
    """The most and the fewest devices that were measured; (2, 2) where none was."""
    counts = frame.loc[frame["status"] == "ok", "devices"]
    return (int(counts.max()), int(counts.min())) if len(counts) else (2, 2)


def name_of(method: str) -> str:
    """What a method is called on every page."""
    return method_look(method).label


def time_text(row: Any, factor: float) -> str:
    """A time with its interval, all in one unit and with the decimals of three digits."""
    time, low, high = (row[name] / factor for name in ("time_s", "low_s", "high_s"))
    form = f",.{decimals(time)}f"
    return f"{time:{form}}" + ("" if pd.isna(low) or pd.isna(high) else f" ({low:{form}} to {high:{form}})")


def execution_of(frame: pd.DataFrame) -> str:
    """The form of execution that answers speak of: captured where there is one, since it holds no time of the host."""
    return "captured" if (frame["execution"] == "captured").any() else "eager"


def fastest_finding(frame: pd.DataFrame, devices: int) -> str | None:
    """Which method is fastest at which sizes; sizes at which intervals overlap have no winner."""
    table = at(points(frame), devices, execution_of(frame))
    spans: dict[str, list[str]] = {}
    for method, first, last in stretches(winners(table)):
        if method:
            span = f"at {size_text(first)}" if first == last else f"from {size_text(first)} to {size_text(last)}"
            spans.setdefault(method, []).append(span)
    if not spans:
        return None
    parts = [f"{name_of(method)} is fastest {joined(found)}" for method, found in spans.items()]
    return f"On {devices_text(devices, str(table['device_type'].iloc[0]))}, {'; '.join(parts)}"


def repeats_text(table: pd.DataFrame) -> str:
    """How many Records a point has, of `points`, and what an interval means then."""
    low, high = int(table["n"].min()), int(table["n"].max())
    if high == 1:
        return (
            "Each point is one Record, measured in one launch (screening); intervals are those of the median of its samples, at 95%, and "
            "say nothing of other launches."
        )
    return (
        f"Each point has {low if low == high else f'{low} to {high}'} Records; intervals at 95%; a single Record's is that of its samples."
    )


def repeats_finding(frame: pd.DataFrame, devices: int) -> str | None:
    """`repeats_text` of the points that answers speak of."""
    table = at(points(frame), devices, execution_of(frame))
    return None if table.empty else repeats_text(table).rstrip(".")


def others_finding(frame: pd.DataFrame, devices: int, library: str = "nccl") -> str | None:
    """The fastest algorithm written out at the largest size beside the library, and what half the bytes on the wire give there."""
    table = at(points(frame), devices, execution_of(frame))
    table = table[table["bytes"] == table["bytes"].max()]
    exact = table[(table["kind"] == "algorithm") & ~table["method"].isin(HALVED)].sort_values("time_s")
    base = find_point(table, library, int(table["bytes"].max())) if len(table) else None
    if exact.empty or base is None:
        return None
    best, on = exact.iloc[0], devices_text(devices, str(table["device_type"].iloc[0]))
    text = f"At {size_text(int(best['bytes']))} on {on} the fastest written out, {name_of(best['method'])}, takes "
    text += f"{ratio_text(best['time_s'] / base['time_s'])} the time of {name_of(library)}"
    halved = table[table["method"].isin(HALVED)]
    if halved.empty:
        return text
    return f"{text}; half the bytes, everyone to everyone, take {ratio_text(halved['time_s'].min() / base['time_s'])}"


def bandwidth_finding(frame: pd.DataFrame, devices: int, method: str = "nccl") -> str | None:
    """The library's bus bandwidth at the largest size beside the link's limit and one copy's."""
    table = at(points(frame), devices, execution_of(frame))
    table = table[table["method"] == method]
    if table.empty:
        return None
    row = table.sort_values("bytes").iloc[-1]
    reach, low, high = (bus_factor(devices) * row["bytes"] / row[name] / 1e9 for name in ("time_s", "high_s", "low_s"))
    text = f"{name_of(method)} reaches {reach:.0f} GB/s ({low:.0f} to {high:.0f}) of bus bandwidth at {size_text(int(row['bytes']))}"
    gpu = str(row["gpu"])
    link, copy = link_limit(gpu), ceilings(gpu).get("device_link")
    if link:
        text += f": {percent_text(1e9 * reach / link.value)} of the link's {link.value / 1e9:.0f} GB/s"
    if copy and copy.how == "measured":
        text += (
            f", {percent_text(1e9 * reach / copy.value)} of the {copy.value / 1e9:.0f} GB/s that a copy between two GPUs was measured at"
        )
    return f"{text} (on {devices_text(devices, row['device_type'])})"


def written_out_finding(frame: pd.DataFrame, devices: int, library: str = "nccl") -> str | None:
    """How much longer the documents' two algorithms take than the library at the largest size, and whether any beats it anywhere."""
    table = at(points(frame), devices, execution_of(frame))
    own, theirs = table[table["kind"] == "algorithm"], table[table["method"] == library]
    pairs = [(row, other) for _, row in own.iterrows() if (other := find_point(theirs, library, row["bytes"])) is not None]
    if not pairs:
        return None
    size = max(int(row["bytes"]) for row, _ in pairs)
    base = find_point(theirs, library, size)
    slower = [
        f"the {name_of(name)} takes {ratio_text(row['time_s'] / base['time_s'])}"
        for name in DOCUMENT_FORMULAS
        if base is not None and (row := find_point(own, name, size)) is not None
    ]
    won = [(row["method"], int(row["bytes"])) for row, other in pairs if row["high_s"] < other["low_s"]]
    beaten = (
        f"{name_of(library)} is beaten by {joined([f'{name_of(m)} at {size_text(s)}' for m, s in won])}"
        if won
        else f"none of {plural(len(pairs), 'point')} of algorithms written out is faster than {name_of(library)}"
    )
    first = (
        f"At {size_text(size)}, written out from sends and receives, {joined(slower)} the time of {name_of(library)}; " if slower else ""
    )
    return f"{first}{beaten} (on {devices_text(devices, str(table['device_type'].iloc[0]))})"


def growth_finding(frame: pd.DataFrame, least: int, most: int) -> str | None:
    """How the two documents' algorithms grow with the number of devices at the largest size, beside document 002's formulas."""
    table, execution = points(frame), execution_of(frame)
    sides = [at(table, devices, execution) for devices in (least, most)]
    sizes = [set(side["bytes"]) for side in sides]
    if least == most or not sizes[0] & sizes[1]:
        return None
    size, parts = max(sizes[0] & sizes[1]), []
    for method, (formula, of) in DOCUMENT_FORMULAS.items():
        low, high = (find_point(side, method, size) for side in sides)
        if low is not None and high is not None:
            told = of(most) / of(least)
            grown = ratio_text(high["time_s"] / low["time_s"])
            parts.append(f"the {name_of(method)} takes {grown} as long, where {formula} grows to {told:.2f} times")
    on = devices_text(most, str(sides[1]["device_type"].iloc[0]))
    return f"At {size_text(size)}, on {on} instead of {least}, {joined(parts)}" if parts else None


def message_finding(frame: pd.DataFrame, devices: int, method: str = "ring") -> str | None:
    """How fast one of the ring's messages travels, at the three largest sizes: N/P bytes in a 2(P-1)-th of the time."""
    line = at(points(frame), devices, execution_of(frame))
    line = line[line["method"] == method].sort_values("bytes").tail(3)
    if len(line) < 3:
        return None
    rates = [f"{row['bytes'] / row['time_s'] * bus_factor(devices) / 1e9:.0f} GB/s" for _, row in line.iterrows()]
    messages = [size_text(int(size) // devices) for size in line["bytes"]]
    on = devices_text(devices, str(line["device_type"].iloc[0]))
    return f"On {on} the messages of the {name_of(method)}, of {joined(messages)}, travel at {joined(rates)}, additions included"


def rounding_finding(frame: pd.DataFrame, devices: int) -> str | None:
    """What half the bytes on the wire gain, everyone to everyone, at the largest size."""
    table = at(points(frame), devices, execution_of(frame))
    table = table[table["bytes"] == table["bytes"].max()]
    whole, half = (table[table["method"] == name] for name in ("everyone", "everyone_bf16"))
    if whole.empty or half.empty:
        return None
    share = percent_text(half["time_s"].iloc[0] / whole["time_s"].iloc[0])
    on = devices_text(devices, str(table["device_type"].iloc[0]))
    size = size_text(int(whole["bytes"].iloc[0]))
    return f"Everyone to everyone with bf16 on the wire sends half the bytes and takes {share} of the time at {size} on {on}"


def added_ms() -> float:
    """What a second GPU adds to document 004's step, in milliseconds."""
    steps = load_published("004_step_times").set_index("gpus")["step_time_ms"]
    return float(steps.loc[2] - steps.loc[1])


def gradients_finding(frame: pd.DataFrame, devices: int = 2, method: str = "nccl") -> str | None:
    """What document 004's gradients take here, beside the 90 ms that it takes for their transfer."""
    size = gradient_bytes("nmt", "nmt004")
    found = transfer(at(points(frame), devices, execution_of(frame)), method, size)
    if found is None:
        return None
    how = "measured" if found.measured else f"in proportion between {size_text(found.between[0])} and {size_text(found.between[1])}"
    time = time_text({"time_s": found.time_s, "low_s": found.low_s, "high_s": found.high_s}, 1e-3)
    return (
        f"Here the {size / 1e6:.2f} MB of document 004's gradients take {time} ms by {name_of(method)} on {devices} GPUs ({how}); "
        f"the {added_ms():.0f} ms that a second GPU added there, a difference of step times given in tens, are about "
        f"{added_ms() / 1e3 / found.time_s:.0f} times as long"
    )


def answer(sentences: Sequence[str | None]) -> Shown:
    """The sentences that the Records support, a paragraph each; without any, why there is none."""
    told = [f"{text[:1].upper()}{text[1:]}." for text in sentences if text] or ["No all-reduce has been measured yet."]
    return paragraphs(*told)
