"""Document 000's Exp1 to Exp4 beside Runs of ours on sentences of its own lengths, both frameworks in one table."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.documents import DOCUMENT_GPU, published_experiments
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import (
    FRAMEWORK_NAMES,
    describe,
    devices_text,
    joined,
    missing,
    plural,
    rate_text,
    status_text,
    with_interval,
)
from multigpu.grid.batching import CORRECTED_BATCH
from multigpu.grid.entries import EXPERIMENTS
from multigpu.published import published_value

LENGTHS = "lengths_000"
"""The input whose sentences have lengths drawn from a law with the document's mean: about 49 words a pair."""
NAMES = tuple(f"Exp{name[3:]}" for name in EXPERIMENTS)
ABSENT = "`python -m multigpu measure --grid batching,batching_tensorflow,tensorflow_forms` on a machine with GPUs measures it"


def own_lengths(frame: pd.DataFrame) -> pd.DataFrame:
    """`scaling_table` of Exp1 to Exp4 on the document's lengths, every replica drawing its own bucket; with `way`, how it was done.

    Ways are a framework, whether one process dispatches for all devices, and what else tells points of one placement, batch and number
    of devices apart (which the committed grids do not have).
    """
    own = frame["inputs"].eq(LENGTHS) & frame["batching"].eq("own") & frame["scaling"].eq("weak") & frame["placement"].isin(EXPERIMENTS)
    table = scaling_table(frame[own & frame["model"].eq("nmt000")])
    return table.assign(way=[way_of(row) for _, row in table.iterrows()])


def way_of(row: Any) -> str:
    """How a point was dispatched, in words. TensorFlow always has one process here; PyTorch's usual way is a process a device."""
    name = FRAMEWORK_NAMES.get(row["framework"], str(row["framework"]))
    return f"{name}, one process" if row["framework"] == "torch" and row["processes"] == "one" else name


def _ways(table: pd.DataFrame) -> list[str]:
    """The ways, the document's framework first and then its one process for all devices."""
    return list(dict.fromkeys(table.sort_values(["framework", "processes"])["way"]))


def in_tensorflow(frame: pd.DataFrame) -> pd.DataFrame:
    """TensorFlow's rows done the plainest way: in its own arithmetic (TF32), all cells of a layer in one call, the library's own parts."""
    usual = ["recurrence", "embedding_gradients", "cross_entropy", "all_reduce_spec", "wire_dtype", "loss_scale"]
    plain = frame["framework"].eq("tensorflow") & frame["precision"].eq("tf32") & frame["execution"].eq("graph")
    return frame[plain & frame[usual].isna().all(axis=1)]


