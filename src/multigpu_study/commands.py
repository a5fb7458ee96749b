"""The commands that the study adds to `python -m multigpu`.

What does a command is named and not imported: most calls need none of it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from multigpu import paths
from multigpu.cli.command import Command, Parser, add_records
from multigpu.cli.options import add_options

HERE = Path(__file__).parent


def parsed(
    words: Sequence[str] | None, command: Command, folder: Path, *older: str, **names: str
) -> argparse.Namespace:
    """What the words of a command say, by the study's table of options (`options.csv`). folder,
    older: of `add_records`. names: of names in braces.
    """
    parser = Parser(prog=f"multigpu {command.name}", description=command.does)
    add_options(parser, command.name, HERE, **names)
    add_records(parser, folder, *older)
    return parser.parse_args(words)


def _claims(parser: argparse.ArgumentParser) -> None:
    folders = {
        name: str(getattr(paths, name.upper())) for name in ("hosts", "synchrony", "training")
    }
    add_options(parser, "claims", HERE, **folders)


CLAIMS = Command(
    "claims",
    "verdict of each claim, or all about those named",
    "multigpu_study.claims.command:claims_command",
    _claims,
)
COLLECTIVES = Command(
    "collectives", "time all-reduces of this machine", "multigpu_study.collectives.experiment:main"
)
TRAIN = Command(
    "train", "train runs to the end of a budget", "multigpu_study.training.command:main"
)
