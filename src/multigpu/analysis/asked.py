"""Which measured points a person asks about, how each was carried out in words, and the command that measures one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import pandas as pd

from multigpu.analysis.causes import all_like
from multigpu.analysis.frame import RUN_FIELDS
from multigpu.analysis.front import front_machine
from multigpu.analysis.metrics import POINT, summary
from multigpu.analysis.style import look
from multigpu.analysis.ways import WAYS
from multigpu.analysis.wording import FRAMEWORK_NAMES, describe, devices_text, field_text, joined, missing, plural
from multigpu.placements import find_placement
from multigpu.placements.row import Semantics
from multigpu.run import Run, build_run, semantics_of
from multigpu.workloads import find_model, workloads

FIELDS = tuple(name for name in RUN_FIELDS if name != "seed")
"""The fields of a Run that a point has."""

LENGTH = ("warmup_steps", "timed_steps")
"""How long was measured, which makes no other question."""

CONDITIONS = ("batching", "shuffle", "feed", "host_cores", "device_ids", "peer_access")
"""Fields that set what a point has to work with, beside its job: what is compared should have them in common."""

PINNED = ("host_cores", "device_ids", "peer_access", "energy_window_s")
"""Fields that make a Run one of a study of hosts and pairs: they count only where they are named."""

WAY = (
    *WAYS,
    *("layout", "all_reduce_spec", "wire_dtype", "loss_scale", "recurrence", "embedding_gradients", "model_parallel", "micro_batches"),
    *("stage_devices", "input_workers", "prefetch", "staging", "image_dtype", "framework"),
)
"""Fields that say how a placement is carried out, all of them (`ways.WAYS`: those that pages compare)."""

USUAL = {"processes": "per_device", "prefetch": 0, "layout": "channels_last", "framework": "torch"}
"""Of these fields, the value that needs no word."""

TRACED_STEPS = 3
SEMANTICS = {
    "joined": "trains one model on the joined batch",
    "independent": "every device trains a model of its own, so it is no equal of the others",
    "asynchronous": "updates are applied in any order to variables that others changed since, so it is no equal of the others",
}


def check_asked(fields: Mapping[str, Any]) -> None:
    """Refuse what no measured point can have.

    Raises:
        ValueError: a field by which Records are not told apart, or a value that does not exist; the sentence names what is allowed.
    """
    for name, value in fields.items():
        if name not in FIELDS:
            raise ValueError(f"{name} = {value!r}: points are not told apart by it; leave it out, or name a Record's key")
        allowed = _choices(Run.model_fields[name].annotation)
        if allowed and value not in allowed:
            raise ValueError(f"{name} = {value!r}: choose one of {', '.join(allowed)}")
    if "workload" in fields and fields["workload"] not in workloads():
        raise ValueError(f"unknown workload {fields['workload']!r}: choose one of {', '.join(workloads())}")
    if "placement" in fields:
        find_placement(fields["placement"])
    known = [workloads()[fields["workload"]]] if "workload" in fields else list(workloads().values())
    if "model" in fields:
        if "workload" in fields:
            find_model(fields["workload"], fields["model"])
        elif not any(fields["model"] in workload.models for workload in known):
            raise ValueError(f"unknown model {fields['model']!r}: choose one of {', '.join(m for w in known for m in w.models)}")
    inputs = list(dict.fromkeys(name for workload in known for name in workload.inputs))
    if "inputs" in fields and fields["inputs"] not in inputs:
        raise ValueError(f"unknown inputs {fields['inputs']!r}: choose one of {', '.join(inputs)}")


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a Literal, also of one that may be None; () for other types."""
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    return tuple(value for part in get_args(annotation) for value in _choices(part))


def of_machine(frame: pd.DataFrame, workload: str | None, machine: str | None) -> pd.DataFrame:
    """The rows of one machine: the one named, or of each model's in the report (GPUs before CPUs, then `same_gpus.leading_machine`).

    Raises:
        ValueError: no Record is of the machine named; the sentence names those that there are.
    """
    rows = frame if workload is None else frame[frame["workload"] == workload]
    if machine is None:
        return front_machine(rows)
    if machine not in set(frame["machine"]):
        raise ValueError(f"no Record is of machine {machine!r}: choose one of {', '.join(sorted(set(frame['machine'])))}")
    return rows[rows["machine"] == machine]


def lacking(rows: pd.DataFrame, fields: Mapping[str, Any]) -> str:
    """Which named field leaves no row, and what it has in those that the fields before it leave: "devices = 16: measured are 1, 2, 4"."""
    for name, value in fields.items():
        left = rows[rows[name].eq(value).fillna(False)]
        if left.empty:
            there = rows[name].dropna().unique().tolist()
            return f"{name} = {value}" + (f": measured are {', '.join(map(str, sorted(there)))}" if there else "")
        rows = left
    return ""


def none_has(rows: pd.DataFrame, fields: Mapping[str, Any], machine: str | None) -> str:
    """That no Record has these fields, which of them is to blame, and the command that measures one."""
    name = machine or (rows["machine"].iloc[0] if len(rows) else "")
    why = lacking(rows, fields) if len(rows) else joined([f"{field} = {value}" for field, value in fields.items()])
    return f"No Record{f' of {name}' if name else ''} has {why or 'these fields'}. This measures one: `{command_of(fields)}`"


