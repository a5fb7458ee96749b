"""The page of a comparison: what is fastest, the table, where a step goes, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import pandas as pd
from jinja2 import Environment, PackageLoader

from multigpu.analysis.estimate import TOO_FEW, Estimate, estimate
from multigpu.analysis.points import Missing
from multigpu.analysis.show import table, text
from multigpu.analysis.words import devices_text, plural
from multigpu.user_model.drawings import shown_memory, shown_parts, shown_race
from multigpu.user_model.parts import input_of
from multigpu.user_model.placed import called, command_of
from multigpu.user_model.trust import DISTURBED, figure_text
from multigpu.user_model.untried import told_untried
from multigpu.user_model.verdict import answer, titled
from multigpu.workloads import optimizer_of

if TYPE_CHECKING:
    from multigpu.user_model.result import Result

CLOCKS = "clocks disagree"
"""So begins a flag that short windows of a busy machine often have; its figures stand."""

TEMPLATE = Environment(
    loader=PackageLoader("multigpu.user_model", "."), autoescape=True
).get_template("own.html.j2")
NOTE = (
    "Samples/s of all devices; in brackets the 95% interval over repeats. Times of one device, and"
    " steps, are on batches that are on the devices already."
)

COLUMNS = (
    "placement = name | {rates} | times one device = speedup_text | step = step_s:ms |"
    " peak_memory_gib | moved a step = moved_bytes | beside one process = equal |"
    " measured = measured | which = title"
)
"""The table on a page. {rates}: `READY` where input takes a share of a step, else `ALIKE`."""

ALIKE = "samples/s = rate_text"
READY = "samples/s, batches ready = rate_text | samples/s with its input = fed_text"

PRINTED = {
    "placement": "{name}",
    "samples/s": "{rate_text}",
    "with its input": "{fed_text}",
    "times one device": "{speedup_text}",
    "step": "{step_s:ms}",
    "moved": "{moved_bytes:bytes}",
    "beside one process": "{equal}",
    "measured": "{measured}",
}
"""The table on a terminal: heading -> a row's text."""


def remarks(result: Result, is_over: bool = True) -> list[str]:
    """List what a reader should know: of the job, of what failed, and of what was left out, or is
    yet to come.
    """
    # a way that one launch showed to be slower has too few repeats for anything else
    slower = result.race.behind if result.race else []
    found = [
        f"{name}: {doubt.sentence}."
        for name, own in result.doubts.items()
        for doubt in own
        if doubt.short != TOO_FEW or name not in slower
    ]
    found += [
        f"{name}: {left} of {every} repeats were disturbed and are left out."
        for name, left, every in _left_out(result)
    ]
    found += [f"{name}: {flag}." for name, flag in _flags(result)]
    if result.described.score is not None:
        found.append(
            f"evaluate gives {result.described.score:.6g} before training and takes"
            f" {Estimate(result.described.evaluate_s):ms} on one of this computer's CPUs, which is"
            " in no step's time."
        )
    if result.described.unchecked:
        found.append(f"Not compared with one process: {result.described.unchecked}.")
    if left := told_untried(result, is_over):
        found.append(left)
    found += [f"{name} failed: {why}." for name, why in result.failed.items()]
    if result.runs[0].device_type == "cpu":
        cores = f"{result.runs[0].host_cores} of this computer's cores"
        if result.described.framework == "torch":
            what = "processes on a CPU"
        else:
            what = "parts of one process on a CPU"
        found.append(
            f"Devices here are {what}: one device alone has {cores}, several share all of them."
        )
    return found


def noted(result: Result) -> list[str]:
    """List what a reader should know of "equal": how the job was understood."""
    return [f"{note[:1].upper()}{note[1:]}." for note in result.described.notes]


def _left_out(result: Result) -> Iterator[tuple[str, int, int]]:
    """Placements of which disturbed repeats are left out: how many, of how many."""
    for name in result.names:
        every = [
            record
            for record in result.records
            if record.status == "ok" and not record.run.traced_steps and called(record.run) == name
        ]
        if left := len(every) - len(result.measured(name)):
            yield name, left, len(every)


