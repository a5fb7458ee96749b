"""Measure all-reduces in one command; Records that exist are not measured again.

    python -m multigpu collectives --devices 2,4 --budget-s 120 --out data/collectives

Starts one process a device, all on this machine, which end with this one. With `--link-mbit` each runs on a host of its own, or
`--per-host` of them: network namespaces whose links carry so much (`hosts.namespaces`). The most informative points come first, so
whatever the budget, what was measured tells most. Bad input ends with exit code 2 and one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from multigpu import paths
from multigpu.arguments import parse_counts
from multigpu.collectives import algorithms
from multigpu.collectives.experiment import measure
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import CollectiveRun, DeviceType, parse_size, runs_in_order
from multigpu.command import Parser, add_usual, answered, count
from multigpu.hosts.namespaces import Hosts, Spread, why_not
from multigpu.measure.machine import gpu_count, this_machine


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="multigpu collectives", description="Time all-reduces of this machine.")
    parser.add_argument("--sizes", help="bytes, such as 4,64K,1M,1G (default: powers of 4 to 1 GiB, on CPUs to 16 MiB)")
    parser.add_argument("--devices", default="2", help="numbers of processes, such as 2,4")
    parser.add_argument("--methods", help="algorithms and libraries by name (default: all)")
    parser.add_argument("--executions", help="eager, captured or both (default: all that exist)")
    parser.add_argument("--dtype", default="fp32", help="fp32 (default) or bf16")
    parser.add_argument("--device-type", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    add_usual(parser, "--repeats", "--budget-s", "--retry", "--dry-run", "--quiet", budget_s=120.0)
    parser.add_argument(
        "--link-mbit", type=float, metavar="R", help="put the processes on hosts joined by links of so many Mbit/s (needs root)"
    )
    parser.add_argument("--per-host", type=count(), default=1, help="processes on each of these hosts (default: 1)")
    parser.add_argument(
        "--delay-us", type=count(0, 10**9), default=0, help="slept before every exchange of messages, as a distant host's latency"
    )
    parser.add_argument(
        "--compute-ms", type=count(0, 10**6), default=0, help="slept before every timed call, where a training step would compute"
    )
    parser.add_argument("--out", help="folder of the Records (default: data/collectives, with --link-mbit data/hosts)")
    return parser


def chosen_runs(arguments: argparse.Namespace) -> list[CollectiveRun]:
    """The Runs that a command line asks for.

    Raises:
        ValueError: an argument means nothing or a Run cannot work.
    """
    device_type: DeviceType = arguments.device_type or ("cuda" if gpu_count() else "cpu")
    sizes = [parse_size(text) for text in arguments.sizes.split(",")] if arguments.sizes else []
    methods, executions = (words.split(",") if words else [] for words in (arguments.methods, arguments.executions))
    runs = []
    for devices in parse_counts(arguments.devices):
        for run in runs_in_order(devices, device_type, sizes, methods, executions, arguments.dtype):
            delay_us = arguments.delay_us if run.method in algorithms() else 0  # a library's messages cannot be delayed
            runs.append(CollectiveRun.built(**run.model_dump() | {"delay_us": delay_us, "compute_ms": arguments.compute_ms}))
    return list(dict.fromkeys(runs))


@contextlib.contextmanager
def spread_for(runs: Sequence[CollectiveRun], link_mbit: float | None, per_host: int) -> Iterator[Spread | None]:
    """The hosts that a command line asks for, for as long as they are needed.

    Raises:
        ValueError: hosts cannot be made here, or a Run is for GPUs.
    """
    if link_mbit is None:
        yield None
        return
    if why_not():
        raise ValueError(f"no hosts for --link-mbit {link_mbit:g}: {why_not()}")
    if any(run.device_type == "cuda" for run in runs):
        raise ValueError(f"--link-mbit {link_mbit:g} puts CPU processes on hosts of their own: add --device-type cpu")
    with Hosts(max(-(-run.devices // per_host) for run in runs), link_mbit) as hosts:
        yield Spread(hosts, per_host)


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(words)
    runs = chosen_runs(arguments)
    if arguments.dry_run:
        print("\n".join(run.label() for run in runs))
        return 0
    print(f"{len(runs) * arguments.repeats} measurements on {this_machine().name}, for at most {arguments.budget_s:.0f} s", flush=True)
    out = Path(arguments.out or (paths.COLLECTIVES if arguments.link_mbit is None else paths.HOSTS))
    with spread_for(runs, arguments.link_mbit, arguments.per_host) as spread:
        summary = measure(runs, CollectiveStore(out), arguments.budget_s, arguments.repeats, arguments.retry, not arguments.quiet, spread)
    print(summary)
    return 0
