"""The commands that the study adds to `python -m multigpu`.

What does a command is named and not imported: most calls need none of it.
"""

import argparse

from multigpu import paths
from multigpu.cli.command import Command, add_usual


def _claims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "number",
        nargs="*",
        metavar="C1",
        help="of these claims everything: figures, test, reasons, Records",
    )
    add_usual(parser, "--format")
    folders = {
        "hosts": "of all-reduces between hosts",
        "synchrony": "of protocols",
        "training": "of training",
    }
    for kind, whose in folders.items():
        parser.add_argument(
            f"--{kind}",
            default=str(getattr(paths, kind.upper())),
            help=f"folder of the Records {whose}",
        )


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
