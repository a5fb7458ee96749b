"""The claims as data: `documents/NNN.yaml`, one file a document, read once. Other packages may add files of their own.

A side of a contrast is the fields of its Runs, with `devices` where these are fixed, or a list of such. Two shapes have names of their own:
`scaling: true` compares the speedups of two kinds of Run, each against its own single device, and `efficiency_over: M` the rate a device
on N against that on M. Where the document states an effect of its own, `effect`, half of it is the margin.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Any

from multigpu.claims.core import HERE, KINDS, Claim, Contrast, Predicate, Selection, Term, data_of
from multigpu.collectives.run import CollectiveRun
from multigpu.outside import Added
from multigpu.run import Run

KNOWN = {
    **dict.fromkeys(("runs", "traces"), (tuple(Run.model_fields), "a Run")),
    "hosts": (tuple(CollectiveRun.model_fields), "a CollectiveRun"),
    **{of: (tuple(KINDS[of]["known"]), f"a row of {of}") for of in ("synchrony", "training")},
}
"""By kind, the fields that a selection may name, and what these are of."""


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim of every document, by number; of another package all or, where one cannot be used, none.

    Raises:
        ValueError: as `read_claims`.
    """
    found = read_claims(HERE / "documents", {})
    added = Added("claims", ModuleType, use=lambda package, _: read_claims(resources.files(package), found))
    for claims in added.values():
        found |= claims
    return tuple(sorted(found.values(), key=lambda claim: int(claim.number[1:])))


def read_claims(folder: Traversable, known: Mapping[str, Claim]) -> dict[str, Claim]:
    """The `known` claims and those of a folder's YAML files, by number.

    Raises:
        ValueError: there is none, two have one number, or one has a field that is unknown or a value that it cannot have.
    """
    found = dict(known)
    for fields in (fields for file in folder.iterdir() if file.name.endswith(".yaml") for fields in data_of(file)):
        tests = [_test(test) for test in fields.pop("tests", ())]
        claim = Claim(**fields, predicate=tests[0] if tests else None, further=tuple(tests[1:]))
        if (other := found.setdefault(claim.number, claim)) is not claim:
            raise ValueError(f"two claims are called {claim.number}: {other.sentence!r} and {claim.sentence!r}")
    if len(found) == len(known):
        raise ValueError(f"{folder} holds no *.yaml with claims")
    return found


def find_claim(number: str) -> Claim:
    """The claim called `number`.

    Raises:
        ValueError: no such claim.
    """
    found = next((claim for claim in all_claims() if claim.number == number.upper()), None)
    if found is None:
        first, *_, last = all_claims()
        raise ValueError(f"unknown claim {number!r}: choose one of {first.number} to {last.number}")
    return found


def selection(fields: Mapping[str, Any], of: str) -> Selection:
    """One value or several for each named field, in the order of their names.

    Raises:
        ValueError: Records of this kind have no such field.
    """
    known, what = KNOWN[of]
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(f"{what} has no field {', '.join(unknown)}: choose among {', '.join(known)}")
    return tuple((name, tuple(value) if isinstance(value, list | tuple) else (value,)) for name, value in sorted(fields.items()))


def _test(fields: dict[str, Any]) -> Predicate:
    of = fields["of"]
    own = {"contrasts": [_contrast(contrast, of) for contrast in fields["contrasts"]], "where": selection(fields.get("where", {}), of)}
    return Predicate(**KINDS[of].get("usual", {}) | fields | own)


def _contrast(fields: dict[str, Any], of: str) -> Contrast:
    over, under = (_terms(fields.pop(name, usual), of) for name, usual in (("over", {}), ("under", [])))
    if fields.pop("scaling", False):
        (above,), (below,) = over, under
        over, under = [above, below.model_copy(update={"devices": 1})], [above.model_copy(update={"devices": 1}), below]
    if base := fields.pop("efficiency_over", None):
        under = [term.model_copy(update={"devices": base}) for term in over]
        fields |= {"per_device": True, "unit": "%"}
    if "effect" in fields:
        fields.setdefault("bound", (1 + fields["effect"]) / 2)
    return Contrast(over=tuple(over), under=tuple(under), where=selection(fields.pop("where", {}), of), **fields)


def _terms(side: Any, of: str) -> list[Term]:
    terms = side if isinstance(side, list) else [side]
    return [Term(devices=term.pop("devices", None), select=selection(term, of)) for term in terms]
