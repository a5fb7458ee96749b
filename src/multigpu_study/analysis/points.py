"""Pool Records of which no rate is told."""

from collections.abc import Sequence

import pandas as pd

from multigpu.analysis.points import comma_joined
from multigpu.analysis.statistics import mean_interval


def averages(frame: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """One row a group of Records, for what no rate is of: of each column its mean with _low and
    _high (95%, Student's t), n, keys.
    """
    each = frame.groupby(list(by), sort=False, dropna=False, observed=True)
    bounds = {
        "_low": lambda own: mean_interval(own.dropna())[0],
        "_high": lambda own: mean_interval(own.dropna())[1],
    }
    asked = {
        f"{name}{end}": (name, how)
        for name in columns
        for end, how in {"": "mean", **bounds}.items()
    }
    return each.agg(**asked, n=("key", "size"), keys=("key", comma_joined)).reset_index()
