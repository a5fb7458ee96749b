"""The page of placements inside one model: its answers, and the parts that join Records, traces and the document's profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from multigpu.analysis.crossing import crossing_text, crossings
from multigpu.analysis.inside_busy import BATCH, cause_sentence
from multigpu.analysis.inside_document import document_sentence
from multigpu.analysis.inside_model import FEEDS, NO_RECORD, ORDER, epoch_sentence, feeding_sentence, model_rows, placement_text
from multigpu.analysis.inside_traces import trace_summary, window_of
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.traces import timed_step_s, traced
from multigpu.analysis.wording import FRAMEWORK_NAMES, joined, plural
from multigpu.claims import Result, evaluate, find_claim
from multigpu.claims.traces import TracePredicate
from multigpu.grid import cost_s, find_grid
from multigpu.grid import points as points_of
from multigpu.reading import study_records
from multigpu.record import Record, RecordStore
from multigpu.stages.graph import StageGraph, parse_places
from multigpu.stages.placements import HAND_WRITTEN, RULES, SPLIT
from multigpu.stages.record import StageRecord
from multigpu.workloads import find_model
from multigpu.workloads.deepconn.description import epoch_steps
from multigpu.workloads.deepconn.stages import stage_graph

FRAMEWORKS = ("torch", "tensorflow")
CLAIMS = ("C35", "C36", "C37", "C51")
GRIDS = ("inside_model", "inside_model_traces", "inside_model_host", "inside_model_crossing")
CROSSED = ("deepconn", "replicated_allreduce")
LINES = 6
"""Of each placement's profile."""


