"""The command `batch`."""

import argparse

from multigpu.cli.command import parse_counts
from multigpu.paths import check_checkout
from multigpu.report.batch import batch
from multigpu.report.batch_rows import find_points


def batch_command(arguments: argparse.Namespace) -> int:
    """The experiment notebook, once a row."""
    check_checkout("a batch")
    points, counts = find_points(arguments.points), parse_counts(arguments.devices)
    return batch(
        points, arguments.out, counts, arguments.dry_run, not arguments.quiet, arguments.row
    )
