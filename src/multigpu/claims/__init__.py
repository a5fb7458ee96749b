"""The documents' claims, as data: tests over Records; verdicts; tables and the scoreboard."""

from __future__ import annotations

import pandas as pd

from multigpu.claims.catalogue import all_claims, find_claim
from multigpu.claims.core import VERDICTS, Claim, Contrast, Predicate, Term, Verdict
from multigpu.claims.kinds import KINDS, READERS, CollectivePredicate, SynchronyPredicate, TracePredicate, TrainingPredicate
from multigpu.claims.pairs import rows
from multigpu.claims.results import Answer, Result, Setting
from multigpu.claims.scoreboard import scoreboard_svg
from multigpu.claims.tables import claims_frame, settings_frame, to_html_table, to_json, to_markdown_table
from multigpu.claims.verdicts import evaluate, evaluate_rows

__all__ = [
    "KINDS",
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
]


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
    read = {kind: READERS[kind](pd.DataFrame() if table is None else table) for kind, table in tables.items()}
    runs = rows(frame)
    return [evaluate_rows(claim, read.get(type(claim.predicate), runs), read) for claim in all_claims()]
