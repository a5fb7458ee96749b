"""Hold what a step of a user's job tells: its loss, its gradients, and which parameters get one."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from multigpu.spec.model import Optimizer
from multigpu.user_model.joined import Gradients


@dataclass
class Tried:
    """A step: loss, numbers kept for backward (0: unknown), ids asked, gradients, randomness."""

    loss: float
    kept: int
    asked: dict[str, list[Any]]
    gradients: Gradients
    random: bool


@dataclass
class Reached:
    """The gradients that whole batches reach. batches: how many were seen; counts: of each trained
    variable, how many gave it one; flat: those that were zero but for rounding in all; missed:
    those that a few samples of a batch gave none. frozen: those that require none; left_out: those
    that the job's optimizer does not update.
    """

    batches: int
    counts: dict[str, int]
    flat: list[str]
    missed: set[str] = field(default_factory=set)
    frozen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def idle(self) -> list[str]:
        return [name for name, count in self.counts.items() if not count]

    @property
    def seldom(self) -> list[str]:
        """Those of which a shard may have no gradient, and those that only a number sets apart from
        one, as one expert from another: it was luck that each batch reached them.
        """
        reached = {name: re.sub(r"\d+", "#", name) for name, count in self.counts.items() if count}
        some = {
            kind
            for name, kind in reached.items()
            if self.counts[name] < self.batches or name in self.missed
        }
        return [name for name, kind in reached.items() if kind in some]


def largest(gradient: Any) -> float:
    """The largest size of a number in an array or a tensor; 0 of none, nan where one is."""
    return 0.0 if gradient is None or 0 in gradient.shape else float(abs(gradient).max())


def shortest(step: Callable[[], Any]) -> float:
    """Seconds of the shortest step of half a second, after a first one."""
    step()
    ends, took = time.perf_counter() + 0.5, list[float]()
    while not took or (time.perf_counter() < ends and len(took) < 20):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return min(took)


def notes_of(reached: Reached, fixed: list[str], rule: Optimizer) -> list[str]:
    """Sentences on parameters that get no gradient, get one seldom, or but for rounding."""
    notes: list[str] = []

    def among(names: list[str]) -> str:
        return ", ".join(name.removeprefix("model.")[:80] for name in names[:2]) + (
            " among them" if len(names) > 2 else ""
        )

    if frozen := reached.frozen:
        notes.append(
            f"{len(frozen)} parameters require no gradient ({among(frozen)}): no placement updates"
            " them, and a Run in which one is unfrozen stops"
        )
    if left_out := reached.left_out:
        notes.append(
            f"the optimizer leaves out {len(left_out)} parameters that require a gradient"
            f" ({among(left_out)}): they stay as they are"
        )
    if idle := reached.idle:
        notes.append(
            f"{len(idle)} parameters get no gradient in"
            f" {reached.batches} batch{'es' if reached.batches > 1 else ''} and are left as"
            f" they are, {among(idle)}: a Run in which one gets a gradient stops"
        )
    if seldom := reached.seldom:
        said = (
            f"{len(seldom)} parameters get a gradient from some samples alone,"
            f" {among(seldom)}: where a shard has none, zero is merged"
        )
        keeps = rule.momentum or rule.weight_decay or rule.name != "sgd"
        if keeps and any(0 < count < reached.batches for count in reached.counts.values()):
            said += (
                "; in a step whose global batch has none, momentum and decay go on, where"
                " PyTorch's optimizers leave a parameter without a gradient alone"
            )
        notes.append(said)
    if flat := [name for name in reached.flat if name not in fixed]:
        notes.append(
            f"{len(flat)} parameters have a gradient that is zero but for rounding, as a bias"
            f" before batch norm has ({among(flat)}): they need not move"
        )
    return notes
