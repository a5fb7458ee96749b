"""Whether lanes that measure side by side disturb each other: every Run's step time beside neighbours over the same alone."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from multigpu.analysis.compare import ratio_columns
from multigpu.analysis.statistics import log_samples
from multigpu.record import Record

ALLOWED = 1.005
"""The study's rule: Runs may share a machine only where this slows none of them by more than 0.5%."""

RUN = ["machine", "framework", "execution", "devices", "run", "framework_version", "timing_version", "digest", "cores"]
"""What makes two Records of lanes the same Run in a lane of as many cores."""

COLUMNS = ["machine", "run", "framework", "execution", "devices", "lanes", "n_alone", "n_shared", "ratio", "low", "high", "verdict"]
LANES = ["machine", "run", "framework", "execution", "devices", "ratio", "low", "high", "gpus", "n"]


def verdict_of(low: pd.Series, high: pd.Series) -> np.ndarray:
    """What intervals of the ratio show: "may share", "disturbed" or "not shown"; one that is missing (NaN) shows nothing."""
    return np.select([high <= ALLOWED, low > ALLOWED], ["may share", "disturbed"], "not shown")


def _measured(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Record of a lane."""
    rows = []
    for record in records:
        run, lane, m = record.run, record.lane, record.measurement
        if lane is not None and m is not None:
            kind = (record.machine.name, run.framework, run.execution, run.devices, run.label(), record.framework_version)
            own = (record.timing_version, run.digest, lane.cores, tuple(lane.gpus), lane.neighbours)
            rows.append((*kind, *own, run.timed_steps, m.wall_s, record.launch_id))
    return pd.DataFrame(rows, columns=[*RUN, "gpus", "neighbours", "steps", "wall_s", "launch"])


def _pooled(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Repeats pooled, a row a group: `by`, n, rate (steps/s) and what `ratio_columns` needs."""
    by = list(by)
    groups = rows.groupby(by, sort=True).ngroup()
    sums = rows.groupby(by, sort=True)[["steps", "wall_s"]].sum().reset_index()
    table = sums.assign(n=groups.value_counts().sort_index(), rate=sums["steps"] / sums["wall_s"], keys=sums.index.astype(str))
    return table.join(log_samples(rows["steps"] / rows["wall_s"], groups, rows["launch"]))


def _ratios(pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs with ratio, low, high: seconds a step over the base's, which are the base's steps a second over its own."""
    names = ["rate", "log_variance", "log_freedom", "n"]
    own, base = (pairs[[f"{name}{end}" for name in names]].set_axis(names, axis=1) for end in ("", "_base"))
    found = ratio_columns(base.assign(keys="base"), own.assign(keys="own"), "ratio")
    return pairs.join(found.rename(columns={"ratio_low": "low", "ratio_high": "high"}))


def interference_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run that was measured alone in a lane and beside neighbours in the same one: the same GPUs, as many cores.

    ratio is the mean step time beside neighbours over that alone (low, high: its 95% interval, by launches where they differ, as all
    ratios of this study): 1.01 is 1% slower. Without such Records the table is empty.

    Returns:
        machine, run, framework, execution, devices, lanes (of the machine, this one too), n_alone and n_shared (repeats), ratio, low,
        high, verdict.
    """
    found = _pooled(_measured(records), [*RUN, "gpus", "neighbours"])
    alone, shared = found[found["neighbours"].eq(0)], found[found["neighbours"].gt(0)]
    table = _ratios(shared.merge(alone, on=[*RUN, "gpus"], suffixes=("", "_base"), validate="m:1"))
    table = table.assign(lanes=table["neighbours"] + 1, verdict=verdict_of(table["low"], table["high"]))
    named = table.rename(columns={"n": "n_shared", "n_base": "n_alone"})[COLUMNS]
    return named.sort_values(["machine", "framework", "devices", "run", "lanes"], ignore_index=True)


def lanes_table(records: Iterable[Record]) -> pd.DataFrame:
    """What sharing adds without anybody's fault: each lane's mean step time over that of the first lane, all measuring side by side.

    Equal GPUs are not equally fast. Runs that are compared with each other may stand in different lanes, on different GPUs.

    Returns:
        machine, run, framework, execution, devices, gpus, n, ratio, low, high: a row a Run and lane, the first lanes left out.
    """
    rows = _measured(records)
    found = _pooled(rows[rows["neighbours"].gt(0)], [*RUN, "gpus"])
    first = found["gpus"].eq(found.groupby(RUN)["gpus"].transform("first"))
    table = _ratios(found[~first].merge(found[first], on=RUN, suffixes=("", "_base"), validate="m:1"))
    table["gpus"] = [", ".join(map(str, gpus)) for gpus in table["gpus"]]
    return table[LANES].sort_values(["machine", "framework", "devices", "run", "gpus"], ignore_index=True)
