"""What makes a model scale: bytes of gradients over operations of a step, beside what links and arithmetic allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from multigpu.analysis.limits import TRAINING_PASSES, ceilings
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.ordinary import BUCKETS
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import MODEL_NAMES, devices_text, execution_text, missing, percent_text, unbroken
from multigpu.workloads import find_model
from multigpu.workloads.cnn.family import SWEEPS, Member, dense_share

PLACEMENT = "ddp"
GOOD = 0.90
"""Efficiency from which a model is said to scale."""

AXES = {"width": "filters of the first stage", "image_size": "pixels a side", "depth": "convolutions", "dense_percent": "dense share (%)"}


def family_name(member: Member) -> str:
    """A member in words."""
    dense = f", {member.dense_percent}% dense" if member.dense_percent else ""
    return f"depth {member.depth}, width {member.width}, {member.image_size} pixels{dense}"


def model_text(model: str) -> str:
    """A model's name, of the family too."""
    known = {member.name: family_name(member) for sweep in SWEEPS.values() for member in sweep}
    return known.get(model, MODEL_NAMES.get(model, model))


def exchange_ratio(gradient_bytes: float, step_flops: float, devices: int, flops_per_s: float, link_bytes_per_s: float) -> float:
    """Least time to sum the gradients over least time to compute: r = (2 (N - 1)/N S / L) / (W / C).

    S bytes of gradients and W operations of one device's step; a device sends at least 2 (N - 1)/N S (Patarasu and Yuan 2009).
    """
    if devices < 2:
        return 0.0
    return (2 * (devices - 1) / devices * gradient_bytes / link_bytes_per_s) / (step_flops / flops_per_s)


def bound_hidden(ratio: float) -> float:
    """The most efficiency if summing runs beside computing all the time: min(1, 1 / r)."""
    return 1.0 if ratio <= 1 else 1 / ratio


def bound_exposed(ratio: float) -> float:
    """The most efficiency if nothing of it is hidden: 1 / (1 + r)."""
    return 1 / (1 + ratio)


def own_bound(gradient_bytes: float, step_time_s: float, devices: int, link_bytes_per_s: float) -> float:
    """The most efficiency of a model whose step on one device takes `step_time_s`, links at their measured best and all hidden.

    It is below 1 only where the links alone need longer than the whole step: a loss below this bound has another cause.
    """
    if devices < 2:
        return 1.0
    return min(1.0, step_time_s / (2 * (devices - 1) / devices * gradient_bytes / link_bytes_per_s))


def scale_points(frame: pd.DataFrame, placement: str = PLACEMENT) -> pd.DataFrame:
    """A row a model, batch, precision, execution and number of devices above one, under all-reduce during backward.

    Columns besides those of `scaling_table`: parameters, dense_share, gradient_bytes (float32), step_flops of one device (three forward
    passes), bytes_per_flop, ratio (NaN where the machine's ceilings are unknown), hidden, exposed, own (the three bounds).
    """
    chosen = frame[(frame["placement"] == placement) & (frame["scaling"] == "weak") & (frame["framework"] == "torch")]
    table = scaling_table(chosen[chosen["workload"] == "cnn"]) if len(chosen) else pd.DataFrame()
    columns = ["parameters", "dense_share", "gradient_bytes", "step_flops", "bytes_per_flop", "ratio", "hidden", "exposed", "own"]
    if table.empty:
        return pd.DataFrame(columns=[*table.columns, "model", "devices", "efficiency", *columns])
    table = table[table["n"] > 0]
    single = {_job(row): row["step_time_s"] for _, row in table[table["devices"] == 1].iterrows()}
    table = table[(table["devices"] > 1) & table["efficiency"].notna()].copy()
    values = []
    for _, row in table.iterrows():
        model = find_model(row["workload"], row["model"])
        flops = TRAINING_PASSES * model.forward_flops_per_unit * row["batch_size"]
        known = ceilings(row["gpu"]) if row["gpu"] else {}
        ratio = own = math.nan
        if row["precision"] in known and "device_link" in known:
            link = known["device_link"].value
            ratio = exchange_ratio(model.parameter_bytes, flops, row["devices"], known[row["precision"]].value, link)
            own = own_bound(model.parameter_bytes, single.get(_job(row), math.nan), row["devices"], link)
        bounds = (math.nan, math.nan) if math.isnan(ratio) else (bound_hidden(ratio), bound_exposed(ratio))
        sizes = (model.parameters, dense_share(model.variables), model.parameter_bytes, flops, model.parameter_bytes / flops)
        values.append((*sizes, ratio, *bounds, own))
    return pd.concat([table.reset_index(drop=True), pd.DataFrame(values, columns=columns)], axis=1)


