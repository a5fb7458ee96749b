"""Laws of the time (s) that a worker takes for one batch: samples and order statistics.

X_(K:P) is the K-th smallest of P independent times: what an update waits for that takes the first K
of P workers.
Closed forms: B. C. Arnold, N. Balakrishnan, H. N. Nagaraja, "A First Course in Order Statistics".
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from multigpu.spec.schema import Strict

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LawBase(Strict):
    """Times, of which `sample` draws `count`."""

    @property
    def mean_s(self) -> float:
        return self.order_mean_s(1, 1)

    def order_mean_s(self, k: int, p: int) -> float:
        """E[X_(K:P)], 1 <= K <= P; nan where it is not known before it is measured."""
        raise NotImplementedError

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        raise NotImplementedError


class Empirical(LawBase):
    """Drawn with replacement from measured step times.

    Of n sorted times, X_(K:P) <= x_(i) has probability I_(i/n)(K, P-K+1) (regularised incomplete
    beta), and E[X_(K:P)] is the sum of the x_(i), each weighted by the growth of that probability
    from i - 1 to i.
    """

    kind: Literal["empirical"] = "empirical"
    times_s: tuple[Seconds, ...] = Field(min_length=1)

    def order_mean_s(self, k: int, p: int) -> float:
        from scipy import special  # here, as worker processes start without it in half the time

        n = len(self.times_s)
        probability = special.betainc(k, p - k + 1, np.arange(n + 1) / n)
        return float(np.sort(self.times_s) @ np.diff(probability))

    def sample(self, generator: np.random.Generator, count: int) -> np.ndarray:
        return np.asarray(self.times_s)[generator.integers(len(self.times_s), size=count)]
