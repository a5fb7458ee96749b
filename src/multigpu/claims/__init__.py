"""The 51 claims of the documents: a file a document, discovered; tests over Records; verdicts; tables and the scoreboard."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pandas as pd

from multigpu.claims.core import (
    VERDICTS,
    Answer,
    Claim,
    CollectivePredicate,
    Contrast,
    Predicate,
    Result,
    Setting,
    Term,
    Verdict,
    where,
    where_collective,
)
from multigpu.claims.records import rows
from multigpu.claims.scoreboard import scoreboard_svg
from multigpu.claims.synchrony import SynchronyPredicate, where_synchrony
from multigpu.claims.tables import claims_frame, settings_frame, to_html_table, to_json, to_markdown_table
from multigpu.claims.traces import TracePredicate
from multigpu.claims.training import TrainingPredicate, where_training
from multigpu.claims.verdicts import READERS, evaluate, evaluate_rows

__all__ = [
    "VERDICTS",
    "Answer",
    "Claim",
    "CollectivePredicate",
    "Contrast",
    "Predicate",
    "Result",
    "Setting",
    "SynchronyPredicate",
    "Term",
    "TracePredicate",
    "TrainingPredicate",
    "Verdict",
    "all_claims",
    "claims_frame",
    "evaluate",
    "evaluate_all",
    "find_claim",
    "scoreboard_svg",
    "settings_frame",
    "to_html_table",
    "to_json",
    "to_markdown_table",
    "where",
    "where_collective",
    "where_synchrony",
    "where_training",
]


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim of the modules here called `document_*`, by number.

    Raises:
        ValueError: two claims have one number.
    """
    found: dict[str, Claim] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("document_"):
            for claim in importlib.import_module(f"{__name__}.{info.name}").CLAIMS:
                if found.setdefault(claim.number, claim) is not claim:
                    raise ValueError(f"two claims are called {claim.number}: {found[claim.number].sentence!r} and {claim.sentence!r}")
    return tuple(sorted(found.values(), key=lambda claim: claim.order))


def find_claim(number: str) -> Claim:
    """The claim called `number`.

    Raises:
        ValueError: no such claim.
    """
    for claim in all_claims():
        if claim.number == number.upper():
            return claim
    raise ValueError(f"unknown claim {number!r}: choose one of C1 to C{len(all_claims())}")


def evaluate_all(
    frame: pd.DataFrame,
    collectives: pd.DataFrame | None = None,
    synchrony: pd.DataFrame | None = None,
    traces: pd.DataFrame | None = None,
    training: pd.DataFrame | None = None,
) -> list[Result]:
    """What the Records say of every claim, by number.

    Args:
        frame: the tidy table of Runs.
        collectives: of `hosts_frame`; without it, claims about all-reduces between hosts are not yet measured.
        synchrony: of `synchrony_frame`; without it, claims about the protocols of a parameter server are not yet measured.
        traces: of `trace_table`; without it, claims that need a profiler are not yet measured.
        training: of `training_frame`; without it, claims about what training reaches are not yet measured.
    """
    tables: dict[type, pd.DataFrame | None] = {
        CollectivePredicate: collectives,
        SynchronyPredicate: synchrony,
        TracePredicate: traces,
        TrainingPredicate: training,
    }
    read = {kind: [] if table is None else READERS[kind](table) for kind, table in tables.items()}
    runs = rows(frame)
    return [evaluate_rows(claim, read.get(type(claim.predicate), runs), read) for claim in all_claims()]
