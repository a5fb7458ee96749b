"""One step, a lane a device, coloured by phase: what each replica does when, of several Runs on the same time axis."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from multigpu.analysis.layout import grid_of_axes, name_panel
from multigpu.analysis.phases import PASSES, phase_times, skew_parts, step_time, steps_of
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import INK, RC, look
from multigpu.analysis.traces import timed_step_s, traced
from multigpu.analysis.wording import FRAMEWORK_NAMES, MODEL_NAMES, device_word, devices_text, field_text, percent_text
from multigpu.measure.trace import PHASES, Phase, StepTrace, TraceSummary
from multigpu.record import Record

WIDTH, LANE = 5.6, 0.22

LOOKS: dict[Phase, tuple[str, str, str]] = {
    "pull": ("#b07a00", "///", "pull"),
    "forward": ("#0072b2", "", "forward"),
    "backward": ("#009e73", "", "backward"),
    "forward_backward": ("#3a92cc", "", "forward and backward"),
    "merge": ("#d55e00", "...", "merge"),
    "update": ("#cc79a7", "\\\\\\", "update"),
}
"""Of each phase: colour, hatch, label."""

LEADING_SHARE = 0.02
"""A difference of skews below this share of the step is no finding: steps differ by more than that among themselves."""


def figure_step(records: Sequence[Record], step: int | None = None, finding: str | None = None) -> Picture:
    """One step of each traced Run in `records`, stacked in their order on one time axis that begins with the step.

    Args:
        records: those without a trace are left out.
        step: which traced step; unless given, of each Run the one of median length.
        finding: the title, where it is not about launch skew.
    """
    drawn = [(record, trace, _chosen(trace, step)) for record, trace in traced(records)]
    if not drawn:
        return message("No step to draw: no Record with status ok holds a trace (a Run with traced_steps above 0).")
    everyone = [record for record, _, _ in drawn]
    names = [_name(record, everyone) for record in everyone]
    titles = [f"{name}; {_lengths(record, trace)}" for name, (record, trace, _) in zip(names, drawn, strict=True)]
    with mpl.rc_context(RC):
        most = max(len(replicas) for _, _, (_, replicas) in drawn)
        finding = finding or step_finding([(record, replicas) for record, _, (_, replicas) in drawn])
        picture, axes = grid_of_axes(len(drawn), finding, WIDTH, LANE * most + 0.15, 1, left=0.85, legend=True, names=titles)
        longest = max(step_time(replicas) for _, _, (_, replicas) in drawn)
        for ax, title, (record, _, (_, replicas)) in zip(axes, titles, drawn, strict=True):
            name_panel(ax, title)
            _lanes(ax, replicas, record, most, 1e3 * longest)
        axes[-1].set_xlabel(f"ms from the step's first start, {everyone[0].run.scaling} scaling")
        used = [phase for phase in PHASES if any(phase in mine.phases for _, _, (_, replicas) in drawn for mine in replicas)]
        patches = [Patch(facecolor=LOOKS[p][0], hatch=LOOKS[p][1], edgecolor=INK, linewidth=0.4, label=LOOKS[p][2]) for p in used]
        picture.legend_line(patches)
    rows = [row for name, (record, _, (index, replicas)) in zip(names, drawn, strict=True) for row in _rows(name, record, index, replicas)]
    picture.data = pd.DataFrame(rows)
    picture.caption = _caption(drawn, step)
    picture.alt = "Lanes of one step's phases, a lane a device. " + "; ".join(
        f"{name}: {1e3 * step_time(replicas):.3g} ms" for name, (_, _, (_, replicas)) in zip(names, drawn, strict=True)
    )
    return picture


def _chosen(trace: TraceSummary, step: int | None) -> tuple[int, list[StepTrace]]:
    """A step's index and what every replica did in it: the one asked for, or the one of median length."""
    steps = steps_of(trace)
    if step is not None:
        if not 0 <= step < len(steps):
            raise ValueError(f"step {step} was not traced: choose one of 0 to {len(steps) - 1}")
        return step, steps[step]
    order = sorted(range(len(steps)), key=lambda index: step_time(steps[index]))
    index = order[(len(order) - 1) // 2]
    return index, steps[index]


def _name(record: Record, records: Sequence[Record]) -> str:
    """The placement, the devices, and what else tells this Run from the others of the picture."""
    run = record.run
    row = run.model_dump()
    fields = ["model", "batch_size", "precision", "execution", "cross_entropy", "recurrence", "processes", "micro_batches", "framework"]
    fields += ["feed", "stage_devices"]
    differ = [name for name in fields if len({getattr(other.run, name) for other in records}) > 1 or name == "model"]
    told = ["a loop of cells" if name == "recurrence" and run.recurrence == "stepwise" else field_text(row, name) for name in differ]
    if "processes" in differ and run.processes != "one":
        told[differ.index("processes")] = _a_process(record)
    return ", ".join(part for part in [look(run.placement).label, devices_text(run.devices, run.device_type), *told] if part)


def _a_process(record: Record) -> str:
    return f"a process a {device_word(record.run.device_type)}" if record.run.device_type == "cuda" else "a process a device"


def _lengths(record: Record, trace: TraceSummary) -> str:
    """How long a step takes without the profiler and under it: where these differ much, the lanes show the profiler."""
    return f"{1e3 * timed_step_s(record):.3g} ms timed, {1e3 * median(step_time(replicas) for replicas in steps_of(trace)):.3g} ms traced"


def _lanes(ax: Axes, replicas: Sequence[StepTrace], record: Record, most: int, longest_ms: float) -> None:
    zero = min(mine.start_s for mine in replicas)
    for lane, mine in enumerate(replicas):
        y = len(replicas) - 1 - lane
        for phase, (start, end) in mine.phases.items():
            colour, hatch, _ = LOOKS[phase]
            # merge and update may run while backward does: the merge takes the lane's lower half there, the update a strip along the top
            others = {name: span for name, span in mine.phases.items() if name != phase and (phase == "merge" or name in PASSES)}
            apart = phase in ("merge", "update") and any(start < b and a < end for a, b in others.values())
            height, centre = ((0.34, y - 0.2) if phase == "merge" else (0.2, y + 0.27)) if apart else (0.74, y)
            ax.barh(
                centre, 1e3 * (end - start), height, left=1e3 * (start - zero), color=colour, hatch=hatch, edgecolor=INK, linewidth=0.3,
                zorder=3 if apart else 2,
            )  # fmt: skip
    word = device_word(record.run.device_type).replace("CPU process", "process")
    ax.set_yticks(range(len(replicas)), [f"{word} {len(replicas) - 1 - y}" for y in range(len(replicas))])
    ax.set_ylim(len(replicas) - most - 0.6, len(replicas) - 0.4)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, 1.02 * longest_ms)


