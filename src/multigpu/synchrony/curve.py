"""Loss against time: parameters taken while a server runs, and evaluated after it."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from multigpu.synchrony.exchange import Arithmetic, Vector
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.problems import Problem


class Point(NamedTuple):
    """Loss and error (share of test rows wrong; None without classes) after so many updates and gradients, `time_s` into the run."""

    time_s: float
    updates: int
    gradients: int
    loss: float
    error: float | None


@dataclass
class Curve:
    """Parameters at about `evaluations` evenly spread parts of the budget; evaluated only after the run, to cost no time in it."""

    experiment: Experiment
    taken: list[tuple[float, int, int, Vector]] = field(default_factory=list)
    mark: float = 0.0

    def offer(self, time_s: float, updates: int, gradients: int, parameters: Vector, last: bool = False) -> None:
        if last and self.taken and self.taken[-1][1] == updates:
            return
        spent = max(updates / (self.experiment.updates or math.inf), time_s / (self.experiment.time_s or math.inf))
        if spent >= self.mark or last:
            self.taken.append((time_s, updates, gradients, parameters))
            # 1e-9: 0.3 of a budget is reached by 3 of 10 updates, whatever the rounding
            self.mark = (math.floor(spent * self.experiment.evaluations + 1e-9) + 1) / self.experiment.evaluations - 1e-9

    def evaluate(self, problem: Problem, arithmetic: Arithmetic) -> tuple[Point, ...]:
        held = ((t, u, g, arithmetic.fetch(w)) for t, u, g, w in self.taken)
        with np.errstate(over="ignore", invalid="ignore"):
            return tuple(Point(t, u, g, problem.loss(w), problem.error(w)) for t, u, g, w in held)
