"""What traces of a model spread over GPUs say: how long each GPU idles, and what micro-batches and collectives wait for."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

import pandas as pd

from multigpu.analysis.parallelism import LSTM
from multigpu.analysis.partition_bytes import stage_work
from multigpu.analysis.phases import step_time, steps_of
from multigpu.analysis.traces import timed_step_s, traced
from multigpu.analysis.wording import MODEL_NAMES, devices_text, joined, percent_text, plural, ratio_text
from multigpu.measure.trace import TraceSummary
from multigpu.reading import study_records
from multigpu.record import Record

NOT_TRACED = "No step of layers or matrices over GPUs has been traced yet: `python -m multigpu measure --grid parallelism` traces four."
HOST_BOUND = 0.9
"""Share of the time in which the launching thread launches, from which on the GPUs wait for it."""


def split_traces(frame: pd.DataFrame, records: Iterable[Record] | None = None) -> list[Record]:
    """The traced Records of a model spread over devices, on the machines of `frame`: layers first, then matrices; without micro-batches
    first. records: to choose from; the repository's unless given.
    """
    machines = set(frame["machine"])
    chosen = [
        record
        for record, _ in traced(study_records() if records is None else records)
        if record.run.placement in ("layer_split", "tensor_split") and record.run.framework == "torch" and record.machine.name in machines
    ]
    return sorted(chosen, key=lambda r: (r.run.placement, r.run.model, r.run.batch_size, r.run.micro_batches or 1, r.key))


def layer_traces(records: Iterable[Record]) -> list[Record]:
    """Of those the translation model's layers over devices: one a Run."""
    own = [record for record in records if record.run.placement == "layer_split" and record.run.model in LSTM]
    return list({record.run.digest: record for record in reversed(own)}.values())[::-1]


def busy_table(records: Iterable[Record]) -> pd.DataFrame:
    """How long each GPU computed or copied in a step: a row a traced Record and rank.

    Returns:
        key, micro_batches (1: the whole batch), devices, rank, busy_s (mean over the traced steps: kernels' and copies' own time,
        overlaps once), step_s (without a profiler: `traces.timed_step_s`), idle (1 - busy_s / step_s), kernels (a step).
    """
    rows = []
    for record, trace in traced(records):
        assert record.measurement
        step_s = timed_step_s(record)
        for replica in trace.replicas:
            busy = fmean(step.busy_s for step in replica.steps)
            rows.append(
                {
                    "key": record.key,
                    "micro_batches": record.run.micro_batches or 1,
                    "devices": record.run.devices,
                    "rank": replica.rank,
                    "busy_s": busy,
                    "step_s": step_s,
                    "idle": 1 - busy / step_s,
                    "kernels": fmean(step.kernels for step in replica.steps),
                }
            )
    return pd.DataFrame(rows)


def _parts_text(parts: int) -> str:
    return "the batch in one piece" if parts == 1 else f"{parts} micro-batches"


def idle_sentences(records: Iterable[Record]) -> list[str]:
    """What share of the step each GPU idles in the traced Runs of layers over GPUs, a sentence a Run; and which GPU has most to do."""
    own = layer_traces(records)
    table = busy_table(own)
    if table.empty:
        return [NOT_TRACED]
    said = []
    for record in own:
        lanes = table[table["key"] == record.key].sort_values("rank")
        shares = joined([f"{percent_text(row['idle'])} (GPU {row['rank']})" for _, row in lanes.iterrows()])
        job = f"{MODEL_NAMES.get(record.run.model, record.run.model)}, batch {record.run.batch_size} in all"
        said.append(
            f"With {_parts_text(record.run.micro_batches or 1)} a step of {1e3 * lanes['step_s'].iloc[0]:.0f} ms ({job}) leaves the GPUs "
            f"idle for {shares}."
        )
    run = own[0].run
    work = stage_work(run.description, run.degree)
    most = max(range(len(work)), key=work.__getitem__)
    section = run.description.sections[-1].name if most == len(work) - 1 else "its layers"
    return [*said, f"GPU {most}, which has the {section}, does {percent_text(work[most] / sum(work))} of the operations."]


def idle_title(records: Iterable[Record]) -> str | None:
    """For a picture: the GPUs' mean idle share in each traced Run."""
    table = busy_table(layer_traces(records))
    if table.empty:
        return None
    means = table.groupby("micro_batches")["idle"].mean()
    parts = [f"{percent_text(share)} of a step with {_parts_text(int(str(count)))}" for count, share in means.items()]
    return f"{plural(int(table['devices'].max()), 'GPU')} that hold the layers in turn idle for {joined(parts)}"


def launches_sentence(records: Iterable[Record]) -> str | None:
    """What micro-batches do to kernels, to busy time and to the launching thread, from two traced Runs that differ in them alone."""
    own = {record.run.micro_batches or 1: (record, trace) for record, trace in traced(layer_traces(records))}
    if 1 not in own or len(own) < 2:
        return None
    parts = max(own)
    table = busy_table([own[1][0], own[parts][0]])
    sums = table.groupby("micro_batches")[["busy_s", "kernels"]].sum()
    kernels, busy = sums["kernels"], 1e3 * sums["busy_s"]
    share = {count: _host_share(own[count][1]) for count in (1, parts)}
    end = " While it launches for one GPU, the others wait for it." if share[parts] > HOST_BOUND else ""
    return (
        f"Traced: {parts} micro-batches launch {kernels[parts]:,.0f} kernels a step instead of {kernels[1]:,.0f} "
        f"({ratio_text(kernels[parts] / kernels[1])} as many), since each walks all positions of all layers whatever its rows, and the "
        f"GPUs together are busy for {busy[parts]:.0f} ms instead of {busy[1]:.0f}. One thread launches for all GPUs; under the profiler "
        f"that takes it {percent_text(share[parts])} of the time, and {percent_text(share[1])} without micro-batches.{end}"
    )


def _host_share(trace: TraceSummary) -> float:
    """The share of the traced steps in which the launching thread was in the step's call; steps that overlap count once."""
    steps = steps_of(trace)
    span = max(mine.end_s for mine in steps[-1]) - min(mine.start_s for mine in steps[0])
    return min(1.0, sum(max(mine.host_s for mine in step) for step in steps) / span)


def waiting_sentences(records: Iterable[Record]) -> list[str]:
    """How much of the time that cut matrices spend in collectives is waiting: a sentence a traced Run."""
    said = []
    for record, trace in traced(records):
        if record.run.placement != "tensor_split":
            continue
        steps = steps_of(trace)
        least, most = (median(pick(mine.communication_s for mine in step) for step in steps) for pick in (min, max))
        step_s = median(step_time(step) for step in steps)
        assert record.measurement
        timed_s = timed_step_s(record)
        run, on = record.run, devices_text(record.run.devices, record.run.device_type)
        job = f"{MODEL_NAMES.get(run.model, run.model)}, batch {run.batch_size:,} in all"
        said.append(
            f"In a traced step with matrices cut over {on} ({job}; {1e3 * step_s:.1f} ms, {1e3 * timed_s:.1f} without the profiler) the "
            f"GPU that waits least is in collectives for {1e3 * least:.1f} ms, the one that waits most for {1e3 * most:.1f}: "
            "the difference is waiting for the process that launches last, not sending."
        )
    return said