def _rows(name: str, record: Record, index: int, replicas: Sequence[StepTrace]) -> list[dict[str, object]]:
    zero = min(mine.start_s for mine in replicas)
    return [
        {
            "panel": name,
            "key": record.key,
            "placement": record.run.placement,
            "devices": record.run.devices,
            "step": index,
            "rank": rank,
            "phase": phase,
            "start_s": round(mine.phases[phase][0] - zero, 7),
            "duration_s": round(time, 7),
        }
        for rank, mine in enumerate(replicas)
        for phase, time in phase_times(mine).items()
    ]


def step_finding(steps: Sequence[tuple[Record, Sequence[StepTrace]]]) -> str | None:
    """The share of each of two or more Runs' steps that launch skew took, where those differ; of one Run, its own."""
    known = [(record, parts.skew / step_time(replicas)) for record, replicas in steps if (parts := skew_parts(replicas))]
    if not known or len(known) < len(steps):
        return None

    called = dict(zip([record.key for record, _ in known], _called([record for record, _ in known]), strict=True))
    placements = len({record.run.placement for record, _ in known}) > 1 or len(known) == 1

    def said(record: Record, share: float) -> str:
        part = "less than 0.1%" if 1e-6 < share < 1e-3 else percent_text(max(0.0, share))
        return f"{part} of a step {'under' if placements else 'in'} {called[record.key]}"

    on = devices_text(known[0][0].run.devices, known[0][0].run.device_type)
    if len(known) == 1:
        return f"{MODEL_NAMES.get(known[0][0].run.model, known[0][0].run.model)} on {on}: launch skew is {said(*known[0])}"
    known.sort(key=lambda item: item[1])
    (least, most) = known[0], known[-1]
    if most[1] - least[1] < LEADING_SHARE or called[least[0].key] == called[most[0].key]:
        return None
    return f"launch skew takes {said(*most)}, {said(*least)}"


def _called(records: Sequence[Record]) -> list[str]:
    """The Runs in a word or two: by placement; those of one placement by the framework, how many processes dispatch, a loop of cells."""
    labels = [look(record.run.placement).label for record in records]
    if len(records) == 1 or len(set(labels)) > 1:
        return labels
    done = {(record.run.framework, record.run.processes) for record in records}
    several = {framework for framework, _ in done if len({processes for other, processes in done if other == framework}) > 1}
    loops = len({record.run.recurrence == "stepwise" for record in records}) > 1
    pieces = len({record.run.micro_batches for record in records})
    names = []
    for record in records:
        alone = record.run.framework not in several
        process = "" if alone else ", one process" if record.run.processes == "one" else f", {_a_process(record)}"
        parts = (
            "" if pieces == 1 else ", in one piece" if record.run.micro_batches is None else f", {record.run.micro_batches} micro-batches"
        )
        loop = ", a loop of cells" if loops and record.run.recurrence == "stepwise" else ""
        names.append(FRAMEWORK_NAMES[record.run.framework] + process + loop + parts)
    return names


def _caption(drawn: Sequence[tuple[Record, TraceSummary, tuple[int, list[StepTrace]]]], step: int | None) -> str:
    which = f"traced step {step}" if step is not None else "of each Run the traced step of median length"
    reasons = sorted({f"{look(record.run.placement).label}: {why}" for record, trace, _ in drawn for why in trace.missing.values()})
    machines = ", ".join(dict.fromkeys(record.machine.name for record, _, _ in drawn))
    text = (
        f"Phases of one step on the host's clock, {which}, under the profiler, which slows the host. "
        f"A phase reaches from its first to its last work on the device, gaps included. n = 1 (screening). {machines}."
    )
    return text + (f" Not known: {'; '.join(reasons)}." if reasons else "")
