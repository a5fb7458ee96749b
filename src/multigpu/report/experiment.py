"""Serve `notebooks/experiment.ipynb`: read its parameters, train, and find what stands beside the
point that was measured.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

import pandas as pd

from multigpu import paths
from multigpu.analysis.estimate import estimate
from multigpu.analysis.fields import FIELDS, LENGTH
from multigpu.analysis.frame import frame_of
from multigpu.analysis.limits import with_bounds
from multigpu.analysis.parts import SIX_NAMES, traced_step
from multigpu.analysis.points import Missing, points, where
from multigpu.analysis.read import read_study
from multigpu.analysis.traces import traced as with_trace
from multigpu.build import build_run
from multigpu.grids import traced
from multigpu.grids.planned import launches_of
from multigpu.machine.machine import gpu_count
from multigpu.plugins import PluginRegistry
from multigpu.records.base import STATUSES
from multigpu.records.record import Record, RecordStore
from multigpu.report.experiment_progress import ExperimentError, Progress
from multigpu.runner.point import Point, records_here
from multigpu.runner.sweep import measure
from multigpu.runner.timed import check_devices
from multigpu.runner.watching import HOOK, Watched, watched
from multigpu.spec.parameters import ParameterError, check_parameters
from multigpu.spec.run import Run

RECORDS = paths.BUILD / "experiment"  # unless the parameters say otherwise
# what ended so is tried again when the experiment is
AGAIN = tuple(status for status in STATUSES if status != "ok")
PRINTED: PluginRegistry[Callable[[Run], pd.DataFrame]] = PluginRegistry("printed", FunctionType)
"""What other packages add: what documents printed of a Run, a row a figure."""


def _of_run(*names: str) -> dict[str, Any]:
    return {name: Run.model_fields[name].annotation for name in names}


PARAMETERS: dict[str, Any] = {  # the notebook's, and their types
    **_of_run("workload", "model", "placement", "framework"),
    "device_type": Literal["auto", "cuda", "cpu"],
    **_of_run("devices", "processes", "batch_size", "precision", "execution"),
    **_of_run("recompute", "reshard", "micro_steps", "inputs"),
    "data": list[str] | None,
    **_of_run("sequence_length", "timed_steps"),
    "repeats": int | list[int],
    "trace": int | bool,
    "records": str | None,
    "compare": bool,
    "more": dict[str, Any],
}


@dataclass(frozen=True)
class PageExperiment:
    """The parameters of the notebook, read and checked. launches: which launch measures each
    repeat. trace: steps that a twin of the Run is traced for (0: none). compare: whether committed
    Records and documents stand beside it.
    """

    run: Run
    launches: tuple[int, ...]
    trace: int
    store: RecordStore
    compare: bool

    @property
    def points(self) -> list[Point]:
        """The points to measure: the repeats, and the traced twin."""
        found = [Point(self.run, repeat, launch) for repeat, launch in enumerate(self.launches)]
        return found + ([Point(traced(self.run, self.trace))] if self.trace else [])

    @property
    def job(self) -> dict[str, Any]:
        """The fields that `advise` is asked about."""
        named = self.run.values_of(
            "workload", "model", "inputs", "devices", "batch_size", "precision", "sequence_length"
        )
        return {name: value for name, value in named.items() if value is not None}

    def records(self) -> list[Record]:
        """The Records of its points on this machine, of each the latest attempt."""
        return records_here(self.points, self.store)


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the Run that values of the parameters stand for."""
    fields = {name: given[name] for name in PARAMETERS if name in Run.model_fields} | given["more"]
    if fields["device_type"] == "auto":
        fields["device_type"] = "cuda" if gpu_count() else "cpu"
    fields["data"] = fields["data"] and tuple(fields["data"])
    return fields


def planned(namespace: MutableMapping[str, Any]) -> PageExperiment:
    """The experiment that a notebook's `globals()` describe; a ParameterError if one is unknown, of
    a wrong type, or cannot work here.
    """
    check_parameters(namespace, **PARAMETERS)
    given = {name: namespace[name] for name in PARAMETERS}
    repeats, trace = given["repeats"], given["trace"]
    # of more than can be, one more is enough to say so
    launches = tuple(repeats) if isinstance(repeats, list) else launches_of(min(repeats, 101))
    if not 1 <= len(launches) <= 100 or min(launches) < 0:
        said = "1 to 100 repeats can be, or a list of the launch of each, such as [0, 0, 1]"
        raise ParameterError(f"parameter repeats = {repeats!r}: {said}.")
    fields = fields_of(given)
    steps = 3 if trace is True else int(trace)
    try:
        if "traced_steps" in given["more"]:
            raise ValueError(
                "more = {'traced_steps': ...}: the parameter trace says how many steps are traced"
            )
        run = build_run(**fields)
        check_devices(run)
        if steps:
            traced(run, steps)
    except ValueError as error:
        raise ParameterError(f"{str(error).rstrip('.')}.") from None
    named = given["records"]  # from the repository, as for a page
    root = paths.kind_in(paths.REPOSITORY / named) if named else RECORDS
    return PageExperiment(run, launches, steps, RecordStore(root), given["compare"])


def label(run: Run) -> str:
    """A Run in words, with every field that no other part of the label says and that is not the
    usual one.
    """
    said = (
        "workload",
        "model",
        "placement",
        "framework",
        "processes",
        "execution",
        "devices",
        "batch_size",
        "precision",
    )
    others = [
        f"{name}={','.join(value) if isinstance(value, tuple) else value}"
        for name, value in run.model_dump(exclude_defaults=True).items()
        if name not in said
    ]
    return " ".join([run.label(), *others])


