"""Rules for the learning rate of stale gradients. An update is w <- w - (1/K) sum_i rate_i g_i over its K gradients."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from multigpu.schema import Strict

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Rule(Strict):
    """One for each gradient of an update, the same unless a rule says otherwise."""

    rate: Positive

    needs_distance: ClassVar[bool] = False

    def factor(self, update: int) -> float:
        """What the rates of update number `update` (from 0) are multiplied by."""
        return 1.0

    def rates(self, staleness: Sequence[int], squared_distance: Sequence[float]) -> list[float]:
        """Of an update's gradients, by their ages and, where it `needs_distance`, how far parameters have moved since."""
        return [self.rate] * len(staleness)


class ConstantRate(_Rule):
    """The same rate for every gradient, however old."""

    kind: Literal["constant"] = "constant"


class WarmUpRate(_Rule):
    """The rate rises evenly over the first `updates` updates, from `start` to `rate`, and stays there; the age of gradients is ignored.

    Source: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), section 2.2, gradual warm-up.
    """

    kind: Literal["warm_up"] = "warm_up"
    start: Positive
    updates: Annotated[int, Field(ge=1)]

    def factor(self, update: int) -> float:
        part = min(1.0, update / self.updates)
        return (self.start + (self.rate - self.start) * part) / self.rate


class StalenessRate(_Rule):
    """rate / staleness, which never exceeds `rate` (a fresh gradient, staleness 0, counts as 1).

    per: "update" divides by the average staleness of the update's gradients (002's alpha_0 / <sigma>), "gradient" divides
        every gradient by its own (Zhang et al. 2016). With K = 1 they are the same.
    """

    kind: Literal["staleness"] = "staleness"
    per: Literal["update", "gradient"] = "update"

    def rates(self, staleness: Sequence[int], squared_distance: Sequence[float]) -> list[float]:
        if self.per == "gradient":
            return [self.rate / max(1, age) for age in staleness]
        return [self.rate / max(1.0, sum(staleness) / len(staleness))] * len(staleness)


class BoundedRate(Strict):
    """min(c / ||w_j - w_tau||^2, maximum): w_j are the server's parameters before the update, w_tau those of the gradient.

    Sources: 002; Dutta et al. 2018.
    """

    kind: Literal["bounded"] = "bounded"
    c: Positive
    maximum: Positive

    needs_distance: ClassVar[bool] = True

    def factor(self, update: int) -> float:
        return 1.0

    def rates(self, staleness: Sequence[int], squared_distance: Sequence[float]) -> list[float]:
        return [self.maximum if self.c >= self.maximum * square else self.c / square for square in squared_distance]


RateRule = Annotated[ConstantRate | StalenessRate | BoundedRate | WarmUpRate, Field(discriminator="kind")]
