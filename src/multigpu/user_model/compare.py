"""`compare`: a user's job under the study's placements, within a budget of time."""

import argparse
import contextlib
import importlib
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Literal

from multigpu.engines.common.checked import EQUALITY_KNOWN, way_of
from multigpu.grids import traced
from multigpu.machine.lock import machine_lock
from multigpu.machine.machine import gpu_count, this_machine
from multigpu.machine.process import WITH_KERAS
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point, records_here
from multigpu.runner.timed import check_devices
from multigpu.spec.errors import JobError
from multigpu.user_model.budget import CUT_S, LAUNCH_S, LEAVING_S, Budget, patience_for
from multigpu.user_model.candidates import (
    OF_PASSES,
    STEPS,
    candidate_runs,
    check_count,
    check_named,
)
from multigpu.user_model.examining import examine_apart as examine
from multigpu.user_model.fits import those_that_fit
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import TURNS, measured_within, raced, shared_launch
from multigpu.user_model.lookout import Lookout
from multigpu.user_model.page import lines
from multigpu.user_model.placed import called
from multigpu.user_model.result import Result
from multigpu.workloads.own.description import know, without_values
from multigpu.workloads.own.job import Job

TRACED_STEPS = 5
AHEAD_S = 2.0  # that reading ahead may keep a comparison from its first launch
# of a budget of so many seconds or more, what is kept for a trace of the fastest placement at most;
# and how many Runs of the race those of a traced launch take as long as
TRACE_SHARE, LEAST_TRACED_S, TRACED_RUNS = 0.2, 60.0, 4


@contextlib.contextmanager
def read_ahead() -> Iterator[None]:
    """While this process waits for another: load what draws the page, which takes seconds."""

    def read() -> None:
        with contextlib.suppress(ImportError):  # the page says what is missing
            importlib.import_module("multigpu.analysis.plots")

    reading = Thread(target=read, daemon=True)
    reading.start()
    yield
    reading.join(AHEAD_S)  # the rest may be read while processes start


def devices_asked(
    devices: int | None, device_type: Literal["auto", "cuda", "cpu"]
) -> tuple[Literal["cuda", "cpu"], int]:
    """Choose the kind of device and how many; a ValueError where this machine has no such ones."""
    kind = ("cuda" if gpu_count() else "cpu") if device_type == "auto" else device_type
    count = devices or (gpu_count() if kind == "cuda" else 2)
    if count < (2 if kind == "cpu" else 1):
        raise ValueError(
            f"devices = {count}: placements are compared on 2 processes or more, and on GPUs"
        )
    check_count(kind, count)
    return kind, count


