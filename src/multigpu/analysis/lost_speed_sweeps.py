"""One cause at a time: document 000's model on fewer host cores, as a loop of cells, as one graph, in one process, at other batches.

A sweep is a list of ways and of values that one field takes; a row of its table is one of them, with the rate of one device
and the speedup over it on more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from multigpu.analysis.lost_speed import SAME, Ground
from multigpu.analysis.metrics import summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.ways import ratio_of
from multigpu.analysis.wording import (
    STATUS_NAMES,
    device_words,
    devices_text,
    joined,
    missing,
    rate_text,
    ratio_text,
)
from multigpu.grid.causes import CORES, DISPATCHED, LADDER, job_run
from multigpu.run import Run

Fields = dict[str, Any]
GRAPH: Fields = {"placement": "ddp", "precision": "bf16", "execution": "captured"}
LOOP: Fields = {"recurrence": "stepwise"}
ONE_PIECE: Fields = {"cross_entropy": "fused"}


@dataclass(frozen=True)
class Sweep:
    """What one cause is asked. ways: what they are called and their fields; values: what the field that varies is called and takes."""

    name: str
    ways: tuple[tuple[str, Fields], ...]
    values: tuple[tuple[str, Fields], ...]


_HOST = tuple(
    zip(
        ("PyTorch Exp4, one process", "PyTorch Exp4, a process each", "PyTorch ddp", "TensorFlow Exp4, one process"),
        DISPATCHED,
        strict=True,
    )
)
SWEEPS = {
    "host_cores": Sweep("host cores", _HOST, (*((str(n), {"host_cores": n}) for n in CORES), ("all", {"host_cores": None}))),
    "recurrence": Sweep("cells", (*_HOST, ("PyTorch ddp, one graph", GRAPH)), (("a loop", LOOP), ("one call", {"recurrence": None}))),
    "execution": Sweep(
        "launched",
        (
            ("ddp, a loop of cells", {**GRAPH, **LOOP}),
            ("ddp, cells in one call", GRAPH),
            ("ddp, and the loss in one piece", GRAPH | ONE_PIECE),
        ),
        (("kernel by kernel", {"execution": "eager"}), ("as one graph", {"execution": "captured"})),
    ),
    "processes": Sweep(
        "processes",
        (("Exp4, a loop of cells", DISPATCHED[1] | LOOP), ("Exp4, cells in one call", DISPATCHED[1])),
        (("one for all", {"processes": "one"}), ("one a device", {"processes": "per_device"})),
    ),
    "batch": Sweep(
        "batch a device",
        (("Exp4, one process", DISPATCHED[0]), ("ddp, one graph", GRAPH | ONE_PIECE)),
        tuple((str(batch), {"batch_size": batch}) for batch in LADDER),
    ),
}


SLOWER = 0.95
"""One device that trains less than this part of what it did has become slower."""
COUNTED = ("recurrence", "execution")
"""Sweeps that change how many kernels a step has, or who launches them."""


def kernels_by_point(causes: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """Kernels a replica and step, by what makes a traced Run's point; `causes` is of `causes.causes_frame`."""
    rows = causes.to_dict("records")
    return {tuple(None if missing(row[name]) else row[name] for name in SAME): float(row["kernels"]) for row in rows}


