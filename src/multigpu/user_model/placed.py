"""One placement of a comparison."""

import importlib
import math
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from multigpu.analysis.estimate import Estimate, estimate
from multigpu.spec.run import Run
from multigpu.user_model.trust import figure_text
from multigpu.workloads import find_model
from multigpu.workloads.own.description import Described

ONE = "one device"
"""What the baseline is called among placements."""

USUAL = ("eager", "graph")
"""Forms of execution that a placement's name does not tell."""


def bracketed(name: str) -> str:
    """The name of a way with its form in brackets: in a list, a comma would end it."""
    placement, comma, form = name.partition(", ")
    return f"{placement} ({form})" if comma else placement


def called(run: Any) -> str:
    """The name of a Run, or of its point, in a comparison: its placement, and what is not plain."""
    named = [ONE if run.devices == 1 else run.placement]
    if run.execution not in USUAL:
        named.append(run.execution.replace("_", " and "))
    recompute, parts = (getattr(run, name, None) for name in ("recompute", "micro_steps"))
    if not pd.isna(recompute) and recompute:
        named.append("recomputed")
    if not pd.isna(parts) and parts != _asked(run.workload, run.model)[1]:
        named.append(f"{parts:.0f} micro-steps")
    if changes_precision(run):
        named.append(run.precision)
    return ", ".join(named)


def changes_precision(run: Any) -> bool:
    """Whether a Run computes in another precision than the job asks for."""
    asked, _ = _asked(run.workload, run.model)
    return bool(asked) and asked != run.precision


@lru_cache
def _asked(workload: str, model: str) -> tuple[str, int]:
    """The job's own precision and micro-steps, which a name does not tell."""
    described = getattr(find_model(workload, model).config, "described", None)
    return (described.precision, described.micro_steps) if described else ("", 1)


def command_of(run: Run, described: Described) -> str:
    """Return the command, or the call of a job in no file, that measures this way alone."""
    forms = run.execution.split("_") if run.execution not in USUAL else []
    levers = [{"xla": "compiled"}.get(form, form) for form in forms]
    levers += ["recompute"] if run.recompute else []
    levers += ["micro_steps"] if (run.micro_steps or 1) != described.micro_steps else []
    levers += ["precision"] if changes_precision(run) else []
    if described.file:
        words = [
            "python -m multigpu compare",
            shlex.quote(described.job),
            f"--placements {run.placement}",
        ]
        words += [f"--devices {run.devices}"] if run.devices > 1 else []
        words += [f"--levers {','.join(levers)}"] if levers else []
        return " ".join([*words, f"--device-type {run.device_type}", "--out again"])
    given = f", levers={levers}" if levers else ""
    count = run.devices if run.devices > 1 else None
    return f"multigpu.compare(job, {count}, [{run.placement!r}], out='again'{given})"


@dataclass(frozen=True)
class Placed:
    """One placement of a comparison: its Run and its row of the table."""

    run: Run
    row: pd.Series
    described: Described
    folder: Path

    @property
    def name(self) -> str:
        return called(self.run)

    @property
    def rate(self) -> Estimate:
        """Samples/s of all devices, on batches that are on them already."""
        return estimate(self.row, "rate")

    @property
    def fed_rate(self) -> Estimate:
        """Samples/s of all devices, with batches made as the job makes them."""
        return estimate(self.row, "fed_rate")

    @property
    def speedup(self) -> Estimate:
        """`rate` over that of one device at its best."""
        return estimate(self.row, "speedup")

    def __str__(self) -> str:
        known = self.run.devices > 1 and not pd.isna(self.row["speedup"])
        gain = f", {figure_text(self.speedup, 'times')} times one device" if known else ""
        return f"{self.name}, {figure_text(self.rate, 'rate')}{gain}"

    def wrap(self, module: Any) -> Any:
        """The user's module under this placement: of PyTorch, for a loop of their own that
        `torchrun` starts (`user_model.wrap_torch`); of Keras, or what makes it, a model that `fit`
        trains so on global batches, to be compiled under `model.distribute_strategy.scope()`. A
        ValueError says what can be had where this cannot.
        """
        library = importlib.import_module(f"multigpu.user_model.wrap_{self.run.framework}")
        return library.wrapped(self.run, self.described, self.folder, module)


def no_more(part: Estimate, whole: Estimate) -> Estimate:
    """Limit a part of a step to the step's length, whatever noise says."""
    return part if part.value <= whole.value else whole


def less(own: Estimate, base: Estimate) -> Estimate:
    """Return by how much one takes more than another; 0, with an upper bound, if it takes less."""
    value, half = own.value - base.value, math.hypot(own.high - own.value, base.value - base.low)
    low, high = (
        math.nan if math.isnan(half) else max(0.0, end) for end in (value - half, value + half)
    )
    return Estimate(max(0.0, value), low, high, own.keys | base.keys)
