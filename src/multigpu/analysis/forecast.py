"""A step's time against the number of devices, from parts with a meaning: fitted to few counts,
tested on one held out, forecast beyond.

Weak scaling, synchronous steps. On P devices

    t(P) = c n(P) + x I(P) + s B(P) + j  a process a device: c and x are fitted, j of P > 1
    t(P) = c + h (P - 1) + I(P)          one process that dispatches for all: c and h are fitted

c: computation of one replica (s). n(P): how much longer the slowest of P replicas takes than one,
    from the measured spread of steps.
I(P), B(P): what the placement's merge takes over links inside a node and between nodes
    (`forecast_reduction`). x: how often that time a merge costs, at most MOST. s: 1; but min(1, x)
    where merging starts before backward ends: what hid inside a node hides between nodes, in share.
j: what is left where x would exceed MOST: meeting, and the host's work for it. It does not grow
    with P, as bytes do.
h: what the host adds a device.

Two parameters are fitted (least squares of relative errors), so two counts leave nothing to test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from multigpu.analysis.forecast_reduction import Demand, Links, reduction_seconds
from multigpu.analysis.laws import Empirical

PARAMETERS = 2
MOST = 2.0
"""Times its bytes' time over the links that a merge costs: sums after backward cost 1.5."""
LEVEL = 0.95
DRAWS = 1000


@dataclass(frozen=True)
class Points:
    """One job under one placement: what was measured at each count, and what its step moves.
    times_s: of each count, in rising order, the step of each launch (s). noise: of each Record on
        one device, its timed steps over their mean. one_process: one dispatches for all.
    """

    devices: tuple[int, ...]
    times_s: tuple[tuple[float, ...], ...]
    demand: Demand
    noise: tuple[tuple[float, ...], ...] = ()
    one_process: bool = False

    @property
    def means_s(self) -> np.ndarray:
        """The geometric mean over launches at each count (s)."""
        return np.array([np.exp(np.mean(np.log(times))) for times in self.times_s])


def slowest_of(noise: Sequence[Sequence[float]], devices: Sequence[int]) -> np.ndarray:
    """n(P): the expected slowest of P draws from a Record's steps over the expected one, a row a
    Record, a column a count; 1 without.
    """
    if not noise:
        return np.ones((1, len(devices)))
    laws = [Empirical(times_s=tuple(times)) for times in noise]
    return np.array(
        [
            [law.order_mean_s(count, count) / law.mean_s if count > 1 else 1.0 for count in devices]
            for law in laws
        ]
    )


PARTS = (
    "computation_s",
    "noise_s",
    "links_of_a_node_s",
    "links_between_nodes_s",
    "host_s",
    "meeting_s",
)


@dataclass(frozen=True)
class Shape:
    """Hold what is known at some counts before anything is fitted: noise[Record, count], the
    merge's seconds, whether s follows x (overlaps).
    """

    devices: np.ndarray
    noise: np.ndarray
    inside_s: np.ndarray
    between_s: np.ndarray
    one_process: bool
    overlaps: bool

    @classmethod
    def of(cls, points: Points, devices: Sequence[int], links: Links) -> "Shape":
        moved = np.array(
            [reduction_seconds(points.demand, count, links) for count in devices]
        ).reshape(-1, 2)
        noise = slowest_of(() if points.one_process else points.noise, devices)
        counts = np.array(devices, dtype=float)
        overlaps = points.demand.overlaps
        return cls(counts, noise, moved[:, 0], moved[:, 1], points.one_process, overlaps)

    def slowest(self, taken: np.ndarray | None = None) -> np.ndarray:
        return self.noise.mean(axis=0) if taken is None else taken @ self.noise

    def parts(
        self, c: float, slope: float, meeting_s: float = 0.0, taken: np.ndarray | None = None
    ) -> np.ndarray:
        """Seconds of each part, a row each in the order of PARTS."""
        zero = np.zeros(len(self.devices))
        if self.one_process:
            return np.array([zero + c, zero, self.inside_s, zero, slope * (self.devices - 1), zero])
        share = min(1.0, slope) if self.overlaps else 1.0
        return np.array(
            [
                zero + c,
                c * (self.slowest(taken) - 1),
                slope * self.inside_s,
                share * self.between_s,
                zero,
                meeting_s * (self.devices > 1),
            ]
        )

    def fit(
        self, times_s: np.ndarray, weights: np.ndarray, taken: np.ndarray | None = None
    ) -> tuple[float, float, float]:
        """(c, x, j) or (c, h, 0) that bring the relative errors at the measured counts nearest to
        zero, none negative; j: of what is left where x would exceed MOST.
        weights: of each count, e.g. the root of its launches. taken: how much each Record's noise
            counts. ValueError: too few counts.
        """
        if len(times_s) < PARAMETERS:
            raise ValueError(
                f"{len(times_s)} counts of devices cannot fit {PARAMETERS} parameters: at least"
                f" {PARAMETERS} are needed"
            )
        scale = weights / times_s
        alike = np.ones(len(times_s)) if self.one_process else self.slowest(taken)

        def solved(column: np.ndarray, known_s: np.ndarray | float) -> tuple[float, float]:
            c, slope = nnls(
                np.array([alike, column]).T * scale[:, None],
                np.maximum(times_s - known_s, 0) * scale,
            )[0]
            return float(c), float(slope)

        if self.one_process:
            return *solved(self.devices - 1, self.inside_s), 0.0
        if self.overlaps and (found := solved(self.inside_s + self.between_s, 0.0))[1] < 1:
            return *found, 0.0  # s is x
        c, slope = solved(self.inside_s, self.between_s)
        if slope <= MOST:
            return c, slope, 0.0
        c, meeting_s = solved(self.devices > 1, MOST * self.inside_s + self.between_s)
        return c, MOST, meeting_s


