"""Bytes and batches for the report: peaks beside those of another placement, the largest model that
fits, and where splitting a model sends less than reducing its gradients.
"""

from typing import Any

import pandas as pd

from multigpu.analysis.compare import versus
from multigpu.analysis.fields import POINT
from multigpu.analysis.limits import TRAINING_PASSES, ceilings, model_of, sent_share
from multigpu.analysis.memory import GIB
from multigpu.analysis.points import where
from multigpu.analysis.query import run_of
from multigpu.build import build_run
from multigpu.placements.memory import StepNeeds, needed
from multigpu.placements.partition import ACTIVATION_BYTES, EXACT_BYTES
from multigpu.spec.model import Model
from multigpu.spec.run import Run
from multigpu.workloads import description_of


def needed_by(row: Any, **changed: Any) -> StepNeeds | None:
    """What the fullest device of a point needs by its row, with some fields of its Run changed;
    None where no formula says.
    """
    try:
        run = build_run(**run_of(row).model_dump(exclude_defaults=True) | changed)
        return needed(run, description_of(run))
    except ValueError:
        return None


def peaks_beside(points: pd.DataFrame, base: str) -> pd.DataFrame:
    """Points beside that of `base` (`versus`), whose peak less what it holds says what a step adds:
    kept_gib, predicted_gib, off.
    """
    table = versus(
        points[points["placement"].ne(base)], where(points, placement=base), but=["placement"]
    )
    table = table.dropna(subset=["peak_memory_gib", "base_peak_memory_gib"])
    rows = []
    for index, row in table.iterrows():
        own, other = needed_by(row), needed_by(row, placement=base)
        if own is not None and other is not None:
            adds = row["base_peak_memory_gib"] * GIB - other.held
            rows.append((index, own.least / GIB, own.peak(adds) / GIB))
    found = pd.DataFrame(rows, columns=["index", "kept_gib", "predicted_gib"]).set_index("index")
    table = table.join(found, how="inner")
    return table.assign(off=table["predicted_gib"] / table["peak_memory_gib"] - 1)


def largest(run: Run, gigabytes: float) -> float:
    """Parameters of the largest model of these proportions of which a device of so many GB (10^9
    bytes) keeps all that it must.
    """
    return (
        sum(variable.elements for variable in description_of(run).variables)
        * gigabytes
        * 1e9
        / needed(run, description_of(run)).least
    )


def link_bounds(points: pd.DataFrame) -> pd.DataFrame:
    """The measured points with what each asks of the links between its devices.
    parameters; bytes_per_mflop: of float32 gradients, over the operations of one device (three
    forward passes of its share of the batch);
    links_s: the least time to sum the gradients, 2 (N - 1)/N S / L; one_step_s: the same series'
        step on one device; bound_exposed: the most efficiency if no summing hides behind computing.
        NaN where no link of such a device was measured, or no step on one.
    """
    own = points[points["n"] > 0].reset_index(drop=True)
    on = [field for field in POINT if field != "devices"]
    ones = own.loc[own["devices"].eq(1), [*on, "step_time_s"]].rename(
        columns={"step_time_s": "one_step_s"}
    )
    own = own.merge(ones, on=on, how="left", validate="m:1")
    models = [model_of(row) for _, row in own.iterrows()]
    known = {gpu: ceilings(gpu) for gpu in own["gpu"].unique() if gpu}
    link = (
        own["gpu"]
        .map(
            {gpu: each["device_link"].value for gpu, each in known.items() if "device_link" in each}
        )
        .astype("float64")
    )
    size = pd.Series([model.parameter_bytes for model in models], dtype="float64")
    flops = TRAINING_PASSES * pd.Series(
        [model.forward_flops_per_unit for model in models], dtype="float64"
    )
    alone_s = 2 * (own["devices"] - 1) / own["devices"] * size / link
    return own.assign(
        parameters=[model.parameters for model in models],
        bytes_per_mflop=1e6 * size / (flops * own["rate"] * own["step_time_s"] / own["devices"]),
        links_s=alone_s,
        bound_exposed=own["one_step_s"] / (own["one_step_s"] + alone_s),
    )


def crossing_batch(model: Model, devices: int) -> float:
    """The global batch from which cut matrices, in bf16, send more than data parallelism.
    ValueError: no word of how the model is cut.
    """
    if model.splitting is None:
        raise ValueError(f"{model.name!r} does not say how its matrices are cut")
    a_row = 0.0  # bytes that a device sends for each row of the global batch
    for exchange in model.splitting.exchanges:
        size = EXACT_BYTES.get("bf16", 4) if exchange.exact else ACTIVATION_BYTES["bf16"]
        brought = exchange.elements * size * (1 if exchange.kind == "all_gather" else devices)
        a_row += sent_share(exchange.kind, devices) * brought
    return sent_share("all_reduce", devices) * devices * model.parameter_bytes / a_row