def sweep_rows(name: str, found: Sequence[Ground], everything: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """A row a way, value and number of devices of sweep `name`.

    Args:
        found: the grounds whose Records are read: of each framework the one with most of this sweep (`fullest`).
        everything: the frame with rows that are not ok, for a batch that did not fit.
        causes: traced Runs, for kernels.

    Returns:
        machine, way, value, devices, status ("ok", why there is none, or ""), rate (units/s), step_ms, speedup and bounds, kernels (a
        replica and step; NaN where it was not traced), host_threads.
    """
    sweep, kernels, rows = SWEEPS[name], kernels_by_point(causes), []
    for label, way in sweep.ways:
        ground = fullest(name, found, job_run(way, 1).framework)
        if ground is None:
            continue
        frame = ground.frame
        counts = sorted({1, *(int(count) for count in frame["devices"])})
        lost = _refused(everything, frame)
        for value, fields in sweep.values:
            alone: Any = None
            for devices in counts:
                run = job_run({**way, **fields}, devices)
                row: dict[str, Any] = {"machine": str(frame["machine"].iloc[0]), "way": label, "value": value, "devices": devices}
                own = ground.points.rows_of(run)
                row["kernels"] = kernels.get(tuple(getattr(run, field) for field in SAME), float("nan"))
                if own is None:
                    rows.append(row | {"status": lost.get(tuple(getattr(run, field) for field in SAME), "")})
                    continue
                point = summary(own, by=[*SAME, "unit"]).iloc[0]
                alone = point if devices == 1 else alone
                ratio, (low, high) = ratio_of(frame, point, alone)
                row |= {"status": "ok", "rate": point["rate"], "step_ms": 1e3 * point["step_time_s"], "n": int(point["n"])}
                rows.append(row | {"speedup": ratio, "low": low, "high": high, "host_threads": int(own["host_threads"].max())})
    names = ["machine", "way", "value", "devices", "status", "rate", "step_ms", "speedup", "low", "high", "kernels", "host_threads", "n"]
    return pd.DataFrame(rows, columns=names)


def fullest(name: str, found: Sequence[Ground], framework: str) -> Ground | None:
    """Of these grounds the one on which most points of the sweep were measured on one device and on several, in this framework; of equals
    the first. All ways of a framework stand on one machine, so that they can be compared.
    """

    def measured(ground: Ground) -> int:
        runs = [way | fields for _, way in SWEEPS[name].ways for _, fields in SWEEPS[name].values if job_run(way, 1).framework == framework]
        counts = sorted(set(ground.frame["devices"]) - {1})
        return sum(job_run(run, 1) in ground.points and any(job_run(run, int(count)) in ground.points for count in counts) for run in runs)

    own = [ground for ground in found if not ground.small and job_run(ground.chain.start, 1).framework == framework]
    return max(own, key=measured, default=None)


def _refused(everything: pd.DataFrame, frame: pd.DataFrame) -> dict[tuple[Any, ...], str]:
    """Of every point of this machine without a measurement, its status; also where it is read under another machine's name."""
    here = everything[["machine", "measured_on"]].isin(set(frame["machine"])).any(axis=1)
    bad = everything[here & everything["status"].ne("ok")]
    return {tuple(None if missing(row[name]) else row[name] for name in SAME): str(row["status"]) for row in bad.to_dict("records")}


def sweep_table(rows: pd.DataFrame, name: str, device_type: str = "cuda") -> Shown:
    """`sweep_rows` in words: a row a way and value, columns for numbers of devices; values that no Record has are named below.

    Without a way of two measured values there is nothing to compare, and no table: what was measured is named.
    """
    sweep, known = SWEEPS[name], rows[rows["status"].ne("")]
    cells: list[dict[str, str]] = []
    lacking: dict[str, list[str]] = {}
    for (way, value), own in rows.groupby(["way", "value"], sort=False):
        if own["status"].eq("").all():
            lacking.setdefault(str(way), []).append(str(value))
            continue
        cell = {"way": str(way), sweep.name: str(value)}
        for devices in sorted(set(known["devices"])):
            here = own[own["devices"] == devices]
            if here.empty:  # its machine has no point on so many
                continue
            row = here.iloc[0]
            if devices == 1:
                cell["one (M words/s)"] = f"{row['rate'] / 1e6:.3f}" if row["status"] == "ok" else _why(row)
                continue
            ratio = "not measured on one" if missing(row["speedup"]) else f"{row['speedup']:.2f}"
            bounds = "" if missing(row["low"]) else f" ({row['low']:.2f} to {row['high']:.2f})"
            cell[f"{devices} {device_words(device_type)}"] = ratio + bounds if row["status"] == "ok" else _why(row)
        if name in COUNTED and own["kernels"].notna().any():
            cell["kernels a step"] = f"{own['kernels'].dropna().iloc[0]:,.0f}"
        cells.append(cell)
    values = [(cell["way"], cell[sweep.name]) for cell in cells]
    if len({way for way, _ in values}) == len(values):
        alone = "; ".join(f"{way} ({value})" for way, value in values)
        return table_html(pd.DataFrame(), note=f"One value alone: {alone}." if alone else "No Record to show.")
    table = pd.DataFrame(cells).fillna("–")
    note = f"Speedups over one device done the same way; without bounds, a side was measured once (screening). {_where(known)}"
    note += f" Not measured: {'; '.join(f'{way} ({joined(values)})' for way, values in lacking.items())}." if lacking else ""
    return table_html(table, note=note, right=[str(column) for column in table if column not in ("way", sweep.name)])


def _where(known: pd.DataFrame) -> str:
    """Which machine measured which framework's ways."""
    ways = {str(machine): list(dict.fromkeys(own["way"])) for machine, own in known.groupby("machine", sort=False)}
    if len(ways) == 1:
        return f"{next(iter(ways))}."
    return "; ".join(f"{machine}: {joined(own)}" for machine, own in ways.items()) + "."


def _why(row: Any) -> str:
    return STATUS_NAMES.get(str(row["status"]), "–") if row["status"] else "–"


def sweep_finding(rows: pd.DataFrame, name: str, device_type: str = "cuda") -> str:
    """Of each way, the speedups on the most devices from the first measured value to the last, how the rate of all devices moved, and where
    one device became slower: then a part of a rising speedup is its loss.
    """
    parts: dict[int, list[str]] = {}
    for way, own in rows[rows["speedup"].notna()].groupby("way", sort=False):
        most = own[own["devices"] == own["devices"].max()]
        devices = int(most["devices"].iloc[0])
        if devices == 1 or len(most) < 2:
            continue
        first, last = most.iloc[0], most.iloc[-1]
        ends = [
            f"{end['speedup']:.2f} times one{'' if missing(end['low']) else f' ({end.low:.2f} to {end.high:.2f})'} with “{end['value']}”"
            for end in (first, last)
        ]
        single = own[own["devices"].eq(1) & own["rate"].notna()].set_index("value")["rate"]
        slower = single[last["value"]] / single[first["value"]]
        loss = f", while one alone trains {ratio_text(slower)} as many" if slower < SLOWER and last["speedup"] > first["speedup"] else ""
        more = f"{ratio_text(last['rate'] / first['rate'])} as many words a second{loss}"
        parts.setdefault(devices, []).append(f"{way}: {ends[0]} and {ends[1]}; all devices then train {more}")
    words = SWEEPS[name].name
    if not parts:
        return f"No way was measured with two values of “{words}” on several devices yet."
    said = (f"{words[:1].upper() + words[1:]}, on {devices_text(count, device_type)}. {'. '.join(own)}." for count, own in parts.items())
    return f"{' '.join(said)} Without an interval a side was measured once."


def kernels_finding(rows: pd.DataFrame, said: Mapping[str, float]) -> str:
    """How many kernels a step has as a loop and in one call, beside what the document's author counted."""
    counted = rows[rows["kernels"].notna()].drop_duplicates(["way", "value"])
    parts = [f"{row['way']}, {row['value']}: {row['kernels']:,.0f}" for _, row in counted.iterrows()]
    theirs = joined([f"{value:,.0f} ({name})" for name, value in said.items()])
    ours = f"A replica's step has, as traced: {'; '.join(parts)} kernels." if parts else "No step was traced yet."
    return f"{ours} The document's author counted {theirs}."


def sweep_keys(found: Sequence[Ground]) -> list[str]:
    """The keys of every Record that a sweep shows."""
    keys: dict[str, None] = {}
    for name, sweep in SWEEPS.items():
        for _, way in sweep.ways:
            ground = fullest(name, found, job_run(way, 1).framework)
            runs: list[Run] = [
                job_run({**way, **fields}, count)
                for _, fields in sweep.values
                for count in (sorted(set(ground.frame["devices"])) if ground else ())
            ]
            for run in runs:
                rows = ground.points.rows_of(run) if ground else None
                keys |= dict.fromkeys([] if rows is None else [str(key) for key in rows["key"]])
    return list(keys)


def best_text(rows: pd.DataFrame) -> str:
    """Of a ladder of batches, the largest that was measured of each way, and whether a larger one did not fit."""
    parts = []
    for way, own in rows[rows["devices"].eq(1)].groupby("way", sort=False):
        ok, full = own[own["status"].eq("ok")], own[own["status"].eq("out_of_memory")]
        if len(ok):
            end = f", {full['value'].iloc[0]} did not fit" if len(full) else ", no larger one was measured"
            parts.append(f"{way}: {ok['value'].iloc[-1]} ({rate_text(ok['rate'].iloc[-1])} on one{end})")
    return f"Largest batch a device: {'; '.join(parts)}." if parts else "No batch was measured yet."
