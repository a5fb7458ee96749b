"""Measure all-reduces in one command; Records that exist are not measured again.

    python -m multigpu collectives --devices 2,4 --budget-s 120 --out data/collectives

All processes are on this machine; `python -m multigpu hosts` puts them on hosts of their own. The most informative points come first.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.collectives.experiment import measure
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import CollectiveRun, DeviceType, parse_size, runs_in_order
from multigpu.command import Parser, add_usual, answered, parse_counts
from multigpu.measure.machine import gpu_count, this_machine


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="multigpu collectives", description="Time all-reduces of this machine.")
    parser.add_argument("--sizes", help="bytes, such as 4,64K,1M,1G (default: powers of 4 to 1 GiB, on CPUs to 16 MiB)")
    parser.add_argument("--devices", default="2", help="numbers of processes, such as 2,4")
    parser.add_argument("--methods", help="algorithms and libraries by name (default: all)")
    parser.add_argument("--executions", help="eager, captured or both (default: all that exist)")
    parser.add_argument("--device-type", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    add_usual(parser, "--repeats", "--budget-s", "--retry", "--dry-run", "--quiet", budget_s=120.0, repeats=1)
    parser.add_argument("--out", type=Path, default=paths.COLLECTIVES, help="folder of the Records (default: data/collectives)")
    return parser


def chosen_runs(arguments: argparse.Namespace) -> list[CollectiveRun]:
    """The Runs that a command line asks for. Raises ValueError where an argument means nothing or a Run cannot work."""
    device_type: DeviceType = arguments.device_type or ("cuda" if gpu_count() else "cpu")
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else []
    methods, executions = (words.split(",") if words else [] for words in (arguments.methods, arguments.executions))
    counts = parse_counts(arguments.devices)
    runs = (runs_in_order(devices, device_type, sizes, methods, executions) for devices in counts)
    return list(dict.fromkeys(run for each in runs for run in each))


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(words)
    runs = chosen_runs(arguments)
    if arguments.dry_run:
        print("\n".join(run.label() for run in runs))
        return 0
    print(f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most {arguments.budget_s:.0f} s", flush=True)
    store = CollectiveStore(arguments.out)
    summary = measure(runs, store, arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet)
    print(summary)
    return 0
