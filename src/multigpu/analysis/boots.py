"""The one place that makes intervals of points: a boot of a host is a level of variance above its
launches.

A mixed model of logarithms: a repeat is its point's level, what the boot does to all points of that
form of execution, and the launch's and its own luck. Ratios follow by generalised least squares: a
boot that both sides share falls out, unless the sides differ in form; one that they do not share
adds the between-boot spread of its form. `between_boots.yaml` holds that spread, as
`workflow/between_boots.py` finds it among points measured on several boots.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from multigpu.analysis.statistics import chance_of_ratio, half_width, log_samples

PAUSE_S = 300
"""Launches of one commit that follow each other within this time are of one sweep."""
FORMS = {
    **dict.fromkeys(("eager", "compiled"), "eager"),
    **dict.fromkeys(("captured", "compiled_captured"), "captured"),
    **dict.fromkeys(("graph", "xla"), "graph"),
}
"""What a host's boot does to a step depends on who launches its kernels."""
FREEDOM = 4.0
"""Of the between-boot variance: points of a form wait differently for the host: heavy tails."""
APART = 0.05
"""The level of the F test that says whether ratios differ between the boots that sides share."""
TABLE = Path(__file__).parent / "between_boots.yaml"


class Boot(NamedTuple):
    """A point's repeats in one boot: how many, and the mean of their logarithms."""

    name: str
    n: int
    mean: float


class Sample(NamedTuple):
    """What ratios need of a point. variance: of one repeat within a boot (NaN: of one repeat), with
    its degrees of freedom. form: "" where no boot matters.
    """

    form: str
    boots: tuple[Boot, ...]
    variance: float
    freedom: float

    def scaled(self, by: float) -> "Sample":
        """Return the sample of values that are `by` times as large."""
        return self._replace(
            boots=tuple(boot._replace(mean=boot.mean + math.log(by)) for boot in self.boots)
        )


@cache
def spreads() -> dict[str, float]:
    """Return the standard deviation of ln(rate) between boots, by form."""
    return {form: one["spread"] for form, one in yaml.safe_load(TABLE.read_text()).items()}


def named_boots(frame: pd.DataFrame) -> pd.Series:
    """Return the boot of each row; where none is named, one of its own for each sweep: launches of
    one machine and commit, each begun within `PAUSE_S` of the one before.
    """
    boots = frame["boot"].astype(object).fillna("")
    unnamed = frame[boots.eq("").to_numpy()]
    if unnamed.empty:
        return boots.astype("string")
    by = [unnamed[name].astype(str) for name in ("machine", "commit")]
    launch = unnamed["launch_id"].astype(str).str.partition(".")[0].rename("launch_id")
    at = pd.to_datetime(unnamed["measured_at"], utc=True, errors="coerce")
    each = (at - at.min()).dt.total_seconds().groupby([*by, launch])
    launches = each.agg(["min", "max"]).assign(number=range(each.ngroups)).reset_index()
    launches = launches.sort_values(["machine", "commit", "min"], kind="stable")
    own = launches.groupby(["machine", "commit"])
    pause = launches["min"] - own["max"].cummax().groupby(own.ngroup()).shift()
    first = launches["launch_id"].where(~pause.le(PAUSE_S)).ffill()
    names = ("unnamed " + first).set_axis(launches["number"])
    return boots.where(boots.ne(""), each.ngroup().map(names)).astype("string")


def samples(
    values: pd.Series, groups: pd.Series, launches: pd.Series, boots: pd.Series, forms: pd.Series
) -> pd.Series:
    """Return the `Sample` of each group of positive values. Where every boot has one repeat, what
    repeats differ by is that of boots as well.
    """
    boots = boots.fillna("").astype(str)
    found = log_samples(values, groups, launches, boots)
    alone = found["log_freedom"].le(0)
    if alone.any():
        found[alone] = log_samples(values, groups, launches)[alone]
    logs: Any = np.log(values.astype("float64"))
    cells = logs.groupby([groups.rename("group"), boots.rename("boot")])
    own: dict[Any, list[Boot]] = {}
    for (group, boot), n, mean in zip(cells.indices, cells.size(), cells.mean(), strict=True):
        own.setdefault(group, []).append(Boot(boot, int(n), float(mean)))
    form = forms.groupby(groups).first().fillna("")
    n = logs.groupby(groups).size()
    made = [
        Sample(form[group], tuple(own[group]), float(variance) * int(n[group]), float(freedom))
        for group, variance, freedom in zip(
            found.index, found["log_variance"], found["log_freedom"], strict=True
        )
    ]
    return pd.Series(made, index=found.index, dtype=object)


def _moderated(form: str, sides: Iterable[Sample]) -> tuple[float, float]:
    """Return a form's variance between boots, with its freedom: the table's joined with what the
    side measured on most boots shows of its own.
    """
    side = max((one for one in sides if one.form == form), key=lambda one: len(one.boots))
    known, count = spreads()[form] ** 2, len(side.boots)
    if count < 2 or math.isnan(side.variance):
        return known, FREEDOM
    means = [boot.mean for boot in side.boots]
    within = side.variance * sum(1 / boot.n for boot in side.boots) / count
    shown = max(float(np.var(means, ddof=1)) - within, 0.0)
    freedom = FREEDOM + count - 1
    return (FREEDOM * known + (count - 1) * shown) / freedom, freedom


