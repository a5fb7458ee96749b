"""The documents' claims, as data: tests over Records; verdicts; a line, a page row or JSON of each."""

from __future__ import annotations

import pandas as pd

from multigpu.claims.catalogue import all_claims, find_claim
from multigpu.claims.core import Claim, Contrast, Predicate, Term
from multigpu.claims.kinds import KINDS
from multigpu.claims.results import Result, to_json
from multigpu.claims.verdicts import evaluate, evaluate_rows

__all__ = ["KINDS", "Claim", "Contrast", "Predicate", "Result", "Term", "all_claims", "evaluate", "evaluate_all", "find_claim", "to_json"]


def evaluate_all(frame: pd.DataFrame, **further: pd.DataFrame) -> list[Result]:
    """What the Records say of every claim, by number.

    Args:
        frame: the tidy table of Runs. further: by the kind of claims that read it (`KINDS`), hosts (of `hosts_frame`), synchrony
            (of `synchrony_frame`), traces (of `trace_table`) and training (of `training_frame`); claims over what is left out are not
            yet measured.
    """
    read = {kind.predicate: kind.read(further.get(name, frame if name == "runs" else pd.DataFrame())) for name, kind in KINDS.items()}
    return [evaluate_rows(claim, read) for claim in all_claims()]
