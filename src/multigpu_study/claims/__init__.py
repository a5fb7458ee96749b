"""The documents' claims, as data: tests over Records; verdicts; a line, a page row or JSON of
each.
"""

from multigpu.lazy import lazy
from multigpu_study.claims.core import Claim, Contrast, Predicate, Term
from multigpu_study.claims.reading import all_claims, find_claim
from multigpu_study.claims.results import ClaimResult, to_json

__all__ = [
    "Claim",
    "ClaimResult",
    "Contrast",
    "Predicate",
    "Term",
    "all_claims",
    "evaluate_all",
    "find_claim",
    "to_json",
]

evaluate_all = lazy("multigpu_study.claims.verdicts:evaluate_all")
"""Results that are kept are shown without what computes them: SciPy takes a second."""
