"""Adjust the chances of many tests for their number."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: at or below alpha, any one of them is wrong with chance alpha."""
    ordered = pd.Series(chances, dtype="float64").sort_values(kind="stable")
    return list((ordered * np.arange(len(ordered), 0, -1)).clip(upper=1.0).cummax().sort_index())


def holm_of_families(chances: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Adjusted p-values by Holm within each family, and again over families by the least."""
    family = pd.Series([repr(one) for one in families], dtype=object)
    within = (
        pd.Series(chances, dtype=float).groupby(family).transform(lambda own: holm(own.tolist()))
    )
    first = within.groupby(family).min().sort_values(kind="stable")
    times = pd.Series(np.arange(len(first), 0, -1), index=first.index)
    least = pd.Series(holm(first.tolist()), index=first.index)
    return np.maximum((within * family.map(times)).clip(upper=1.0), family.map(least)).tolist()
