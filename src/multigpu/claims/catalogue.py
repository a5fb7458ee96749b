"""The claims as data: `documents/NNN.yaml`, one file a document, read once.

A test names its kind of Records (`of`), the fields that all of them have (`where`) and contrasts. A side of a contrast is the fields of
its Runs, with `devices` where these are fixed, or a list of such. Two shapes have names of their own: `scaling: true` compares the speedups
of two kinds of Run, each against its own single device, and `efficiency_over: M` the rate a device on N against that on M.
Where the document states an effect of its own, `effect`, half of it is the margin.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from multigpu.claims.core import Claim, Contrast, Predicate, Term, selection
from multigpu.claims.kinds import KINDS, Kind

FOLDER = Path(__file__).parent / "documents"


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim of every document, by number.

    Raises:
        ValueError: two claims have one number, or one is not as `Claim` wants it.
    """
    found: dict[str, Claim] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for fields in yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            claim = claim_of(fields)
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


def claim_of(fields: dict[str, Any]) -> Claim:
    """A claim from its data.

    Raises:
        ValueError: a field is unknown or has a value that it cannot have; the sentence names it.
    """
    tests = [test_of(test) for test in fields.pop("tests", ())]
    return Claim(**_tupled(fields), predicate=tests[0] if tests else None, further=tuple(tests[1:]))


def test_of(fields: dict[str, Any]) -> Predicate:
    """A predicate from its data."""
    kind = KINDS[fields.pop("of")]
    fields["where"] = selection(fields.get("where", {}), kind.known, kind.what)
    fields["contrasts"] = tuple(_contrast(contrast, kind) for contrast in fields["contrasts"])
    return kind.predicate(**_tupled(fields))


def _contrast(fields: dict[str, Any], kind: Kind) -> Contrast:
    over, under = ([_term(side, kind) for side in _listed(fields.pop(name, [{}] if name == "over" else []))] for name in ("over", "under"))
    if fields.pop("scaling", False):
        (above,), (below,) = over, under
        over, under = [above, below.model_copy(update={"devices": 1})], [above.model_copy(update={"devices": 1}), below]
    if base := fields.pop("efficiency_over", None):
        under = [term.model_copy(update={"devices": base}) for term in over]
        fields |= {"per_device": True, "unit": "%"}
    if "effect" in fields:
        fields.setdefault("bound", (1 + fields["effect"]) / 2)
    fields["where"] = selection(fields.get("where", {}), kind.known, kind.what)
    return Contrast(over=tuple(over), under=tuple(under), **_tupled(fields))


def _term(fields: dict[str, Any], kind: Kind) -> Term:
    devices = fields.pop("devices", None)
    return Term(select=selection(fields, kind.known, kind.what), devices=devices)


def _listed(side: Any) -> list[Any]:
    return side if isinstance(side, list) else [side]


def _tupled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
