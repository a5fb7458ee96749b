"""Laws of the time (s) that a worker takes for one batch, beside measured ones
(`multigpu.analysis.laws`), with order statistics in closed form; and when it is away.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from multigpu.analysis.laws import Empirical, LawBase, Seconds
from multigpu.spec.schema import Strict


class ConstantTime(LawBase):
    """Always `time_s`: X_(K:P) = time_s."""

    kind: Literal["constant"] = "constant"
    time_s: Seconds

    def order_mean_s(self, k: int, p: int) -> float:
        return self.time_s

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.full(count, self.time_s)


class Exponential(LawBase):
    """P(X > x) = exp(-x / scale_s).

    Until the first of P ends, the minimum of P exponentials passes, scale/P on average; then, for
    want of memory, P - 1 start afresh. So E[X_(K:P)] = scale (1/P + 1/(P-1) + ... + 1/(P-K+1)).
    """

    kind: Literal["exponential"] = "exponential"
    scale_s: Seconds

    def order_mean_s(self, k: int, p: int) -> float:
        return self.scale_s * math.fsum(1 / i for i in range(p - k + 1, p + 1))

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return generator.exponential(self.scale_s, count)


class ShiftedExponential(Exponential):
    """`shift_s` plus an exponential time: a shift moves every order statistic by itself."""

    # tells it from its parent
    kind: Literal["shifted_exponential"] = "shifted_exponential"  # type: ignore[assignment]
    shift_s: Seconds

    def order_mean_s(self, k: int, p: int) -> float:
        return self.shift_s + super().order_mean_s(k, p)

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return self.shift_s + super().sample(generator, count)


class Pareto(LawBase):
    """P(X > x) = (minimum_s / x)^shape for x >= minimum_s: heavy tails; a mean exists as shape > 1.

    X = minimum U^(-1/shape) with U uniform, so X_(K:P) comes from the (P-K+1)-th smallest of P
    uniforms, which is Beta(P-K+1, K), and E[X_(K:P)] = minimum Gamma(P+1) Gamma(P-K+1-1/shape) /
    (Gamma(P-K+1) Gamma(P+1-1/shape)).
    """

    kind: Literal["pareto"] = "pareto"
    minimum_s: Seconds
    shape: Annotated[float, Field(gt=1, allow_inf_nan=False)]

    def order_mean_s(self, k: int, p: int) -> float:
        s, j = 1 / self.shape, p - k + 1
        log = math.lgamma(p + 1) + math.lgamma(j - s) - math.lgamma(j) - math.lgamma(p + 1 - s)
        return self.minimum_s * math.exp(log)

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return self.minimum_s * (1 - generator.random(count)) ** (-1 / self.shape)


class Computed(LawBase):
    """As long as computing the gradient takes, and no longer: for the real clock, which measures
    it. It has no mean to give.
    """

    kind: Literal["computed"] = "computed"

    def order_mean_s(self, k: int, p: int) -> float:
        return math.nan

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.zeros(count)


Law = Annotated[
    ConstantTime | Exponential | ShiftedExponential | Pareto | Empirical | Computed,
    Field(discriminator="kind"),
]


class StepTimes:
    """A worker's times, one a ticket: the same for the same seed, worker and ticket, whatever the
    protocol or the clock asks for.
    """

    BLOCK = 64

    def __init__(self, law: Law, seed: int, worker: int, slowdown: float = 1.0) -> None:
        self.law, self.seed, self.worker, self.slowdown = law, seed, worker, slowdown
        self._number, self._block = -1, [0.0]

    def time_s(self, ticket: int) -> float:
        number, place = divmod(ticket, self.BLOCK)
        if number != self._number:
            generator = np.random.default_rng((self.seed, self.worker, number))
            self._block = (self.law.sample(generator, self.BLOCK) * self.slowdown).tolist()
            self._number = number
        return self._block[place]


class Outage(Strict):
    """A worker that ends at `at_s` with its batch, and is there again at `until_s` (None:
    never).
    """

    worker: Annotated[int, Field(ge=0)]
    at_s: Annotated[float, Field(ge=0)]
    until_s: Seconds | None = None
