"""Document 000's Exp1 to Exp4 beside Runs of ours on sentences of its own lengths, both frameworks in one table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from multigpu.analysis.documents import DOCUMENT_GPU, published_experiments
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.style import look
from multigpu.analysis.tables import beside_document, table_html, tables_by
from multigpu.analysis.wording import (
    FRAMEWORK_NAMES,
    describe,
    devices_text,
    joined,
    missing,
    plural,
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


def elsewhere(everything: pd.DataFrame | None, shown: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By machine, the rows of `everything` that other machines than those of `shown` measured, each under its own name: one that is read
    under another machine's name counts here too, so that a machine's one GPU stands beside its two.
    """
    if everything is None or everything.empty:
        return {}
    own = everything.assign(machine=everything["measured_on"])
    own = own[~own["machine"].isin(set(shown["machine"]))]
    return {str(machine): rows for machine, rows in own.groupby("machine")}


def beside_elsewhere(everything: pd.DataFrame, shown: pd.DataFrame, experiment: str) -> Shown:
    """`tables.beside_document` of the other machines (`elsewhere`), of the batches that were measured there on several GPUs."""
    published = published_experiments()
    tables = []
    for machine, rows in elsewhere(everything, shown).items():
        own = rows[rows["placement"].eq("exp4" if experiment == "Exp5" else experiment.lower()) & rows["status"].eq("ok")]
        batches = set(own.loc[own["devices"] > 1, "batch_size"])
        theirs = published[(published["experiment"] == experiment) & published["batch_size"].isin(batches)]
        theirs = theirs[theirs["gpus"] <= own["devices"].max()]
        if len(theirs):
            tables.append(beside_document(own, experiment, theirs, title=machine).html)
    return Shown("".join(tables) or '<p class="muted">No other machine has a Record of it on several GPUs.</p>\n')


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


def experiment_table(
    frame: pd.DataFrame, experiment: str, published: pd.DataFrame | None = None, below: Mapping[str, pd.DataFrame] | None = None
) -> Shown:
    """One of Exp1 to Exp4: the document's words/s and speedup, and each way's of ours, a row a number of GPUs.

    Args:
        frame: of `load_frame`, of one machine.
        published: of `documents.published_experiments`.
        below: of `elsewhere`; a way that only these machines measured is left to their tables, and the note says so.

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
    others = {
        (str(way), machine): None
        for machine, rows in (below or {}).items()
        for way in _rebuilding(own_lengths(rows), experiment)["way"]
        if not (table["way"] == way).any()
    }
    ways = [way for way in ways if way not in {name for name, _ in others}]
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
    note = " ".join(_how(table, way) for way in ways if (table["way"] == way).any()) or (
        "" if others else f"Ours is not yet measured: {ABSENT}."
    )
    note = " ".join(filter(None, [note, *(f"{way}: on {machine}, below." for way, machine in others)]))
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


def experiment_tables(frame: pd.DataFrame, everything: pd.DataFrame | None = None) -> Shown:
    """The tables of all four experiments over one note, then those of the machines that `frame` leaves out (`elsewhere`)."""
    below = elsewhere(everything, frame)
    tables = "".join(experiment_table(frame, name, below=below).html for name in NAMES)
    further = "".join(_elsewhere_tables(rows, machine) for machine, rows in below.items())
    return Shown(f'{tables}<p class="muted">{escape(_common(frame), quote=False)}</p>\n{further}')


def _elsewhere_tables(frame: pd.DataFrame, machine: str) -> str:
    """All four experiments as one other machine measured them, a table a way, the document's speedup beside ours; "" without any."""
    published = published_experiments()
    known = published[published["experiment"].isin(NAMES)].set_index(["experiment", "batch_size", "gpus"])["speedup"]
    table = own_lengths(frame)
    table = table[table["batch_size"].isin(published["batch_size"]) & (table["n"] > 0)]
    rows = []
    for way in _ways(table):
        for name in NAMES:
            for _, row in _rebuilding(table[table["way"] == way], name).sort_values("devices").iterrows():
                theirs = known.get((name, row["batch_size"], row["devices"]))
                rows.append(
                    {
                        "way": way,
                        "experiment": name,
                        "GPUs": str(row["devices"]),
                        "words/s": f"{row['rate']:,.0f}",
                        "speedup": _speedup(row),
                        "document: speedup": "1.00" if row["devices"] == 1 else "–" if theirs is None else f"{theirs:.2f}",
                        "n": str(row["n"]),
                    }
                )
    if not rows:
        return ""
    note = f"Measured on {machine}, which has the same GPUs and another host: no rate here is divided by one of another machine."
    right = ["GPUs", "words/s", "speedup", "document: speedup", "n"]
    return tables_by(pd.DataFrame(rows), "way", note, right, title=f"On {machine}: {{}}").html


