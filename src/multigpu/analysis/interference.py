"""Whether lanes that measure side by side disturb each other: every Run's step time beside neighbours over the same alone."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from multigpu.analysis.compare import equal_rows, ratio_columns
from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
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


def _points(records: Iterable[Record], *more: str) -> pd.DataFrame:
    """The measured Runs of lanes, repeats pooled, by `RUN`, GPUs and `more`, in order of these."""
    known = [(record, record.lane) for record in records if record.lane and record.measurement and not record.run.traced_steps]
    told = [(record.run.label(), record.run.digest, lane.cores, tuple(lane.gpus)) for record, lane in known]
    frame = frame_of(record for record, _ in known)
    by = [*RUN, "gpus", *more]
    return points(frame.join(pd.DataFrame(told, columns=["run", "digest", "cores", "gpus"], index=frame.index)), by).sort_values(by)


def _beside(own: pd.DataFrame, base: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Each of `own` beside the one of `base` that equals it in `on`: n_base; ratio, low, high: seconds a step over the base's."""
    at = equal_rows(own.reset_index(drop=True), base.reset_index(drop=True), on)
    own, base = (side.iloc[at[number]].reset_index(drop=True) for number, side in enumerate((own, base)))
    found = ratio_columns(base, own, "ratio").rename(columns={"ratio_low": "low", "ratio_high": "high"})
    return own.assign(n_base=base["n"]).join(found)


def interference_table(records: Iterable[Record]) -> pd.DataFrame:
    """A row a Run that was measured alone in a lane and beside neighbours in the same one: the same GPUs, as many cores.
    ratio is the mean step time beside neighbours over that alone (low, high: 95%, as all ratios of this study): 1.01 is 1% slower.
    """
    found = _points(records, "neighbours")
    table = _beside(found[found["neighbours"].gt(0)], found[found["neighbours"].eq(0)], [*RUN, "gpus"])
    table = table.assign(lanes=table["neighbours"] + 1, verdict=verdict_of(table["low"], table["high"]))
    named = table.rename(columns={"n": "n_shared", "n_base": "n_alone"})[COLUMNS]
    return named.sort_values(["machine", "framework", "devices", "run", "lanes"], ignore_index=True)


def lanes_table(records: Iterable[Record]) -> pd.DataFrame:
    """What sharing adds without anybody's fault: each lane's mean step time over that of the first lane, all measuring side by side.
    Equal GPUs are not equally fast, and Runs that are compared with each other may stand in different lanes.
    """
    found = _points(record for record in records if record.lane and record.lane.neighbours)
    first = found["gpus"].eq(found.groupby(RUN)["gpus"].transform("first"))
    table = _beside(found[~first], found[first], RUN)
    table["gpus"] = [", ".join(map(str, gpus)) for gpus in table["gpus"]]
    return table[LANES].sort_values(["machine", "framework", "devices", "run", "gpus"], ignore_index=True)