def _rebuilding(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    return table[table["placement"] == experiment.lower()]


def _of(table: pd.DataFrame, **which: object) -> pd.Series | None:
    """The point with these fields and most repeats, or None."""
    found = table
    for name, value in which.items():
        found = found[found[name] == value]
    return found.sort_values("n", ascending=False, kind="stable").iloc[0] if len(found) else None


def _speedup(row: Any) -> str:
    """The speedup over one device of the same way, with its interval where there is one."""
    if row is None or missing(row["speedup"]):
        return "–"
    low, high = row["speedup_low"], row["speedup_high"]
    exact = missing(low) or low == high
    return f"{row['speedup']:.2f}" if exact else with_interval(f"{row['speedup']:.2f}", low, high, ".2f")


def experiment_table(frame: pd.DataFrame, experiment: str, published: pd.DataFrame | None = None) -> Shown:
    """One of Exp1 to Exp4: the document's words/s and speedup, and each way's of ours, a row a number of GPUs.

    Args:
        frame: of `load_frame`, of one machine.
        published: of `documents.published_experiments`.

    Raises:
        ValueError: document 000 measured no such experiment on real lengths.
    """
    published = published_experiments() if published is None else published
    if experiment not in NAMES:
        raise ValueError(f"document 000 has no experiment {experiment!r} on real lengths: choose one of {', '.join(NAMES)}")
    theirs = published[published["experiment"] == experiment].set_index("gpus")
    table = own_lengths(frame)
    table = table[table["batch_size"].isin(theirs["batch_size"])]
    ways = _ways(table)  # of all four experiments: one that lacks this one says so
    table = _rebuilding(table, experiment)
    rows = []
    for count in sorted({*theirs.index, *table["devices"]}):
        known = theirs.loc[count] if count in theirs.index else None
        cells = {
            "GPUs": str(count),
            "document: words/s": "–" if known is None else f"{known['words_per_s']:,.0f}",
            "document: speedup": "–" if known is None else f"{1.0 if missing(known['speedup']) else known['speedup']:.2f}",
        }
        for way in ways:
            own = _of(table, way=way, devices=count)
            rate = "not measured" if own is None else status_text(own) if missing(own["rate"]) else f"{own['rate']:,.0f}"
            cells |= {f"{way}: words/s": rate, f"{way}: speedup": _speedup(own)}
        rows.append(cells)
    data = pd.DataFrame(rows)
    note = " ".join(_how(table, way) for way in ways if (table["way"] == way).any()) or f"Ours is not yet measured: {ABSENT}."
    return table_html(
        data, f"{experiment}, batch {joined([str(b) for b in sorted(set(theirs['batch_size']))])} a GPU", note, [str(name) for name in data]
    )


def _how(table: pd.DataFrame, way: str) -> str:
    """How a way's points were measured, and how often: "PyTorch: bf16, eager, a process a device; n = 5 over 4 launches on 1 and 4
    devices, else 1 (screening).".
    """
    own = table[(table["way"] == way) & (table["n"] > 0)]
    if own.empty:
        return f"{way}: no Record with a figure."
    repeated = own[own["n"] > 1]
    if repeated.empty:
        said = "n = 1 (screening)"
    else:
        counts = joined([str(count) for count in sorted(repeated["devices"])])
        least, most = int(repeated["n"].min()), int(repeated["n"].max())
        over = plural(int(repeated["launches"].min()), "launch", "launches")
        said = f"n = {least if least == most else f'{least} to {most}'} over {over} on {counts}"
        said += ", else 1 (screening)" if len(repeated) < len(own) else ""
    return f"{way}: {describe(own.iloc[0], ['precision', 'execution', 'processes'])}; {said}."


def experiment_tables(frame: pd.DataFrame) -> Shown:
    """The tables of all four experiments over one note."""
    tables = "".join(experiment_table(frame, name).html for name in NAMES)
    return Shown(f'{tables}<p class="muted">{escape(_common(frame), quote=False)}</p>\n')


def _common(frame: pd.DataFrame) -> str:
    """What all four tables have in common."""
    machines = ", ".join(dict.fromkeys(own_lengths(frame)["machine"]))
    return (
        f"The document: {DOCUMENT_GPU}, TensorFlow 1.8 in fp32, one run a row, 50 batches from the start. Speedup: over one GPU of the "
        "same way and placement, so what is slow on one GPU is flattered. Weak scaling, every replica with a bucket of its own; lengths "
        f"drawn from a seeded law with the document's mean. Figures in brackets: 95% intervals{f'. Ours: {machines}' if machines else ''}."
    )


def experiments_finding(frame: pd.DataFrame, published: pd.DataFrame | None = None) -> str:
    """Each experiment's speedup on the most GPUs that we measured, the document's beside it, way by way."""
    published = published_experiments() if published is None else published
    table = own_lengths(frame)
    table = table[table["speedup"].notna() & (table["devices"] > 1) & table["batch_size"].isin(published["batch_size"])]
    table = table[table["devices"].isin(published["gpus"])]
    if table.empty:
        return f"No placement has a speedup on the document's lengths yet: {ABSENT}."
    most = table[table["devices"] == table["devices"].max()]
    count = int(most["devices"].iloc[0])
    theirs = published[(published["gpus"] == count) & published["experiment"].isin(NAMES)].set_index("experiment")["speedup"]
    said = []
    for way in _ways(most):
        found = {name: _of(_rebuilding(most, name), way=way) for name in NAMES}
        parts = [f"{_speedup(row)} ({name})" for name, row in found.items() if row is not None]
        lacking = [name for name, row in found.items() if row is None]
        said.append(f"{way} {joined(parts)}" + (f", {joined(lacking)} not measured" if lacking else ""))
    document = joined([f"{value:.2f} ({name})" for name, value in theirs.items()])
    on = devices_text(count, str(most["device_type"].iloc[0]))
    return f"On the document's lengths {on} are so many times as fast as one: the document {document}; {'; '.join(said)}."


def correction_table(frame: pd.DataFrame) -> Shown:
    """The author's correction of Exp4 (its batch on 1 and 8 GPUs, the warm-up left out) beside ours of the same batch.

    The correction does not say which lengths it had; ours are the document's.
    """
    counts = int(published_value("000_correction", "gpus"))
    rows = [
        {
            "measured by": "the author's correction",
            "GPUs": str(counts),
            "words/s": f"{published_value('000_correction', 'words_per_s'):,.0f}",
            "speedup": f"{published_value('000_correction', 'speedup_parameter_server_gpu'):.2f}",
            "n": "1",
        }
    ]
    table = own_lengths(frame)
    table = table[(table["batch_size"] == CORRECTED_BATCH) & (table["placement"] == "exp4")]
    for _, row in table.iterrows():
        rate = status_text(row) if missing(row["rate"]) else rate_text(row["rate"]).removesuffix(" words/s")
        rows.append(
            {
                "measured by": row["way"],
                "GPUs": str(row["devices"]),
                "words/s": rate,
                "speedup": _speedup(row),
                "n": str(row["n"]),
            }
        )
    note = (
        f"{look('exp4').label}, batch {CORRECTED_BATCH} a GPU, own buckets on the document's lengths; the correction does not name its own."
        + ("" if len(table) else f" Ours is not yet measured: {ABSENT}.")
    )
    return table_html(pd.DataFrame(rows), note=note, right=["GPUs", "words/s", "speedup", "n"])
