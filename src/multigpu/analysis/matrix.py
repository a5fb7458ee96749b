"""The table that the study exists for: one job under every placement, a column a number of devices.

Each cell is a rate, or the reason why there is none: the framework lacks the placement, a rule
refuses the Run, the Run failed, or nobody measured it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from multigpu.analysis.compare import best_single, ratio_columns
from multigpu.analysis.fields import with_role
from multigpu.analysis.points import Missing, where
from multigpu.analysis.style import in_order
from multigpu.analysis.words import field_words, missing, plural
from multigpu.build import build_run
from multigpu.placements import every_placement
from multigpu.placements.row import Engine, Placement
from multigpu.spec.run import Run

NOT_MEASURED = "not measured"
FORMS = {"torch": "eager", "tensorflow": "graph"}
"""The form in which a framework carries a step out unless it is asked for another."""

FRAMEWORKS = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
BEST = ("best", "best_low", "best_high")
FIGURES = ("rate", "rate_low", "rate_high", *BEST)


class TableJob(NamedTuple):
    """What the cells of one matrix have in common: the fields of a Run, inputs made on devices."""

    workload: str
    model: str
    batch_size: int
    precision: str
    sequence_length: int | None = None
    layout: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a Run that the job names."""
        named = {name: value for name, value in self._asdict().items() if value is not None}
        return named | {"inputs": "synthetic", "scaling": "weak"}

    @property
    def words(self) -> str:
        """The job in words: "ResNet-50, batch 64, TF32, channels last"."""
        named = {name: value for name, value in self._asdict().items() if value is not None}
        del named["workload"]
        return ", ".join(filter(None, (field_words(name, value) for name, value in named.items())))


