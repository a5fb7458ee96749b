"""What `notebooks/experiment.ipynb` does: read its parameters, train, and find what stands beside the point that was measured."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from multigpu import paths
from multigpu.analysis.documents import document_rows, published_experiments
from multigpu.analysis.frame import frame_of
from multigpu.grid.from_yaml import launches_of, traced
from multigpu.measure.lanes import key_here
from multigpu.measure.launch import check_devices, measure
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.measure.point import Point
from multigpu.measure.watching import HOOK, WATCHED, Watched
from multigpu.parameters import ParameterError, check_parameters
from multigpu.published import load_published
from multigpu.reading import study_records
from multigpu.record import STATUSES, Record, RecordStore
from multigpu.run import Run, build_run

RECORDS = paths.REPOSITORY / "build" / "experiment"
"""Where Records of experiments lie unless their parameters say otherwise."""
AGAIN = tuple(status for status in STATUSES if status != "ok")
"""What ended so is tried again when the experiment is."""

PARAMETERS: dict[str, Any] = {
    **{name: Run.model_fields[name].annotation for name in ("workload", "model", "placement", "framework")},
    "device_type": Literal["auto", "cuda", "cpu"],
    **{name: Run.model_fields[name].annotation for name in ("devices", "processes", "batch_size", "precision", "execution", "inputs")},
    "data": list[str] | None,
    **{name: Run.model_fields[name].annotation for name in ("sequence_length", "timed_steps")},
    "repeats": int | list[int],
    "trace": int | bool,
    "records": str | None,
    "compare": bool,
    "more": dict[str, Any],
}
"""The notebook's parameters and their types."""


@dataclass(frozen=True)
class Experiment:
    """What the parameters say.

    launches: which launch measures each repeat. trace: steps that a twin of the Run is traced for (0: none). store: its Records.
    compare: whether committed Records and documents stand beside it.
    """

    run: Run
    launches: tuple[int, ...]
    trace: int
    store: RecordStore
    compare: bool

    @property
    def points(self) -> list[Point]:
        """What is measured: the repeats, and the traced twin."""
        found = [Point(self.run, repeat, launch) for repeat, launch in enumerate(self.launches)]
        return found + ([Point(traced(self.run, self.trace))] if self.trace else [])

    def records(self) -> list[Record]:
        """The Records of its points on this machine, of each the latest attempt."""
        found = (self.store.find(this_machine().name, key_here(point.run, point.repeat)) for point in self.points)
        return [record for record in found if record is not None]


def planned(namespace: Mapping[str, Any]) -> Experiment:
    """The experiment that a notebook's `globals()` describe.

    Raises:
        ParameterError: a parameter is unknown, of a wrong type, or cannot work here; the sentence says which and what to do.
    """
    check_parameters(namespace, **PARAMETERS)
    given = {name: namespace[name] for name in PARAMETERS}
    repeats, trace = given["repeats"], given["trace"]
    launches = tuple(repeats) if isinstance(repeats, list) else launches_of(repeats)
    if not 1 <= len(launches) <= 100 or min(launches) < 0:
        raise ParameterError(
            f"parameter repeats = {repeats!r}: 1 to 100 repeats can be, or a list of the launch of each, such as [0, 0, 1]."
        )
    fields = {name: given[name] for name in given if name in Run.model_fields} | given["more"]
    if fields["device_type"] == "auto":
        fields["device_type"] = "cuda" if gpu_count() else "cpu"
    if fields["data"] is not None:
        fields["data"] = tuple(fields["data"])
    steps = 3 if trace is True else int(trace)
    try:
        if "traced_steps" in given["more"]:
            raise ValueError("more = {'traced_steps': ...}: the parameter trace says how many steps are traced")
        run = build_run(**fields)
        check_devices(run)
        if steps:
            traced(run, steps)
    except ValueError as error:
        raise ParameterError(f"{str(error).rstrip('.')}.") from None
    return Experiment(run, launches, steps, RecordStore(Path(given["records"] or RECORDS)), given["compare"])


