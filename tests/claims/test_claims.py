"""Claims are data: each is decidable or says why not, and what decides it has a digest."""

import json

import pytest
from pydantic import ValidationError

from multigpu.claims import Claim, Contrast, Predicate, Term, all_claims, find_claim
from multigpu.claims.core import KNOWN, selection
from multigpu.placements import placements
from multigpu.placements.stage_split import SPLIT
from tests.refusals import refused

CLAIMS = all_claims()
PREDICATES = [pytest.param(one, id=f"{claim.number} {one.of}") for claim in CLAIMS for one in claim.predicates]


def test_claims_are_numbered_without_a_gap_and_are_sentences():
    assert [claim.number for claim in CLAIMS] == [f"C{n}" for n in range(1, len(CLAIMS) + 1)]
    assert all(claim.sentence.endswith(".") and claim.sentence[0].isupper() for claim in CLAIMS)


@pytest.mark.parametrize("predicate", PREDICATES)
def test_predicates_are_data_and_state_scope_and_least_data_and_name_what_exists(predicate):
    assert Predicate.model_validate_json(predicate.model_dump_json()) == predicate == Predicate.model_validate(predicate.model_dump())
    json.dumps(predicate.model_dump(mode="json"), allow_nan=False)
    assert predicate.scope and predicate.protocol
    assert predicate.min_n >= 5
    if predicate.of == "runs":
        assert predicate.machines == "gpu" and predicate.min_launches >= 2
        assert predicate.warmup_steps >= 10 and predicate.timed_steps >= 20
    for contrast in predicate.contrasts:
        for chosen in (predicate.where, contrast.where, *(term.select for term in contrast.terms)):
            assert {field for field, _ in chosen} <= set(KNOWN[predicate.of][0])
            assert {*dict(chosen).get("placement", ())} <= {*placements(), *SPLIT}


def test_what_cannot_work_is_refused():
    assert find_claim("c5").number == "C5"
    refused(f"unknown claim 'C0': choose one of C1 to C{len(CLAIMS)}", find_claim, "C0")
    for of, (known, what) in KNOWN.items():
        refused(f"{what} has no field colour: choose among {known[0]}", selection, {"colour": "red"}, of)
    predicate = find_claim("C5").predicate
    for why, fields in (
        ("must have a predicate", {}),
        ("must have a predicate", {"decides": "Runs", "seconds": 5, "untestable": "old cards"}),
        ("each must be of another kind", {"predicate": predicate, "further": (predicate,)}),
        ("each must be of another kind", {"decides": "Runs", "seconds": 5, "further": (predicate,)}),
        ("together with the seconds and gpus", {"decides": "Runs"}),
    ):
        with pytest.raises(ValidationError, match=why):
            Claim(number="C1", sentence="A.", documents=("000",), figure="1", **fields)
    with pytest.raises(ValidationError, match="needs a bound above 1"):
        Contrast(label="equal", over=(Term(),), direction="within", bound=0.95)
    with pytest.raises(ValidationError):
        Predicate(contrasts=(Contrast(label="rate", over=(Term(),)),), min_n=1)
