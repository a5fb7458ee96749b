"""The command line: `python -m multigpu doctor | ceilings | measure | batch | collectives | synchrony | hosts | stages | train |
interference | records | verify | explain | advise | claims | report | study`.

Bad input ends with exit code 2 and one sentence; a sweep whose launcher died with 1, everything measured kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from multigpu import paths
from multigpu.arguments import OWN_PARSERS, build_parser, parse_counts, parse_fields
from multigpu.cli_measure import claim_results, measure_command, read_from, store_of
from multigpu.doctor import diagnose
from multigpu.grid import cost_s, default_grid, find_grid, points
from multigpu.measure.ceilings import measure_ceilings
from multigpu.measure.launch import measure
from multigpu.measure.machine import this_machine
from multigpu.packing import FEWEST, pack, stores_of, study_stores


def _ceilings(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    store.check_writable()
    print(f"written to {measure_ceilings(store.root)}")
    return 0


def _records(arguments: argparse.Namespace) -> int:
    if arguments.pack:
        return _pack(arguments)
    from multigpu.analysis.frame import export, load_frame

    if arguments.trace_summary:
        return _trace_summary(arguments)
    if arguments.traced:
        from multigpu.analysis.step_traces import trace_table

        table = trace_table(read_from(arguments))
        print(table[["key", "model", "placement", "framework", "devices", "batch_size", "traced_steps", "machine"]].to_string(index=False))
        return 0
    frame = load_frame(read_from(arguments))
    for text in arguments.where:
        name, equals, value = text.partition("=")
        if not equals or name not in frame.columns:
            raise ValueError(f"{text!r} is no filter: use column=value with one of {', '.join(frame.columns)}")
        frame = frame[frame[name].astype(str) == value]
    if arguments.export:
        export(frame, Path(arguments.export))
        print(f"{len(frame)} Records written to {arguments.export}")
        return 0
    columns = [
        "key",
        "status",
        "model",
        "placement",
        "devices",
        "batch_size",
        "precision",
        "execution",
        "repeat",
        "units_per_s",
        "unit",
        "machine",
    ]
    print(frame[columns].to_string(index=False) if len(frame) else "no Record matches")
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    """Loose Records into archives."""
    if arguments.where or arguments.export or arguments.traced or arguments.trace_summary:
        raise ValueError("--pack packs every Record that is loose: leave filters, --export, --traced and --trace-summary out")
    done = 0
    for store in stores_of(Path(arguments.records)) if arguments.records else study_stores():
        for packed in pack(store):
            print(packed, flush=True)
            done += 1
    if not done:
        print(f"nothing to pack: no place has {FEWEST} loose Records")
    return 0


def _trace_summary(arguments: argparse.Namespace) -> int:
    """Copies and kernels of one traced Run, as nvprof prints them; to a file if one is named."""
    from multigpu.analysis.step_traces import trace_summary, write_trace_summary

    key = arguments.trace_summary
    record = next((record for record in read_from(arguments) if record.key == key), None)
    if record is None:
        raise ValueError(f"no Record is called {key!r}: `records` lists them, traced ones by `--traced`")
    if arguments.export:
        print(f"written to {write_trace_summary(record, arguments.export)}")
    else:
        print(trace_summary(record).to_string(index=False))
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    from multigpu.claims import find_claim, terminal, to_json

    named = {find_claim(number).number for number in arguments.number}
    read_from(arguments)
    results = [result for result in claim_results(arguments) if not named or result.claim.number in named]
    width = shutil.get_terminal_size((120, 24)).columns
    if arguments.format == "json":
        print(to_json(results))
    elif named:
        print("\n\n".join(terminal.in_full(result, width) for result in results))
    else:
        print(terminal.overview(results, width))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    """Whether Records can be believed: first every file that is none, then what each Record says against itself."""
    from multigpu.verify import EXCEPTIONS, lines, verify

    named = arguments.folder or arguments.records
    root = Path(named) if named else paths.REPOSITORY / "data"
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: name one that holds Records")
    if unreadable := [fault for store in (stores_of(root) if named else study_stores()) for fault in store.unreadable()]:
        print("\n".join(unreadable))
        return 1
    report = verify(root, EXCEPTIONS)
    for line in lines(report):
        print(line, flush=True)
    disagree = 0
    if arguments.measure:
        from multigpu.verify_again import measured_again

        for line, agrees in measured_again(root, arguments.measure, arguments.seed):
            print(f"{'agrees' if agrees else 'differs'}: {line}", flush=True)
            disagree += not agrees
    return 1 if report.faults or disagree else 0


def _explain(arguments: argparse.Namespace) -> int:
    """Why a point is as fast as it is."""
    from multigpu.analysis.explain_text import explained

    asked = arguments.words_asked, arguments.machine, arguments.limit, arguments.format, arguments.details
    print(explained(read_from(arguments).root, *asked))
    return 0


def _advise(arguments: argparse.Namespace) -> int:
    """Which placement to take for a job."""
    from multigpu.analysis.advise import advised

    print(advised(read_from(arguments).root, parse_fields(arguments.fields), arguments.machine, arguments.limit, arguments.format))
    return 0


def _collectives(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.collectives.measure`."""
    from multigpu.collectives.measure import main as measure_collectives

    return measure_collectives(arguments.words)