def named(rows: pd.DataFrame, fields: Mapping[str, Any]) -> pd.DataFrame:
    """The points (of `summary`) whose fields equal those named, the plainest first: fewest fields off a Run's defaults, then most repeats,
    then the model with most Records.

    Of points that differ in `LENGTH` alone the one with most repeats speaks, unless a length is named.
    """
    often = rows["model"].value_counts()
    for name, value in fields.items():
        rows = rows[rows[name].eq(value).fillna(False)]
    points = summary(rows)
    if points.empty:
        return points
    off = [sum(_off_default(row, name) for name in FIELDS if name not in fields) for _, row in points.iterrows()]
    keyed = points.assign(_off=off, _often=points["model"].map(often).astype("int64"))
    points = keyed.sort_values(["_off", "n", "_often"], ascending=[True, False, False], kind="stable").drop(columns=["_off", "_often"])
    return points if set(LENGTH) & set(fields) else most_repeated(points)


def _off_default(row: Any, name: str) -> bool:
    field = Run.model_fields[name]
    return not field.is_required() and not missing(row[name]) and row[name] != field.default


def most_repeated(points: pd.DataFrame) -> pd.DataFrame:
    """Of points that differ in `LENGTH` alone, the one with most repeats; their order stays."""
    best = points.sort_values("n", ascending=False, kind="stable").drop_duplicates([name for name in POINT if name not in LENGTH])
    return points.loc[points.index.isin(best.index)]


def like(points: pd.DataFrame, row: Any, free: tuple[str, ...] = (), **other: Any) -> pd.Series | None:
    """The measured point that equals `row` in every field of `POINT` but for `free` and `other`; as long as `row`'s if there is one.

    None as another value: the field is empty.
    """
    ok = points[points["n"] > 0]
    names = [name for name in POINT if name not in free]
    for lengths in ((), LENGTH):
        found = all_like(ok, {name: other.get(name, row[name]) for name in names if name not in lengths})
        if len(found):
            return found.sort_values("n", ascending=False, kind="stable").iloc[0]
    return None


def way_words(row: Any) -> str:
    """How a point was carried out: "ddp, captured, loss in one piece"; what is usual (a process a device, PyTorch) is not said."""
    parts = [look(row["placement"]).label]
    for name in WAY:
        value = row[name]
        if missing(value) or USUAL.get(name) == value:
            continue
        match name:
            case "framework":
                parts.append(FRAMEWORK_NAMES[value])
            case "input_workers":
                parts.append("batches made in the step" if value == 0 else f"{plural(int(value), 'worker')} a device")
            case "prefetch":
                parts.append(f"{plural(int(value), 'batch', 'batches')} ahead")
            case "staging":
                parts.append("copied on a stream of its own")
            case "recurrence" | "embedding_gradients":
                parts.append(f"{name.replace('_', ' ')} {value}")
            case _:
                parts.append(field_text(row, name))
    return ", ".join(part for part in parts if part)


def job_words(row: Any) -> str:
    """What a point trains: "NMT of 000, batch 128 a GPU, synthetic input, 100 words a sentence, bf16, on 4 GPUs"."""
    fields = ["model", "batch_size", "input_label", "sequence_length", "precision", "optimizer"]
    own = ["batching"] if row["batching"] != "own" else []
    own += [name for name in ("feed", "host_cores") if not missing(row[name])]
    return f"{describe(row, [*fields, *own])}, on {devices_text(row['devices'], row['device_type'])}"


def differing(row: Any, other: Any, ignored: tuple[str, ...] = ()) -> list[str]:
    """The fields of a Run in which two points differ, `LENGTH` and `ignored` left out."""
    pairs = {name: (row[name], other[name]) for name in FIELDS if name not in (*LENGTH, *ignored)}
    empty = {name: (missing(own), missing(theirs)) for name, (own, theirs) in pairs.items()}
    return [name for name, (own, theirs) in pairs.items() if empty[name] != (True, True) and (any(empty[name]) or own != theirs)]


def semantics(row: Any) -> Semantics:
    """What the result of a point equals (`run.semantics_of`); one independent or asynchronous replica is joined."""
    found = semantics_of(row["placement"], None if missing(row["wire_dtype"]) else row["wire_dtype"])
    return Semantics() if row["devices"] == 1 and found.kind in ("independent", "asynchronous") else found


def semantics_words(semantics: Semantics) -> str:
    """What training so results in, in words that no reader can take for an equal where it is none."""
    if semantics.kind == "stale":
        return f"computes with variables {plural(semantics.steps, 'step')} old (stale), so it is no equal of the others"
    if semantics.kind == "lossy":
        return f"trains one model on the joined batch within {semantics.tolerance:g} of an update (lossy)"
    return SEMANTICS[semantics.kind]


def repeats_words(row: Any) -> str:
    """Repeats and launches ("n = 8 over 5 launches"), or that it was measured once."""
    if row["n"] == 1:
        return "n = 1 (measured once: no interval)"
    return f"n = {row['n']} over {plural(int(row['launches']), 'launch', 'launches')}"


def measure_command(run: Run, **other: Any) -> str:
    """The command line that measures this Run with some fields changed.

    Raises:
        ValueError: such a Run cannot be; one sentence says why.
    """
    changed = build_run(**(run.model_dump(exclude_defaults=True) | other))
    return command_of(changed.model_dump(exclude_defaults=True) | {"device_type": changed.device_type})


def command_of(fields: Mapping[str, Any]) -> str:
    """`python -m multigpu measure` with these fields; those that every Run needs and that are not named stand open ("...")."""
    needed = {name: "..." for name, field in Run.model_fields.items() if field.is_required()}
    words = [f"{name}={_word(value)}" for name, value in (needed | dict(fields)).items()]
    return "python -m multigpu measure " + " ".join(shlex.quote(word) if not word.endswith("=...") else word for word in words)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
