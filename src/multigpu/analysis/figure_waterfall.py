"""From N times one device down to what N devices did: which part of the difference each cause took, from traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from multigpu.analysis.causes import PARTS, causes_frame
from multigpu.analysis.layout import grid_of_axes, margin_for, name_panel
from multigpu.analysis.phases import launch_skew, steps_of
from multigpu.analysis.picture import Picture, message
from multigpu.analysis.style import CEILING, INK, RC, look
from multigpu.analysis.traces import timed_step_s, traced
from multigpu.analysis.wording import MODEL_NAMES, UNIT_NAMES, devices_text, percent_text, plural, scaled
from multigpu.record import Record

WIDTH, ROW = 3.4, 0.3

NAMED = ("skew", "communication", "host_copies", "host_work")
CAUSES = {name: PARTS[name] for name in NAMED} | {"rest": ("the rest", "#8c8c8c", "...")}
"""Of each cause: label, colour, hatch, as where steps are taken apart; in the order in which they stand."""

LEAST = 5e-4
"""A cause that takes less of N times one device is told as 0%."""

ONE_DEVICE = {"placement", "devices", "processes", "seed", "warmup_steps", "timed_steps", "traced_steps"}
"""Fields in which a Run on one device may differ from the one that is compared with it."""


@dataclass(frozen=True)
class Waterfall:
    """Rates in units/s: ideal = devices x one device; ideal - sum(losses) = measured. seconds: of a step, by cause."""

    ideal: float
    measured: float
    losses: dict[str, float]
    seconds: dict[str, float]


def waterfall(units: float, one_s: float, many_s: float, seconds: dict[str, float]) -> Waterfall:
    """Where the rate of N devices went.

    Args:
        units: of one step of all N devices. one_s: step time of one device with its N-th part of them. many_s: of the N devices.
        seconds: what each named cause takes of `many_s`.

    The rate that is lost is shared out by time: a cause of c seconds takes c / (many_s - one_s) of it, which is c / many_s of N times one
    device, its share of the step. Taken off one after another instead, the first cause would take most, whichever it is. The rest is what
    no named cause explains (negative where causes hide behind each other, or where one device waits for them too).
    """
    parts = {name: seconds[name] for name in NAMED}
    parts["rest"] = many_s - one_s - sum(parts.values())
    losses = {name: units / one_s * value / many_s for name, value in parts.items()}
    return Waterfall(units / one_s, units / many_s, losses, parts)


def _job(record: Record) -> tuple[Any, ...]:
    return (record.machine.name, record.timing_version, record.run.model_copy(update={"seed": 0}).model_dump_json(exclude=ONE_DEVICE))


def fastest_alone(records: Sequence[Record]) -> dict[Any, Record]:
    """Of each job its fastest Run on one device, by the Record of median step: the fastest of all repeats would be one of luck."""
    runs: dict[Any, dict[str, list[Record]]] = {}
    for record in records:
        if record.run.devices == 1:
            runs.setdefault(_job(record), {}).setdefault(record.run.digest, []).append(record)
    medians = {
        job: [sorted(own, key=lambda record: (timed_step_s(record), record.key))[(len(own) - 1) // 2] for own in found.values()]
        for job, found in runs.items()
    }
    return {job: min(found, key=timed_step_s) for job, found in medians.items()}


def waterfalls(records: Sequence[Record]) -> list[tuple[Record, Record, Waterfall]]:
    """Of each traced Run under weak scaling on several devices: it, the fastest Run of its job on one device, the waterfall.

    The time of one device is from any Run of the same job and machine in `records`, traced or not, under any placement. Runs
    without one, or whose skew is not known, are left out. Causes are those of `causes.causes_frame`.
    """
    ok = [record for record in records if record.status == "ok" and record.measurement]
    alone = fastest_alone(ok)
    found = []
    for record, trace in traced(ok):
        one = alone.get(_job(record))
        known = any(launch_skew(replicas) is not None for replicas in steps_of(trace))
        if one is None or record.run.devices == 1 or record.run.scaling != "weak" or not known:
            continue
        assert record.measurement
        row = causes_frame([record]).iloc[0]
        units = record.measurement.units / record.run.timed_steps
        seconds = {name: float(row[f"{name}_s"]) for name in NAMED}
        found.append((record, one, waterfall(units, timed_step_s(one), timed_step_s(record), seconds)))
    return found


def figure_waterfall(records: Sequence[Record], columns: int = 2) -> Picture:
    """A panel a traced Run on the most devices of its model: N times one device, what each cause takes off, what was measured.

    The picture's data hold the Runs on fewer devices too.
    """
    every = waterfalls(records)
    if not every:
        return message("No waterfall to draw: no traced Record on several devices has one on a single device beside it.")
    most = {record.run.model: max(r.run.devices for r, _, _ in every if r.run.model == record.run.model) for record, _, _ in every}
    drawn = [fall for fall in every if fall[0].run.devices == most[fall[0].run.model]]
    names = [_name(record) for record, _, _ in drawn]
    with mpl.rc_context(RC):
        labels = [label for label, _, _ in CAUSES.values()]
        left = margin_for([*labels, "8 x one GPU"])
        picture, axes = grid_of_axes(
            len(drawn), _finding(drawn), WIDTH, ROW * (len(CAUSES) + 2), columns, label_width=0.75, left=left, names=names
        )
        for ax, name, (record, _, fall) in zip(axes, names, drawn, strict=True):
            name_panel(ax, name)
            _panel(ax, record, fall)
    picture.data = pd.DataFrame([_row(_name(record), record, one, fall) for record, one, fall in every])
    machines = ", ".join(dict.fromkeys(record.machine.name for record, _, _ in drawn))
    picture.caption = (
        "Devices times one device (the same form of execution; of its placements the fastest, by the median of repeats), and what launch "
        "skew, exposed communication, copies to and from the host and the host's own work take off it: of each the share of the step that "
        "it has where steps are taken apart. The rest is what these do not explain: launches by the host, slower kernels. Weak scaling; "
        f"n = 1 (screening). {machines}."
        + (f" {plural(len(every) - len(drawn), 'Run')} on fewer devices: in the data." if len(every) > len(drawn) else "")
    )
    picture.alt = "Waterfalls of throughput. " + "; ".join(
        f"{name}: {percent_text(fall.measured / fall.ideal)} of the devices times one"
        for name, (_, _, fall) in zip(names, drawn, strict=True)
    )
    return picture


def _name(record: Record) -> str:
    run = record.run
    model, on = MODEL_NAMES.get(run.model, run.model), devices_text(run.devices, run.device_type)
    shape = ", one process" if run.processes == "one" else ""
    return f"{look(run.placement).label}, {model}, {on}, {run.execution}{shape}"


def _panel(ax: Axes, record: Record, fall: Waterfall) -> None:
    factor, letter = scaled(fall.ideal)
    run = record.run
    one = devices_text(1, run.device_type)[2:]
    bars = [(f"{run.devices} x one {one}", 0.0, fall.ideal, CEILING, "")]
    level = fall.ideal
    for name, (label, colour, hatch) in CAUSES.items():
        loss = fall.losses[name]
        bars.append((label, min(level, level - loss), abs(loss), colour, hatch))
        level -= loss
    bars.append(("measured", 0.0, fall.measured, look(run.placement).colour, ""))
    for y, (_, start, width, colour, hatch) in enumerate(reversed(bars)):
        ax.barh(y, width / factor, 0.66, left=start / factor, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.4)
        index = len(bars) - 1 - y
        names = [None, *CAUSES, None]
        loss = fall.losses.get(names[index] or "", 0.0)
        share = -loss / fall.ideal if abs(loss) >= LEAST * fall.ideal else 0.0
        text = f"{width / factor:,.3g}" if names[index] is None else percent_text(share).replace("-", "−")
        ax.annotate(text, ((start + width) / factor, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(range(len(bars)), [label for label, *_ in reversed(bars)])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, 1.02 * fall.ideal / factor)
    ax.set_xlabel(f"{letter.strip()}{' ' if letter else ''}{UNIT_NAMES[run.description.unit]}, weak scaling")


def _row(name: str, record: Record, one: Record, fall: Waterfall) -> dict[str, object]:
    row: dict[str, object] = {"panel": name, "key": record.key, "one_device_key": one.key, "ideal": fall.ideal, "measured": fall.measured}
    return row | {f"lost_{cause}": fall.losses[cause] for cause in CAUSES} | {f"{cause}_s": fall.seconds[cause] for cause in CAUSES}


def _finding(drawn: Sequence[tuple[Record, Record, Waterfall]]) -> str | None:
    """Of the Runs that lost a tenth or more, and of that a half or more to one named cause, the one that lost most."""
    told = []
    for record, _, fall in drawn:
        lost = fall.ideal - fall.measured
        cause = max(NAMED, key=lambda name: fall.losses[name])
        if lost >= 0.1 * fall.ideal and 0.5 * lost <= fall.losses[cause] <= lost:
            told.append((lost / fall.ideal, fall.losses[cause] / fall.ideal, cause, record))
    if not told:
        return None
    share, taken, cause, record = max(told, key=lambda item: item[0])
    on = devices_text(record.run.devices, record.run.device_type)
    who = look(record.run.placement).label + (" in one process" if record.run.processes == "one" else "")
    return f"{who} on {on} loses {percent_text(share)} of perfect scaling, {percent_text(taken)} to {CAUSES[cause][0]}"
