"""The commands that the study adds to `python -m multigpu`.

What does a command is named and not imported: most calls need none of it.
"""

import argparse
from pathlib import Path

from multigpu import paths
from multigpu.cli.command import Command
from multigpu.cli.options import add_options


def add_study_options(parser: argparse.ArgumentParser, command: str, **words: str) -> None:
    """Give a parser the options of a command in the study's table (`options.csv`)."""
    add_options(parser, command, Path(__file__).parent, **words)


def _claims(parser: argparse.ArgumentParser) -> None:
    folders = {
        name: str(getattr(paths, name.upper())) for name in ("hosts", "synchrony", "training")
    }
    add_study_options(parser, "claims", **folders)


CLAIMS = Command(
    "claims",
    "verdict of each claim, or all about those named",
    "multigpu_study.claims.command:claims_command",
    _claims,
)
COLLECTIVES = Command(
    "collectives", "time all-reduces of this machine", "multigpu_study.collectives.experiment:main"
)
SYNCHRONY = Command(
    "synchrony", "run a parameter server's protocols", "multigpu_study.synchrony.measure:main"
)
HOSTS = Command(
    "hosts",
    "time all-reduces between hosts made on this machine",
    "multigpu_study.hosts.measure:main",
)
INTERFERENCE = Command(
    "interference",
    "do Runs that share this machine disturb each other?",
    "multigpu_study.interference:main",
)
TRAIN = Command(
    "train", "train runs to the end of a budget", "multigpu_study.training.command:main"
)
