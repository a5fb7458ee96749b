"""What makes a model scale: bytes of gradients over operations of a step, beside what links and arithmetic allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from multigpu.analysis.limits import TRAINING_PASSES, ceilings
from multigpu.analysis.metrics import scaling_table
from multigpu.analysis.ordinary import BUCKETS, of_today, ordinary
from multigpu.analysis.picture import Shown
from multigpu.analysis.tables import table_html, tables_by
from multigpu.analysis.wording import MODEL_NAMES, TELLING, describe, devices_text, execution_text, missing, percent_text, telling, unbroken
from multigpu.workloads import find_model
from multigpu.workloads.cnn.family import CENTRE, SWEEPS, Member, dense_share

PLACEMENT = "ddp"
SERVER = "exp2"
"""Variables on the CPU: what document 001 measured its models on small images with."""
BATCH = 64
"""Images a device of the family's members, but where the batch is what changes."""

AXES = {
    "width": "filters of the first stage",
    "image_size": "pixels a side",
    "depth": "convolutions",
    "dense_percent": "dense share (%)",
    "batch_size": "images a device",
}
"""What changes along a sweep, the other four numbers being those of the family's centre."""

HIDDEN, EXPOSED = "bound, hidden", "bound, exposed"
"""Columns of the two bounds by links."""

BESIDE = ("machine", "model", "batch_size", "precision", "execution", "layout", "input_label", "devices")
"""What must be equal of points of two placements that stand in one row."""

SLOWER = "slower than eager"
"""What stands beside a point for which `eager_is_faster`."""

NAMED = ("model", "batch_size", "precision", "execution", "devices")
"""What a row of the table says of its job in any case."""


def family_name(member: Member) -> str:
    """A member in words."""
    dense = f", {member.dense_percent}% dense" if member.dense_percent else ""
    return f"depth {member.depth}, width {member.width}, {member.image_size} pixels{dense}"


def short_name(row: pd.Series) -> str:
    """A point in a few words: a known model's name; of the family, what is not as at its centre and usual batch ("98% dense")."""
    known = {member.name: member for sweep in SWEEPS.values() for member in sweep}
    member = known.get(row["model"])
    if member is None:
        return f"{MODEL_NAMES.get(row['model'], row['model'])}, {row['batch_size']:,}"
    units = {"depth": "depth {:,}", "width": "width {:,}", "image_size": "{:,} pixels", "dense_percent": "{:,}% dense"}
    said = [text.format(value) for name, text in units.items() if (value := getattr(member, name)) != getattr(CENTRE, name)]
    said += [f"batch {row['batch_size']:,}"] if row["batch_size"] != BATCH else []
    return ", ".join(said) or "the family's centre"


def model_text(model: str) -> str:
    """A model's name, of the family too."""
    known = {member.name: family_name(member) for sweep in SWEEPS.values() for member in sweep}
    return known.get(model, MODEL_NAMES.get(model, model))


def exchange_ratio(gradient_bytes: float, step_flops: float, devices: int, flops_per_s: float, link_bytes_per_s: float) -> float:
    """Least time to sum the gradients over least time to compute: r = (2 (N - 1)/N S / L) / (W / C).

    S bytes of gradients and W operations of one device's step; a device sends at least 2 (N - 1)/N S (Patarasu and Yuan 2009).
    """
    return links_s(gradient_bytes, devices, link_bytes_per_s) / (step_flops / flops_per_s)


def links_s(gradient_bytes: float, devices: int, link_bytes_per_s: float) -> float:
    """Least time to sum the gradients, s: 2 (N - 1)/N S / L; 0 on one device."""
    return 2 * (devices - 1) / devices * gradient_bytes / link_bytes_per_s


def bound_hidden(ratio: float) -> float:
    """The most efficiency if summing runs beside computing all the time: min(1, 1 / r)."""
    return 1.0 if ratio <= 1 else 1 / ratio


def bound_exposed(ratio: float) -> float:
    """The most efficiency if nothing of it is hidden: 1 / (1 + r)."""
    return 1 / (1 + ratio)


def own_bounds(gradient_bytes: float, step_time_s: float, devices: int, link_bytes_per_s: float) -> tuple[float, float]:
    """The most efficiency of a model whose step on one device takes `step_time_s`, links at their measured best: if all of the summing
    runs beside computing, and if none does.

    The first is below 1 only where links need longer than the whole step. A loss above the second may be the links' doing or not; one
    below it is not explained by links at their best.
    """
    alone_s = links_s(gradient_bytes, devices, link_bytes_per_s)
    return step_time_s / max(step_time_s, alone_s), step_time_s / (step_time_s + alone_s)


