"""The command `claims`: the verdict of each claim, or all that is said of those named."""

import argparse
import io
import shutil
import sys
from pathlib import Path

from multigpu import paths
from multigpu.cli.measure import read_from, store_of
from multigpu_study.claims import find_claim, to_json, wording
from multigpu_study.claims.results import ClaimResult, study_results


def claim_results(arguments: argparse.Namespace) -> list[ClaimResult]:
    """Return every claim's result; kinds that the command does not name have usual folders."""
    folders = (
        Path(getattr(arguments, kind, getattr(paths, kind.upper())))
        for kind in ("hosts", "synchrony", "training")
    )
    return study_results(store_of(arguments).root, *folders)


def claims_command(arguments: argparse.Namespace) -> int:
    """Print the results of every claim."""
    named = {find_claim(number).number for number in arguments.number}
    read_from(arguments)
    results = [
        result for result in claim_results(arguments) if not named or result.claim.number in named
    ]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal without these signs still has the words beside them
        sys.stdout.reconfigure(errors="replace")
    width = shutil.get_terminal_size((120, 24)).columns
    if arguments.format == "json":
        print(to_json(results))
    elif named:
        print("\n\n".join(wording.in_full(result, width) for result in results))
    else:
        print(wording.overview(results, width))
    return 0