class LogContrast(NamedTuple):
    """A sum of weighted logarithms: its value, its variance (NaN: of a single run) and freedom."""

    value: float
    variance: float
    freedom: float


@lru_cache(maxsize=100_000)
def contrast(sides: tuple[Sample, ...], weights: tuple[float, ...]) -> LogContrast:
    """Return the weighted sum of the sides' levels, by generalised least squares: what their boots
    have in common falls out.
    """
    forms = sorted({side.form for side in sides} - {""})
    between = {form: _moderated(form, sides) for form in forms}
    rows = [(t, side, boot) for t, side in enumerate(sides) for boot in side.boots]
    if len({boot.name for _, _, boot in rows}) == 1:
        on = np.array(weights)  # the usual case: one boot
    else:
        on = _best_weights(rows, weights, {form: own[0] for form, own in between.items()})
    value = float(sum(a * boot.mean for a, (_, _, boot) in zip(on, rows, strict=True)))
    parts = [
        (sum(a * a / boot.n for a, (t, _, boot) in zip(on, rows, strict=True) if t == number), side)
        for number, side in enumerate(sides)
    ]
    terms = [(share * side.variance, side.freedom) for share, side in parts if share]
    for form in forms:
        of_boots: dict[str, float] = {}
        for a, (_, side, boot) in zip(on, rows, strict=True):
            if side.form == form:
                of_boots[boot.name] = of_boots.get(boot.name, 0.0) + a
        share = sum(a * a for a in of_boots.values())
        if share > 1e-12:
            terms.append((share * between[form][0], between[form][1]))
    found = LogContrast(value, *_summed(terms))
    return found if math.isnan(found.variance) else _over_boots(found, sides, weights, between)


def _summed(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the variance of a sum of independent terms, each with its freedom, and Satterthwaite's
    freedom: NaN where one is.
    """
    variance = sum(part for part, _ in terms)
    if math.isnan(variance):
        return math.nan, math.nan
    inverse = sum(part**2 / freedom for part, freedom in terms if part)
    return variance, variance**2 / inverse if inverse else 1.0


def _best_weights(
    rows: Sequence[tuple[int, Sample, Boot]], weights: Sequence[float], between: dict[str, float]
) -> np.ndarray:
    """Return the weight of each boot's mean in the best linear unbiased estimate."""
    known = [side.variance for _, side, _ in rows if side.variance > 0]
    noise = float(np.mean(known)) if known else 1e-8
    covariance = np.diag([noise / boot.n for _, _, boot in rows])
    for i, (_, one, here) in enumerate(rows):
        for j, (_, other, there) in enumerate(rows):
            if one.form and one.form == other.form and here.name == there.name:
                covariance[i, j] += between[one.form]
    design = np.zeros((len(rows), len(weights)))
    design[range(len(rows)), [t for t, _, _ in rows]] = 1.0
    solved = np.linalg.solve(covariance, design)
    return solved @ np.linalg.solve(design.T @ solved, np.array(weights))


def _over_boots(
    found: LogContrast,
    sides: Sequence[Sample],
    weights: Sequence[float],
    between: dict[str, tuple[float, float]],
) -> LogContrast:
    """Return the contrast with boots as its units where the boots that all sides share differ in it
    by more than the model says.
    """
    shared = set.intersection(*({boot.name for boot in side.boots} for side in sides))
    if len(sides) < 2 or len(shared) < 2 or not any(weights):
        return found
    net = dict.fromkeys(between, 0.0)
    for side, weight in zip(sides, weights, strict=True):
        if side.form:
            net[side.form] += weight
    spread = sum(between[form][0] * own**2 for form, own in net.items())
    own: dict[str, list[float]] = {name: [0.0, spread] for name in shared}
    for side, weight in zip(sides, weights, strict=True):
        for boot in side.boots:
            if boot.name in shared:
                own[boot.name][0] += weight * boot.mean
                own[boot.name][1] += weight**2 * side.variance / boot.n
    values, variances = np.array([*own.values()]).T
    if not (variances > 0).all():
        return found
    precision = 1 / variances
    middle = (precision * values).sum() / precision.sum()
    ratio = float((precision * (values - middle) ** 2).sum()) / (len(shared) - 1)
    if ratio <= 1 or chance_of_ratio(ratio, len(shared) - 1, found.freedom) > APART:
        return found
    return found._replace(variance=found.variance * ratio, freedom=len(shared) - 1.0)


def contrasts(over: Sequence[pd.Series], under: Sequence[pd.Series] = ()) -> pd.DataFrame:
    """Return, row by row, ln of the product of some sides over that of others: value, variance,
    freedom. A row that lacks a side has none.
    """
    sides, weights = [*over, *under], (1.0,) * len(over) + (-1.0,) * len(under)
    nothing = LogContrast(math.nan, math.nan, math.nan)
    made = [
        contrast(row, weights) if all(isinstance(one, Sample) for one in row) else nothing
        for row in zip(*sides, strict=True)
    ]
    return pd.DataFrame(made, index=sides[0].index, columns=LogContrast._fields, dtype="float64")


def rate_half(sample: Sample) -> float:
    """Return half the width of the interval of ln of a rate over all repeats: NaN of one."""
    n = sum(boot.n for boot in sample.boots)
    terms = [(sample.variance / n, sample.freedom)]
    if sample.form:
        between, freedom = _moderated(sample.form, [sample])
        terms.append((between * sum((boot.n / n) ** 2 for boot in sample.boots), freedom))
    return float(half_width(*_summed(terms)))
