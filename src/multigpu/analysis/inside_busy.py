"""What traces say of each placement inside one model: how busy GPUs are, what copies between them take, and which of both slows a step."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import pandas as pd

from multigpu.analysis.crossing import USUAL
from multigpu.analysis.inside_document import bound_word, copies_explain, document_busy, document_copies
from multigpu.analysis.inside_model import (
    FEEDS,
    NO_RECORD,
    ORDER,
    WAY,
    WHERE,
    form_text,
    is_replica,
    placement_text,
    plain_row,
    steps_by_way,
)
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import tables_by
from multigpu.analysis.wording import FRAMEWORK_NAMES

BATCH = 32
"""Rows of the joined batch that the page's traces are of: the document's."""


def traced_groups(traces: pd.DataFrame, model: str = "deepconn") -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Traced Records of the model at the document's batch, repeats together: placements of its stages, and replicas beside them."""
    if traces.empty:
        return
    own = traces[
        (traces["model"] == model) & traces["placement"].isin(ORDER) & traces["scaling"].eq("strong") & traces["batch_size"].eq(BATCH)
    ]
    for _, group in own.groupby([*WAY, *WHERE, "timed_steps"], dropna=False, sort=False, observed=True):
        yield plain_row(group), group


def on_epochs(traces: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The traces with the steps of whole epochs where the frame has epochs of the same way: one step time on the whole page.

    What the GPUs did in a step stays as traced: busy_share keeps busy seconds, step_without_copies_s keeps what copies could have cost.
    own_step_s: the step as `trace_table` has it, of shorter Runs where there are any; claims compare those.
    """
    known, found = steps_by_way(frame), traces.assign(own_step_s=traces["timed_step_s"] if len(traces) else None)
    for row, group in traced_groups(traces):
        step_s = known.get(tuple(row[name] for name in (*WAY, *WHERE)))
        if step_s is not None:
            at, own = group.index, group["timed_step_s"].astype(float)
            found.loc[at, "timed_step_s"] = step_s
            found.loc[at, "busy_share"] = group["busy_share"].astype(float) * own / step_s
            found.loc[at, "step_without_copies_s"] = step_s - (own - group["step_without_copies_s"].astype(float))
    return found


def group_order(row: dict[str, Any]) -> tuple[str, int, int]:
    """By how it is trained, then by how its rows come in, then by placement."""
    return FRAMEWORK_NAMES[row["framework"]] + form_text(row, fed=False), list(FEEDS).index(row["feed"]), ORDER.index(row["placement"])


def busy_table(traces: pd.DataFrame, model: str = "deepconn") -> Shown:
    """Of each placement: the step, how long GPUs were busy in it, and what copies between them took and could have cost."""
    theirs, busy, rows = document_copies(), document_busy(), []
    for row, group in sorted(traced_groups(traces, model), key=lambda item: group_order(item[0])):
        mean = {
            name: float(group[name].astype(float).mean())
            for name in ("timed_step_s", "busy_share", "copy_share", "peer_copies_a_step", "step_without_copies_s")
        }
        document, all_of = theirs.get(row["placement"]), busy.get(row["placement"])
        rows.append(
            {
                "framework": FRAMEWORK_NAMES[row["framework"]],
                "placement": placement_text(row),
                "how": form_text(row),
                "step (ms)": f"{1e3 * mean['timed_step_s']:.3f}",
                "busy": _beside(_percent(mean["busy_share"]), "" if all_of is None else _percent(all_of.share)),
                "copies a step": _beside(
                    f"{mean['peer_copies_a_step']:.3g}", "" if document is None else f"{document['calls_a_step']:.3g}"
                ),
                "of GPU time": _beside(_percent(mean["copy_share"]), "" if document is None else _percent(document["share"])),
                "without (ms)": f"{1e3 * mean['step_without_copies_s']:.3f}",
                "n": str(len(group)),
            }
        )
    note = (
        "In brackets: the document. Step: of the whole epochs above, without a profiler. Busy: share of it in which a GPU does anything, "
        "mean over the GPUs; the document's: all that its profile counts over its GPUs' time in five epochs, at most. Of GPU time: copies "
        "between GPUs. Without: a step takes at least this long without them. n: traced Runs."
    )
    if any(is_replica(row) for row, _ in traced_groups(traces, model)):
        note += " What replicas merge by an all-reduce's kernels is no copy."
    right = [name for name in rows[0] if name not in ("framework", "placement", "how")] if rows else ()
    table = pd.DataFrame(rows, columns=list(rows[0]) if rows else ["framework"])
    return tables_by(table, "framework", note if rows else NO_RECORD, right)


def _beside(ours: str, theirs: str) -> str:
    return f"{ours} ({theirs})" if theirs else ours


def _percent(share: float) -> str:
    """A share in percent; a dash where it is not known."""
    return "–" if isnan(share) else f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"


def plain_traces(traces: pd.DataFrame, framework: str) -> dict[str, pd.DataFrame]:
    """Placement -> its traces of batches kept on the GPUs, in the framework's usual form."""
    known: dict[str, pd.DataFrame] = {}
    for row, group in traced_groups(traces):
        plain = (
            (row["framework"], row["execution"]) == (framework, USUAL[framework])
            and row["feed"] is None
            and row["embedding_gradients"] is None
        )
        if plain and len(group) > len(known.get(row["placement"], [])):
            known[row["placement"]] = group
    return known


def cause_sentence(traces: pd.DataFrame, framework: str) -> str:
    """Whether the copies or the host explain what the second GPU costs, from traces of batches kept on the devices."""
    name, known = FRAMEWORK_NAMES[framework], plain_traces(traces, framework)
    if not {"single", "tower_per_gpu"} <= set(known):
        return f"{name}: no trace of one and two GPUs yet, so nothing says whether copies or the host make the difference."
    one, two = known["single"], known["tower_per_gpu"]
    base, step, least = (
        float(group[column].mean()) for group, column in ((one, "timed_step_s"), (two, "timed_step_s"), (two, "step_without_copies_s"))
    )
    busy = [float(group["busy_share"].mean()) for group in (one, two)]
    opening = (
        f"{name}: the GPU is busy {100 * busy[0]:.0f}% of a step on one GPU, which is {bound_word(busy[0])}, "
        f"and each {100 * busy[1]:.0f}% with one tower a GPU;"
    )
    if step <= base:
        return f"{opening} two GPUs are not slower ({1e3 * step:.2f} against {1e3 * base:.2f} ms), so there is nothing to explain."
    share = min(1.0, max(0.0, (step - least) / (step - base)))
    verdict = "copies can explain the difference" if copies_explain(least, base) else "copies alone do not explain it"
    return (
        f"{opening} of the {1e3 * (step - base):.2f} ms that a step with one tower a GPU takes longer, copies that nothing hides make at "
        f"most {100 * share:.0f}%: {verdict}."
    )