def scale_points(frame: pd.DataFrame, placement: str = PLACEMENT) -> pd.DataFrame:
    """A row a model, batch, precision, execution and number of devices above one, under all-reduce during backward; of Runs that were
    fed, pinned to GPUs or watched by a counter there is none: they are others of the same name.

    Columns besides those of `scaling_table`: parameters, dense_share, gradient_bytes (float32), step_flops of one device (three forward
    passes), bytes_per_flop, ratio (NaN where the machine's ceilings are unknown), hidden, exposed (bounds of a model that computes at the
    rate of large matrix products), own_hidden, own_exposed (of this one, whose step on one device is known), eager_rate (of the same
    launched kernel by kernel on as many devices; NaN without any).
    """
    chosen = frame[(frame["placement"] == placement) & (frame["scaling"] == "weak") & (frame["framework"] == "torch")]
    chosen = of_today(ordinary(chosen[chosen["workload"] == "cnn"], family=True))
    table = scaling_table(chosen) if len(chosen) else pd.DataFrame()
    columns = ["parameters", "dense_share", "gradient_bytes", "step_flops", "bytes_per_flop"]
    columns += ["ratio", "hidden", "exposed", "own_hidden", "own_exposed", "eager_rate"]
    if table.empty:
        return pd.DataFrame(columns=[*table.columns, "model", "devices", "efficiency", *columns])
    table = table[table["n"] > 0]
    single = {_job(row): row["step_time_s"] for _, row in table[table["devices"] == 1].iterrows()}
    eager = {(_job(row), row["devices"]): row["rate"] for _, row in table[table["execution"] == "eager"].iterrows()}
    table = table[(table["devices"] > 1) & table["efficiency"].notna()].copy()
    values = []
    for _, row in table.iterrows():
        model = find_model(row["workload"], row["model"])
        flops = TRAINING_PASSES * model.forward_flops_per_unit * row["batch_size"]
        known = ceilings(row["gpu"]) if row["gpu"] else {}
        ratio, own = math.nan, (math.nan, math.nan)
        if row["precision"] in known and "device_link" in known:
            link = known["device_link"].value
            ratio = exchange_ratio(model.parameter_bytes, flops, row["devices"], known[row["precision"]].value, link)
            own = own_bounds(model.parameter_bytes, single.get(_job(row), math.nan), row["devices"], link)
        bounds = (math.nan, math.nan) if math.isnan(ratio) else (bound_hidden(ratio), bound_exposed(ratio))
        sizes = (model.parameters, dense_share(model.variables), model.parameter_bytes, flops, model.parameter_bytes / flops)
        twin = eager.get((_job(row, execution="eager"), row["devices"]), math.nan)
        values.append((*sizes, ratio, *bounds, *own, twin))
    return pd.concat([table.reset_index(drop=True), pd.DataFrame(values, columns=columns)], axis=1)


def _job(row: pd.Series, **other: str) -> tuple[str, ...]:
    names = ("machine", "model", "batch_size", "precision", "execution", "layout", "input_label", *BUCKETS)
    return tuple(str(other.get(name, row[name])) for name in names)


def eager_is_faster(row: pd.Series) -> bool:
    """Whether a single Run that spares the host was slower than eager steps on the same devices: such a Run tells little of scaling."""
    return bool(row["execution"] != "eager" and row["n"] == 1 and row["eager_rate"] > row["rate"])


def once_a_job(points: pd.DataFrame) -> pd.DataFrame:
    """Of rows of one job (NAMED: on two machines, or with other buckets) the one that was repeated most."""
    chosen = points.sort_values("n", ascending=False, kind="stable").drop_duplicates(list(NAMED))
    return points[points.index.isin(chosen.index)]


def job_names(points: pd.DataFrame) -> list[str]:
    """Each row's job in words; of rows that these words do not tell apart (a job measured in two layouts), what does."""
    names = {}
    rows = points.reset_index(drop=True)
    for _, twins in rows.groupby(list(NAMED), sort=False) if len(rows) else ():
        apart = telling(twins, [field for field in TELLING if field not in NAMED])[twins["model"].iloc[0]]
        for place, row in twins.iterrows():
            form, own = f"{row['precision']}, {execution_text(row['execution'])}", describe(row, apart)
            names[place] = unbroken(model_text(row["model"]), f"batch {row['batch_size']}", form, *filter(None, [own]))
    return [names[place] for place in rows.index]