def jobs_of(points: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs of these points, those with most placements first: the fields of `TableJob`,
    with cells (pairs of a framework and a placement).
    """
    rows = where(points[points["n"] > 0], inputs="synthetic", scaling="weak")
    names = list(TableJob._fields)
    pairs = rows["framework"].str.cat(rows["placement"], sep=" ")
    counted = rows.assign(cells=pairs).groupby(names, dropna=False)["cells"].nunique()
    return counted.sort_values(ascending=False, kind="stable").reset_index()


def matrix(
    points: pd.DataFrame, job: TableJob, machines: Mapping[int, str], device_type: str = "cuda"
) -> pd.DataFrame:
    """Return one row a cell: framework, placement, devices, machine, then either rate (units/s,
    with _low and _high), execution, n, launches, keys, best (over the fastest point of one device
    in this job, framework and machine, with _low and _high), or reason; placements from those that
    share nothing to those on the host.

    machines: number of devices -> the machine whose Records fill its column.
    """
    rows = where(points, **job.fields, device_type=device_type)
    rows = rows[~rows["status"].eq("") | rows["n"].gt(0)]
    columns = []
    for devices, machine in machines.items():
        of_machine = where(rows, machine=machine)
        usual = _with_best(_usual_form(where(of_machine, devices=devices)), of_machine)
        columns.append(_filled(usual, job, devices, machine, device_type))
    return pd.concat(columns, ignore_index=True)


def _with_best(rows: pd.DataFrame, of_machine: pd.DataFrame) -> pd.DataFrame:
    """The rows with best, best_low and best_high, NaN where the framework has no single device."""
    parts = []
    for framework, own in rows.groupby("framework", sort=False):
        ones = best_single(_usual_form(where(of_machine, framework=framework)), form=())
        base = ones.sort_values("rate").iloc[-1] if len(ones) else None
        parts.append(own if base is None else own.join(ratio_columns(own, base, "best")))
    return pd.concat(parts).reindex(columns=[*rows, *BEST]) if parts else rows


def _usual_form(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in their framework's usual form, all else as a Run does it unless told."""
    free = ("placement", "framework", "processes", "execution", "layout")
    plain = {
        name: Run.model_fields[name].default
        for name in with_role("way", "condition")
        if name not in free
    }
    rows = where(rows, **plain)
    return rows[rows["execution"].eq(rows["framework"].map(FORMS))]


def _filled(
    usual: pd.DataFrame, job: TableJob, devices: int, machine: str, device_type: str
) -> pd.DataFrame:
    """The cells of one column: the most repeated point in the usual form, or why there is none."""
    told = [*FIGURES, "execution", "processes", "n", "launches", "keys"]
    cells: list[dict[str, Any]] = []
    column = {"devices": devices, "machine": machine}
    known = every_placement()
    rows_of = {name: known[name] for name in in_order(known)}
    # a choice among few columns costs a tenth of one among all of a point
    asked = ("framework", "placement", "status", "reason", *told)
    usual = usual[[name for name in asked if name in usual]]
    for framework in FRAMEWORKS:
        for row in rows_of.values():
            cell = {"framework": framework, "placement": row.name, **column, "reason": ""}
            own = where(usual, framework=framework, placement=row.name)
            measured = own[own["n"] > 0].sort_values(["launches", "n"], kind="stable")
            if len(measured):
                most = measured.iloc[-1]
                cell |= {name: most[name] for name in told}
            else:
                cell["reason"] = _reason(row, framework, job, devices, device_type, own)
            cells.append(cell)
    table = pd.DataFrame(cells)
    table = table.reindex(columns=[*dict.fromkeys([*table, *told])])
    return table.astype(dict.fromkeys(FIGURES, "float64"))


def _reason(
    row: Placement,
    framework: str,
    job: TableJob,
    devices: int,
    device_type: str,
    failed: pd.DataFrame,
) -> str:
    """Why a cell holds no rate, in one sentence."""
    engines = [engine for engine in row.engines if engine.framework == framework]
    if not engines:
        return f"{FRAMEWORKS[framework]} has no such placement"
    refused = [_refusal(row, engine, job, devices, device_type) for engine in engines]
    if all(refused):
        return refused[0]
    said = [f"{each.status}: {each.reason}" for each in failed.itertuples() if each.status != "ok"]
    return said[0] if said else NOT_MEASURED


def _refusal(row: Placement, engine: Engine, job: TableJob, devices: int, device_type: str) -> str:
    """What forbids this Run; "" if nothing does."""
    usual = FORMS[engine.framework]
    fields = job.fields | {
        "placement": row.name,
        "framework": engine.framework,
        "processes": engine.processes,
        "execution": usual if usual in engine.executions else engine.executions[0],
        "devices": devices,
        "device_type": device_type,
    }
    try:
        build_run(**fields)
    except ValueError as error:
        return str(error)
    return ""


def table_job(
    points: pd.DataFrame, fields: Mapping[str, Any]
) -> tuple[TableJob, dict[int, str], str]:
    """Return the job with these fields of which most placements were measured, for each number of
    devices the machine with most points of it, and the job's unit. LookupError: none has them.
    """
    named = {name: value for name, value in fields.items() if name in TableJob._fields}
    other = sorted(set(fields) - set(named) - {"device_type"})
    if other:
        raise ValueError(
            f"{other[0]}: a table is of one job; choose among {', '.join(TableJob._fields)} and"
            " device_type"
        )
    rows = where(points, **fields)
    if "device_type" not in fields:
        gpus = where(rows, device_type="cuda")
        rows = gpus if len(gpus) else rows
    jobs = jobs_of(rows)
    if jobs.empty:
        raise Missing("no measured point has these fields and inputs made on its devices")
    best: dict[str, Any] = {
        name: None if missing(value) else value
        for name, value in zip(TableJob._fields, jobs[[*TableJob._fields]].values[0], strict=True)
    }
    job = TableJob(**best)
    own = where(rows, **job.fields)
    own = own[own["n"] > 0]
    machines = {
        count: str(where(own, devices=count)["machine"].value_counts().index[0])
        for count in sorted(own["devices"].unique().tolist())
    }
    return job, machines, str(own["unit"].iloc[0])


def shown_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The cells of those placements that have a rate in any column of any framework, or could."""
    alive = table.groupby("placement")["reason"].transform(
        lambda reasons: reasons.isin(["", NOT_MEASURED]).any()
    )
    return table[alive.astype(bool)]


def as_text(table: pd.DataFrame, unit: str, frameworks: Sequence[str] = tuple(FRAMEWORKS)) -> str:
    """The matrix as lines for a terminal: rate, times one device at its best, n over launches."""
    shown = shown_rows(table)
    lines = []
    for framework in frameworks:
        own = where(shown, framework=framework)
        if own["rate"].isna().all():
            continue
        wide = own.assign(cell=[_cell_text(row) for _, row in own.iterrows()])
        wide = wide.pivot(index="placement", columns="devices", values="cell")
        wide = wide.reindex(list(dict.fromkeys(own["placement"])))
        counts = sorted(own["devices"].unique().tolist())
        wide.columns = [plural(count, "device") for count in counts]
        lines += [f"{FRAMEWORKS[framework]}, {unit}/s (times one device at its best; n/launches)"]
        lines += [wide.to_string(index_names=False), ""]
    reasons = shown[~shown["reason"].isin(["", NOT_MEASURED])]
    for reason, group in reasons.groupby("reason", sort=False):
        names = ", ".join(
            f"{row.placement} ({row.framework}, {row.devices})" for row in group.itertuples()
        )
        lines.append(f"* {names}: {reason}")
    return "\n".join(lines)


def _cell_text(row: pd.Series) -> str:
    if row["reason"]:
        return "-" if row["reason"] == NOT_MEASURED else "*"
    best = "" if missing(row.get("best")) else f" ({row['best']:.2f})"
    return f"{row['rate']:,.0f}{best} {row['n']:.0f}/{row['launches']:.0f}"