class Progress:
    """A line a Run, which says how far it is while it trains: in a notebook, where its text is replaced as it goes on."""

    def __init__(self, experiment: Experiment, watched: Watched) -> None:
        self.run, self.total, self.done, self.watched = experiment.run, len(experiment.points), 0, watched
        self.lines: list[str] = []
        self.began: tuple[str, float] = ("", 0.0)
        self.handle: DisplayHandle | None = display({"text/plain": ""}, raw=True, display_id=True)
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def set_description(self, desc: str | None = None) -> None:
        with self.lock:
            self.watched.reset()
            self.lines.append("starts")

    def update(self, n: float = 1) -> bool | None:
        with self.lock:
            self.done += int(n)
            if n and not self.lines:
                self.lines += ["measured before"] * int(n)
            elif n:
                self.lines[-1] = "ended"
            self._show()
        return True

    def set_postfix_str(self, s: str = "") -> None:
        with self.lock:
            if self.lines:
                self.lines[-1] = s
            self._show()

    def close(self) -> None:
        self.ended.set()
        self.thread.join()

    def _follow(self) -> None:
        while not self.ended.wait(0.3):
            with self.lock:
                if len(self.lines) > self.done:
                    self.lines[-1] = self._now()
                    self._show()

    def _now(self) -> str:
        """The stage, and the steps of it and their rate."""
        stage, steps = self.watched.state()
        if stage != self.began[0]:
            self.began = (stage, time.monotonic())
        took = time.monotonic() - self.began[1]
        count = {"warm-up": self.run.warmup_steps, "timed": self.run.timed_steps}.get(stage, 0)
        rate = f", {steps / took:,.1f} steps/s" if took > 1 and steps else ""
        return {"": "starts", "build": "builds the model"}.get(stage, f"{stage}: step {min(steps, count)} of {count}{rate}")

    def _show(self) -> None:
        lines = [f"run {number} of {self.total}  {line}" for number, line in enumerate(self.lines, 1)]
        if self.handle is not None:
            self.handle.update({"text/plain": "\n".join(lines)}, raw=True)


class ExperimentError(ParameterError):
    """Nothing could be measured; its message is the reason of the first Run that failed."""


def train(experiment: Experiment) -> list[Record]:
    """Measure what has no Record yet, shown as it goes on; the Records of all points, those that failed among them.

    Raises:
        ParameterError: the input or the folder of Records cannot be used.
        ExperimentError: no repeat could be measured.
    """
    with tempfile.TemporaryDirectory(prefix="multigpu-experiment-") as folder:
        path = Path(os.environ.get(WATCHED) or Path(folder, "watched"))
        before, os.environ[WATCHED] = os.environ.get(WATCHED), str(path)
        progress = Progress(experiment, Watched(path))
        try:
            done = measure(experiment.points, experiment.store, AGAIN, hook=HOOK, bar=progress)
        except ValueError as error:
            raise ParameterError(f"{str(error).rstrip('.')}.") from None
        finally:
            progress.close()
            if before is None:
                del os.environ[WATCHED]
    print("\n".join(done.troubles) or "every Run was measured")
    found = experiment.records()
    if not any(record.status == "ok" for record in found if not record.run.traced_steps):
        first = next((record for record in found if record.status != "ok"), None)
        raise ExperimentError(f"{first.status.replace('_', ' ')}: {first.reason}" if first else "no Record was written")
    return found


def by_hand() -> bool:
    """Whether a person sits before this kernel: papermill's cannot ask for input."""
    shell = get_ipython()
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


SAME_POINT = tuple(
    name for name in Run.model_fields if name not in ("seed", "data", "warmup_steps", "timed_steps", "traced_steps", "traced_from")
)
"""Fields in which the same point of other Records agrees."""


def committed(experiment: Experiment) -> pd.DataFrame:
    """The committed Records of the same point, of every machine (`frame_of`); none where nothing is to be compared.

    Raises:
        ValueError: Records cannot be read.
    """
    wanted = experiment.run.model_dump(include=set(SAME_POINT))
    records = study_records() if experiment.compare else []
    return frame_of(record for record in records if record.run.model_dump(include=set(SAME_POINT)) == wanted)


def published(experiment: Experiment) -> pd.DataFrame:
    """What documents printed of this point: document, devices, rate (units/s), step_time_s; empty without one, or where nothing
    is to be compared.
    """
    columns, run = ["document", "devices", "rate", "step_time_s"], experiment.run
    rates = document_rows(run.model_dump(), published_experiments())
    tables = [rates.assign(document="000, on P100s", devices=rates["gpus"], rate=rates["words_per_s"], step_time_s=math.nan)]
    if (run.model, run.placement, run.batch_size) == ("nmt004", "ddp", 64):
        steps = load_published("004_step_times")
        tables.append(steps.assign(document="004, on V100s", devices=steps["gpus"], rate=math.nan, step_time_s=steps["step_time_ms"] / 1e3))
    every = pd.concat([table[columns] for table in tables])
    return every[every["devices"].eq(run.devices) & experiment.compare].reset_index(drop=True)
