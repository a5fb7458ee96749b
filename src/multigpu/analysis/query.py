"""Which measured points a person asks about, on which machine, and the command that measures
one.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import pandas as pd

from multigpu.analysis.compare import best_single, kernels_of
from multigpu.analysis.fields import CHANGES, FIELDS, JOB, LENGTH, POINT, RESTRICTED, SENDING
from multigpu.analysis.points import one_length, where
from multigpu.analysis.words import missing
from multigpu.build import build_run
from multigpu.placements import find_placement
from multigpu.spec.run import Run
from multigpu.spec.semantics import Semantics
from multigpu.workloads import find_model, find_workload, workloads


def check_query(fields: Mapping[str, Any]) -> None:
    """ValueError: no measured point can have a field, or its value; the sentence names what is
    allowed.
    """
    for name, value in fields.items():
        if name not in FIELDS:
            raise ValueError(
                f"{name} = {value!r}: points are not told apart by it; leave it out, or name a"
                " Record's key"
            )
        annotations = [
            Run.model_fields[name].annotation,
            *get_args(Run.model_fields[name].annotation),
        ]
        allowed = [
            value for kind in annotations if get_origin(kind) is Literal for value in get_args(kind)
        ]
        if allowed and value is not None and value not in allowed:
            raise ValueError(f"{name} = {value!r}: choose one of {', '.join(map(str, allowed))}")
    if "placement" in fields:
        find_placement(fields["placement"])
    known = (
        [find_workload(fields["workload"])] if "workload" in fields else list(workloads().values())
    )
    if "model" in fields and "workload" in fields:
        find_model(fields["workload"], fields["model"])
    names = {
        "model": [m for w in known for m in w.models],
        "inputs": [i for w in known for i in w.inputs],
    }
    for name, there in names.items():
        if name in fields and fields[name] not in there:
            raise ValueError(
                f"unknown {name} {fields[name]!r}: choose one of {', '.join(dict.fromkeys(there))}"
            )


def query(
    points: pd.DataFrame, fields: Mapping[str, Any], machine: str | None = None
) -> pd.DataFrame:
    """The points with these fields, of each length of timing the most repeated; of `RESTRICTED`
    where named. ValueError: none can be.
    """
    check_query(fields)
    if machine is not None:
        known = sorted(set(points["machine"]))
        if machine not in known:
            raise ValueError(
                f"no Record is of machine {machine!r}: choose one of"
                f" {', '.join(known) or 'none, since there is no Record'}"
            )
        points = where(points, machine=machine)
    found = where(
        points, **dict.fromkeys(name for name in RESTRICTED if name not in fields), **fields
    )
    return found if set(LENGTH) & set(fields) else one_length(found)


def by_machine(points: pd.DataFrame, here: str = "") -> list[pd.DataFrame]:
    """The points of each machine: this one first, then GPUs before CPUs, then most repeated points,
    then most points.
    """
    about = {
        name: (
            name != here,
            not group["device_type"].eq("cuda").any(),
            -group["rate_low"].notna().sum(),
            -len(group),
        )
        for name, group in points.groupby("machine", sort=False)
    }
    return [where(points, machine=name) for name in sorted(about, key=about.__getitem__)]


def plainest(table: pd.DataFrame, fields: Mapping[str, Any]) -> pd.DataFrame:
    """The points, those first that have fewest fields off a Run's defaults, then those with most
    repeats.
    """
    known = {
        name: Run.model_fields[name]
        for name in FIELDS
        if name not in fields and not Run.model_fields[name].is_required()
    }
    off = [
        sum(not missing(row[name]) and row[name] != field.default for name, field in known.items())
        for _, row in table.iterrows()
    ]
    return (
        table.assign(_off=off)
        .sort_values(["_off", "n"], ascending=[True, False], kind="stable")
        .drop(columns="_off")
    )


def none_has(points: pd.DataFrame, fields: Mapping[str, Any], machine: str | None) -> str:
    """That no Record has these fields, and which of them is to blame."""
    rows, why = (points if machine is None else where(points, machine=machine)), ""
    for name, value in fields.items():
        left = where(rows, **{name: value})
        if left.empty:
            there = ", ".join(map(str, sorted(rows[name].dropna().unique().tolist())))
            why = f"{name} = {value}" + (f" (measured are {there})" if there else "")
            break
        rows = left
    return f"No Record{f' of {machine}' if machine else ''} has {why or 'these fields'}."


def alike(table: pd.DataFrame, row: Any, names: Iterable[str], **other: Any) -> pd.DataFrame:
    """The rows that equal `row` in these fields, empty where it is empty (as a GPU's name on a
    CPU); `other` as in `points.where`.
    """
    return where(
        table, **{name: [None, ""] if missing(row[name]) else row[name] for name in names} | other
    )


def like(table: pd.DataFrame, row: Any, free: Sequence[str] = (), **other: Any) -> pd.Series | None:
    """Return the most repeated measured point that equals `row` in all fields but `free`, `other`
    and how long was measured; None without any.
    """
    rows = alike(table, row, (name for name in POINT if name not in (*free, *LENGTH)), **other)
    rows = rows[rows["n"] > 0].sort_values("n", ascending=False, kind="stable")
    return rows.iloc[0] if len(rows) else None


def like_single(table: pd.DataFrame, row: pd.Series) -> pd.Series | None:
    """Return one device at its best for the job of `row`, among points that use at least its
    kernels; None where no such point was launched in the form of `row`.
    """
    (kernels,) = kernels_of(row.to_frame().T)
    ones = alike(best_single(table, kernels=kernels), row, JOB)
    if not ones["execution"].eq(row["execution"]).any():
        return None
    return best_single(ones, form=()).iloc[0]


def like_replicas(table: pd.DataFrame, row: pd.Series) -> pd.Series | None:
    """Return independent replicas on as many devices as `row`, in its form and with its kernels;
    how gradients travel, which they do not send, may differ. None where there are none.
    """
    return like(table, row, SENDING, placement="independent", processes="per_device")


def differing(row: Any, other: Any) -> list[str]:
    """The fields in which two points of one job on as many devices differ, how long was measured
    aside.
    """
    return [
        name
        for name in CHANGES
        if not (missing(row[name]) and missing(other[name])) and str(row[name]) != str(other[name])
    ]


def semantics(row: Any) -> Semantics:
    """Return what the result of a point equals (as `placements.resolve.semantics_of`); one
    independent or asynchronous replica is joined.
    """
    return (
        find_placement(row["placement"])
        .semantics.sent_in(None if missing(row["wire_dtype"]) else row["wire_dtype"])
        .by_parts(not (missing(row["powersgd_rank"]) and missing(row["top_k"])))
        .on(row["devices"])
    )


def measure_command(run: Run, **other: Any) -> str:
    """The command line that measures this Run with some fields changed. ValueError: such a Run
    cannot be; one sentence says why.
    """
    changed = build_run(**(run.model_dump(exclude_defaults=True) | other))
    return command_of(
        changed.model_dump(exclude_defaults=True) | {"device_type": changed.device_type}
    )


def run_of(row: Any) -> Run:
    """The Run of a point, but for paths of data, which no point has. ValueError: a Run with these
    fields cannot be built any more.
    """
    fields = {name: row[name] for name in FIELDS if not missing(row[name])}
    return build_run(
        **{
            name: value.item() if hasattr(value, "item") else value
            for name, value in fields.items()
        }
    )


def completed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those that every Run needs: the first model that they leave, under ddp."""
    model = fields.get("model")
    name = fields.get("workload") or next(
        (one.name for one in workloads().values() if model in one.models), next(iter(workloads()))
    )
    first = {"model": next(iter(find_workload(str(name)).models), "...")}
    return {"workload": name, **first, "placement": "ddp", "batch_size": 32} | dict(fields)


def command_of(fields: Mapping[str, Any]) -> str:
    """`python -m multigpu measure` with these fields, and those that every Run needs
    (`completed`).
    """
    told = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in completed(fields).items()
    }
    words = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in told.items()
    ]
    return "python -m multigpu measure " + " ".join(map(shlex.quote, words))
