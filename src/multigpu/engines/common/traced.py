"""From a profiler's words on a few steps to what a Record keeps, for every framework:
`replica_trace` makes a replica's part, and `joined` puts all on one clock.
"""

import gzip
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from multigpu.engines.common.timeline import with_parts
from multigpu.records.intervals import Span, coalesced, hull, length, uncovered
from multigpu.records.trace import (
    COPIES,
    MOST_SPANS,
    PHASES,
    TOP_KERNELS,
    CopyTotals,
    HostTotals,
    KernelTotals,
    Kind,
    LayerTotals,
    Missing,
    Phase,
    ReplicaTrace,
    StepTrace,
    TraceSummary,
)
from multigpu.spec.run import Run

TRACES = "MULTIGPU_TRACES"
"""Names a folder for full traces, as Perfetto (Chrome's format) or XProf (XSpace) reads them."""

UPDATE_KERNEL = re.compile(
    r"fused_?(adam|sgd)|apply_?(adam|momentum|gradient_?descent)", re.IGNORECASE
)
"""Kernels of optimizers, by which a captured step's update is told from its gradients."""


@dataclass(frozen=True)
class Activity:
    """Something a device did, on the host's clock in ns. step: index among the traced ones, None
    outside of them. phase: that launched it.
    launch: whatever tells one from another; None: unlinked. kernel: whether it counts as one.
    """

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    step: int | None
    phase: Phase | None = None
    launch: object = None
    bytes: int = 0
    kernel: bool = True

    @property
    def span(self) -> Span:
        return (self.start_ns, self.end_ns)


@dataclass(frozen=True)
class Host:
    """The host's own summing and updating for a replica in a phase of a step."""

    step: int
    phase: Phase
    start_ns: int
    end_ns: int


def keep_whole(run: Run, kind: str, trace: bytes) -> None:
    """Write a profiler's whole trace, packed, to `NAME.kind.gz` if `TRACES` names a folder."""
    if folder := os.environ.get(TRACES):
        Path(folder).mkdir(parents=True, exist_ok=True)
        label = re.sub(r"[^A-Za-z0-9.]+", "-", run.label()).strip("-")
        Path(folder, f"{label}.{run.digest}.{kind}.gz").write_bytes(gzip.compress(trace))


def named_phases(
    activities: Sequence[Activity], update_in_backward: bool = False
) -> tuple[list[Activity], Missing]:
    """The activities of steps whose host ranges say nothing (one captured graph) with phases told
    by names.

    Collectives that reduce are the merge, optimizers' kernels the update, and other kernels up to
    the update's start forward and backward together, unless updates run beside what is left of
    backward (`update_in_backward`). Plain sends and receives may be pull or merge: where there are
    some, both stay unknown.
    """
    plain = any(a.kind == "collective" and "sendrecv" in a.name.lower() for a in activities)
    found: list[Activity] = []
    for index in sorted({a.step for a in activities if a.step is not None}):
        step = [a for a in activities if a.step == index]
        last = min((a.start_ns for a in step if UPDATE_KERNEL.search(a.name)), default=None)
        for a in step:
            phase: Phase | None = None
            if a.kind == "collective":
                phase = None if plain else "merge"
            elif UPDATE_KERNEL.search(a.name):
                phase = "update"
            elif (
                a.kind == "compute"
                and not update_in_backward
                and (last is None or a.start_ns < last)
            ):
                phase = "forward_backward"
            found.append(replace(a, phase=phase))
    unknown: tuple[Phase, ...] = ("forward", "backward")
    why = "the step is one captured graph, and where backward begins in it is not known"
    if update_in_backward:
        unknown += ("forward_backward",)
        why = (
            "the step is one captured graph with updates beside backward, and where backward begins"
            " and ends in it is not known"
        )
    missing: Missing = dict.fromkeys(unknown, why)
    if plain:
        missing |= dict.fromkeys(
            ("pull", "merge"), "the step is one captured graph, and its sends are not told apart"
        )
    return found + [a for a in activities if a.step is None], missing


