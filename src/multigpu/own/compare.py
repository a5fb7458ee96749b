"""`compare`: a user's job under the study's placements, within a budget of time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multigpu.grid.from_yaml import traced
from multigpu.measure.bar import Bar, new_bar
from multigpu.measure.known import key_here
from multigpu.measure.launch import check_devices, launch_plan, make_plan
from multigpu.measure.machine import cores_here, gpu_count, this_machine
from multigpu.measure.memory import memory_folder, scratch_folder
from multigpu.measure.point import Point, launch_of
from multigpu.measure.summary import Summary
from multigpu.measure.turn import turn
from multigpu.own.examine import describe
from multigpu.own.result import Result
from multigpu.placements import find_placement, placements
from multigpu.record import STATUSES, Record, RecordStore
from multigpu.run import Run, build_run
from multigpu.workloads.own.description import Described, know
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.loading import JobError, load_job

FIRST = ("ddp", "independent", "replicated_allreduce", "exp4", "exp2", "ps_gpu0")
"""Measured in this order before all others: a budget may end after any of them."""

TRACED_STEPS = 3
LAUNCH_S = 4.0
"""What processes take to start, at least."""

TRACE_SHARE, LEAST_TRACED_S = 0.2, 60.0
"""Of a budget of so many seconds or more, the share that is kept for a trace of the fastest placement."""

STEPS = (5, 10, 20, 50, 100, 200)
"""So many steps may be timed at once."""

AGAIN = tuple(status for status in STATUSES if status != "ok")
"""What ended so is tried again when it is compared again."""


class OutOfTime(Exception):
    """The budget is used up."""


class Budget:
    """A progress bar that ends a launch where the next Run would no longer fit, by the shortest of those so far."""

    def __init__(self, bar: Bar, ends_s: float) -> None:
        self.bar, self.ends_s = bar, ends_s
        self.took_s, self.began_s = list[float](), 0.0

    @property
    def expected_s(self) -> float:
        """What the next Run is expected to take, at least."""
        return min(self.took_s, default=0.0)

    def set_description(self, desc: str | None = None) -> None:
        self.began_s = time.monotonic()
        if self.began_s + self.expected_s > self.ends_s:
            raise OutOfTime
        self.bar.set_description(desc)

    def update(self, n: float = 1) -> bool | None:
        if self.began_s:
            self.took_s.append(time.monotonic() - self.began_s)
        return self.bar.update(n)

    def set_postfix_str(self, s: str = "") -> None:
        self.bar.set_postfix_str(s)

    def close(self) -> None:
        self.bar.close()


@dataclass(frozen=True)
class Asked:
    """What is compared. runs: one device first, then placements in the order in which they are measured. refused: why others cannot be."""

    runs: list[Run]
    refused: dict[str, str]


def steps_for(described: Described, device_type: str, devices: int, slice_s: float) -> int:
    """How many steps a Run times: on CPUs what a slice of the budget allows, on GPUs, which nobody has asked yet, 50."""
    if device_type == "cuda":
        return 50
    expected_s = described.step_here_s * devices
    return max((count for count in STEPS if count * expected_s <= slice_s), default=STEPS[0])


def asked_runs(
    job: Job, described: Described, names: Sequence[str] | Literal["all"], devices: int, device_type: str, budget_s: float
) -> Asked:
    """The Runs of these placements and of one device.

    Raises:
        ValueError: a placement is unknown, or none can be had; the sentence says why.
    """
    every = [name for name, row in placements().items() if any(engine.framework == "torch" for engine in row.engines)]
    for name in names if names != "all" else ():
        find_placement(name)
    wanted = every if names == "all" else [*names, *({"independent"} - set(names))]  # replicas that share nothing tell what sharing costs
    wanted = sorted(wanted, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    steps = steps_for(described, device_type, devices, budget_s / (3 * (len(wanted) + 1)))
    warmup = 10 if device_type == "cuda" else 3
    fixed = {"workload": "own", "model": described.name, "inputs": "own", "batch_size": job.batch_size, "precision": job.precision}
    fixed |= {"device_type": device_type, "warmup_steps": warmup, "timed_steps": steps}
    # processes share a computer's cores: one of them alone gets no more
    share = {"host_cores": max(1, cores_here() // devices)} if device_type == "cpu" else {}
    runs, refused = [build_run(placement="ddp", devices=1, **share, **fixed)], {}
    for name in wanted:
        try:
            least = max(warmup, find_placement(name).semantics.every)  # a cycle's bytes are counted before it is timed
            runs.append(build_run(placement=name, devices=devices, **fixed | {"warmup_steps": least}))
        except ValueError as error:
            refused[name] = str(error)
    if not {run.placement for run in runs[1:]} & set(every if names == "all" else names):
        raise ValueError("; ".join(refused.values()) or "no placement was named: choose placements='all' or names of some")
    return Asked(runs, refused)


def measured_within(points: Sequence[Point], store: RecordStore, bar: Budget) -> None:
    """Measure the points in their order, in as few launches as can be, until the budget ends; what was measured is kept."""
    order = {(point.run, point.repeat): place for place, point in enumerate(points)}
    with turn(), contextlib.suppress(OutOfTime):
        for launch in dict.fromkeys(map(launch_of, points)):
            with scratch_folder("multigpu-compare-") as scratch, memory_folder() as memory:
                plan, known = make_plan([point for point in points if launch_of(point) == launch], store.root, scratch, memory, AGAIN)
                items = sorted(plan.items, key=lambda item: order[item.run, item.repeat])
                bar.update(known)
                if items:
                    launch_plan(plan.model_copy(update={"items": items}), bar, Summary())


def found_records(points: Sequence[Point], store: RecordStore) -> list[Record]:
    """The Records of these points on this machine, the latest attempt of each."""
    found = (store.find(this_machine().name, key_here(point.run, point.repeat)) for point in points)
    return [record for record in found if record is not None]


def compare(
    job: Job | str,
    devices: int | None = None,
    placements: Sequence[str] | Literal["all"] = "all",
    budget_s: float = 120.0,
    out: str | Path = "multigpu-compare",
    device_type: Literal["auto", "cuda", "cpu"] = "auto",
    repeats: int = 5,
    progress: bool = True,
) -> Result:
    """Train a job under placements and say which is fastest, by how much, and why it is no faster.

    Every placement is first compared with one process on the joined batch. The same call goes on where it was stopped.

    Args:
        job: a `Job`, or "FILE.py:NAME" of one. devices: GPUs, or processes where there are none (None: all GPUs, or 2 processes).
        budget_s: seconds for all of it; what did not fit in is said. repeats: of each placement, all once before any again.
        out: a folder for the Records and the page, index.html.

    Raises:
        ValueError: the job cannot be trained, or nothing of it fits the budget; one sentence says why.
    """
    began_s = time.monotonic()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError(
            "compare starts processes of its own: call it without torchrun, and multigpu.compared(folder) in a script under it"
        )
    named = job if isinstance(job, str) else ""
    loaded = load_job(job) if isinstance(job, str) else job
    if not isinstance(loaded, Job):
        raise ValueError(f"job = {job!r}: give a multigpu.Job, or FILE.py:NAME of one")
    kind = ("cuda" if gpu_count() else "cpu") if device_type == "auto" else device_type
    count = devices or (gpu_count() if kind == "cuda" else 2)
    if count < 2:
        raise ValueError(f"devices = {count}: placements are compared on 2 devices or more; device_type='cpu' takes processes for devices")
    if budget_s <= LAUNCH_S:
        raise ValueError(f"budget_s = {budget_s:g} is too short for one placement: processes alone take {LAUNCH_S:g} s to start")
    folder = Path(out).resolve()
    know(folder / "jobs")
    described = describe(loaded, folder / "jobs", count, named, timed=kind == "cpu")
    asked = asked_runs(loaded, described, placements, count, kind, budget_s)
    for run in asked.runs:
        check_devices(run)
    needed_s = time.monotonic() - began_s + LAUNCH_S + (described.step_here_s * 5 if kind == "cpu" else 0)
    if needed_s > budget_s:
        raise ValueError(f"budget_s = {budget_s:g} is too short for one placement of this job, which takes {needed_s:.0f} s or more")
    store = RecordStore(folder / "records")
    store.check_writable(this_machine().name)
    points = [Point(run, repeat, timeout_s=max(30.0, budget_s)) for repeat in range(repeats) for run in asked.runs]

    def result_of() -> Result:
        return Result.of(described, asked.runs, asked.refused, found_records(points, store), folder, budget_s)

    share = 1 - TRACE_SHARE if budget_s >= LEAST_TRACED_S else 1.0
    bar = Budget(new_bar(len(points), progress), began_s + share * budget_s)
    measured_within(points, store, bar)
    fastest, bar.ends_s = result_of().fastest, began_s + budget_s
    if fastest is not None and time.monotonic() + LAUNCH_S + bar.expected_s < bar.ends_s:
        points.append(Point(traced(fastest.run, TRACED_STEPS), timeout_s=max(30.0, budget_s)))
        measured_within(points[-1:], store, bar)
    bar.close()
    result = result_of()
    if not result.names:
        ended = f"budget_s = {budget_s:g} ended before one placement was measured: give more"
        raise JobError(next(iter(result.failed.values()), ended))
    result.keep()
    result.write_page()
    return result
