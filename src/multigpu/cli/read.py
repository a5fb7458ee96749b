"""Commands that read Records: `records`, `table`, `explain`, `advise`."""

import argparse
import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from multigpu.analysis.advise_text import advised
from multigpu.analysis.explain_text import explained
from multigpu.analysis.fields import columns
from multigpu.analysis.frame import export, frame_of
from multigpu.analysis.matrix import as_text, matrix, table_job
from multigpu.analysis.points import Missing, where
from multigpu.analysis.read import Study
from multigpu.analysis.step_traces import trace_summary, trace_table, write_trace_summary
from multigpu.cli.command import parse_counts
from multigpu.cli.measure import read_from
from multigpu.records.packing import FEWEST, pack, share, stores_of
from multigpu.spec.parse import parse_fields
from multigpu.user_model.script_trace import KERNELS, compared, explain_trace, told
from multigpu.user_model.stuck import find_stuck
from multigpu.user_model.stuck import told as told_stuck
from multigpu.user_model.stuck_dumps import read_dump

LISTED, TRACED = (list(columns(frame)) for frame in ("listed", "listed_traced"))


def records_command(arguments: argparse.Namespace) -> int:
    """Lists Records, writes them as a table, packs them, or shows what was traced."""
    if arguments.pack:
        every = "--pack packs every Record that is loose"
    elif arguments.share:
        every = "--share copies every Record"
    else:
        every = ""
    if every and (
        arguments.where or arguments.export or arguments.traced or arguments.trace_summary
    ):
        raise ValueError(f"{every}: leave filters, --export, --traced and --trace-summary out")
    if arguments.pack:
        return _pack(arguments)
    if arguments.share:
        return _share(arguments)
    if arguments.trace_summary:
        return _summarise_trace(arguments)
    records, listed = read_from(arguments), TRACED if arguments.traced else LISTED
    frame = trace_table(records)[TRACED] if arguments.traced else frame_of(records)
    for text in arguments.where:
        name, equals, value = text.partition("=")
        if not equals or name not in frame.columns:
            raise ValueError(
                f"{text!r} is no filter: use column=value with one of {', '.join(frame.columns)}"
            )
        frame = frame[frame[name].astype(str).str.lower() == value.lower()]  # true is True
    if arguments.export:
        export(frame, Path(arguments.export))
        print(f"{len(frame)} Records written to {arguments.export}")
    else:
        print(frame[listed].to_string(index=False) if len(frame) else "no Record matches")
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    """Brings loose Records into archives, place by place."""
    stores = stores_of(arguments.records and Path(arguments.records))
    any_packed = False
    for packed in chain.from_iterable(map(pack, stores)):
        print(packed, flush=True)
        any_packed = True
    if not any_packed:
        print(f"nothing to pack: no place has {FEWEST} loose Records")
    return 0


def _summarise_trace(arguments: argparse.Namespace) -> int:
    """Shows or writes what one traced Record's kernels and copies took."""
    key = arguments.trace_summary
    record = next((record for record in read_from(arguments) if record.key == key), None)
    if record is None:
        raise ValueError(
            f"no Record is called {key!r}: `records` lists them, traced ones by `--traced`"
        )
    if arguments.export:
        print(f"written to {write_trace_summary(record, arguments.export)}")
    else:
        print(trace_summary(record).to_string(index=False))
    return 0


def _share(arguments: argparse.Namespace) -> int:
    """Copies of all Records that tell nothing of person or host."""
    written, left = share(read_from(arguments), Path(arguments.share))
    told = (f"left out: {count} Records that {why}" for why, count in left.items())
    print(*written, *told, sep="\n")
    if not written:
        raise ValueError("no Record is left to share")
    print(f"`python -m multigpu verify {arguments.share}` checks what you are about to offer")
    return 0


def explain_command(arguments: argparse.Namespace) -> int:
    """Why a point, or a script that was traced, is as fast as it is."""
    asked_for = (arguments.trace, arguments.stuck, arguments.words_asked)
    if sum(map(bool, asked_for)) != 1 or (arguments.against and not arguments.trace):
        raise ValueError(
            "what is to be explained? name a Record's key or fields of a Run, --trace FILE (and"
            " --against FILE), or --stuck FILE, one of the three"
        )
    if arguments.stuck or arguments.trace:
        if arguments.stuck:
            causes = find_stuck([read_dump(path) for path in arguments.stuck])
            found: Any = [asdict(one) for one in causes]
            lines = told_stuck(causes)
        else:
            every = 10**6 if arguments.against else KERNELS
            traced = explain_trace(arguments.trace, every)
            found, lines = asdict(traced), told(traced)
            if arguments.against:
                before = explain_trace(arguments.against, every)
                found = {"trace": found, "against": asdict(before)}
                lines = compared(before, traced)
        print(json.dumps(found, indent=1) if arguments.format == "json" else "\n".join(lines))
        return 0
    asked = arguments.words_asked, arguments.machine, arguments.limit
    form = arguments.format, arguments.details
    print(explained(Study.of_runs(read_from(arguments).root), *asked, *form))
    return 0


def advise_command(arguments: argparse.Namespace) -> int:
    """Which placement to take for a job."""
    study = Study.of_runs(read_from(arguments).root)
    fields = parse_fields(arguments.fields)
    print(advised(study, fields, arguments.machine, arguments.limit, arguments.format))
    return 0


def table_command(arguments: argparse.Namespace) -> int:
    """One job under every placement in both frameworks."""
    points = Study.of_runs(read_from(arguments).root).everywhere
    try:
        job, machines, unit = table_job(points, parse_fields(arguments.fields))
    except Missing as error:
        raise ValueError(str(error)) from None
    if arguments.devices:
        wanted = parse_counts(arguments.devices)
        machines = {count: name for count, name in machines.items() if count in wanted}
        if not machines:
            raise ValueError(f"--devices {arguments.devices}: this job was not measured on as many")
    device_type = where(points, machine=next(iter(machines.values())))["device_type"].iloc[0]
    columns = ", ".join(f"{count}: {name}" for count, name in machines.items())
    print(f"{job.words}; devices and machines: {columns}\n")
    print(as_text(matrix(points, job, machines, device_type), unit))
    return 0
