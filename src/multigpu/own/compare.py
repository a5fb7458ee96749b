"""`compare`: a user's job under the study's placements, within a budget of time."""

import argparse
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from multigpu.analysis.limits import bound_units_per_s
from multigpu.grid import traced
from multigpu.kept import STATUSES
from multigpu.measure.held import memory_folder, scratch_folder, turn
from multigpu.measure.machine import cores_here, gpu_count, this_machine
from multigpu.measure.point import Point, launch_of, records_here
from multigpu.measure.process import WITH_KERAS
from multigpu.measure.summary import Summary, tqdm
from multigpu.measure.sweep import launch_plan, make_plan
from multigpu.measure.timed import TIMED, check_devices, item_of
from multigpu.own.examine import describe
from multigpu.own.page import lines
from multigpu.own.result import Result, keep, kept_runs
from multigpu.placements import find_placement, placements
from multigpu.record import RecordStore
from multigpu.run import Run, build_run
from multigpu.workloads.own.description import Described, know, model_of
from multigpu.workloads.own.job import Job, JobError, load_job

FIRST = ("ddp", "mirrored_nccl", "independent", "replicated_allreduce", "exp4", "exp2", "ps_gpu0")
"""Measured in this order before all others: a budget may end after any of them."""

ALONE = {
    "torch": ("ddp", ("eager", "captured")),
    "tensorflow": ("replicated_allreduce", ("graph",)),
}
"""Of each framework, the placement in which one device trains alone, and the forms in which a step
is launched (the second on GPUs).
"""

STEPS = (5, 10, 20, 50, 100, 200, 500)  # so many may be timed at once
TRACED_STEPS = 3
WINDOW_S = 2.0  # that the timed steps of a Run may take
LAUNCH_S = 4.0  # that processes take to start, at least
LEAVING_S = 2.0  # kept for ending processes and for writing the page
# of a budget of so many seconds or more, what is kept for a trace of the fastest placement
TRACE_SHARE, LEAST_TRACED_S = (
    0.2,
    60.0,
)
FIRST_SHARE = 1 / 3  # of what is left of the budget, what a launch may take that others follow
OF_PASSES = 3  # a step with its update and its merge is taken for so many times its passes alone
# of its ceilings, what an untimed step on a GPU is taken to reach; and the shortest that it may be
OF_BOUND, DISPATCHED_S = (
    0.3,
    0.002,
)
# what ended so is tried again when it is compared again
AGAIN = tuple(status for status in STATUSES if status != "ok")


class OutOfTime(Exception):
    """The budget is used up, or what of it one launch may take."""


class Budget(tqdm):
    """A progress bar that ends a launch where the next Run would not fit. ends_s: when all ends;
    share_s: when this launch should.
    """

    def __init__(self, total: int, progress: bool) -> None:
        self.ends_s, self.share_s = 0.0, 0.0
        self.took_s, self.label, self.began_s = dict[str, float](), "", 0.0
        self.done, self.opening_s = 0, LAUNCH_S
        super().__init__(total=total, unit="run", disable=not progress, smoothing=0.1)

    def begin(self, launches: int) -> None:
        """Begin the first of so many launches, if a Run would be done in time as the first one was
        in the longest of those before.
        """
        self.done, self.label, self.began_s = 0, "", time.monotonic()
        self.share_s = self.began_s + (self.ends_s - self.began_s) * (
            1 if launches == 1 else FIRST_SHARE
        )
        if self.began_s + self.opening_s > self.ends_s:
            raise OutOfTime

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        self.label = desc or ""
        if self.done:
            self.began_s = time.monotonic()
            expected_s = self.took_s.get(self.label, min(self.took_s.values(), default=0.0))
            if self.began_s + expected_s > (self.share_s if self.done > 1 else self.ends_s):
                raise OutOfTime
        super().set_description(desc, refresh)

    def update(self, n: float | None = 1) -> bool | None:
        took_s = time.monotonic() - self.began_s
        if self.label and self.done:
            self.took_s[self.label] = took_s
        elif self.label:
            self.opening_s = max(self.opening_s, took_s)
        self.done += bool(self.label)
        return super().update(n)