def of_machines(traces: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The traces of the machines that the frame is of."""
    return traces[traces["machine"].isin(set(frame["machine"]))]


def answers(frame: pd.DataFrame, traces: pd.DataFrame) -> list[str]:
    """The page's answer: how much longer two GPUs take, and why; one sentence a framework each."""
    said = [epoch_sentence(frame, name) for name in FRAMEWORKS] + [cause_sentence(traces, name) for name in FRAMEWORKS]
    said += crossing_sentences(frame)
    known = [text for text in said if "not yet measured" not in text and "no trace of" not in text]
    return known or [NO_RECORD]


def crossing_sentences(frame: pd.DataFrame) -> list[str]:
    """From which batch on two replicas of half of it win, with the document's width; nothing where that was not measured."""
    own = [row for row in crossings(model_rows(frame)).to_dict("records") if (row["model"], row["placement"]) == CROSSED]
    parts = [
        f"in {FRAMEWORK_NAMES[str(row['framework'])]} {crossing_text({str(name): value for name, value in row.items()})}" for row in own
    ]
    return [f"As two replicas of half the batch, at the document's width: {', '.join(parts)}."] if parts else []


def step_finding(records: Sequence[Record]) -> str | None:
    """How long a step took, untraced, where batches are kept on the GPUs and the document's placements were traced; else None."""
    known = {record.run.placement: timed_step_s(record) for record in records if record.run.feed is None}
    if not set(HAND_WRITTEN) <= set(known):
        return None
    one, towers, alternating = (f"{1e3 * known[name]:.2f}" for name in HAND_WRITTEN)
    return f"a step takes {one} ms on one GPU, {towers} with one tower a GPU, {alternating} with alternating GPUs"


def causes(traces: pd.DataFrame) -> list[str]:
    """Host or copies: in the document, by its own figures, and here in both frameworks."""
    return [document_sentence(), *(cause_sentence(traces, name) for name in FRAMEWORKS)]


def feeding(frame: pd.DataFrame) -> list[str]:
    """What feeding one step ahead gives, in both frameworks."""
    return [feeding_sentence(frame, name) for name in FRAMEWORKS]


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
            drawn[f"Found for {FRAMEWORK_NAMES[record.run.framework]}, batch {record.run.batch_size}"] = places
    return drawn


def traced_records(frame: pd.DataFrame, framework: str, model: str = "deepconn", store: RecordStore | None = None) -> list[Record]:
    """The first traced Record of each placement and way of feeding, on the machines of the frame: rows kept on the GPU first."""
    found: dict[tuple[object, ...], Record] = {}
    machines = set(frame["machine"])
    for record, _ in traced(store or study_records()):
        run = record.run
        own = (run.framework, run.model, run.batch_size, run.scaling) == (framework, model, BATCH, "strong")
        if own and run.placement in ORDER and record.machine.name in machines:
            what = (run.placement, run.devices, run.stage_devices, run.feed, run.embedding_gradients, run.execution)
            best = found.setdefault(what, record)
            if record.repeat < best.repeat:
                found[what] = record
    return sorted(found.values(), key=lambda record: (list(FEEDS).index(record.run.feed), ORDER.index(record.run.placement)))


def profile_table(frame: pd.DataFrame, framework: str, model: str = "deepconn", store: RecordStore | None = None) -> Shown:
    """The dearest lines of each placement's profile, copies always among them, with nvprof's columns."""
    rows, records = [], traced_records(frame, framework, model, store)
    for record in records:
        table = trace_summary(record)
        chosen = table[(table.index < LINES) | table["operation"].str.startswith("[memcpy")]
        for row in chosen.to_dict("records"):
            rows.append(
                {
                    "placement": placement_text(record.run.model_dump()) + (f", {FEEDS[record.run.feed]}" if record.run.feed else ""),
                    "operation": row["operation"].replace("_", "_\u200b"),  # a long name may break there
                    "Time(%)": _figure(row["time_percent"], 2),
                    "time (ms)": _figure(1e3 * row["time_s"], 3),
                    "calls": f"{row['calls']:,}",
                    "calls a step": _figure(row["calls_a_step"], 1),
                    "avg (us)": _figure(row["average_us"], 2),
                    "min (us)": _figure(row["min_us"], 2),
                    "max (us)": _figure(row["max_us"], 2),
                    "MiB": "" if pd.isna(row["bytes"]) else f"{row['bytes'] / 2**20:.2f}",
                }
            )
    right = ["Time(%)", "time (ms)", "calls", "calls a step", "avg (us)", "min (us)", "max (us)", "MiB"]
    note = f"No traced Record of document 003's model in {FRAMEWORK_NAMES[framework]} on a GPU yet."
    if records:
        windows = [f"{first} to {last}" for first, last in sorted({window_of(record) for record in records})]
        note = (
            f"One Record each, of steps {joined(windows)}, counted from the Run's first; a Run's traced_from and traced_steps choose them."
        )
    return tables_by(pd.DataFrame(rows, columns=list(rows[0]) if rows else ["placement"]), "placement", note, right, ["operation"])


def _figure(value: float, decimals: int) -> str:
    return "–" if pd.isna(value) else f"{value:,.{decimals}f}"


def verdicts(frame: pd.DataFrame, traces: pd.DataFrame) -> list[Result]:
    """The document's claims by these Records: all there are, as on the scoreboard, since C37 speaks of any model."""
    found = [find_claim(number) for number in CLAIMS]
    return [evaluate(claim, traces if isinstance(claim.predicate, TracePredicate) else frame) for claim in found]


def epochs_alone(frame: pd.DataFrame) -> str | None:
    """What C35 would say of whole epochs alone, where Records of fewer steps count in it too; None where there are none.

    The claim's predicate takes every Record at the document's batch. It was written before they were measured and stays.
    """
    claim, own = find_claim("C35"), model_rows(frame)
    every = evaluate(claim, own)
    behind = own[own["key"].isin(every.record_keys)]
    whole = behind["timed_steps"] == epoch_steps(BATCH)
    if whole.all() or not whole.any():
        return None
    alone = evaluate(claim, own[own["timed_steps"] == epoch_steps(BATCH)])
    steps = joined([str(number) for number in sorted(set(behind["timed_steps"][~whole]))])
    return (
        f"C35 counts every Record of its placements at batch {BATCH}: {plural(int(whole.sum()), 'epoch')} and "
        f"{plural(int((~whole).sum()), 'Record')} of {steps} steps. Verdict: {every.verdict}. "
        f"The epochs alone: {alone.verdict} ({alone.figure or alone.why})."
    )


def grid_costs(devices: Sequence[int] = (1, 2)) -> Shown:
    """What measuring this page's points may take, by grid."""
    rows = [
        {"grid": name, "points": str(len(points_of(planned))), "at most (minutes)": f"{cost_s(planned) / 60:.0f}"}
        for name in GRIDS
        for planned in [find_grid(name, devices)]
    ]
    counts = joined([str(count) for count in devices])
    note = f"On {counts} GPUs, as the grids reckon, starts included. What has a Record is not measured twice."
    return table_html(pd.DataFrame(rows), note=note, right=["points", "at most (minutes)"])
