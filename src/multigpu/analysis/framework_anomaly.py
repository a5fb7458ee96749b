"""C11 and its like in TensorFlow: where a step takes longer on fewer GPUs, and what traces and moved bytes say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from multigpu.analysis.framework_traces import eager_or_graph, trace_summary
from multigpu.analysis.frameworks import WAYS, Longer, longer, of_way, same_job, step_times_by_devices
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.traces import traced
from multigpu.analysis.wording import bytes_text, joined, missing, percent_text
from multigpu.measure.trace import HostTotals
from multigpu.record import Record
from multigpu.run import Run
from multigpu.workloads import find_model

SUM = "UnsortedSegmentSum"
"""TensorFlow's operation that adds a table's gradient rows up."""
SOURCE = "segment_reduction_ops_impl.h"
FALLS = 1.1
"""From this factor on, a stage that takes longer on fewer GPUs is spoken of."""


def anomaly_sentences(frame: pd.DataFrame, records: Sequence[Record]) -> list[str]:
    """C11: whether a step on 2 GPUs takes longer than one on 3, where else a step on fewer takes longer, and what traces say."""
    pairs = [("exp1", 2, 3), ("exp2", 2, 3), ("exp2", 3, 4)]
    found = [longer(frame, *pair) for pair in pairs]
    sentences = [_longer_sentence(one) for one in found if one is not None]
    return [*sentences, tail_sentence(records), *filter(None, [cliff_sentence(records), beyond_sentence(frame)])]


def _bounds(found: Longer) -> str:
    return f"95%: {found.bounds.low:.2f} to {found.bounds.high:.2f}"


VERDICTS = {
    "longer": "it is longer",
    "shorter": "it is shorter",
    "not told apart": "the interval holds 1: the two are not told apart",
    "once": "one of the two was measured once: nothing is decided",
}


def _longer_sentence(found: Longer) -> str:
    label = look(found.placement).label
    if found.verdict == "once":
        interval = theirs = ""
    else:
        interval = f" ({_bounds(found)})"
        theirs = f", {'inside' if found.bounds.low <= found.document <= found.bounds.high else 'outside'} this interval"
    verdict = VERDICTS[found.verdict]
    if found.verdict in ("longer", "shorter"):
        verdict += ", as in the document" if (found.verdict == "longer") == (found.document > 1) else ": the document's order is not found"
    return (
        f"{label}: a step on {found.first} GPUs takes {found.ratio:.2f} times as long as one on {found.second}{interval}; in the document "
        f"{found.document:.2f} times{theirs}. Here {verdict}."
    )


def table_rows(run: Run) -> int:
    """Rows of the Run's smallest embedding table (0 without any)."""
    tables = [variable.shape[0] for variable in find_model(run.workload, run.model).variables if variable.kind == "embedding"]
    return min(tables, default=0)


def joined_rows(run: Run) -> int:
    """Gradient rows of one table that a step joins over all GPUs: sentences x words."""
    return run.batch_size * run.devices * (run.sequence_length or 0)


def tail_sentence(records: Sequence[Record], placement: str = "exp2") -> str:
    """What follows backward on every traced count, the step down where it is steepest, and what the host computes there."""
    own = [record for record in eager_or_graph(records, placement) if record.run.framework == "tensorflow"]
    own = sorted(own, key=lambda record: record.run.devices)
    label = look(placement).label
    if len({record.run.devices for record in own}) < 2:
        return f"{label} was not traced on two numbers of GPUs yet, so no trace can say why."
    table = trace_summary(own)
    tails = 1e3 * table["tail_s"]
    rest = 1e3 * (table["timed_s"] - table["tail_s"])
    counts = joined([str(count) for count in table["devices"]])
    text = (
        f"{label} traced on {counts} GPUs: what follows the last backward, in which the host adds up gradients and updates and no GPU "
        f"computes, takes {joined([f'{one:.0f}' for one in tails])} ms, the rest of a step {min(rest):.0f} to {max(rest):.0f} ms."
    )
    drops = [(before / after, index) for index, (before, after) in enumerate(pairwise(tails))]
    factor, index = max(drops)
    if factor < FALLS:
        return text
    few, many = own[index], own[index + 1]
    return f"{text} {_why(few, many)}"


