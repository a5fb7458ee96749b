"""The page of placements inside one model: its answers, and the parts that join Records, traces and the document's profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from multigpu.analysis.crossing import USUAL, crossings
from multigpu.analysis.inside_busy import BATCH, cause_sentence, on_epochs, plain_traces
from multigpu.analysis.inside_document import document_sentence
from multigpu.analysis.inside_model import (
    FEEDS,
    NO_RECORD,
    ORDER,
    WAY,
    WHERE,
    epoch_sentence,
    feeding_sentence,
    from_which_batch,
    model_rows,
    placement_text,
    steps_by_way,
)
from multigpu.analysis.inside_traces import COPY_WORDS, trace_summary, window_of
from multigpu.analysis.picture import Shown, folded, together
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.traces import traced
from multigpu.analysis.wording import FRAMEWORK_NAMES, joined, plural
from multigpu.claims import Result, evaluate, find_claim
from multigpu.claims.kinds import TracePredicate
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
COPIES_BETWEEN = COPY_WORDS["device_to_device"]
PROFILE_FIGURES = ("Time(%)", "ms", "calls", "avg (µs)", "min (µs)", "max (µs)", "MiB")
HAND_WRITTEN_GPUS = tuple((name, 1 if name == "single" else 2) for name in HAND_WRITTEN)


def of_machines(traces: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The traces of the machines that the frame is of, with the steps of its whole epochs (`inside_busy.on_epochs`)."""
    return on_epochs(traces[traces["machine"].isin(set(frame["machine"]))], frame)


def answers(frame: pd.DataFrame, traces: pd.DataFrame) -> list[str]:
    """The page's answer: how much longer two GPUs take, and why; one sentence a framework each."""
    said = [epoch_sentence(frame, name) for name in FRAMEWORKS] + [cause_sentence(traces, name) for name in FRAMEWORKS]
    said += crossing_sentences(frame)
    known = [text for text in said if "not yet measured" not in text and "no trace of" not in text]
    return known or [NO_RECORD]


def crossing_sentences(frame: pd.DataFrame) -> list[str]:
    """From which batch on two replicas of half of it win, with the document's width; nothing where that was not measured."""
    own = [row for row in crossings(model_rows(frame)).to_dict("records") if (row["model"], row["placement"]) == CROSSED]
    parts = [f"in {FRAMEWORK_NAMES[str(row['framework'])]} {from_which_batch(row)}" for row in own]
    return [f"As two replicas of half the batch, at the document's width: {', '.join(parts)}."] if parts else []


def step_finding(frame: pd.DataFrame, framework: str) -> str | None:
    """How long a step takes, by whole epochs, of batches kept on the GPUs; None unless all of the document's placements have epochs."""
    known = steps_by_way(frame)
    steps = [known.get((framework, USUAL[framework], "one", None, None, name, devices, None)) for name, devices in HAND_WRITTEN_GPUS]
    if None in steps:
        return None
    one, towers, alternating = (f"{1e3 * step:.2f}" for step in steps if step is not None)
    return f"over whole epochs a step takes {one} ms on one GPU, {towers} with one tower a GPU, {alternating} with alternating GPUs"


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
    """The first traced Record of each placement and way of feeding, on the machines of the frame: rows kept on the GPU first.

    Where the frame has whole epochs of the same way, their mean step stands for the untraced one: one step time on the whole page.
    """
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
    steps = steps_by_way(frame)
    every = [_on_epochs(record, steps.get(tuple(getattr(record.run, name) for name in (*WAY, *WHERE)))) for record in found.values()]
    return sorted(every, key=lambda record: (list(FEEDS).index(record.run.feed), ORDER.index(record.run.placement)))


def _on_epochs(record: Record, step_s: float | None) -> Record:
    if step_s is None or record.measurement is None:
        return record
    measurement = record.measurement.model_copy(update={"untraced_step_s": {record.repeat: step_s}})
    return record.model_copy(update={"measurement": measurement})


def profile_table(frame: pd.DataFrame, framework: str, model: str = "deepconn", store: RecordStore | None = None) -> Shown:
    """A line a placement's copies between GPUs, as the document's profile has them, and folded the dearest lines of every profile."""
    records = traced_records(frame, framework, model, store)
    if not records:
        return table_html(pd.DataFrame(), note=f"No traced Record of document 003's model in {FRAMEWORK_NAMES[framework]} on a GPU yet.")
    profiles = [_profile_lines(record) for record in records]
    windows = [f"{first} to {last}" for first, last in sorted({window_of(record) for record in records})]
    note = (
        f"One Record each, of steps {joined(windows)}, counted from the Run's first; a Run's traced_from and traced_steps choose them. "
        "Times, calls and MiB are those of one step, all GPUs together. Of a placement that copies nothing between GPUs, its dearest line."
    )
    shown = pd.DataFrame([next((line for line in lines if line["operation"] == COPIES_BETWEEN), lines[0]) for lines in profiles])
    every = pd.DataFrame([line for lines in profiles for line in lines])
    summary = f"The dearest lines of {plural(len(profiles), 'profile')} in {FRAMEWORK_NAMES[framework]}"
    return together(
        table_html(shown, FRAMEWORK_NAMES[framework], note, PROFILE_FIGURES, wide=["operation"]),
        folded(summary, tables_by(every, "placement", "", PROFILE_FIGURES, ["operation"])),
    )


def _profile_lines(record: Record) -> list[dict[str, str]]:
    """The dearest lines of one profile, copies always among them, nvprof's columns as of one step."""
    table, steps = trace_summary(record), record.run.traced_steps
    chosen = table[(table.index < LINES) | table["operation"].str.startswith("[memcpy")]
    return [
        {
            "placement": placement_text(record.run.model_dump()) + (f", {FEEDS[record.run.feed]}" if record.run.feed else ""),
            "operation": row["operation"].replace("_", "_\u200b"),  # a long name may break there
            "Time(%)": _figure(row["time_percent"], 2),
            "ms": _figure(1e3 * row["time_s"] / steps, 3),
            "calls": _figure(row["calls_a_step"], 1),
            "avg (µs)": _figure(row["average_us"], 2),
            "min (µs)": _figure(row["min_us"], 2),
            "max (µs)": _figure(row["max_us"], 2),
            "MiB": "" if pd.isna(row["bytes"]) else f"{row['bytes'] / 2**20 / steps:.2f}",
        }
        for row in chosen.to_dict("records")
    ]


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


def traced_alone(traces: pd.DataFrame) -> str | None:
    """What C36's ratio would be of whole epochs, where it compares shorter Runs; None where both agree. traces: of `of_machines`."""
    parts = []
    for framework in FRAMEWORKS:
        known = plain_traces(traces, framework)
        if {"single", "tower_per_gpu"} <= set(known):
            own, whole = (
                float(known["tower_per_gpu"][name].mean() / known["single"][name].mean()) for name in ("own_step_s", "timed_step_s")
            )
            if abs(own / whole - 1) >= 0.01:
                parts.append(f"in {FRAMEWORK_NAMES[framework]} {own:.2f}, of whole epochs {whole:.2f}")
    if not parts:
        return None
    return f"C36 compares the Runs measured beside the traces, shorter than an epoch: one tower a GPU over one GPU {'; '.join(parts)}."


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
