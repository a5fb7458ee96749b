"""Planted tables of Records: rates chosen by hand, so that a verdict is known beforehand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.claims import Claim, Result, evaluate_all, find_claim

RUN: dict[str, Any] = {
    "workload": "nmt",
    "model": "nmt000",
    "placement": "ddp",
    "framework": "torch",
    "device_type": "cuda",
    "devices": 1,
    "batch_size": 128,
    "scaling": "weak",
    "inputs": "synthetic",
    "sequence_length": 100,
    "layout": None,
    "precision": "bf16",
    "execution": "eager",
    "optimizer": "default",
    "seed": 0,
    "warmup_steps": 10,
    "timed_steps": 30,
}
CONTEXT: dict[str, Any] = {
    "attempt": 0,
    "status": "ok",
    "reason": "",
    "machine": "8x-h200",
    "gpu": "NVIDIA H200",
    "cpu": "planted",
    "measured_at": "2030-01-01T00:00:00Z",
    "framework_version": "2.13",
    "timing_version": 1,
    "input_label": "synthetic",
    "unit": "words",
    "peak_memory_gib": 1.0,
    "flags": "",
}
# Of equal mean in both launches, so that these count as alike.
QUIET = (1.0, 1.004, 0.996, 1.003, 0.997)
LOUD = (1.0, 6.0, 1 / 6, 4.0, 1 / 4)


def repeats(rate: float, noise: Sequence[float] = QUIET, launches: Sequence[str] = "aaabb", **fields: Any) -> list[dict[str, Any]]:
    """Rows of one Run, a repeat each, of `rate` units a second over all devices (1,000 units a device and step).

    `slowdown` is that of warm-up steps, `loss_last` the final loss; other fields are a Run's or a Record's. The memory of the step
    time is a hundredth of the rate, the change of the variables a thousandth, the peak of memory a tenth.
    """
    extra = {name: fields.pop(name) for name in ("slowdown", "loss_last") if name in fields}
    base = RUN | CONTEXT | fields
    made = []
    for repeat, (factor, launch) in enumerate(zip(noise, launches, strict=False)):
        row = base | {"repeat": repeat, "launch_id": launch}
        text = repr(sorted((name, str(value)) for name, value in row.items() if name not in ("attempt", "status", "launch_id")))
        row["key"] = hashlib.sha256(text.encode()).hexdigest()[:20]
        measured = row["status"] == "ok"
        step = 1000 * row["devices"] / (rate * factor)
        row |= {
            "units_per_s": rate * factor if measured else float("nan"),
            "step_time_s": step if measured else float("nan"),
            "wall_s": step * row["timed_steps"] if measured else float("nan"),
            "units": 1000 * row["devices"] * row["timed_steps"],
            "warmup_s": step * row["warmup_steps"] * extra.get("slowdown", 1.0),
            "loss_last": extra.get("loss_last", 1.0) * factor,
            "step_memory": rate * factor / 100,
            "parameter_change": rate * factor / 1000,
            "peak_memory_gib": rate * factor / 10,
        }
        made.append(row)
    return made


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows as the tidy table has them: missing values are NaN, whole-number columns with gaps are floats."""
    return pd.DataFrame(rows)


def evaluate(claim: Claim, frame: pd.DataFrame, **further: pd.DataFrame) -> Result:
    """What Records say of one claim; frame: the table of the kind that its predicate is over; further: those of its further predicates."""
    result: Result
    (result,) = evaluate_all([claim], **({claim.predicate.of: frame} if claim.predicate else {}), **further)
    return result


def result_of(number: str, rows: Sequence[dict[str, Any]], further: bool = False) -> Result:
    """What planted Runs say of a claim; further: whether other kinds of Records must say so too (`test_joint_claims.py`)."""
    claim = find_claim(number)
    return evaluate(claim if further else claim.model_copy(update={"further": ()}), table(rows))