def compare(
    job: Job | str,
    devices: int | None = None,
    placements: Sequence[str] | Literal["all"] = "all",
    budget_s: float = 120.0,
    out: str | Path = "multigpu-compare",
    device_type: Literal["auto", "cuda", "cpu"] = "auto",
    repeats: int = 5,
    progress: bool = True,
    levers: Sequence[str] | Literal["all"] | None = None,
) -> Result:
    """Train a job under placements and say which is fastest, by how much, and why it is no faster;
    a ValueError says why it cannot be done.

    Every placement is first compared with one process on the global batch. The same call goes on
    where it was stopped. The job is examined and trained in processes of its own: where its code
    hangs, crashes or ends its process, a sentence says which rank did and in which of its lines,
    and the other placements go on.

    Args:
        job: a `Job`, or "FILE.py:NAME" of one. devices: GPUs, or processes where there are none
            (None: all GPUs, or 2 processes). On one GPU steps that the host launches are compared
                with steps that are captured as a CUDA graph, and more GPUs are forecast.
        budget_s: seconds for all of it, the examination and the page included, held within 10% or 5
            s; what did not fit in is said, with its seconds. repeats: launches of each way, at
            most: first of one way of each family and of the fastest, then of all others, and then
            of those that are not told apart from the fastest (`race`).
        out: a folder for the Records and the page, index.html, which stands from the first launch
            on and is written anew after each.
        levers: what is tried of each placement beside the plain form: "compiled", "captured" (GPUs
            alone), both together where both are named, "recompute", "micro_steps", "precision";
            "all": all but the last, which trains with other numbers and is never called equal.
            None: on GPUs compiled and captured steps of the usual placements, on CPUs none.

    Raises:
        JobError: a ValueError: the job cannot be trained, or nothing was measured in time. Where it
            trains on one device and under no placement, the page is written all the same.
    """
    began_s = time.monotonic()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError(
            "compare starts processes of its own: call it without torchrun, and under it"
            " multigpu.compared(folder)"
        )
    if not isinstance(job, Job | str):
        raise ValueError(f"job = {job!r}: give a multigpu.Job, or FILE.py:NAME of one")
    kind, count = devices_asked(devices, device_type)
    check_named(placements, levers, kind)  # before a job is examined, which takes seconds
    if budget_s <= LAUNCH_S:
        raise ValueError(
            f"budget_s = {budget_s:g} is too short for one placement: processes alone take"
            f" {LAUNCH_S:g} s to start"
        )
    folder = Path(out).resolve()
    know(folder / "jobs")
    kept_s = time.monotonic() - began_s + LAUNCH_S + LEAVING_S
    with read_ahead():
        examined = examine(
            job, folder / "jobs", count, kind == "cpu", max(LAUNCH_S, budget_s - kept_s)
        )
    described = examined.described
    each_s = budget_s / (OF_PASSES * repeats)
    runs, refused = candidate_runs(
        examined, described, folder, placements, count, kind, each_s, levers
    )
    for run in runs:
        check_devices(run)
    runs, too_large = those_that_fit(runs, described, this_machine())
    refused |= too_large
    if not [run for run in runs if run.devices == count]:
        name, why = next(iter(too_large.items()))
        raise JobError(f"{described.name} fits under no placement asked for: {name}: {why}")
    needed_s = time.monotonic() - began_s + LAUNCH_S + LEAVING_S + described.step_here_s * STEPS[0]
    if needed_s > budget_s:
        raise ValueError(
            f"budget_s = {budget_s:g} is too short for one placement of this job, which takes"
            f" {needed_s:.0f} s or more"
        )
    store = RecordStore(folder / "records")
    store.check_writable(this_machine().name)
    keep(folder, described, runs, refused, budget_s)
    timeout_s = max(30.0, budget_s)
    points = [Point(run, repeat) for repeat in range(TURNS * (repeats + 2)) for run in runs]

    def result_of() -> Result:
        return Result.of(described, runs, refused, records_here(points, store), folder, budget_s)

    bar = Budget(TURNS * len(runs), progress)
    asked_s = time.monotonic()
    with without_values(folder / "jobs"), machine_lock():
        began_s += time.monotonic() - asked_s  # waiting for another's sweep costs nobody's budget
        lookout = Lookout(
            began_s + budget_s - CUT_S,
            patience_for(kind, budget_s, described.step_here_s * count * OF_PASSES),
        )
        ends_s, looked = began_s + budget_s - LEAVING_S, list[Point]()

        def kept_for_trace() -> float:
            """Seconds that the race leaves for a trace: of a launch and of the Runs in it."""
            if budget_s < LEAST_TRACED_S or looked:
                return 0.0
            known_s = bar.opening_s + TRACED_RUNS * max(bar.took_s.values(), default=math.inf)
            return min(TRACE_SHARE * budget_s, known_s)

        bar.ends_s = ends_s - kept_for_trace()

        def tell() -> None:
            """Write what stands so far: the page of a comparison that still goes on."""
            if (found := result_of()).names:
                found.write_page(is_over=False)
                bar.set_postfix_str(str(found.ahead or found.chosen(None)))

        def environment() -> dict[str, str]:
            """What a launch is told: the ways that were compared with one process already."""
            done = [record.run for record in records_here(points, store) if record.status == "ok"]
            return WITH_KERAS | {EQUALITY_KNOWN: ",".join({way_of(run).digest for run in done})}

        def measure(chosen: Sequence[Point]) -> list[str]:
            bar.total = max(
                bar.total or 0, bar.n + len(chosen) + len(set(map(shared_launch, chosen)))
            )
            troubles = measured_within(chosen, store, bar, lookout, environment, tell)
            bar.ends_s = ends_s - kept_for_trace()
            return troubles

        troubles = raced(result_of, measure, repeats, timeout_s, lambda: bar.is_over)
        found = result_of()
        if found.names:
            shown = [found.chosen(None).run, *([found.base.run] if found.base else [])]
            runs_traced = dict.fromkeys(traced(run, TRACED_STEPS) for run in shown)
            looked += [Point(run, timeout_s=timeout_s) for run in runs_traced]
            points += looked
            bar.ends_s = ends_s
            troubles += measure(looked)
            # what a trace left of its time
            troubles += raced(result_of, measure, repeats, timeout_s, lambda: bar.is_over)
    bar.close()
    return concluded(result_of(), troubles, budget_s, lookout.trouble or "give more", count)


def concluded(
    result: Result, troubles: Sequence[str], budget_s: float, advice: str, devices: int
) -> Result:
    """Write the page and return the result; a JobError where nothing was measured, or where no
    placement on several devices can train the job.
    """
    if not result.names:
        ended = f"budget_s = {budget_s:g} ended before one placement was measured"
        failed = [f"{name} failed: {why}" for name, why in result.failed.items()]
        raise JobError(next(iter([*failed, *troubles]), f"{ended}: {advice}"))
    for trouble in troubles:
        print(f"multigpu: {trouble}", file=sys.stderr)
    page = result.write_page()
    if why := broken(result):
        raise JobError(f"no placement on {devices} devices can train it: {why}; see {page}")
    return result


def broken(result: Result) -> str:
    """Why a job that trains on one device trains under no placement on several; "": it does, or
    what kept it from that is memory, the budget or a placement's own limits.
    """
    several = [run for run in result.runs if run.devices > 1]
    if any(called(run) in result.names for run in several):
        return ""
    faults = [
        f"{called(record.run)} failed: {record.reason.removeprefix('JobError: ')}"
        for record in result.records
        if record.run.devices > 1 and record.status in ("failed", "timeout")
    ]
    return next(iter(faults), "")


def compare_command(arguments: argparse.Namespace) -> int:
    """Compare a job's placements; exit code 2: it cannot be trained, 130: Ctrl-C."""
    names = "all" if arguments.placements == "all" else arguments.placements.split(",")
    same = ("job", "devices", "budget_s", "out", "device_type", "repeats")
    try:
        result = compare(
            **{name: getattr(arguments, name) for name in same},
            placements=names,
            levers=arguments.levers,
            progress=not arguments.quiet,
        )
    except KeyboardInterrupt:
        kept = f"what was measured is kept in {arguments.out}, and the same command goes on there"
        print(f"multigpu: stopped; {kept}", file=sys.stderr)
        return 130
    print("\n".join(lines(result)))
    return 0
