"""Planted tables of Records: rates chosen by hand, so that a verdict is known beforehand."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

from multigpu.analysis.frame import frame_of
from multigpu_study.claims import Claim, ClaimResult, all_claims, evaluate_all, find_claim
from tests.factory import make_record

PLAIN: dict[str, Any] = (
    frame_of([make_record(devices=1)]).iloc[0].dropna().drop("median_step_s").to_dict()
)
"""What the frame has of a Record of the translator on one GPU under ddp."""
QUIET = (1.0, 1.004, 0.996, 1.003, 0.997)
"""Of equal mean in both launches, so that these count as alike."""
LOUD = (1.0, 6.0, 1 / 6, 4.0, 1 / 4)


def repeats(
    rate: float, noise: Sequence[float] = QUIET, launches: Sequence[str] = "aaabb", **fields: Any
) -> list[dict[str, Any]]:
    """Rows of one Run, a repeat each, of `rate` units a second over all devices (1,000 units a
    device and step).

    `slowdown` is that of warm-up steps, `loss_last` the final loss; other fields are a Run's or a
    Record's, boots the boot of each repeat (all of one unless told). The memory of the step time is
    a hundredth of the rate, the change of the variables a thousandth, the peak of memory a tenth.
    """
    extra = {name: fields.pop(name) for name in ("slowdown", "loss_last") if name in fields}
    boots = fields.pop("boots", None)
    base = PLAIN | fields
    made = []
    for repeat, (factor, launch) in enumerate(zip(noise, launches, strict=False)):
        row = base | {"repeat": repeat, "launch_id": launch}
        row |= {"boot": boots[repeat]} if boots else {}
        text = repr(
            sorted(
                (name, str(value))
                for name, value in row.items()
                if name not in ("key", "attempt", "status", "launch_id")
            )
        )
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


def evaluate(claim: Claim, frame: pd.DataFrame, **further: pd.DataFrame) -> ClaimResult:
    """What Records say of one claim; frame: the table of the kind that its predicate is over;
    further: those of its further predicates.
    """
    result: ClaimResult
    (result,) = evaluate_all(
        [claim], **({claim.predicate.of: frame} if claim.predicate else {}), **further
    )
    return result


def result_of(number: str, rows: Sequence[dict[str, Any]]) -> ClaimResult:
    """What planted Runs say of a claim; what other kinds of Records must say too is left out
    (`test_other_records.py`).
    """
    return evaluate(find_claim(number).model_copy(update={"further": ()}), pd.DataFrame(rows))


NEW = f"C{len(all_claims()) + 1}"
ENTRY = f"""
- number: {NEW}
  sentence: Planted sentences hold.
  documents: ['004']
  figure: 2x
  page: 04-all-reduce
  tests:
  - of: runs
    where: {{model: nmt004}}
    contrasts:
    - label: rate on 2 GPUs over one
      over: {{devices: 2}}
      under: {{devices: 1}}
      effect: 2.0
    scope: None.
  decides: two Runs
  gpus: 2
  seconds: 10
"""
"""A claim as a document holds it, which no Record decides."""
