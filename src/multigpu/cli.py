"""The command line: `python -m multigpu doctor | ceilings | measure | batch | collectives | synchrony | hosts | stages | train |
interference | records | verify | explain | advise | claims | report | study`.

Bad input ends with exit code 2 and one sentence; a sweep whose launcher died with 1, everything measured kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from multigpu.arguments import EXPERIMENTS, build_parser, parse_counts
from multigpu.cli_measure import measure_command, store_of
from multigpu.command import answered
from multigpu.doctor import diagnose
from multigpu.grid import default_grid, find_grid
from multigpu.grid.entries import cost_s, points
from multigpu.later import later
from multigpu.measure.ceilings import measure_ceilings
from multigpu.measure.machine import this_machine
from multigpu.measure.sweep import measure


def _ceilings(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    store.check_writable()
    print(f"written to {measure_ceilings(store.root)}")
    return 0


def _study(arguments: argparse.Namespace) -> int:
    """Measure the default grid, then render: the notebooks find every Record there."""
    planned = find_grid(arguments.grid or default_grid(), parse_counts(arguments.devices))
    print(f"measuring {len(points(planned))} Runs on {this_machine().name}: at most about {cost_s(planned) / 60:.0f} minutes", flush=True)
    print(measure(points(planned), store_of(arguments)), flush=True)
    return COMMANDS["report"](arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    for line in diagnose(store_of(arguments)):
        print(line)
    return 0


def _own_parser(path: str) -> Callable[[argparse.Namespace], int]:
    """A command that reads the rest of the line itself."""
    return lambda arguments: later(path)(arguments.words)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "doctor": _doctor,
    "ceilings": _ceilings,
    "measure": measure_command,
    "compare": later("multigpu.own.compare:compare_command"),
    "batch": later("multigpu.batch:batch_command"),
    "records": later("multigpu.cli_read:records_command"),
    "verify": later("multigpu.cli_read:verify_command"),
    "explain": later("multigpu.cli_read:explain_command"),
    "advise": later("multigpu.cli_read:advise_command"),
    "claims": later("multigpu.cli_claims:claims_command"),
    **{name: _own_parser(path) for name, (path, _) in EXPERIMENTS.items()},
    "report": later("multigpu.report:report_command"),
    "study": _study,
}


@answered
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    parsed, words = parser.parse_known_args(arguments)
    if words and parsed.command not in EXPERIMENTS:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    parsed.words = words
    return COMMANDS[parsed.command](parsed)