def _why(few: Record, many: Record) -> str:
    """What the host did less of on more GPUs, as far as the traces hold it; and what the library's source says."""
    a, b = (_host(record) for record in (few, many))
    counts = f"{few.run.devices} and {many.run.devices} GPUs"
    if a and b:
        shared = [key for key in a if key in b]
        key = max(shared, key=lambda key: _busy_s(few, a[key]) - _busy_s(many, b[key]))
        said = (
            f"Of the host's operations {key[1]} ({key[0]}) differs most: at least one runs for {1e3 * _busy_s(few, a[key]):.1f} and "
            f"{1e3 * _busy_s(many, b[key]):.1f} ms a step on {counts}."
        )
    else:
        said = f"These traces hold the host's phases on {counts} and not its operations."
    rows, table = (joined_rows(few.run), joined_rows(many.run)), table_rows(few.run)
    if not rows[0] < table <= rows[1]:
        return said
    return f"{said} {_cliff(rows, table)}"


def _cliff(rows: tuple[int, int], table: int) -> str:
    return (
        f"TensorFlow's kernel that adds a table's gradient rows up on a CPU, {SUM}, prices its work at joined rows over rows of the table, "
        f"in whole numbers (its source, {SOURCE}): {rows[0]:,} over {table:,} are 0, so one thread does it all; {rows[1]:,} are "
        f"{rows[1] // table}, so all cores share it. A test of this project counts the threads on either side of that."
    )


def _host(record: Record) -> dict[tuple[str, str], HostTotals]:
    trace = record.measurement.trace if record.measurement else None
    return {(one.phase, one.name): one for one in (trace.host_operations if trace else [])}


def _busy_s(record: Record, totals: HostTotals) -> float:
    """Seconds of a step in which the operation runs."""
    return totals.busy_s / record.run.traced_steps


def cliff_sentence(records: Iterable[Record], placement: str = "exp2") -> str:
    """What follows backward on one GPU at the batches on either side of one joined row a table row; "" unless both were traced."""
    own = [
        record
        for record, _ in traced(records)
        if (record.run.framework, record.run.model, record.run.placement, record.run.devices) == ("tensorflow", "nmt000", placement, 1)
        and record.run.inputs == "synthetic"
        and record.run.recurrence in (None, "fused")
    ]
    sides = [[r for r in own if (joined_rows(r.run) < table_rows(r.run)) == below] for below in (True, False)]
    if not all(sides):
        return ""
    below, above = max(sides[0], key=lambda r: r.run.batch_size), min(sides[1], key=lambda r: r.run.batch_size)
    tails = 1e3 * trace_summary([below, above])["tail_s"]
    rows = [joined_rows(record.run) for record in (below, above)]
    return (
        f"On one GPU, where a batch alone decides it: {below.run.batch_size} sentences ({rows[0]:,} rows) leave {tails[0]:.0f} ms after "
        f"backward, {above.run.batch_size} ({rows[1]:,}) {tails[1]:.0f} ms. Traced once each."
    )


def beyond_sentence(frame: pd.DataFrame) -> str:
    """Where a step on 2 GPUs is shorter than one on a single GPU: what each GPU's link carries; "" where it is nowhere so."""
    own = of_way(same_job(frame), WAYS[0])
    parts = []
    for placement in ("exp1", "exp3"):
        found = longer(frame, placement, 1, 2)
        if found is None or found.verdict != "longer":
            continue
        rows = own[(own["placement"] == placement) & (own["status"] == "ok")]
        up = [rows[rows["devices"] == count]["moved_bytes_device_to_host"].iloc[0] / count for count in (1, 2)]
        parts.append(
            f"{look(placement).label} takes {found.ratio:.2f} times as long on one GPU as on two ({_bounds(found)}), while a GPU's link to "
            f"the host carries {bytes_text(up[0])} and {bytes_text(up[1])} up a step"
        )
    if not parts:
        return ""
    return (
        f"A step may also be shorter on two GPUs than on one: {joined(parts)}. Updated on the GPUs, the tables go back to the host over "
        "the link of one GPU or of two, which may be why these speedups exceed the number of GPUs: that the copies are what is waited for "
        "no trace says yet."
    )


