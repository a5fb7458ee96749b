"""The page of document 000's profile: its tables with their twins, and the verdicts, from the traced Records there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.document_phases import document_replicas, document_whole, replicas_frame, whole_frame
from multigpu.analysis.inside_traces import trace_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.traces import traced
from multigpu.analysis.verdicts import verdicts
from multigpu.analysis.wording import FRAMEWORK_NAMES, missing
from multigpu.claims import Predicate, Result, evaluate, find_claim
from multigpu.claims.records import matches
from multigpu.measure.machine import this_machine
from multigpu.published import load_published
from multigpu.reading import study_records
from multigpu.record import Record

COUNTS = tuple(range(1, 9))
"""GPUs of the document's profile."""
CLAIMS = ("C6", "C7", "C8", "C9")
DOCUMENT = "document"
REPEATS = "n: how often measured (in how many launches)."
FRAMEWORKS = ("tensorflow", "torch")
"""The document's own first."""


def phase_test() -> Predicate:
    """The test of 000's phases (C6), which names the Runs that its profile is of."""
    predicate = find_claim("C6").predicate
    assert predicate is not None
    return predicate


def profiled(records: Iterable[Record]) -> list[Record]:
    """The traced Records of Exp4 that stand beside the document's profile, in the order of ways, GPUs and repeats. GPUs only.

    A way that a machine traced on one number of GPUs alone, where another traced more, does not say what more of them change.
    """
    every = [r for r, _ in traced(records) if r.run.device_type == "cuda" and matches(r.run.model_dump(), phase_test().where)]
    counts: dict[tuple[Any, ...], set[int]] = {}
    for record in every:
        counts.setdefault(_way(record), set()).add(record.run.devices)
    most = max((len(own) for own in counts.values()), default=0)
    found = [record for record in every if len(counts[_way(record)]) > 1 or most == 1]
    several = {record.machine.name for record in found}
    return sorted(
        found, key=lambda r: (*_order(r), len(several) > 1 and r.machine.name, r.run.precision, r.run.devices, r.launch_id, r.repeat, r.key)
    )


def leading(records: Iterable[Record]) -> list[Record]:
    """Of each way the Records of the machine that traced it on the most GPUs, of equals the one with most Records: a picture and the
    answer then tell each way once.
    """
    every = list(records)
    counts: dict[tuple[Any, ...], dict[str, list[int]]] = {}
    for record in every:
        way = (*_order(record), record.run.precision)
        counts.setdefault(way, {}).setdefault(record.machine.name, []).append(record.run.devices)
    best = {way: max(own, key=lambda name: (max(own[name]), len(own[name]))) for way, own in counts.items()}
    return [record for record in every if best[(*_order(record), record.run.precision)] == record.machine.name]


