"""Rates of a comparison: of steps as given, and on batches that are on the device already."""

from collections.abc import Mapping, Sequence

import pandas as pd

from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.own.placed import called
from multigpu.own.trust import disturbances
from multigpu.record import Record


def on_ready(record: Record) -> Record:
    """The Record as if its timed steps had been those on batches that lay on the device, where they
    were measured; else the Record: input took next to nothing.
    """
    measured = record.measurement
    if measured is None or measured.ready_step_s is None:
        return record
    wall_s = measured.ready_step_s * record.run.timed_steps
    return record.model_copy(update={"measurement": measured.model_copy(update={"wall_s": wall_s})})


def rates_of(records: Sequence[Record]) -> pd.DataFrame:
    """The points of Records, by name, in their order, which is that of the Runs."""
    table = points(frame_of(records)).reset_index(drop=True)
    names = [called(row) for _, row in table.iterrows()]
    return table.assign(name=pd.Series(names, table.index, dtype="string"))


def base_of(table: pd.DataFrame, each: Mapping[str, Sequence[Record]]) -> int | None:
    """The place of one device at its best: of those that were not disturbed, where there are
    any.
    """
    ones = table[table["devices"] == 1]
    quiet = [not all(map(disturbances, each[str(name)])) for name in ones["name"]]
    ones = ones[quiet] if any(quiet) else ones
    return None if ones.empty else list(ones.index)[int(ones["rate"].argmax())]