def _job(row: pd.Series) -> tuple[object, ...]:
    return tuple(str(row[name]) for name in ("machine", "model", "batch_size", "precision", "execution", "layout", "input_label", *BUCKETS))


def sweep_rows(points: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The points of the family's members along one axis, with the number that changes as `at`."""
    at = {member.name: getattr(member, axis) for member in SWEEPS[axis]}
    rows = points[points["model"].isin(list(at)) & points["batch_size"].eq(64)] if len(points) else points
    return rows.assign(at=[at[name] for name in rows["model"]]).sort_values(["execution", "devices", "at"])


def smallest_that_scales(points: pd.DataFrame, devices: int, execution: str) -> pd.Series | None:
    """Along the sweep of widths, the member with fewest parameters from which on all keep 90%; None if none does, or none was measured."""
    rows = sweep_rows(points, "width")
    rows = rows[(rows["devices"] == devices) & (rows["execution"] == execution)].sort_values("parameters", ascending=False)
    found = None
    for _, row in rows.iterrows():
        if row["efficiency"] < GOOD:
            break
        found = row
    return found


def _keeps(row: pd.Series) -> str:
    once = " (measured once)" if row["n"] == 1 else ""
    return (
        f"{model_text(row['model'])} at batch {row['batch_size']} hands in {1e6 * row['bytes_per_flop']:.2f} bytes of gradients a million "
        f"operations and keeps {percent_text(row['efficiency'])} of perfect scaling{once}"
    )


def scale_findings(points: pd.DataFrame) -> list[str]:
    """What sets models apart on the most devices: the ratio at the ends of what was measured, and the smallest model that scales."""
    if points.empty:
        return ["No Record on several devices yet: nothing can be said of what makes a model scale."]
    said = []
    rows = points[points["devices"] == points["devices"].max()]
    on = devices_text(int(rows["devices"].iloc[0]), rows["device_type"].iloc[0])
    for execution, group in rows.groupby("execution", sort=True):
        ordered = group.sort_values("bytes_per_flop")
        low, high = ordered.iloc[0], ordered.iloc[-1]
        if len(ordered) > 1:
            least = group.sort_values("efficiency").iloc[0]
            between = "" if least["efficiency"] >= min(low["efficiency"], high["efficiency"]) else f"; least of all, {_keeps(least)}"
            said.append(f"On {on}, {execution_text(execution)}: {_keeps(low)}; {_keeps(high)}{between}.")
    for execution in sorted(set(points["execution"])):
        small = smallest_that_scales(points, 2, execution)
        if small is not None:
            said.append(
                f"On 2 GPUs, {execution_text(execution)}, the smallest member of the family from which on all keep {GOOD:.0%} has "
                f"{small['parameters']:,} parameters."
            )
    if not points["model"].str.startswith("family_").any():
        said.append("The made-up family has no Record yet: minimum size, image size and dense share are not separated.")
    return said


def scale_table(points: pd.DataFrame, models: Sequence[str] = ()) -> Shown:
    """Points with what decides: parameters, operations, ratio, efficiency, and the bounds beside it."""
    rows = points[points["model"].isin(list(models))] if models else points
    rows = rows.sort_values(["devices", "execution", "bytes_per_flop"], ascending=[False, True, True]) if len(rows) else rows
    cells = [
        {
            "on": devices_text(int(row["devices"]), row["device_type"]),
            "job": unbroken(
                f"{model_text(row['model'])}", f"batch {row['batch_size']}", f"{row['precision']}, {execution_text(row['execution'])}"
            ),
            "parameters": f"{row['parameters'] / 1e6:,.2f} M",
            "dense": percent_text(row["dense_share"]),
            "bytes / MFLOP": f"{1e6 * row['bytes_per_flop']:.2f}",
            "efficiency": percent_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"]),
            "bound by links": "–" if missing(row["own"]) else percent_text(row["own"]),
            "n": str(row["n"]),
        }
        for _, row in rows.iterrows()
    ]
    if not cells:
        return table_html(pd.DataFrame(), note="No Record on several devices to show.")
    note = (
        "Dense: share of the parameters. Bytes: float32 gradients; operations: three forward passes of one device's batch. n = 1: "
        "screening. Bound by links: the step on one device over what links alone need, if that is longer"
    )
    free = {row["bound by links"] for row in cells} == {percent_text(1.0)}
    note += "; 100% in every row, so links alone take nothing." if free else "."
    data = pd.DataFrame(cells).drop(columns=["bound by links"] if free else [])
    figures = [str(name) for name in data if name not in ("on", "job")]
    return tables_by(data, "on", note, figures, wide=["job"])
