"""Results that are computed once: kept in a file until a Record, a claim or this program changes."""

from __future__ import annotations

from pathlib import Path

from multigpu import paths
from multigpu.claims.results import Result
from multigpu.later import later
from multigpu.remembered import remembered


def study_results(
    runs: Path = paths.RUNS, hosts: Path = paths.HOSTS, synchrony: Path = paths.SYNCHRONY, training: Path = paths.TRAINING
) -> list[Result]:
    """What the Records of these folders say of every claim."""
    folders = [runs, hosts, synchrony, training]
    return remembered("claims", folders, lambda: later("multigpu.claims.verdicts:results_of")(*folders))
