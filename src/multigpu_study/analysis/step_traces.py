"""The documents' tables of a step's phases, as the tool's own are."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from multigpu.analysis.step_traces import PARTS, forward_time, medians
from multigpu.analysis.traces import phase_times, timed_step_s, traced
from multigpu.records.record import Record
from multigpu_study.published import load_published, published_value

WHOLE = (
    *(f"{part}_s" for part in PARTS),
    "total_s",
    "launch_skew_s",
    *(f"{part}_share" for part in PARTS),
    "forward_imbalance",
)
"""Of `step_quantities`, what `whole_frame` says: the document's second table of a step."""


def replicas_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Record and replica: key, devices, rank, launch_id, forward_s and backward_s:
    medians over steps, NaN where unknown.
    """
    rows = []
    for record, trace in traced(records):
        for replica in trace.replicas:
            times = [
                (forward_time(step), phase_times(step).get("backward")) for step in replica.steps
            ]
            who = (record.key, record.run.devices, replica.rank, record.launch_id)
            rows.append((*who, *np.median(np.array(times, dtype=float), axis=0)))
    return pd.DataFrame(
        rows, columns=["key", "devices", "rank", "launch_id", "forward_s", "backward_s"]
    )


def whole_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Record whose passes are known: key, devices, launch_id, `WHOLE` (medians over
    steps), timed_step_s (unprofiled).
    """
    rows = [
        {"key": record.key, "devices": record.run.devices, "launch_id": record.launch_id, **found}
        | {"timed_step_s": timed_step_s(record, paired=True)}
        for record, trace in traced(records)
        if (found := medians(trace))
    ]
    return pd.DataFrame(rows, columns=["key", "devices", "launch_id", *WHOLE, "timed_step_s"])


def document_replicas() -> pd.DataFrame:
    """The document's per-GPU tables: devices, rank, forward_s, backward_s."""
    table = load_published("000_phases_per_gpu")
    single = table[table["gpu"] != "average"].assign(
        rank=lambda rows: rows["gpu"].astype(int), devices=lambda rows: rows["gpus"]
    )
    wide = single.pivot(index=["devices", "rank"], columns="phase", values="time_ms") / 1000
    return wide.rename(columns=lambda phase: f"{phase}_s").reset_index()


def document_whole() -> pd.DataFrame:
    """The document's tables of a whole step with the columns of `whole_frame`, NaN where it has
    none. timed_step_s is a step of its Exp5 at batch 128, whose sentences are equally long, as its
    profile's are: 50 steps on 1 to 4 GPUs.
    """
    table = load_published("000_phases").set_index("gpus").rename_axis("devices")
    per_gpu = document_replicas()
    found = table[[f"{part}_share" for part in PARTS]].assign(
        **{f"{part}_s": table[f"{part}_ms"] / 1000 for part in (*PARTS, "total")}
    )
    by_gpus = per_gpu.assign(passes_s=per_gpu["forward_s"] + per_gpu["backward_s"]).groupby(
        "devices"
    )
    found["launch_skew_s"] = found["computation_s"] - by_gpus["passes_s"].max()
    found["forward_imbalance"] = by_gpus["forward_s"].max() / by_gpus["forward_s"].mean()
    experiments = load_published("000_experiments")
    fixed = experiments[(experiments["experiment"] == "Exp5") & (experiments["batch_size"] == 128)]
    found["timed_step_s"] = fixed.set_index("gpus")["total_time_s"] / published_value(
        "000_statements", "mini_batches"
    )
    return found.reset_index().reindex(columns=["devices", *WHOLE, "timed_step_s"])
