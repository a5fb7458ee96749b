"""The command line: `python -m multigpu doctor | ceilings | measure | collectives | synchrony | hosts | stages | train | records | claims |
report | study`.

Bad input ends with exit code 2 and one sentence; a sweep whose launcher died with 1, everything measured kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from multigpu import paths
from multigpu.doctor import diagnose
from multigpu.grid import GRIDS, affordable, cost_s, default_grid, devices_here, find_grid, points
from multigpu.hosts.arguments import add_arguments, company
from multigpu.hosts.launching import follow
from multigpu.inputs.check import check_inputs
from multigpu.measure.ceilings import measure_ceilings
from multigpu.measure.launch import Point, check_devices, launch_environment, measure
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.record import RecordStore
from multigpu.run import Run, build_run


def parse_fields(texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as fields of a Run, each in its own type.

    Raises:
        ValueError: a word without "=", an unknown name, or a value that is not of the field's type.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form field=value")
        if name not in Run.model_fields:
            raise ValueError(f"unknown field {name!r}: choose among {', '.join(Run.model_fields)}")
        annotation = Run.model_fields[name].annotation
        if annotation is int or int in get_args(annotation):
            try:
                fields[name] = int(value)
            except ValueError:
                raise ValueError(f"{name} = {value!r}: an integer is needed") from None
        elif annotation is bool:
            if value not in ("true", "false"):
                raise ValueError(f"{name} = {value!r}: true or false is needed")
            fields[name] = value == "true"
        elif name == "data":
            fields[name] = tuple(value.split(","))
        else:
            fields[name] = value
    return fields


def parse_counts(text: str | None) -> list[int]:
    """Device counts from "1,2,4"; without a text, 1, 2, 4, 8 up to what this machine has (its CPUs stand in, up to 2).

    Raises:
        ValueError: a count is not a positive integer.
    """
    if text is None:
        return devices_here()
    counts = []
    for part in text.split(","):
        if not part.strip().isdigit() or int(part) < 1:
            raise ValueError(f"devices {part!r} is not a positive integer: give counts such as 1,2,4")
        counts.append(int(part))
    return counts


def _store(arguments: argparse.Namespace) -> RecordStore:
    return RecordStore(Path(arguments.records))


def _measure(arguments: argparse.Namespace) -> int:
    if arguments.fields and arguments.grid:
        raise ValueError(f"give either a grid ({arguments.grid!r}) or one Run's fields, not both")
    if arguments.fields:
        fields = {"device_type": "cuda" if gpu_count() else "cpu", **parse_fields(arguments.fields)}
        run = build_run(**fields)
        chosen = [Point(run, repeat, timeout_s=arguments.timeout) for repeat in range(arguments.repeats)]
    else:
        planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
        chosen = points(planned)
        if arguments.budget_s is not None:
            here = this_machine().name
            known = [(record.run, record.repeat) for record in _store(arguments) if record.machine.name == here]
            every, chosen = len(chosen), affordable(planned, known, arguments.budget_s)
            print(f"{arguments.budget_s} s allow {len(chosen)} of {every} measurements ({len(known)} Records are here already)", flush=True)
        else:
            print(f"{len(chosen)} measurements of {len(planned)} Runs; at most about {cost_s(planned) / 60:.0f} minutes", flush=True)
    if arguments.dry_run:
        check_inputs(point.run for point in chosen)
        for point in chosen:
            check_devices(point.run)
            print(f"launch {point.launch} repeat {point.repeat}  {point.run.label()}")
        return 0
    if arguments.traces:
        os.environ["MULTIGPU_TRACES"] = str(Path(arguments.traces).resolve())
    with company(arguments) as hosts:
        if hosts and arguments.node_rank:
            print(f"{follow(hosts, launch_environment)} launches on host {arguments.node_rank}; Records are on host 0")
        else:
            done = measure(chosen, _store(arguments), arguments.retry, not arguments.quiet, None, arguments.tensorboard, hosts)
            print(done)
    return 0


def _ceilings(arguments: argparse.Namespace) -> int:
    store = _store(arguments)
    store.check_writable()
    print(f"written to {measure_ceilings(store.root)}")
    return 0


def _records(arguments: argparse.Namespace) -> int:
    from multigpu.analysis.frame import export, load_frame

    if arguments.trace_summary:
        return _trace_summary(arguments)
    if arguments.traced:
        from multigpu.analysis.inside_traces import trace_table

        table = trace_table(_store(arguments))
        print(table[["key", "model", "placement", "framework", "devices", "batch_size", "traced_steps", "machine"]].to_string(index=False))
        return 0
    frame = load_frame(_store(arguments))
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


def _trace_summary(arguments: argparse.Namespace) -> int:
    """Copies and kernels of one traced Run, as nvprof prints them; to a file if one is named."""
    from multigpu.analysis.inside_traces import trace_summary, write_trace_summary

    key = arguments.trace_summary
    record = next((record for record in _store(arguments) if record.key == key), None)
    if record is None:
        raise ValueError(f"no Record is called {key!r}: `records` lists them, traced ones by `--traced`")
    if arguments.export:
        print(f"written to {write_trace_summary(record, arguments.export)}")
    else:
        print(trace_summary(record).to_string(index=False))
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    from multigpu import claims
    from multigpu.analysis.collectives import collectives_frame
    from multigpu.analysis.frame import load_frame
    from multigpu.analysis.inside_traces import trace_table
    from multigpu.analysis.synchrony import synchrony_frame
    from multigpu.analysis.training import training_frame, training_records

    results = claims.evaluate_all(
        load_frame(_store(arguments)),
        collectives_frame(arguments.collectives),
        synchrony_frame(arguments.synchrony),
        trace_table(_store(arguments)),
        training_frame(training_records(arguments.training)),
    )
    print(claims.to_json(results) if arguments.format == "json" else claims.claims_frame(results).to_string(index=False))
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
    execute_notebooks(home / "notebooks", executed, {"measure": "none"} | given)
    print(f"the report is at {build_report(home / 'build' / 'html', executed)}")
    return 0


def _study(arguments: argparse.Namespace) -> int:
    """Measure the default grid, then render: the notebooks find every Record there."""
    planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
    print(f"measuring {len(points(planned))} Runs on {this_machine().name}: at most about {cost_s(planned) / 60:.0f} minutes", flush=True)
    print(measure(points(planned), _store(arguments)), flush=True)
    return _report(arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    for line in diagnose(_store(arguments)):
        print(line)
    return 0


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


def _stages(arguments: argparse.Namespace) -> int:
    """Forwards its words to `multigpu.stages.measure`."""
    from multigpu.stages.measure import main as measure_stages

    return measure_stages(arguments.words)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="multigpu", description="A reproducible study of multi-GPU training.")
    parser.add_argument("--records", default=str(paths.RUNS), help="folder of the Records (default: data/runs)")
    commands = parser.add_subparsers(dest="command", required=True)

    commands.add_parser("doctor", help="what this machine can run and what is missing").set_defaults(function=_doctor)

    ceilings = commands.add_parser("ceilings", help="measure what this machine's GPUs, memory and links can do at best")
    ceilings.set_defaults(function=_ceilings)

    one = commands.add_parser("measure", help="measure a grid by name, or one Run by its fields")
    one.add_argument(
        "fields", nargs="*", metavar="field=value", help="fields of one Run, e.g. workload=nmt model=nmt_small placement=ddp batch_size=16"
    )
    one.add_argument("--grid", help=f"one of {', '.join(GRIDS)}")
    one.add_argument("--devices", help="device counts of the grid, e.g. 1,2,4 (default: what is here)")
    one.add_argument("--budget-s", type=float, metavar="S", help="measure only what the grid's estimates allow, what matters most first")
    one.add_argument("--repeats", type=int, default=1, help="repeats of the one Run")
    one.add_argument("--timeout", type=float, default=300.0, help="seconds one Run may take")
    one.add_argument("--retry", action="append", default=[], metavar="STATUS", help="measure again what ended with this status")
    one.add_argument("--traces", metavar="DIR", help="also keep the full profiles of traced Runs (traced_steps above 0) in this folder")
    one.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="write TensorBoard's logs of what is measured now (TensorFlow in one process)"
    )
    one.add_argument("--dry-run", action="store_true", help="list what would be measured")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    add_arguments(one)
    one.set_defaults(function=_measure)

    listing = commands.add_parser("records", help="list, filter and export Records")
    listing.add_argument("where", nargs="*", metavar="column=value")
    listing.add_argument("--export", metavar="FILE", help="write to a .csv, .json or .parquet file")
    listing.add_argument("--traced", action="store_true", help="list traced Runs, which no other listing holds")
    listing.add_argument("--trace-summary", metavar="KEY", help="copies and kernels of one traced Run, as CSV with --export FILE.csv")
    listing.set_defaults(function=_records)

    claims = commands.add_parser("claims", help="figure and verdict of each claim")
    claims.add_argument("--format", choices=("text", "json"), default="text")
    claims.add_argument("--collectives", default=str(paths.COLLECTIVES), help="folder of the all-reduces' Records")
    claims.add_argument("--synchrony", default=str(paths.SYNCHRONY), help="folder of the protocols' Records")
    claims.add_argument("--training", default=str(paths.TRAINING), help="folder of the Records of training")
    claims.set_defaults(function=_claims)

    collectives = commands.add_parser("collectives", add_help=False, help="time all-reduces of this machine (`collectives --help`)")
    collectives.set_defaults(function=_collectives)

    synchrony = commands.add_parser("synchrony", add_help=False, help="run a parameter server's protocols (`synchrony --help`)")
    synchrony.set_defaults(function=_synchrony)

    hosts = commands.add_parser("hosts", add_help=False, help="time all-reduces between hosts made on this machine (`hosts --help`)")
    hosts.set_defaults(function=_hosts)

    stages = commands.add_parser("stages", add_help=False, help="find the best placement of a model's stages (`stages --help`)")
    stages.set_defaults(function=_stages)

    train = commands.add_parser("train", add_help=False, help="train runs to the end of a budget and keep their Records (`train --help`)")
    train.set_defaults(function=_train)

    report = commands.add_parser("report", help="execute the notebooks on committed Records and build the HTML report")
    report.add_argument(
        "--parameters", type=Path, metavar="FILE", help="a YAML file of `name: value` lines for every notebook that has the name"
    )
    report.set_defaults(function=_report)

    study = commands.add_parser("study", help="measure the default grid, execute every notebook, build the report")
    study.add_argument("--grid", help=f"one of {', '.join(GRIDS)} (default: by machine)")
    study.add_argument("--devices", help="device counts, e.g. 1,2,4 (default: what is here)")
    study.set_defaults(function=_study, parameters=None)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    parsed, words = parser.parse_known_args(arguments)
    if words and parsed.function not in (_collectives, _synchrony, _hosts, _stages, _train):  # whose own parsers read them
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    parsed.words = words
    try:
        return parsed.function(parsed)
    except ValueError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `records | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("multigpu: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130
