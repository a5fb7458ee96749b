"""What the report says of Runs that share a machine: by kind in a sentence, by Run in a table."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from multigpu.analysis.interference import ALLOWED, interference_table, kinds_table, lanes_table
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, joined, missing, plural, unbroken, with_interval
from multigpu.record import Record

NO_CHECK = "No machine has been checked yet: `python -m multigpu interference` does it where there are two GPUs or more."
LAUNCHED = {
    "captured": "captured as one CUDA graph",
    "compiled_captured": "compiled and captured as one CUDA graph",
    "eager": "launched call by call",
    "compiled": "compiled",
    "graph": "run as a graph of TensorFlow",
    "xla": "compiled by XLA",
}


def _times(ratio: float, low: float, high: float) -> str:
    return with_interval(f"{ratio:.3f}", low, high, ".3f")


def interference_finding(records: Iterable[Record]) -> str:
    """A sentence a kind of Run: whether it may share a machine, and how much slower it is beside others."""
    kinds = kinds_table(interference_table(records))
    if kinds.empty:
        return NO_CHECK
    said = []
    for _, row in kinds.iterrows():
        others = plural(int(row["lanes"]) - 1, "other")
        what = f"steps {LAUNCHED.get(row['execution'], row['execution'])} ({plural(int(row['runs']), 'Run')}, {row['machine']})"
        times = f"take {_times(row['ratio'], row['low'], row['high'])} times as long beside {others} as alone"
        verdict = {
            "may share": "such Runs may share a machine",
            "disturbed": "such Runs have the machine to themselves",
            "not shown": f"that sharing costs at most {100 * (ALLOWED - 1):.1f}% is not shown, so such Runs have the machine to themselves",
        }[row["verdict"]]
        said.append(f"{FRAMEWORK_NAMES[row['framework']]}'s {what} {times}: {verdict}{_pooled(row)}.")
    return " ".join(said)


def _pooled(kind: pd.Series) -> str:
    """Whether the Runs pooled say by themselves what they say together, unless it is that nothing is shown."""
    if kind["runs"] == kind["shown"] or kind["verdict"] == "not shown":
        return ""
    alone = "none of them shows" if not kind["shown"] else f"{kind['shown']} of {kind['runs']} shows"
    reach = "" if missing(kind["reach"]) else f", their own intervals reach {kind['reach']:.3f} times"
    return f", by their ratios pooled; {alone} it alone{reach}"


def interference_summary(records: Iterable[Record]) -> Shown:
    """A row a Run that was measured alone in a lane and beside others there, with what the other lanes' GPUs make of it."""
    own = list(records)
    table, lanes = interference_table(own), lanes_table(own)
    words = {record.run.label(): _job(record) for record in own}
    rows = []
    for _, row in table.iterrows():
        places = lanes[(lanes["machine"] == row["machine"]) & (lanes["run"] == row["run"])]
        rows.append(
            {
                "Run": words[row["run"]],
                "machine": row["machine"],
                "beside": plural(int(row["lanes"]) - 1, "other"),
                "n alone and beside": f"{row['n_alone']} and {row['n_shared']}",
                "time beside others over alone": _times(row["ratio"], row["low"], row["high"]),
                "other GPUs over the first, all at once": _range(places["ratio"]),
                "verdict": row["verdict"],
            }
        )
    figures = ("time beside others over alone", "other GPUs over the first, all at once")
    note = (
        "A Run a GPU, alone and beside others, on the same GPU and as many cores; the others measure the same Runs in orders of their "
        f"own. Mean step times with 95% intervals; the study allows {100 * (ALLOWED - 1):.1f}%. Each launch of its own: few launches that "
        "differ give a wide interval, whatever the cause. GPUs of one model are not equally fast, beside others or alone."
    )
    return table_html(pd.DataFrame(rows), right=figures, note=note if rows else NO_CHECK)


def _job(record: Record) -> str:
    run = record.run
    model = MODEL_NAMES.get(run.model, run.model)
    return unbroken(model, f"batch {run.batch_size}", run.precision, run.execution.replace("_", " and "))


def _range(ratios: pd.Series) -> str:
    values = [ratio for ratio in ratios if not missing(ratio)]
    return joined([f"{ratio:.3f}" for ratio in values]) if values else ""
