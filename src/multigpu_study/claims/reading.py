"""Read claims from the documents' files."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Any

from multigpu.plugins import PluginRegistry
from multigpu.spec.collective import CollectiveRun
from multigpu.spec.run import Run
from multigpu_study.claims.core import (
    HERE,
    KINDS,
    Claim,
    Contrast,
    Predicate,
    Selection,
    Term,
    data_of,
)

KNOWN = {
    **dict.fromkeys(("runs", "traces"), (tuple(Run.model_fields), "a Run")),
    "hosts": (tuple(CollectiveRun.model_fields), "a CollectiveRun"),
    **{of: (tuple(KINDS[of]["known"]), f"a row of {of}") for of in ("synchrony", "training")},
}
"""By kind, the fields that a selection may name, and what these are of."""


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim by number; of another package all, or none where one cannot be used."""
    found = read_claims(HERE / "documents", {})
    added = PluginRegistry(
        "claims", ModuleType, use=lambda package, _: read_claims(resources.files(package), found)
    )
    for claims in added.values():
        found |= claims
    return tuple(sorted(found.values(), key=lambda claim: int(claim.number[1:])))


def read_claims(folder: Traversable, known: Mapping[str, Claim]) -> dict[str, Claim]:
    """The `known` claims and those of a folder's YAML files, by number. ValueError: none, two of
    one number, or a field that cannot be.
    """
    found = dict(known)
    for fields in (
        fields
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
        for fields in data_of(file)
    ):
        tests = [_test(test) for test in fields.pop("tests", ())]
        claim = Claim(**fields, predicate=tests[0] if tests else None, further=tuple(tests[1:]))
        if (other := found.setdefault(claim.number, claim)) is not claim:
            raise ValueError(
                f"two claims are called {claim.number}: {other.sentence!r} and {claim.sentence!r}"
            )
    if len(found) == len(known):
        raise ValueError(f"{folder} holds no *.yaml with claims")
    return found


def find_claim(number: str) -> Claim:
    """The claim called `number`; ValueError where there is none."""
    known = {claim.number: claim for claim in all_claims()}
    if number.upper() not in known:
        first, *_, last = known
        raise ValueError(f"unknown claim {number!r}: choose one of {first} to {last}")
    return known[number.upper()]


def selection(fields: Mapping[str, Any], of: str) -> Selection:
    """One value or several for each named field, in the order of their names; ValueError where
    Records of this kind have no such field.
    """
    known, what = KNOWN[of]
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(
            f"{what} has no field {', '.join(unknown)}: choose among {', '.join(known)}"
        )
    return tuple(
        (name, tuple(value) if isinstance(value, list | tuple) else (value,))
        for name, value in sorted(fields.items())
    )


def _test(fields: dict[str, Any]) -> Predicate:
    of = fields["of"]
    own = {
        "contrasts": [_contrast(contrast, of) for contrast in fields["contrasts"]],
        "where": selection(fields.get("where", {}), of),
    }
    return Predicate(**KINDS[of].get("usual", {}) | fields | own)


def _contrast(fields: dict[str, Any], of: str) -> Contrast:
    over, under = (
        _terms(fields.pop(name, usual), of) for name, usual in (("over", {}), ("under", []))
    )
    if fields.pop("scaling", False):
        (above,), (below,) = over, under
        over = [above, below.model_copy(update={"devices": 1})]
        under = [above.model_copy(update={"devices": 1}), below]
    if base := fields.pop("efficiency_over", None):
        under = [term.model_copy(update={"devices": base}) for term in over]
        fields |= {"per_device": True, "unit": "%"}
    if "effect" in fields:
        fields.setdefault("bound", (1 + fields["effect"]) / 2)
    return Contrast(
        over=tuple(over), under=tuple(under), where=selection(fields.pop("where", {}), of), **fields
    )


def _terms(side: Any, of: str) -> list[Term]:
    terms = side if isinstance(side, list) else [side]
    return [Term(devices=term.pop("devices", None), select=selection(term, of)) for term in terms]
