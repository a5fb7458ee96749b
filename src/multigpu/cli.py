"""The command line: `python -m multigpu doctor | ceilings | measure | collectives | synchrony | hosts | stages | train | interference |
records | explain | advise | claims | report | study`.

Bad input ends with exit code 2 and one sentence; a sweep whose launcher died with 1, everything measured kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from multigpu import paths
from multigpu.arguments import OWN_PARSERS, build_parser, parse_counts, parse_fields
from multigpu.doctor import diagnose
from multigpu.grid import affordable, cost_s, default_grid, find_grid, pace, points, restricted
from multigpu.hosts.arguments import company
from multigpu.hosts.launching import follow
from multigpu.inputs.check import check_inputs
from multigpu.measure.ceilings import measure_ceilings
from multigpu.measure.lanes import measure_shared
from multigpu.measure.launch import check_devices, launch_environment, measure
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.measure.point import Point
from multigpu.measure.sharing import lanes_of, sharing_words
from multigpu.record import RecordStore
from multigpu.run import build_run


def _store(arguments: argparse.Namespace) -> RecordStore:
    return RecordStore(Path(arguments.records))


def _measure(arguments: argparse.Namespace) -> int:
    _check_share(arguments)
    price = None
    if arguments.fields and not arguments.grid:
        fields = {"device_type": "cuda" if gpu_count() else "cpu", **parse_fields(arguments.fields)}
        run = build_run(**fields)
        chosen = [Point(run, repeat, timeout_s=arguments.timeout) for repeat in range(arguments.repeats)]
    else:
        planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
        planned = restricted(planned, parse_fields(arguments.fields))
        chosen = points(planned)
        if arguments.budget_s is not None:
            here = this_machine().name
            known = {(one.run, one.repeat): one.measurement for one in _store(arguments) if one.machine.name == here}
            learned = pace(planned, {point: measured.total_s for point, measured in known.items() if measured})
            every, chosen = (
                len(chosen),
                affordable(planned, known, arguments.budget_s, learned, lanes_of if arguments.share else lambda run: 1),
            )
            as_told = "" if learned is None else f"; they take {learned:.2f} of what the grid says"
            print(
                f"{arguments.budget_s} s allow {len(chosen)} of {every} measurements ({len(known)} Records are here already{as_told})",
                flush=True,
            )
        else:
            print(f"{len(chosen)} measurements of {len(planned)} Runs; at most about {cost_s(planned) / 60:.0f} minutes", flush=True)
        costs = {entry.run.digest: entry.cost_s for entry in planned}

        def price(point: Point) -> float:
            return costs[point.run.digest]

    if arguments.share:
        print(sharing_words(chosen), flush=True)
    if arguments.dry_run:
        check_inputs(point.run for point in chosen)
        for point in chosen:
            check_devices(point.run)
            print(f"launch {point.launch} repeat {point.repeat}  {point.run.label()}")
        return 0
    if arguments.traces:
        os.environ["MULTIGPU_TRACES"] = str(Path(arguments.traces).resolve())
    if arguments.share:
        print(measure_shared(chosen, _store(arguments), arguments.retry, not arguments.quiet, cost_s=price))
        return 0
    with company(arguments) as hosts:
        if hosts and arguments.node_rank:
            print(f"{follow(hosts, launch_environment)} launches on host {arguments.node_rank}; Records are on host 0")
        else:
            done = measure(chosen, _store(arguments), arguments.retry, not arguments.quiet, None, arguments.tensorboard, hosts)
            print(done)
    return 0


def _check_share(arguments: argparse.Namespace) -> None:
    """Lanes are parts of one machine, and what follows single Runs wants them alone."""
    if not arguments.share:
        return
    if arguments.nnodes != 1 or arguments.rendezvous:
        raise ValueError(
            "--share divides one machine into lanes and cannot be used with several hosts: leave out --nnodes and --rendezvous"
        )
    if arguments.traces or arguments.tensorboard:
        option = "--traces" if arguments.traces else "--tensorboard"
        raise ValueError(f"{option} watches Runs that have the machine to themselves: leave it or --share out")


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
    from multigpu.analysis.frame import load_frame
    from multigpu.analysis.hosts import hosts_frame
    from multigpu.analysis.inside_traces import trace_table
    from multigpu.analysis.synchrony import synchrony_frame
    from multigpu.analysis.training import training_frame, training_records

    results = claims.evaluate_all(
        load_frame(_store(arguments)),
        hosts_frame(arguments.hosts),
        synchrony_frame(arguments.synchrony),
        trace_table(_store(arguments)),
        training_frame(training_records(arguments.training)),
    )
    print(claims.to_json(results) if arguments.format == "json" else claims.claims_frame(results).to_string(index=False))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    """Why a point is as fast as it is."""
    from multigpu.analysis.explain import explained

    print(explained(_store(arguments), arguments.words_asked, arguments.machine, arguments.limit, arguments.format))
    return 0


def _advise(arguments: argparse.Namespace) -> int:
    """Which placement to take for a job."""
    from multigpu.analysis.advise import advised

    print(advised(_store(arguments), parse_fields(arguments.fields), arguments.machine, arguments.limit, arguments.format))
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
    "measure": _measure,
    "records": _records,
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
    except KeyboardInterrupt:
        print("multigpu: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130