def by_machine(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The Records by machine, the one with most GPUs first, of equals the one with most Records."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.machine.name, []).append(record)
    order = sorted(found, key=lambda name: (-max(record.run.devices for record in found[name]), -len(found[name])))
    return {name: found[name] for name in order}


def _way(record: Record) -> tuple[Any, ...]:
    return (*_order(record), record.machine.name, record.run.precision)


def here(records: Iterable[Record]) -> list[Record]:
    """This computer's own traced Records of Exp4 on CPU processes, which show that the page works and say nothing about GPUs."""
    mine = [r for r, _ in traced(records) if r.machine.name == this_machine().name and r.run.device_type == "cpu"]
    return sorted((r for r in mine if r.run.placement == "exp4"), key=lambda r: (*_order(r), r.run.devices, r.repeat, r.key))


def all_records() -> list[Record]:
    """Every Record of the study.

    Raises:
        ValueError: Records cannot be read.
    """
    return study_records()


def _order(record: Record) -> tuple[int, bool, bool]:
    run = record.run
    return FRAMEWORKS.index(run.framework), run.processes != "one", run.recurrence == "stepwise"


def ways(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The Records by how the step is done: "TensorFlow", "PyTorch, one process", "PyTorch, a process a GPU"; with what else tells
    apart those that would else be called alike (the machine, the arithmetic).
    """
    further = {
        name: len({getattr(r.run, name) for r in records if r.run.framework == f}) > 1 for name in ("precision",) for f in FRAMEWORKS
    }
    on: dict[tuple[Any, ...], set[str]] = {}
    for record in records:
        on.setdefault((*_order(record), record.run.precision), set()).add(record.machine.name)
    machines = any(len(names) > 1 for names in on.values())
    found: dict[str, list[Record]] = {}
    for record in records:
        run = record.run
        process = "" if run.framework == "tensorflow" else ", one process" if run.processes == "one" else ", a process a GPU"
        more = (", a loop of cells" if run.recurrence == "stepwise" else "") + (f", {run.precision}" if further["precision"] else "")
        name = FRAMEWORK_NAMES[run.framework] + process + more + (f", {record.machine.name}" if machines else "")
        found.setdefault(name, []).append(record)
    return found


def pooled(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over repeats of every figure, a row a group; n and launches: how many."""
    if frame.empty:
        return frame.assign(n=[], launches=[])
    groups = frame.groupby(list(by), sort=True)
    figures = groups[[name for name in frame if name not in (*by, "key", "launch_id")]].mean()
    return figures.assign(n=groups["key"].nunique(), launches=groups["launch_id"].nunique()).reset_index()


def wholes(records: Sequence[Record]) -> dict[str, pd.DataFrame]:
    """Of each way the whole step by number of GPUs, means over repeats; ways whose phases are not known are left out."""
    found = {name: pooled(whole_frame(mine), ["devices"]) for name, mine in ways(records).items()}
    return {name: table for name, table in found.items() if len(table)}


def _sources(records: Sequence[Record], frame: pd.DataFrame, per_replica: bool) -> list[tuple[str, pd.DataFrame]]:
    """The document's figures, then ours by way, each with the columns of `frame`."""
    by = ["devices", "rank"] if per_replica else ["devices"]
    make = replicas_frame if per_replica else whole_frame
    return [(DOCUMENT, frame), *((name, pooled(make(mine), by)) for name, mine in ways(records).items())]


def percent(share: float) -> str:
    """A share with one decimal, so that small ones align."""
    return f"{100 * share:.1f}%"


def skew_text(row: pd.Series) -> str:
    """Launch skew in percent of the computation's span; a rounding below zero counts as none."""
    return percent(max(0.0, float(row["skew_share"])))


def ms(seconds: float) -> str:
    """Milliseconds with one decimal; a dash where there is no figure."""
    return "–" if missing(seconds) else f"{1000 * seconds:,.1f}"


def _with_note(table: Shown, note: str) -> Shown:
    """The note below the table instead of in it: a wide table scrolls, and its note would be cut."""
    return Shown(f'{table.html}<p class="muted">{escape(note)}</p>\n') if "<table" in table.html else table


def _by_count(sources: Sequence[tuple[str, pd.DataFrame]]) -> Iterable[tuple[int, str, pd.DataFrame]]:
    """(devices, source, its rows), the document's row first at every count."""
    counts = sorted({int(count) for _, table in sources for count in table["devices"]})
    for count in counts:
        for name, table in sources:
            if len(rows := table[table["devices"] == count]):
                yield count, name, rows


def _repeats(rows: pd.DataFrame) -> str:
    if "n" not in rows:
        return "1"
    n, launches = int(rows["n"].iloc[0]), int(rows["launches"].iloc[0])
    return f"{n} ({launches})" if n > 1 else "1"


def _each_machine(records: Sequence[Record], title: str, document: pd.DataFrame) -> list[tuple[str, Sequence[Record], pd.DataFrame]]:
    """For a table a machine: its title, its Records, and the document's rows: all of them beside the first machine, beside others those of
    the counts that they traced.
    """
    found = by_machine(records)
    if len(found) < 2:
        return [(title, records, document)]
    first = next(iter(found))
    return [
        (f"{title}, {name}", mine, document if name == first else document[document["devices"].isin([r.run.devices for r in mine])])
        for name, mine in found.items()
    ]


def per_gpu_table(records: Sequence[Record], phase: str) -> Shown:
    """One phase on every GPU of every count, the document's row above ours: ms and their average; a dash where it is not known. A table
    a machine: with the machine in every row it would not fit a page.
    """
    parts = _each_machine(records, f"{phase.capitalize()} on every GPU", document_replicas())
    return Shown("".join(_per_gpu_table(mine, phase, title, document).html for title, mine, document in parts))


def _per_gpu_table(records: Sequence[Record], phase: str, title: str, document: pd.DataFrame) -> Shown:
    sources = _sources(records, document, per_replica=True)
    sources = [(name, table) for name, table in sources if f"{phase}_s" in table and table[f"{phase}_s"].notna().any()]
    rows = []
    most = max((int(table["devices"].max()) for _, table in sources), default=1)
    for count, name, table in _by_count(sources):
        times = table.set_index("rank")[f"{phase}_s"].sort_index()
        if times.isna().all():
            continue
        each = {f"GPU {rank}": ms(time) for rank, time in times.items()}
        rows.append(
            {"GPUs": f"{count}", "measured by": name, "average": ms(times.mean(skipna=False))}
            | {f"GPU {rank}": each.get(f"GPU {rank}", "") for rank in range(most)}
        )
    note = "ms; ours: medians over traced steps, means over repeats, of which there are as many as n says under launch skew."
    if "–" in {text for row in rows for text in row.values()}:
        note += " A dash: not known, as said above."
    data = pd.DataFrame(rows).fillna("")
    right = [str(name) for name in data if name not in ("GPUs", "measured by")]
    return _with_note(table_html(data, title, right=right), note)


def whole_table(records: Sequence[Record]) -> Shown:
    """The document's second table of every count beside ours: computation, merge and update with their shares, sum and step. A table a
    machine.
    """
    parts = _each_machine(records, "Computation, merge and update", document_whole())
    return Shown("".join(_whole_table(mine, title, document).html for title, mine, document in parts))


def _whole_table(records: Sequence[Record], title: str, document: pd.DataFrame) -> Shown:
    rows = []
    for count, name, table in _by_count(_sources(records, document, per_replica=False)):
        row = table.iloc[0]
        parts = {
            part: "–"
            if missing(row[f"{part}_s"]) or row[f"{part}_s"] == 0
            else ms(row[f"{part}_s"]) + ("" if missing(row[f"{part}_share"]) else f" ({percent(row[f'{part}_share'])})")
            for part in ("computation", "merge", "update")
        }
        rows.append(
            {"GPUs": f"{count}", "measured by": name}
            | {f"{part} (share)": text for part, text in parts.items()}
            | {
                "sum / step": "–" if missing(row["total_over_step"]) else f"{row['total_over_step']:.2f}",
                "step, traced": ms(row["step_s"]),
                "step, timed": ms(row["timed_step_s"]),
            }
        )
    note = (
        "ms; spans over all GPUs, shares of their sum, as the document takes them. Sum / step above 1: phases overlap. The document does "
        "not print its traced step; its timed step is that of Exp5, whose sentences are equally long (1 to 4 GPUs). n as under launch skew."
    )
    data = pd.DataFrame(rows)
    right = [str(name) for name in data if name not in ("GPUs", "measured by")]
    return _with_note(table_html(data, title, right=right), note)


def whole_table_here(records: Sequence[Record]) -> Shown | None:
    """Computation, merge and update on this computer's CPU processes, without the document's GPUs beside them, under a heading of its own;
    None without Records.
    """
    rows = [
        {
            "processes": f"{int(row['devices'])}",
            "measured by": name,
            **{part: ms(row[f"{part}_s"]) for part in ("computation", "merge", "update")},
            "sum / step": f"{row['total_over_step']:.2f}",
            "launch skew": ms(row["launch_skew_s"]),
            "forward, max/mean": f"{row['forward_imbalance']:.2f}",
        }
        for name, table in wholes(records).items()
        for _, row in table.iterrows()
    ]
    if not rows:
        return None
    right = [str(name) for name in rows[0] if name != "measured by"]
    note = "ms, of traced steps of a small model on CPU processes, which stand in for GPUs and say nothing about them."
    return Shown(f"<h2>On this computer</h2>\n{table_html(pd.DataFrame(rows), note=note, right=right).html}")


def skew_table(records: Sequence[Record]) -> Shown:
    """Launch skew and how uneven replicas are, of every count, the document's row above ours. A table a machine."""
    parts = _each_machine(records, "Launch skew", document_whole())
    return Shown("".join(_skew_table(mine, title, document).html for title, mine, document in parts))


def _skew_table(records: Sequence[Record], title: str, document: pd.DataFrame) -> Shown:
    rows = []
    for count, name, table in _by_count(_sources(records, document, per_replica=False)):
        row = table.iloc[0]
        rows.append(
            {
                "GPUs": f"{count}",
                "measured by": name,
                "computation": ms(row["computation_s"]),
                "slowest passes": ms(row["computation_s"] - row["launch_skew_s"]),
                "launch skew": ms(row["launch_skew_s"]),
                "share": skew_text(row),
                "forward, max/mean": f"{row['forward_imbalance']:.2f}",
                "passes, max/mean": f"{row['passes_imbalance']:.2f}",
                "n": _repeats(table),
            }
        )
    note = (
        "ms. Computation: from the first start of forward to the last end of backward over all GPUs; passes: forward and backward of one "
        "GPU; launch skew: their difference, and its share of computation. Max/mean over GPUs: of single steps. The document's figures "
        f"follow from its tables. {REPEATS}"
    )
    data = pd.DataFrame(rows)
    right = [str(name) for name in data if name not in ("GPUs", "measured by")]
    return _with_note(table_html(data, title, right=right), note)


def results(records: Sequence[Record]) -> list[Result]:
    """C6 to C9 by these Records."""
    table = trace_table(records)
    return [evaluate(find_claim(number), table) for number in CLAIMS]


def verdict_table(records: Sequence[Record]) -> Shown:
    """`results` as a table."""
    return verdicts(results(records))


def events_table() -> Shown:
    """Where the document's phases begin and end, and where ours do."""
    ours = {
        "start of forward computation": "first kernel launched by forward",
        "end of forward computation (need to plus the operator's duration)": "last kernel launched by forward, the loss among them",
        "start of backward computation": "first kernel launched by backward",
        "end of backward computation (need to plus the operator's duration)": "last kernel launched by backward",
        "start of gradient merge process": "first sum or collective of gradients",
        "end of gradient merge process (need to plus the operator's duration)": "last of these, the division by N among them",
    }
    table = load_published("000_events")
    rows = [
        {
            "event": str(row["event"]).split(" (")[0],
            "document's operator": _breakable(row["operator"]),
            "here": ours.get(str(row["event"]), "–"),
        }
        for _, row in table.iterrows()
    ]
    rows.append({"event": "update", "document's operator": "first to last operator of Adam", "here": "first to last kernel of the update"})
    return table_html(pd.DataFrame(rows))


def _breakable(operator: object) -> str:
    """An operator's name that may go on in the next line after "_" and "/" (a zero-width space), so that the table needs no scrolling."""
    return str(operator).replace("_", "_\u200b").replace("/", "/\u200b")


def shown_steps(records: Sequence[Record], loop: bool = False) -> list[Record]:
    """Of each way, for the picture of one step, the Record on the most GPUs (of any machine) whose traced step is the median one (the
    lower of two).

    loop: of the ways that launch cell by cell, whose steps are ten times as long and have a picture and a time axis of their own.
    """
    shown = []
    for mine in ways([r for r in leading(records) if (r.run.recurrence == "stepwise") == loop]).values():
        most = max(record.run.devices for record in mine)
        steps = whole_frame(mine).set_index("key")["step_s"]
        last = sorted((r for r in mine if r.run.devices == most), key=lambda r: (steps.get(r.key, float("inf")), r.repeat))
        shown.append(last[(len(last) - 1) // 2])
    return shown