@contextlib.contextmanager
def following(watched: Watched, show: Callable[[str, int], None]) -> Iterator[None]:
    """Meanwhile a thread has the stage and its steps shown, three times a second."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.3):
            show(*watched.state())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def train(experiment: PageExperiment) -> list[Record]:
    """Measure what has no Record yet, shown as it goes on; the Records of all points, or a
    ParameterError if nothing could be measured.
    """
    with watched() as found:
        progress = Progress(experiment.run, len(experiment.points), found)
        try:
            with following(found, progress.steps):
                done = measure(experiment.points, experiment.store, AGAIN, hook=HOOK, bar=progress)
        except ValueError as error:
            raise ParameterError(f"{str(error).rstrip('.')}.") from None
    print("\n".join(done.troubles) or "every Run was measured")
    records = experiment.records()
    if not any(record.status == "ok" for record in records if not record.run.traced_steps):
        first = next((record for record in records if record.status != "ok"), None)
        raise ExperimentError(
            f"{first.status.replace('_', ' ')}: {first.reason}"
            if first
            else "no Record was written"
        )
    return records


def pooled(records: Iterable[Record]) -> pd.DataFrame:
    """The point of these Records, traced ones left out (`points.points`), with what this machine
    cannot exceed (`with_bounds`).
    """
    frame = frame_of(record for record in records if record.status == "ok")
    return with_bounds(points(frame), frame)


def steps(records: Iterable[Record]) -> pd.DataFrame:
    """A row a step of each repeat, warm-up first: repeat, step, step_time_s (slowest), loss."""
    rows = [
        (f"repeat {record.repeat}", step, max(times), loss)
        for record in records
        if record.measurement and not record.run.traced_steps
        for step, (times, loss) in enumerate(
            zip(
                zip(*record.measurement.step_time_s, strict=True),
                record.measurement.loss,
                strict=True,
            )
        )
    ]
    return pd.DataFrame(rows, columns=["repeat", "step", "step_time_s", "loss"])


def six_parts(records: Iterable[Record], point: pd.Series) -> pd.DataFrame:
    """Return the six parts of the point's step, as `compare` tells them, a row each: part, time
    (s, with the interval of the step) and share; Missing where no trace of it tells them.
    """
    step, rate = float(point["step_time_s"]), estimate(point, "rate")
    found = traced_step([trace for _, trace in with_trace(records)], step)
    if found is None:
        raise Missing("a trace that tells the six parts of this point's step was not measured")
    table = pd.DataFrame({"part": SIX_NAMES.values(), "time": found.parts.values()})
    return table.assign(
        time_low=table["time"] * rate.value / rate.high,
        time_high=table["time"] * rate.value / rate.low,
        share=table["time"] / step,
    )


def moved(records: Iterable[Record]) -> pd.DataFrame:
    """Return the bytes that a step moves, by kind: counted, and predicted from the placement's row,
    in bytes over all devices; of the first repeat.
    """
    first = next(record.measurement for record in records if record.measurement)
    counted = first.moved_bytes
    kinds = [*first.predicted_bytes, *((counted or {}).keys() - first.predicted_bytes.keys())]
    rows = [
        (
            kind,
            math.nan if counted is None else counted.get(kind, 0),
            first.predicted_bytes.get(kind, 0),
        )
        for kind in kinds
    ]
    return pd.DataFrame(rows, columns=["kind", "counted", "predicted"])


def beside(experiment: PageExperiment, own: pd.DataFrame) -> pd.DataFrame:
    """This machine's point (`pooled`), and of each machine with committed Records the nearest one
    of its model, placement and devices.
    place: "here", or the machine. unlike: the fields in which a point differs from this machine's,
        as few as there are; "" where in none.
    Missing is raised where no machine has such a point, or nothing is to be compared.
    """
    asked = experiment.run.model_dump()
    same = {name: asked[name] for name in ("workload", "model", "placement", "devices")}
    if experiment.compare:
        found = where(read_study().everywhere, **same)
    else:
        found = pd.DataFrame(columns=["n"])
    why = "no committed Record has this model, placement and devices"
    found = _there(found[found["n"] > 0], experiment, why)
    names = [name for name in FIELDS if name not in LENGTH]
    values = found[names].astype(object).where(found[names].notna(), None)
    unlike = [[name for name in names if row[name] != asked[name]] for _, row in values.iterrows()]
    found = found.assign(
        place=found["machine"],
        unlike=[", ".join(fields) for fields in unlike],
        count=[len(fields) for fields in unlike],
    )
    nearest = found.sort_values(
        ["count", "n"], ascending=[True, False], kind="stable"
    ).drop_duplicates("machine")
    return pd.concat([own.assign(place="here", unlike=""), nearest], ignore_index=True)


def published(experiment: PageExperiment) -> pd.DataFrame:
    """Return the figures that documents printed of this point: document, devices, rate (units/s),
    step_time_s; Missing is raised where none has it.
    """
    none = pd.DataFrame(columns=["document", "devices", "rate", "step_time_s"])
    tables = [printed_of(experiment.run) for printed_of in PRINTED.values()]
    table = pd.concat(tables, ignore_index=True) if tables else none
    return _there(table, experiment, "no document measured this point")


def _there(table: pd.DataFrame, experiment: PageExperiment, why: str) -> pd.DataFrame:
    """The table, if it has rows and is to be shown."""
    if table.empty or not experiment.compare:
        raise Missing(why if experiment.compare else "nothing was to be compared (compare = False)")
    return table
