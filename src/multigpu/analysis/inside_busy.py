"""What traces say of each placement inside one model: how busy GPUs are, what copies between them take, and which of both slows a step."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import pandas as pd

from multigpu.analysis.crossing import USUAL
from multigpu.analysis.inside_document import NAMES, bound_word, copies_explain, document_busy, document_copies
from multigpu.analysis.inside_model import FEEDS, NO_RECORD, ORDER, WAY, WHERE, placement_text, plain_row, way_text
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
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


def group_order(row: dict[str, Any]) -> tuple[str, int, int]:
    """By how it is trained, then by how its rows come in, then by placement."""
    return way_text(row), list(FEEDS).index(row["feed"]), ORDER.index(row["placement"])


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
                "placement": placement_text(row),
                "how": way_text(row) + ("" if row["feed"] is None else f", {FEEDS[row['feed']]}"),
                "step (ms)": f"{1e3 * mean['timed_step_s']:.3f}",
                "GPUs busy": _percent(mean["busy_share"]),
                "document, busy": "" if all_of is None else _percent(all_of.share),
                "copies a step": f"{mean['peer_copies_a_step']:.1f}",
                "document": "" if document is None else f"{document['calls_a_step']:.1f}",
                "share of GPU time": _percent(mean["copy_share"]),
                "document, share": "" if document is None else _percent(document["share"]),
                "step without copies (ms)": f"{1e3 * mean['step_without_copies_s']:.3f}",
                "n": str(len(group)),
            }
        )
    note = (
        "GPUs busy: share of the unprofiled step in which a GPU does anything, mean over the GPUs. The document's: all that its profile "
        "counts over its GPUs' time in five epochs, at most. Without copies: at least this long."
    )
    if any(row["placement"] == NAMES["replicated_allreduce"] for row in rows):
        note += " What replicas merge by an all-reduce's kernels is no copy."
    return table_html(
        pd.DataFrame(rows, columns=list(rows[0]) if rows else ["placement"]),
        note=note if rows else NO_RECORD,
        right=[name for name in rows[0] if name not in ("placement", "how")] if rows else (),
    )


def _percent(share: float) -> str:
    """A share in percent; a dash where it is not known."""
    return "–" if isnan(share) else f"{100 * share:.1f}%"


def cause_sentence(traces: pd.DataFrame, framework: str) -> str:
    """Whether the copies or the host explain what the second GPU costs, from traces of batches kept on the devices."""
    name = FRAMEWORK_NAMES[framework]
    known: dict[str, pd.DataFrame] = {}
    for row, group in traced_groups(traces):
        plain = (
            (row["framework"], row["execution"]) == (framework, USUAL[framework])
            and row["feed"] is None
            and row["embedding_gradients"] is None
        )
        if plain and len(group) > len(known.get(row["placement"], [])):
            known[row["placement"]] = group
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
        return f"{opening} two GPUs are not slower ({1e3 * step:.3f} against {1e3 * base:.3f} ms), so there is nothing to explain."
    share = min(1.0, max(0.0, (step - least) / (step - base)))
    verdict = "copies can explain the difference" if copies_explain(least, base) else "copies alone do not explain it"
    return (
        f"{opening} of the {1e3 * (step - base):.3f} ms that a step with one tower a GPU takes longer, copies that nothing hides make at "
        f"most {100 * share:.0f}%: {verdict}."
    )
