"""Whether a series of steps has a memory: autocorrelation with its band, and one number for all lags. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy import special

Numbers = Sequence[float] | np.ndarray | Any

LAGS = 20
"""Lags looked at: a tenth of the 200 steps that a verdict needs."""
LEAST_PER_LAG = 5
"""Steps a lag that are needed to look at it."""


def autocorrelation(values: Numbers, lags: int = LAGS) -> np.ndarray:
    """r_1 .. r_lags, shape (lags,): r_k = sum_t (x_t - m)(x_{t+k} - m) / sum_t (x_t - m)^2, m the mean.

    A series that does not vary has no memory to speak of: zeros.

    Raises:
        ValueError: there are not more values than lags.
    """
    series = np.asarray(values, dtype=float).ravel()
    if not 1 <= lags < len(series):
        raise ValueError(f"{lags} lags need more than {lags} values and at least 1 lag: there are {len(series)} values")
    away = series - series.mean()
    total = float(away @ away)
    if total <= 1e-24 * max(1.0, float(series @ series)):
        return np.zeros(lags)
    return np.array([float(away[lag:] @ away[:-lag]) for lag in range(1, lags + 1)]) / total


def band(count: int, confidence: float = 0.95) -> float:
    """Half the width of the band that holds each r_k of `count` independent values with this confidence: 1.96 / sqrt(count)."""
    return NormalDist().inv_cdf(0.5 + confidence / 2) / count**0.5


def ljung_box(values: Numbers, lags: int = LAGS) -> float:
    """Q / lags, Q = n (n + 2) sum_k r_k^2 / (n - k) (Ljung and Box, 1978): about 1 without memory, the larger the more of it.

    Raises:
        ValueError: as `autocorrelation`.
    """
    count = np.asarray(values).size
    found = autocorrelation(values, lags)
    return float(count * (count + 2) * (found**2 / (count - np.arange(1, lags + 1))).sum() / lags)


def ljung_box_bound(lags: int = LAGS, confidence: float = 0.95) -> float:
    """What `ljung_box` of independent values stays below with this confidence: a quantile of chi^2 with `lags` degrees over `lags`."""
    return float(special.chdtri(lags, 1 - confidence) / lags)


def memory(values: Numbers) -> float | None:
    """`ljung_box` over LAGS lags, or None where there are fewer than LEAST_PER_LAG values a lag."""
    return ljung_box(values) if np.asarray(values).size >= LEAST_PER_LAG * LAGS else None