def anomaly_gt(frame: pd.DataFrame, records: Iterable[Record]) -> Shown:
    """C11: a step's time on 1, 2, 3 and 4 GPUs with variables on the CPU, beside the document's; and what the traces say of it."""
    records = list(records)
    traces = trace_summary(
        record for placement in ("exp1", "exp2") for record in eager_or_graph(records, placement) if record.run.framework == "tensorflow"
    )
    rows: list[dict[str, Any]] = []
    for _, point in step_times_by_devices(frame).iterrows():
        own = traces[(traces["placement"] == point["placement"]) & (traces["devices"] == point["devices"])]
        trace = own.iloc[0] if len(own) else None
        spread = "once" if point["n"] == 1 else f"{1e3 * point['fastest_s']:.1f} to {1e3 * point['slowest_s']:.1f}"
        rows.append(
            {
                "placement": look(point["placement"]).label,
                "GPUs": str(point["devices"]),
                "document (ms)": _ms(point["document_s"], ".0f"),
                "ours (ms)": f"{1e3 * point['step_time_s']:.1f}",
                "fastest to slowest": spread,
                "n": str(point["n"]) + (f" over {point['launches']}" if point["n"] > 1 else ""),
                **{name: "–" if trace is None else _ms(trace[column], ".1f") for name, column in STAGES.items()},
            }
        )
    note = (
        "Times of a step. Document: its total over 50 batches of real lengths, so that a larger batch of longer sentences stands behind "
        "some steps. Ours: TensorFlow, TF32, every sentence 100 words. n: repeats over launches. Of three traced steps (ms): down, rows "
        "and values on their way down; passes, forward and backward; after backward, in which the host adds up and updates and no GPU "
        "computes; computing, what a GPU computes in all. –: no trace."
    )
    return table_html(pd.DataFrame(rows), "", note, [name for name in (rows[0] if rows else {}) if name not in ("placement", "n")])


STAGES = {"down": "pull_s", "passes": "passes_s", "after backward": "tail_s", "computing": "computing_s"}


def host_gt(records: Iterable[Record], placement: str = "exp2", most: int = 5) -> Shown:
    """What the host computed in a traced step, on every count whose trace holds it: how long at least one such operation runs."""
    own = [record for record in eager_or_graph(records, placement) if record.run.framework == "tensorflow" and _host(record)]
    rows = []
    for record in sorted(own, key=lambda record: record.run.devices):
        for (phase, name), totals in sorted(_host(record).items(), key=lambda item: -item[1].busy_s)[:most]:
            rows.append(
                {
                    "GPUs": str(record.run.devices),
                    "phase": phase,
                    "operation": name,
                    "calls": f"{totals.calls / record.run.traced_steps:.0f}",
                    "running (ms)": f"{1e3 * _busy_s(record, totals):.1f}",
                    "side by side": f"{totals.total_s / totals.busy_s:.1f}",
                    "of the step": percent_text(_busy_s(record, totals) / float(trace_summary([record])["traced_s"].iloc[0])),
                }
            )
    label = look(placement).label
    empty = f"No trace of {label} names the host's operations yet (grid tensorflow_anomaly)."
    note = (
        f"{label} in TensorFlow; the {most} longest of each number of GPUs, a step. Side by side: how many calls run at a time on the "
        "mean; the threads inside one call are not seen."
    )
    return table_html(pd.DataFrame(rows), "", note if rows else empty, ["GPUs", "calls", "running (ms)", "side by side", "of the step"])


def _ms(value: float, form: str) -> str:
    return "–" if missing(value) else f"{1e3 * value:{form}}"
