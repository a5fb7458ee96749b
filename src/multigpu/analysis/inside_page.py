"""The page of placements inside one model: its answers, and the parts that join Records, traces and the document's profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from multigpu import paths
from multigpu.analysis.inside_model import FEEDS, NAMES, NO_RECORD, cause_sentence, epoch_sentence, points, way_text
from multigpu.analysis.inside_traces import trace_summary
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.traces import traced
from multigpu.analysis.wording import FRAMEWORK_NAMES
from multigpu.claims import Result, evaluate, find_claim
from multigpu.claims.traces import TracePredicate
from multigpu.published import load_published
from multigpu.record import Record, RecordStore
from multigpu.stages.graph import StageGraph, parse_places
from multigpu.stages.placements import HAND_WRITTEN, RULES, SPLIT
from multigpu.stages.record import StageRecord
from multigpu.workloads import find_model
from multigpu.workloads.deepconn.stages import stage_graph

FRAMEWORKS = ("torch", "tensorflow")
CLAIMS = ("C35", "C36", "C37", "C51")
LINES = 6
"""Of each placement's profile."""


def of_machines(traces: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The traces of the machines that the frame is of."""
    return traces[traces["machine"].isin(set(frame["machine"]))]


def answers(frame: pd.DataFrame, traces: pd.DataFrame) -> list[str]:
    """The page's answer: how much longer two GPUs take, and why; one sentence a framework each."""
    said = [epoch_sentence(frame, name) for name in FRAMEWORKS] + [cause_sentence(traces, name) for name in FRAMEWORKS]
    known = [text for text in said if "not yet measured" not in text and "no trace of" not in text]
    return known or [NO_RECORD]


def causes(traces: pd.DataFrame) -> list[str]:
    """Why, in both frameworks."""
    return [cause_sentence(traces, name) for name in FRAMEWORKS]


def graph(strings: bool = False) -> StageGraph:
    """The stages of document 003's model."""
    return stage_graph(find_model("deepconn", "deepconn"), strings)


def panels(records: Sequence[StageRecord]) -> dict[str, Mapping[str, int]]:
    """The hand-written placements and those that searches found, by name, each a stage's place."""
    drawn: dict[str, Mapping[str, int]] = {SPLIT[name].title: graph().check(RULES[SPLIT[name].split](graph()), 2) for name in HAND_WRITTEN}
    known = {tuple(sorted(places.items())) for places in drawn.values()}
    for record in records:
        if record.run.model != "deepconn" or record.run.feed == "strings":
            continue
        places = graph().check(parse_places(graph(), record.found.stage_devices), record.devices)
        if tuple(sorted(places.items())) not in known:
            known.add(tuple(sorted(places.items())))
            drawn[f"Found for {record.run.framework}, batch {record.run.batch_size}"] = places
    return drawn


def traced_records(frame: pd.DataFrame, framework: str, model: str = "deepconn", store: RecordStore | None = None) -> list[Record]:
    """The first traced Record of each placement, batches kept on the devices, on the machines of the frame."""
    found: dict[str, Record] = {}
    for record, _ in traced(store or RecordStore(paths.RUNS)):
        run = record.run
        plain = run.framework == framework and run.feed is None and run.embedding_gradients is None
        if plain and run.placement in HAND_WRITTEN and run.model == model and record.machine.name in set(frame["machine"]):
            best = found.setdefault(run.placement, record)
            if record.repeat < best.repeat:
                found[run.placement] = record
    return [found[name] for name in HAND_WRITTEN if name in found]


def profile_table(frame: pd.DataFrame, framework: str, model: str = "deepconn", store: RecordStore | None = None) -> Shown:
    """The dearest lines of each placement's profile, copies always among them, with nvprof's columns."""
    rows = []
    for record in traced_records(frame, framework, model, store):
        table = trace_summary(record)
        chosen = table[(table.index < LINES) | table["operation"].str.startswith("[memcpy")]
        for row in chosen.to_dict("records"):
            rows.append(
                {
                    "placement": NAMES[record.run.placement],
                    "Time(%)": _figure(row["time_percent"], 2),
                    "calls": f"{row['calls']:,}",
                    "calls a step": _figure(row["calls_a_step"], 1),
                    "avg (us)": _figure(row["average_us"], 2),
                    "min (us)": _figure(row["min_us"], 2),
                    "max (us)": _figure(row["max_us"], 2),
                    "MiB": "" if pd.isna(row["bytes"]) else f"{row['bytes'] / 2**20:.2f}",
                    "operation": row["operation"],
                }
            )
    right = ["Time(%)", "calls", "calls a step", "avg (us)", "min (us)", "max (us)", "MiB"]
    missing = f"No traced Record of document 003's model in {FRAMEWORK_NAMES[framework]} on a GPU yet."
    return table_html(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["placement"]), note="" if rows else missing, right=right)


def _figure(value: float, decimals: int) -> str:
    return "–" if pd.isna(value) else f"{value:,.{decimals}f}"


def document_profile() -> Shown:
    """The document's own three lines."""
    table = load_published("003_nvprof").drop(columns=["printed", "time_s"])
    table = table.rename(columns={"time_percent": "Time(%)", "average_us": "avg (us)", "min_us": "min (us)", "max_us": "max (us)"})
    cells = table.astype({"calls": "object"}).map(lambda value: f"{value:,}" if isinstance(value, int | float) else str(value))
    return table_html(cells, "Document 003, nvprof", right=["Time(%)", "calls", "avg (us)", "min (us)", "max (us)"])


def host_table(frame: pd.DataFrame, model: str = "deepconn", batch: int = 32) -> Shown:
    """One GPU, by how it is fed and started: seconds an epoch, and over the same framework's batch kept on the GPU."""
    everything = [one for one in points(frame, model, batch) if one.row["devices"] == 1]
    rows = []
    for one in everything:
        usual = [other for other in everything if _usual(other.row) and other.row["framework"] == one.row["framework"]]
        mean_s, deviation = one.epoch_s
        rows.append(
            {
                "how": way_text(one.row),
                "processes": "one for all GPUs" if one.row["processes"] == "one" else "one a GPU",
                "rows come from": FEEDS[one.row["feed"]],
                "s an epoch": f"{mean_s:.3f}",
                "±": "once" if deviation is None else f"{deviation:.3f}",
                "n": str(len(one.step_s)),
                "over the usual way": f"{one.mean_s / usual[0].mean_s:.2f}" if usual else "",
            }
        )
    columns = list(rows[0]) if rows else ["how"]
    return table_html(
        pd.DataFrame(rows, columns=columns), note="" if rows else NO_RECORD, right=["s an epoch", "±", "n", "over the usual way"]
    )


def _usual(row: Mapping[str, Any]) -> bool:
    """Whether a Run is the plain one of its framework: the batch kept on the GPU, kernel by kernel in PyTorch, a graph in TensorFlow."""
    plain = row["feed"] is None and row["embedding_gradients"] is None and row["placement"] == "single"
    return plain and row["execution"] == {"torch": "eager", "tensorflow": "graph"}[row["framework"]]


def verdicts(frame: pd.DataFrame, traces: pd.DataFrame) -> list[Result]:
    """The document's claims by these Records."""
    found = [find_claim(number) for number in CLAIMS]
    return [evaluate(claim, traces if isinstance(claim.predicate, TracePredicate) else frame) for claim in found]
