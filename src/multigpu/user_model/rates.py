"""Rates of a comparison: of steps as given, and on batches that are on the device already."""

from collections.abc import Mapping, Sequence

import pandas as pd

from multigpu.analysis.frame import frame_of
from multigpu.analysis.points import points
from multigpu.analysis.steps import wait_of
from multigpu.records.record import Record
from multigpu.user_model.placed import called, changes_precision
from multigpu.user_model.race import RaceWindow
from multigpu.user_model.trust import disturbances


def input_s(record: Record, batch_s: float) -> float | None:
    """Return the seconds by which a step as given is longer than one on batches that are on the
    device already; None where that was not measured, since input takes next to nothing.

    On a CPU it is no more than the step waited for its batch and what making two such batches takes
    by itself (`batch_s`), which is all that a thread beside the step can take from it, and more:
    what is left of a difference of two short windows is other work of the computer.
    """
    run, measured = record.run, record.measurement
    if measured is None or measured.ready_step_s is None:
        return None
    longer_s = max(0.0, measured.wall_s / run.timed_steps - measured.ready_step_s)
    if run.device_type != "cpu":
        return longer_s
    joined = run.devices if run.processes == "one" else 1
    return min(longer_s, wait_of([record]) + 2 * joined * batch_s)


def on_ready(record: Record, batch_s: float) -> Record:
    """The Record as if its timed steps had not paid for their input (`input_s`)."""
    measured, paid_s = record.measurement, input_s(record, batch_s)
    if measured is None or not paid_s:
        return record
    wall_s = measured.wall_s - paid_s * record.run.timed_steps
    return record.model_copy(update={"measurement": measured.model_copy(update={"wall_s": wall_s})})


def windows_of(records: Sequence[Record], batch_s: float) -> list[RaceWindow]:
    """Return what the race knows of timed Records: a window each, on batches that are ready."""
    found = []
    for record in sorted(records, key=lambda record: record.repeat):
        if (measured := on_ready(record, batch_s).measurement) and not record.run.traced_steps:
            rate, disturbed = measured.units / measured.wall_s, bool(disturbances(record))
            found.append(RaceWindow(called(record.run), record.launch_id, rate, disturbed))
    return found


def rates_of(records: Sequence[Record]) -> pd.DataFrame:
    """The points of Records, by name, in their order, which is that of the Runs."""
    table = points(frame_of(records)).reset_index(drop=True)
    names = [called(row) for _, row in table.iterrows()]
    return table.assign(name=pd.Series(names, table.index, dtype="string"))


def base_of(table: pd.DataFrame, each: Mapping[str, Sequence[Record]]) -> int | None:
    """The place of one device at its best, of those that were not disturbed if there are any."""
    changed = [changes_precision(each[str(name)][0].run) for name in table["name"]]
    ones = table[(table["devices"] == 1) & ~pd.Series(changed, table.index, dtype=bool)]
    quiet = [not all(map(disturbances, each[str(name)])) for name in ones["name"]]
    ones = ones[quiet] if any(quiet) else ones
    return None if ones.empty else list(ones.index)[int(ones["rate"].argmax())]