def _phases(step: Sequence[Activity], host: Sequence[Host]) -> dict[Phase, Span]:
    """(start, end) of each phase in ns, from the first to the last thing launched in it.
    Collectives launched during backward are the merge's: backward ends with its own kernels.
    """
    spans: dict[Phase, list[Span]] = defaultdict(list)
    for a in step:
        if a.kind == "collective" and a.phase in ("forward", "backward"):
            spans["merge"].append(a.span)
        elif a.phase:
            spans[a.phase].append(a.span)
    for work in host:
        spans[work.phase].append((work.start_ns, work.end_ns))
    return {phase: found for phase in PHASES if (found := hull(spans[phase]))}


def replica_trace(
    rank: int,
    activities: Sequence[Activity],
    host: Sequence[Host],
    steps: Sequence[tuple[int, int]],
    source: Literal["kineto", "xplane"],
    missing: Missing,
    lead_ns: int | None = None,
) -> dict[str, Any]:
    """One replica's part of a trace, for `joined`. steps: each call on the host, in ns."""
    origin = steps[0][0] if steps else 0

    def seconds(span: Span) -> tuple[float, float]:
        return (round((span[0] - origin) * 1e-9, 8), round((span[1] - origin) * 1e-9, 8))

    traced = []
    for index, (begin, end) in enumerate(steps):
        step = [a for a in activities if a.step == index]
        work = [h for h in host if h.step == index]
        compute = [a.span for a in step if a.kind == "compute"]
        sent = [a.span for a in step if a.kind != "compute"]
        collectives = [a.span for a in step if a.kind == "collective"]
        whole = seconds(
            hull([*compute, *sent, *((h.start_ns, h.end_ns) for h in work)]) or (begin, end)
        )
        traced.append(
            StepTrace(
                start_s=whole[0],
                end_s=whole[1],
                host_s=round((end - begin) * 1e-9, 8),
                phases={phase: seconds(span) for phase, span in _phases(step, work).items()},
                kernels=sum(a.kernel for a in step),
                launches=len({a.launch for a in step if a.launch is not None}),
                busy_s=round(length([*compute, *sent]) * 1e-9, 8),
                communication_s=round(length(sent) * 1e-9, 8),
                exposed_s=round(uncovered(sent, compute) * 1e-9, 8),
                exposed_copies_s=round(uncovered(sent, [*compute, *collectives]) * 1e-9, 8),
                communication=[seconds(span) for span in coalesced(sent, MOST_SPANS)],
            )
        )
    inside = [a for a in activities if a.step is not None]
    replica = ReplicaTrace(
        rank=rank,
        steps=traced,
        copies=[
            _copies(kind, own) for kind in COPIES if (own := [a for a in inside if a.kind == kind])
        ],
        unlinked=sum(a.launch is None for a in inside),
        launch_lead_s=None if lead_ns is None else lead_ns * 1e-9,
        device_time_s=round(sum(a.end_ns - a.start_ns for a in inside) * 1e-9, 9),
    )
    return {
        "origin_ns": origin,
        "replica": replica.model_dump(),
        "kernels": _top(inside),
        "source": source,
        "missing": missing,
    }


def _copies(kind: Kind, copies: Sequence[Activity]) -> CopyTotals:
    times = [round((a.end_ns - a.start_ns) * 1e-9, 9) for a in copies]
    least, most, total = min(times), max(times), sum(a.bytes for a in copies)
    seconds = {"total_s": round(sum(times), 9), "min_s": least, "max_s": most}
    return CopyTotals(kind=kind, calls=len(copies), bytes=total, **seconds)