def interval_of(draws: np.ndarray) -> np.ndarray:
    """The middle 95% of draws, along the first axis; NaN without draws."""
    return np.quantile(
        draws if len(draws) else np.full((1, draws.shape[1]), np.nan),
        [(1 - LEVEL) / 2, (1 + LEVEL) / 2],
        axis=0,
    )


def widened(table: pd.DataFrame, by: float) -> pd.DataFrame:
    """A forecast, or what was held out, with the bands of its steps and efficiencies `by` times as
    wide, in logarithms.
    """
    ends = {
        f"{name}{end}": table[name] * (table[f"{name}{end}"] / table[name]) ** by
        for name in ("step_s", "efficiency")
        for end in ("_low", "_high")
    }
    return table.assign(**ends)


def launch_residuals(times_s: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of each launch over its count's mean, enlarged by sqrt(L / (L - 1)) so that their
    variance is that of a launch.
    """
    logs = [np.log(times) for times in times_s if len(times) > 1]
    return [
        float(value)
        for own in logs
        for value in (own - own.mean()) * np.sqrt(len(own) / (len(own) - 1))
    ]


def _drawn(
    points: Points,
    devices: Sequence[int],
    links: Links,
    residuals: Sequence[float],
    draws: int,
    seed: int = 0,
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """The forecast without bands; and draws of what else the Records would have allowed: step[draw,
    count] and computation[draw, 1] (s).
    """
    known, ahead = Shape.of(points, points.devices, links), Shape.of(points, devices, links)
    times_s, launches = points.means_s, np.array([len(times) for times in points.times_s])
    fit = known.fit(times_s, np.sqrt(launches))
    generator, spare = np.random.default_rng(seed), len(times_s) - PARAMETERS
    draws = draws if len(residuals) else 0
    moved = np.zeros((draws, len(times_s)))
    for index, count in enumerate(launches if draws else ()):
        moved[:, index] = generator.choice(np.asarray(residuals, dtype=float), (draws, count)).mean(
            axis=1
        )
    if spare > 0:
        missed = np.log(times_s / known.parts(*fit).sum(axis=0)) * np.sqrt(len(times_s) / spare)
        moved += generator.choice(missed, moved.shape) * generator.choice([-1.0, 1.0], moved.shape)
    records = len(known.noise)
    taken = generator.multinomial(records, np.full(records, 1 / records), draws) / records
    fits = [
        known.fit(times_s * np.exp(by), np.sqrt(launches), own)
        for by, own in zip(moved, taken, strict=True)
    ]
    found_s = [ahead.parts(*one, own).sum(axis=0) for one, own in zip(fits, taken, strict=True)]
    table = pd.DataFrame(ahead.parts(*fit).T, columns=list(PARTS))
    table = table.assign(devices=list(devices), step_s=table.to_numpy().sum(axis=1), slope=fit[1])
    return (
        table,
        np.reshape(found_s, (draws, len(devices))),
        np.array([one[:1] for one in fits]).reshape(draws, 1),
    )


def forecast(
    points: Points,
    devices: Sequence[int],
    links: Links,
    residuals: Sequence[float] = (),
    draws: int = DRAWS,
) -> pd.DataFrame:
    """The model fitted to all of `points`, at `devices`, with a bootstrap over launches and
    Records. Each draw gives every count new launches (its mean moved by as many draws from
    `residuals` as it had launches), takes Records of the replicas' noise anew, and fits again.
    Where more counts are fitted than there are parameters, every count is also moved by one of the
    errors of the fit, of either sign, times sqrt(K / (K - 2)). residuals: `launch_residuals` of
    these points or others like them.

    Returns a row a count: devices, step_s and efficiency (t(1) / t(P)), each with _low and _high
        (95%; NaN without residuals), seconds of each of PARTS, slope (x or h as fitted).
    """
    table, found_s, one_s = _drawn(points, devices, links, residuals, draws)
    table = table.assign(efficiency=table["computation_s"] / table["step_s"])
    for name, found in (("step_s", found_s), ("efficiency", one_s / found_s)):
        table[[f"{name}_low", f"{name}_high"]] = interval_of(found).T
    return table


@dataclass(frozen=True)
class HeldOutCount:
    """A forecast of the largest count from those below it (s), with the interval in which its
    measurement should lie; one_s: on one device.
    """

    devices: int
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    one_s: float = math.nan

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    def widen(self, by: float) -> "HeldOutCount":
        low, high = (
            self.predicted_s * (end / self.predicted_s) ** by for end in (self.low_s, self.high_s)
        )
        return replace(self, low_s=low, high_s=high)

    @property
    def inside(self) -> bool | None:
        return None if np.isnan(self.low_s) else bool(self.low_s <= self.measured_s <= self.high_s)

    @property
    def missed_by(self) -> float:
        """How many half-widths of the interval, on its side and in logarithms, the measurement lies
        off; NaN without one.
        """
        miss = math.log(self.measured_s / self.predicted_s)
        half = math.log(
            (self.high_s if miss > 0 else self.low_s) / self.predicted_s
        ) * math.copysign(1.0, miss)
        if miss == 0:
            return 0.0
        if math.isnan(half):
            return math.nan
        if half > 0:
            return abs(miss) / half
        return math.inf


def held_out(
    points: Points, links: Links, residuals: Sequence[float] = (), draws: int = DRAWS, seed: int = 0
) -> HeldOutCount:
    """Fit without the largest count and predict it, with the measurement's own spread of launches.
    ValueError: too few counts remain.
    """
    most, launches = points.devices[-1], len(points.times_s[-1])
    fewer = replace(points, devices=points.devices[:-1], times_s=points.times_s[:-1])
    found, found_s, _ = _drawn(fewer, [most], links, residuals, draws, seed)
    generator = np.random.default_rng(seed + 1)
    own = (
        generator.choice(np.asarray(residuals, dtype=float), (len(found_s), launches)).mean(axis=1)
        if len(found_s)
        else np.empty(0)
    )
    low, high = (float(end) for end in interval_of(found_s * np.exp(own)[:, None])[:, 0])
    one_s, measured_s = (float(points.means_s[at]) for at in (0, -1))
    return HeldOutCount(most, float(found["step_s"].iloc[0]), low, high, measured_s, one_s)


def widening_of(others: Sequence[HeldOutCount | None]) -> float:
    """By what a band is widened, from what other lines' held-out counts missed: split conformal
    prediction; at least 1. A bootstrap over launches and noise knows nothing of what the model
    lacks. The factor would have made 95% of the others' bands wide enough: the ceil(0.95 (n +
    1))-th smallest of n finite misses, at most the largest. If a line's miss is as likely as
    any other's to be among the largest, its band holds with that chance (Lei et al. 2018,
    doi:10.1080/01621459.2017.1307116, scaled by each band's width).
    """
    known = sorted(
        held.missed_by for held in others if held is not None and math.isfinite(held.missed_by)
    )
    return (
        max(1.0, known[min(len(known), math.ceil((len(known) + 1) * LEVEL)) - 1]) if known else 1.0
    )