def _flags(result: Result) -> list[tuple[str, str]]:
    """List what else is flagged of the Records that count, each once: placement and flag."""
    return list(
        dict.fromkeys(
            (name, flag)
            for name in result.names
            for record in result.measured(name)
            if record.measurement
            for flag in record.measurement.flags
            if not flag.startswith((*DISTURBED, CLOCKS))
        )
    )


def measured(result: Result) -> pd.DataFrame:
    """The table of placements, in s, with titles, and figures as text with their doubts."""
    rows = result.table()
    texts = {"rate": "rate", "fed_rate": "rate", "speedup": "times"}
    told = {
        name: [
            figure_text(estimate(row, name), form) if not pd.isna(row[name]) else "–"
            for _, row in rows.iterrows()
        ]
        for name, form in texts.items()
    }
    doubts = [
        ", ".join(short for short in row["doubts"].split(", ") if short and short not in figure)
        for (_, row), figure in zip(rows.iterrows(), told["rate"], strict=True)
    ]
    beside = [f": {doubt}" if doubt else "" for doubt in doubts]
    return rows.assign(
        step_s=rows["step_ms"] / 1e3,
        title=[titled(name) for name in rows["name"]],
        rate_text=told["rate"],
        fed_text=told["fed_rate"],
        speedup_text=[f"{text}{more}" for text, more in zip(told["speedup"], beside, strict=True)],
        measured=[
            f"{plural(row['repeats'], 'repeat')}, {plural(row['launches'], 'launch', 'launches')}"
            for _, row in rows.iterrows()
        ],
    )


def has_input(result: Result) -> bool:
    """Whether making batches takes a share of any placement's step."""
    return any(input_of(result, name) is not None for name in result.names)


def causes(result: Result) -> pd.DataFrame:
    """Where a step goes, s: cause, time, time_low, time_high, known_by; Missing: not known."""
    found = result.why_not_scaling()
    return found.assign(**{f"time{end}": found[f"ms{end}"] / 1e3 for end in ("", "_low", "_high")})


def lines(result: Result) -> list[str]:
    """The comparison as text: the answer, the table, where a step goes, and what to know of it."""
    rows = measured(result)
    shown = {
        heading: form
        for heading, form in PRINTED.items()
        if heading != "with its input" or has_input(result)
    }
    printed = pd.DataFrame({heading: text(rows, form) for heading, form in shown.items()})
    try:
        parts = list(text(causes(result), "{time:ms interval}  {cause}"))
    except Missing as missing:
        parts = [str(missing)]
    return [
        *answer(result),
        "",
        printed.to_string(index=False),
        "",
        *parts,
        "",
        *noted(result),
        *remarks(result),
        f"Page: {result.folder / 'index.html'}",
    ]


def shown_causes(result: Result) -> str:
    """Where a step goes, as HTML, or why that is not known."""
    try:
        return str(table(causes(result), "cause | of a step = time:ms interval | known_by"))
    except Missing as missing:
        return f"<p>{escape(str(missing))}</p>"


def commands(result: Result) -> list[tuple[str, str]]:
    """List what measures each row alone, by its name."""
    return [(name, command_of(result[name].run, result.described)) for name in result.names]


def page(result: Result, whole: bool = True, is_over: bool = True) -> str:
    """The page, or what stands on it; is_over: as long as more is measured it loads itself anew,
    and has no figures that take long to draw.
    """
    run = result.runs[-1]
    columns = COLUMNS.format(rates=READY if has_input(result) else ALIKE)
    return TEMPLATE.render(
        whole=whole,
        title=f"{result.described.name} on {devices_text(run.devices, run.device_type)}",
        answer=answer(result),
        machine=result.records[0].machine.name,
        run=run,
        optimizer=optimizer_of(run).name,
        table=str(table(measured(result), columns, note=NOTE)),
        causes=shown_causes(result),
        bars=shown_parts(result),
        memory=shown_memory(result),
        race=shown_race(result) if is_over else "",
        is_over=is_over,
        rounds=plural(len({record.launch_id for record in result.records}), "launch", "launches"),
        commands=commands(result),
        notes=noted(result),
        remarks=remarks(result, is_over),
        refused=result.refused,
    )
