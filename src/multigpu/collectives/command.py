"""Measure all-reduces of this machine in one command: `python -m multigpu collectives --devices 2,4 --budget-s 120`."""

from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.collectives.experiment import measure
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import DeviceType, parse_size, runs_in_order
from multigpu.command import Parser, add_usual, answered, parse_counts
from multigpu.measure.machine import gpu_count, this_machine


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = Parser(prog="multigpu collectives", description="Time all-reduces of this machine.")
    parser.add_argument("--sizes", help="bytes, such as 4,64K,1M,1G (default: powers of 4 to 1 GiB, on CPUs to 16 MiB)")
    parser.add_argument("--devices", default="2", help="numbers of processes, such as 2,4")
    parser.add_argument("--methods", help="algorithms and libraries by name (default: all)")
    parser.add_argument("--executions", help="eager, captured or both (default: all that exist)")
    parser.add_argument("--device-type", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    add_usual(parser, "--repeats", "--budget-s", "--retry", "--dry-run", "--quiet", budget_s=120.0)
    parser.add_argument("--out", type=Path, default=paths.COLLECTIVES, help="folder of the Records (default: data/collectives)")
    arguments = parser.parse_args(words)
    device_type: DeviceType = arguments.device_type or ("cuda" if gpu_count() else "cpu")
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else []
    methods, executions = (chosen.split(",") if chosen else [] for chosen in (arguments.methods, arguments.executions))
    counts = parse_counts(arguments.devices)
    runs = list(dict.fromkeys(run for count in counts for run in runs_in_order(count, device_type, sizes, methods, executions)))
    if arguments.dry_run:
        print("\n".join(run.label() for run in runs))
        return 0
    print(f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most {arguments.budget_s:.0f} s", flush=True)
    store = CollectiveStore(arguments.out)
    summary = measure(runs, store, arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet)
    print(summary)
    return 0