def _top(activities: Iterable[Activity]) -> list[tuple[str, int, float, float, float]]:
    """The replica's dearest kernels: name, calls, seconds, shortest, longest."""
    times: dict[str, list[float]] = defaultdict(list)
    for a in activities:
        if a.kernel:
            times[short_name(a.name)].append((a.end_ns - a.start_ns) * 1e-9)
    ranked = sorted(times.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [
        (name, len(each), sum(each), min(each), max(each))
        for name, each in ranked[: 4 * TOP_KERNELS]
    ]


def host_totals(activities: Iterable[Activity]) -> list[dict[str, Any]]:
    """The host's dearest kinds of operations by phase, as plain numbers for `joined`."""
    groups: dict[tuple[str, Phase], list[Span]] = defaultdict(list)
    for a in activities:
        if a.phase:
            groups[a.name, a.phase].append(a.span)
    totals = []
    for (name, phase), spans in groups.items():
        total_s, busy_s = (
            round(ns * 1e-9, 7) for ns in (sum(end - start for start, end in spans), length(spans))
        )
        totals.append(
            HostTotals(name=name, phase=phase, calls=len(spans), total_s=total_s, busy_s=busy_s)
        )
    return [
        one.model_dump()
        for one in sorted(totals, key=lambda one: (-one.total_s, one.name))[:TOP_KERNELS]
    ]


def short_name(name: str, most: int = 72) -> str:
    """A kernel's name with its functor's, without return type, namespaces and arguments."""
    name = name.replace("(anonymous namespace)::", "")
    base = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].strip() or name
    functor = re.search(r"(\w*(?:Functor|Op|_impl|_kernel_cuda)\w*)[<(>,{]", name[len(base) :])
    short = base.split("::")[-1] if "aten::" not in base else base
    short = f"{short} {functor.group(1)}" if functor else short
    return short if len(short) <= most else short[: most - 3] + "..."


def joined(parts: Sequence[dict[str, Any]], first_step: int | None = None) -> TraceSummary:
    """All replicas' parts on one clock, whose zero is the first start of a traced step."""
    replicas = [(ReplicaTrace(**part["replica"]), part["origin_ns"]) for part in parts]
    first = min(part["origin_ns"] for part in parts)
    starts = [
        step.start_s + (origin - first) * 1e-9
        for replica, origin in replicas
        for step in replica.steps
    ]
    zero = min(starts, default=0.0)

    def moved(span: tuple[float, float], by: float) -> tuple[float, float]:
        return (round(span[0] + by, 7), round(span[1] + by, 7))

    shifted = []
    for replica, origin in replicas:
        by = (origin - first) * 1e-9 - zero
        steps = []
        for step in replica.steps:
            start_s, end_s = moved((step.start_s, step.end_s), by)
            phases = {phase: moved(span, by) for phase, span in step.phases.items()}
            spans = [moved(span, by) for span in step.communication]
            times = {"start_s": start_s, "end_s": end_s, "phases": phases, "communication": spans}
            steps.append(step.model_copy(update=times))
        shifted.append(replica.model_copy(update={"steps": steps}))
    found: dict[str, list[list[Any]]] = defaultdict(list)
    for part in parts:
        for name, *figures in part["kernels"]:
            found[name].append(figures)
    kernels = []
    for name, each in found.items():
        calls, total, least, most = zip(*each, strict=True)
        ends = {"min_s": round(min(least), 9), "max_s": round(max(most), 9)}
        total_s = round(sum(total), 7)
        kernels.append(KernelTotals(name=name, calls=sum(calls), total_s=total_s, **ends))
    kernels.sort(key=lambda one: (-one.total_s, one.name))
    totals: dict[tuple[str, str, float], float] = defaultdict(float)
    for part in parts:
        for name, kind, share, seconds in part.get("layers", []):
            totals[name, kind, share] += seconds
    layers = [
        LayerTotals(name=name, kind=kind, share=share, total_s=round(seconds, 7))
        for (name, kind, share), seconds in sorted(totals.items(), key=lambda one: -one[1])
    ]
    missing = {phase: why for part in parts for phase, why in part["missing"].items()}
    return TraceSummary(
        source=parts[0]["source"],
        replicas=with_parts(parts, shifted),
        kernels=kernels[:TOP_KERNELS],
        missing=missing,
        first_step=first_step,
        host_operations=[HostTotals(**one) for part in parts for one in part.get("host", [])],
        layers=layers[:TOP_KERNELS],
    )