def _common(frame: pd.DataFrame) -> str:
    """What all four tables have in common."""
    machines = ", ".join(dict.fromkeys(own_lengths(frame)["machine"]))
    return (
        f"The document: {DOCUMENT_GPU}, TensorFlow 1.8 in fp32, one run a row, 50 batches from the start. Speedup: over one GPU of the "
        "same way and placement, so what is slow on one GPU is flattered. Weak scaling, every replica with a bucket of its own; lengths "
        f"drawn from a seeded law with the document's mean. Figures in brackets: 95% intervals{f'. Ours: {machines}' if machines else ''}."
    )


def experiments_finding(frame: pd.DataFrame, published: pd.DataFrame | None = None, everything: pd.DataFrame | None = None) -> str:
    """Each experiment's speedup on the most GPUs that we measured, the document's beside it, way by way; of other machines (`elsewhere`)
    in a sentence each.
    """
    published = published_experiments() if published is None else published
    below = elsewhere(everything, frame)
    said = [_finding(frame, published, " there" if below else "")]
    said += [_finding(rows, published, named=machine) for machine, rows in below.items()]
    return " ".join(filter(None, said)) or f"No placement has a speedup on the document's lengths yet: {ABSENT}."


def _finding(frame: pd.DataFrame, published: pd.DataFrame, where: str = "", named: str = "") -> str:
    """One machine's sentence; "" where it has no speedup. where: follows "not measured"; named: the machine, if it must be told."""
    table = own_lengths(frame)
    table = table[table["speedup"].notna() & (table["devices"] > 1) & table["batch_size"].isin(published["batch_size"])]
    table = table[table["devices"].isin(published["gpus"])]
    if table.empty:
        return ""
    most = table[table["devices"] == table["devices"].max()]
    count = int(most["devices"].iloc[0])
    theirs = published[(published["gpus"] == count) & published["experiment"].isin(NAMES)].set_index("experiment")["speedup"]
    said = []
    for way in _ways(most):
        found = {name: _of(_rebuilding(most, name), way=way) for name in NAMES}
        parts = [f"{_speedup(row)} ({name})" for name, row in found.items() if row is not None]
        lacking = [name for name, row in found.items() if row is None]
        said.append(f"{way} {joined(parts)}" + (f", {joined(lacking)} not measured{where}" if lacking else ""))
    document = joined([f"{value:.2f} ({name})" for name, value in theirs.items()])
    on = devices_text(count, str(most["device_type"].iloc[0]))
    head = f"On {named}, {on} are" if named else f"On the document's lengths {on} are"
    return f"{head} so many times as fast as one: the document {document}; {'; '.join(said)}."


def correction_table(frame: pd.DataFrame, everything: pd.DataFrame | None = None) -> Shown:
    """The author's correction of Exp4 (its batch on 1 and 8 GPUs, the warm-up left out) beside ours of the same batch, other machines'
    (`elsewhere`) below those of `frame`, each over its own one GPU.

    The correction does not say which lengths it had; ours are the document's.
    """
    counts = int(published_value("000_correction", "gpus"))
    rows = [
        {
            "measured by": "the author's correction",
            "on": DOCUMENT_GPU,
            "GPUs": str(counts),
            "words/s": f"{published_value('000_correction', 'words_per_s'):,.0f}",
            "speedup": f"{published_value('000_correction', 'speedup_parameter_server_gpu'):.2f}",
            "n": "1",
        }
    ]
    for own in (frame, *elsewhere(everything, frame).values()):
        table = own_lengths(own)
        table = table[(table["batch_size"] == CORRECTED_BATCH) & (table["placement"] == "exp4")]
        for _, row in table.sort_values(["framework", "processes", "devices"], kind="stable").iterrows():
            rate = status_text(row) if missing(row["rate"]) else f"{row['rate']:,.0f}"
            rows.append(
                {
                    "measured by": row["way"],
                    "on": str(row["machine"]),
                    "GPUs": str(row["devices"]),
                    "words/s": rate,
                    "speedup": _speedup(row),
                    "n": str(row["n"]),
                }
            )
    note = (
        f"{look('exp4').label}, batch {CORRECTED_BATCH} a GPU, own buckets on the document's lengths; the correction names none. "
        "Speedup: over one GPU of the same way and machine." + ("" if len(rows) > 1 else f" Ours is not yet measured: {ABSENT}.")
    )
    return table_html(pd.DataFrame(rows), note=note, right=["GPUs", "words/s", "speedup", "n"])