def steps_for(
    job: Job, described: Described, folder: Path, device_type: str, devices: int, slice_s: float
) -> int:
    """How many steps a Run times: those of the comparison in this folder, so that it goes on, or
    else what a slice of the budget allows.
    """
    if known := [
        run for run in kept_runs(folder, described.name) if run.device_type == device_type
    ]:
        return known[0].timed_steps
    expected_s = described.step_here_s * devices * OF_PASSES
    if device_type == "cuda":
        bound = bound_units_per_s(
            model_of(described, folder), this_machine().gpus[0], job.precision, 1, 1.0
        )
        expected_s = max(DISPATCHED_S, job.batch_size / (OF_BOUND * bound.units_per_s))
    return max(
        (count for count in STEPS if count * expected_s <= min(WINDOW_S, slice_s)), default=STEPS[0]
    )


def asked_runs(
    job: Job,
    described: Described,
    folder: Path,
    names: Sequence[str] | Literal["all"],
    devices: int,
    device_type: str,
    a_repeat_s: float,
) -> tuple[list[Run], dict[str, str]]:
    """The Runs of one device and of these placements in their order, on GPUs some as one CUDA graph
    too; and why others cannot be.
    """
    every = [
        name
        for name, row in placements().items()
        if any(engine.framework == described.framework for engine in row.engines)
    ]
    for name in names if names != "all" else ():
        find_placement(name)
    # replicas that share nothing tell what sharing costs
    wanted = every if names == "all" else [*names, *({"independent"} - set(names))]
    wanted = sorted(wanted, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    steps = steps_for(job, described, folder, device_type, devices, a_repeat_s / (len(wanted) + 1))
    fixed = {
        "workload": "own",
        "model": described.name,
        "inputs": "own",
        "batch_size": job.batch_size,
        "precision": job.precision,
    }
    fixed |= {
        "device_type": device_type,
        "warmup_steps": 10,
        "timed_steps": steps,
        "framework": described.framework,
    }
    fixed |= {"processes": "one"} if described.framework == "tensorflow" else {}
    # processes share a computer's cores: one of them alone gets no more
    share = {"host_cores": max(1, cores_here() // devices)} if device_type == "cpu" else {}
    alone, forms = ALONE[described.framework]
    forms = forms if device_type == "cuda" else forms[:1]
    runs, refused = (
        [build_run(placement=alone, devices=1, execution=form, **share, **fixed) for form in forms],
        dict[str, str](),
    )
    for name in wanted if devices > 1 else ():
        try:
            own = forms if name == alone else forms[:1]
            runs += [
                build_run(placement=name, devices=devices, execution=form, **fixed) for form in own
            ]
        except ValueError as error:
            refused[name] = str(error)
    if devices > 1 and not {run.placement for run in runs if run.devices > 1} & set(
        every if names == "all" else names
    ):
        raise ValueError(
            "; ".join(refused.values())
            or "no placement was named: choose placements='all' or names of some"
        )
    return runs, refused


def measured_within(points: Sequence[Point], store: RecordStore, bar: Budget) -> None:
    """Measure the points in order, in as few launches as can be, until the budget ends; first a few
    steps, since a launch begins cold.
    """
    order = {(point.run, point.repeat): place for place, point in enumerate(points)}
    launches = list(dict.fromkeys(map(launch_of, points)))
    for place, launch in enumerate(launches):
        with (
            scratch_folder("multigpu-compare-") as scratch,
            memory_folder() as memory,
            contextlib.suppress(OutOfTime),
        ):
            own = [item_of(point) for point in points if launch_of(point) == launch]
            plan, known = make_plan(
                TIMED, own, store.root, scratch, memory, AGAIN, environment=WITH_KERAS
            )
            items = sorted(plan.items, key=lambda item: order[item.run, item.repeat])
            bar.label = ""
            bar.update(known)
            if items:
                bar.begin(len(launches) - place)
                cold = items[0].model_copy(
                    update={
                        "run": items[0].run.model_copy(update={"timed_steps": STEPS[0]}),
                        "repeat": 0,
                    }
                )
                attempt = store.next_attempt(plan.machine, plan.key(cold))
                items = [cold.model_copy(update={"attempt": attempt}), *items]
                launch_plan(plan.model_copy(update={"items": items}), bar, Summary())


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
    """Train a job under placements and say which is fastest, by how much, and why it is no faster;
    a ValueError says why it cannot be done.

    Every placement is first compared with one process on the joined batch. The same call goes on
    where it was stopped.

    Args:
        job: a `Job`, or "FILE.py:NAME" of one. devices: GPUs, or processes where there are none
            (None: all GPUs, or 2 processes). On one GPU steps that the host launches are compared
                with steps that are captured as a CUDA graph, and more GPUs are forecast.
        budget_s: seconds for all of it; what did not fit in is said. repeats: of each placement,
            all once before any again.
        out: a folder for the Records and the page, index.html.
    """
    began_s = time.monotonic()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError(
            "compare starts processes of its own: call it without torchrun, and under it"
            " multigpu.compared(folder)"
        )
    named = job if isinstance(job, str) else ""
    loaded = load_job(job) if isinstance(job, str) else job
    if not isinstance(loaded, Job):
        raise ValueError(f"job = {job!r}: give a multigpu.Job, or FILE.py:NAME of one")
    kind = ("cuda" if gpu_count() else "cpu") if device_type == "auto" else device_type
    count = devices or (gpu_count() if kind == "cuda" else 2)
    if count < (2 if kind == "cpu" else 1):
        raise ValueError(
            f"devices = {count}: placements are compared on 2 processes or more, and on GPUs"
        )
    if budget_s <= LAUNCH_S:
        raise ValueError(
            f"budget_s = {budget_s:g} is too short for one placement: processes alone take"
            f" {LAUNCH_S:g} s to start"
        )
    folder = Path(out).resolve()
    know(folder / "jobs")
    described = describe(loaded, folder / "jobs", count, named, timed=kind == "cpu")
    runs, refused = asked_runs(
        loaded, described, folder, placements, count, kind, budget_s / (OF_PASSES * repeats)
    )
    for run in runs:
        check_devices(run)
    needed_s = time.monotonic() - began_s + LAUNCH_S + LEAVING_S + described.step_here_s * STEPS[0]
    if needed_s > budget_s:
        raise ValueError(
            f"budget_s = {budget_s:g} is too short for one placement of this job, which takes"
            f" {needed_s:.0f} s or more"
        )
    store = RecordStore(folder / "records")
    store.check_writable(this_machine().name)
    keep(folder, described, runs, refused, budget_s)
    points = [
        Point(run, repeat, timeout_s=max(30.0, budget_s))
        for repeat in range(repeats)
        for run in runs
    ]

    def result_of() -> Result:
        return Result.of(described, runs, refused, records_here(points, store), folder, budget_s)

    share = 1 - TRACE_SHARE if budget_s >= LEAST_TRACED_S else 1.0
    bar = Budget(len(points) + len(set(map(launch_of, points))) + 2, progress)
    asked_s = time.monotonic()
    with turn():
        began_s += time.monotonic() - asked_s  # waiting for another's sweep costs nobody's budget
        bar.ends_s = began_s + share * budget_s - LEAVING_S
        measured_within(points, store, bar)
        found, bar.ends_s = result_of(), began_s + budget_s - LEAVING_S
        if found.names:
            slow = (found.fastest or found[found.names[0]]).run
            points.append(Point(traced(slow, TRACED_STEPS), timeout_s=max(30.0, budget_s)))
            measured_within(points[-1:], store, bar)
    bar.close()
    result = result_of()
    if not result.names:
        ended = f"budget_s = {budget_s:g} ended before one placement was measured: give more"
        raise JobError(next(iter(result.failed.values()), ended))
    result.write_page()
    return result


def compare_command(arguments: argparse.Namespace) -> int:
    """Compare the placements of a user's job; the exit code."""
    names = "all" if arguments.placements == "all" else arguments.placements.split(",")
    same = ("job", "devices", "budget_s", "out", "device_type", "repeats")
    result = compare(
        **{name: getattr(arguments, name) for name in same},
        placements=names,
        progress=not arguments.quiet,
    )
    print("\n".join(lines(result)))
    return 0
