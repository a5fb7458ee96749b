"""The command `claims`: a line a claim, or everything of those named."""

from __future__ import annotations

import argparse
import io
import shutil
import sys

from multigpu.claims import find_claim, terminal, to_json
from multigpu.cli_measure import claim_results, read_from


def claims_command(arguments: argparse.Namespace) -> int:
    """What the Records say of every claim."""
    named = {find_claim(number).number for number in arguments.number}
    read_from(arguments)
    results = [result for result in claim_results(arguments) if not named or result.claim.number in named]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without these signs still has the words beside them
    width = shutil.get_terminal_size((120, 24)).columns
    if arguments.format == "json":
        print(to_json(results))
    elif named:
        print("\n\n".join(terminal.in_full(result, width) for result in results))
    else:
        print(terminal.overview(results, width))
    return 0