def _report(arguments: argparse.Namespace) -> int:
    from multigpu.notebooks import execute_notebooks, load_parameters
    from multigpu.report import build_report

    home = paths.REPOSITORY
    executed = home / "build" / "notebooks"
    given = load_parameters(arguments.parameters) if arguments.parameters else {}
    if arguments.publish:
        os.environ[paths.PUBLISH] = "1"  # kernels inherit it
    execute_notebooks(home / "notebooks", executed, given, only=arguments.only)
    print(f"the report is at {build_report(home / 'build' / 'html', executed)}")
    return 0


def _study(arguments: argparse.Namespace) -> int:
    """Measure the default grid, then render: the notebooks find every Record there."""
    planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
    print(f"measuring {len(points(planned))} Runs on {this_machine().name}: at most about {cost_s(planned) / 60:.0f} minutes", flush=True)
    print(measure(points(planned), store_of(arguments)), flush=True)
    return _report(arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    for line in diagnose(store_of(arguments)):
        print(line)
    return 0


def _batch(arguments: argparse.Namespace) -> int:
    """The experiment notebook, once a row."""
    from multigpu.batch import batch, find_points

    return batch(find_points(arguments.points), arguments.out, parse_counts(arguments.devices), arguments.dry_run, not arguments.quiet)


def _compare(arguments: argparse.Namespace) -> int:
    """A user's own job under every placement."""
    from multigpu.own.command import compare_command

    return compare_command(arguments)


def _synchrony(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.synchrony.measure`."""
    from multigpu.synchrony.measure import main as measure_synchrony

    return measure_synchrony(arguments.words)


def _train(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.training.measure`."""
    from multigpu.training.measure import main as measure_training

    return measure_training(arguments.words)


def _hosts(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.hosts.measure`."""
    from multigpu.hosts.measure import main as measure_hosts

    return measure_hosts(arguments.words)


def _interference(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.measure.interference`."""
    from multigpu.measure.interference import main as measure_interference

    return measure_interference(arguments.words)


def _stages(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.stages.measure`."""
    from multigpu.stages.measure import main as measure_stages

    return measure_stages(arguments.words)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "doctor": _doctor,
    "ceilings": _ceilings,
    "measure": measure_command,
    "compare": _compare,
    "batch": _batch,
    "records": _records,
    "verify": _verify,
    "explain": _explain,
    "advise": _advise,
    "claims": _claims,
    "collectives": _collectives,
    "synchrony": _synchrony,
    "hosts": _hosts,
    "stages": _stages,
    "train": _train,
    "interference": _interference,
    "report": _report,
    "study": _study,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    parsed, words = parser.parse_known_args(arguments)
    if words and parsed.command not in OWN_PARSERS:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    parsed.words = words
    try:
        return COMMANDS[parsed.command](parsed)
    except ValueError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `records | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"multigpu: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("multigpu: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130
