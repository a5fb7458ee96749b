"""The command line, `python -m multigpu COMMAND ...`: what can be said, and which function does it,
loaded when it is asked for.
"""

import argparse
import pkgutil
from collections.abc import Sequence

from multigpu.cli.command import COMMANDS, OWN_RECORDS, Parser, add_everywhere, answered
from multigpu.cli.options import FOLDER, add_options
from multigpu.grids import GRIDS
from multigpu.machine.process import end_with_parent
from multigpu.spec.tables import table


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; `run` of what it parses names the function that does it."""
    parser = Parser(prog="multigpu", description="A reproducible study of multi-GPU training.")
    add_everywhere(parser, default=None)
    commands = parser.add_subparsers(dest="command", required=True)

    def add_parser(called: str, run: str, does: str, own_help: bool = True) -> Parser:
        made: Parser = commands.add_parser(called, help=does, add_help=own_help)
        made.set_defaults(run=run, own_parser=not own_help)
        add_everywhere(made, default=argparse.SUPPRESS)
        return made

    for row in table(FOLDER / "commands.csv"):
        made = add_parser(row["command"], row["run"], row["does"])
        add_options(made, row["command"], grids=", ".join(GRIDS))
    commands.choices["study"].set_defaults(parameters=None, only=None, publish=False)
    for added in COMMANDS.values():
        with_help = added.arguments is not None
        does = added.does if with_help else f"{added.does} (`{added.name} --help`)"
        made = add_parser(added.name, added.run, does, own_help=with_help)
        if added.arguments is not None:
            added.arguments(made)
    return parser


@answered
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    parsed, words = parser.parse_known_args(arguments)
    if parsed.end_with_parent:
        end_with_parent()
    if words and not parsed.own_parser:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    if parsed.records is not None and parsed.command in OWN_RECORDS:
        parser.error(f"{parsed.command} takes no --records: {OWN_RECORDS[parsed.command]}")
    if parsed.own_parser and parsed.records is not None:
        words = ["--records", parsed.records, *words]
    return pkgutil.resolve_name(parsed.run)(words if parsed.own_parser else parsed)