def sweep_rows(points: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The points of the family's members along one of `AXES`, with the number that changes as `at`."""
    if axis == "batch_size":
        rows = points[points["model"].eq(CENTRE.name)] if len(points) else points
        rows = rows.assign(at=rows["batch_size"])
    else:
        at = {member.name: getattr(member, axis) for member in SWEEPS[axis]}
        rows = points[points["model"].isin(list(at)) & points["batch_size"].eq(BATCH)] if len(points) else points
        rows = rows.assign(at=[at[name] for name in rows["model"]])
    return rows.sort_values(["execution", "devices", "at"])


def scale_table(points: pd.DataFrame, models: Sequence[str] = ()) -> Shown:
    """Points with what decides: parameters, operations, ratio, efficiency, and both bounds by links beside it."""
    rows = points[points["model"].isin(list(models))] if models else points
    rows = rows.sort_values(["devices", "execution", "bytes_per_flop"], ascending=[False, True, True]) if len(rows) else rows
    rows = rows.reset_index(drop=True)
    cells = [
        {
            "on": devices_text(int(row["devices"]), row["device_type"]),
            "job": unbroken(name, *([SLOWER] if eager_is_faster(row) else [])),
            "parameters": f"{row['parameters'] / 1e6:,.2f} M",
            "dense": percent_text(row["dense_share"]),
            "bytes / MFLOP": f"{1e6 * row['bytes_per_flop']:,.2f}",
            "efficiency": percent_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"]),
            HIDDEN: _bound_text(row["own_hidden"]),
            EXPOSED: _bound_text(row["own_exposed"]),
            "n": str(row["n"]),
        }
        for name, (_, row) in zip(job_names(rows), rows.iterrows(), strict=True)
    ]
    if not cells:
        return table_html(pd.DataFrame(), note="No Record on several devices to show.")
    note = (
        "Dense: share of the parameters. Bytes: float32 gradients; operations: three forward passes of one device's batch. n = 1: "
        f"screening; {SLOWER}: on as many devices. Bounds: the most efficiency that links at their measured best allow a step as long as "
        "on one device, with all of the summing beside computing (hidden) and with none of it (exposed). What lies between the two may be "
        "the links' doing or not: only a trace tells."
    )
    free = {row[HIDDEN] for row in cells} == {_bound_text(1.0)}
    note += " Hidden: 100% in every row, for in none links need longer than the whole step." if free else ""
    data = pd.DataFrame(cells).drop(columns=[HIDDEN] if free else [])
    figures = [str(name) for name in data if name not in ("on", "job")]
    return tables_by(data, "on", note, figures, wide=["job"])


def _bound_text(bound: float) -> str:
    return "–" if missing(bound) else percent_text(bound)


def server_rows(server: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """The family's widths with variables on the CPU, fewest parameters first, each beside the same Run under all-reduce.

    Args:
        server, points: of `scale_points`, with SERVER and with PLACEMENT.

    Columns besides those of `server`: at (filters of the first stage), summed and summed_n (efficiency and repeats under all-reduce; NaN
    and 0 where that was not measured).
    """
    if server.empty:
        return server
    rows = sweep_rows(server, "width")
    known = {_beside(row): (row["efficiency"], row["n"]) for _, row in points.iterrows()}
    found = [known.get(_beside(row), (math.nan, 0)) for _, row in rows.iterrows()]
    both = rows.assign(summed=[efficiency for efficiency, _ in found], summed_n=[n for _, n in found])
    return both.sort_values(["execution", "devices", "parameters"], ascending=[True, False, True]).reset_index(drop=True)


def _beside(row: pd.Series) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in BESIDE)


def server_table(rows: pd.DataFrame) -> Shown:
    """Efficiency by size with variables on the CPU, beside all-reduce during backward; rows of `server_rows`."""
    cells = [
        {
            "on": f"{devices_text(int(row['devices']), row['device_type'])}, {execution_text(row['execution'])}",
            "model": model_text(row["model"]),
            "parameters": f"{row['parameters']:,}",
            "variables on the CPU": percent_text(row["efficiency"], row["efficiency_low"], row["efficiency_high"]),
            "n": str(row["n"]),
            "all-reduce": "not measured" if missing(row["summed"]) else percent_text(row["summed"]),
            "n, all-reduce": str(row["summed_n"]),
        }
        for _, row in rows.iterrows()
    ]
    note = f"Efficiency against the same placement on one device, {BATCH} images a device; all-reduce: during backward. n = 1: screening."
    figures = ["parameters", "variables on the CPU", "n", "all-reduce", "n, all-reduce"]
    return tables_by(pd.DataFrame(cells), "on", note, figures)
