"""When each claim's test was written and whether its Records existed by then:
`data/claims-ledger.csv`, which only grows.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from multigpu import paths
from multigpu_study.claims.core import DECIDED
from multigpu_study.claims.results import ClaimResult

LEDGER = paths.REPOSITORY / "data" / "claims-ledger.csv"
BEFORE, AFTER, UNKNOWN = "test before data", "test after data", "order not known"
STATES = ("none", "existed", "not known")


class Entry(NamedTuple):
    """One test of a claim, in the columns of the file. written: in UTC; commit: "" where it is the
    one that added the row.
    data: what there was by then of the Records that decide the claim today, of STATES; "not known"
        where they name folded commits.
    """

    claim: str
    digest: str
    written: str
    commit: str
    data: str
    reason: str


@lru_cache
def entries() -> Mapping[str, Sequence[Entry]]:
    """The ledger's rows by claim, in their order; ValueError: `data` of one is none of STATES."""
    found: dict[str, list[Entry]] = {}
    for entry in map(Entry._make, _rows(LEDGER)):
        if entry.data not in STATES:
            raise ValueError(
                f"{LEDGER.name}, claim {entry.claim}: data is {entry.data!r}; choose"
                f" {', '.join(STATES)}"
            )
        found.setdefault(entry.claim, []).append(entry)
    return found


def changes() -> list[Any]:
    """Every changed verdict, in the order of the file: claim, before, after, why."""
    return _rows(paths.REPOSITORY / "data" / "claims-changes.csv")


def _rows(path: Path) -> list[Any]:
    return list(
        pd.read_csv(path, dtype=str, keep_default_na=False).itertuples(index=False, name="Row")
    )


def order(entry: Entry, measured_at: Sequence[str]) -> str:
    """Which was first, of a test and the Records that decide it: the test only if the ledger and
    all of their dates (in UTC) say so.
    """
    older = sum(date < entry.written for date in measured_at)
    if entry.data == "none" and not older:
        return BEFORE
    said = UNKNOWN if entry.data == "not known" else AFTER
    if 0 < older < len(measured_at):
        return f"{said} ({older} of {len(measured_at)} Records are older)"
    return said


def decided_before_data(results: Iterable[ClaimResult]) -> tuple[int, int]:
    """Count decided claims whose last test is before all data that decide it, and all decided."""
    decided = [one for one in results if one.verdict in DECIDED]
    written = orders(decided)
    return sum(said.startswith(f"{BEFORE},") for said in written.values()), len(decided)


def orders(results: Iterable[ClaimResult]) -> dict[str, str]:
    """Of each claim with a test in the ledger: which was first, and when the test was written."""
    known = {
        one.claim.number: (entries().get(one.claim.number, ()), one.measured_at)
        for one in results
        if one.claim.predicates
    }
    return {
        number: f"{order(own[-1], dates)},{' changed' * (len(own) > 1)} {own[-1].written[:10]}"
        for number, (own, dates) in known.items()
        if own
    }
