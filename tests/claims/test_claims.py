"""Claims are data: each is decidable or says why not, and what decides it has a digest; results are computed once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from multigpu import remembered as module
from multigpu.claims import Claim, Contrast, Predicate, Result, Term, all_claims, evaluate_all, find_claim
from multigpu.claims.core import KNOWN, selection
from multigpu.placements import placements
from multigpu.placements.stage_split import SPLIT
from multigpu.remembered import remembered
from tests.refusals import refused

CLAIMS = all_claims()


def test_claims_are_numbered_without_a_gap_and_are_sentences():
    assert [claim.number for claim in CLAIMS] == [f"C{n}" for n in range(1, len(CLAIMS) + 1)]
    assert all(claim.sentence.endswith(".") and claim.sentence[0].isupper() for claim in CLAIMS)


def test_predicates_are_data_and_state_scope_and_least_data_and_name_what_exists():
    for predicate in (one for claim in CLAIMS for one in claim.predicates):
        assert Predicate.model_validate_json(predicate.model_dump_json()) == predicate
        assert predicate.scope and predicate.protocol and predicate.min_n >= 5, predicate
        if predicate.of == "runs":
            assert predicate.machines == "gpu" and predicate.min_launches >= 2 and predicate.warmup_steps >= 10, predicate
        for contrast in predicate.contrasts:
            for chosen in (predicate.where, contrast.where, *(term.select for term in contrast.terms)):
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


def test_results_are_computed_once_and_again_where_anything_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Record, the program, the file itself."""
    results, calls = evaluate_all(), []
    for name in ("records/machine", "source"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(module, "SOURCE", tmp_path / "source")

    def told(folder: str = "cache") -> list[Result]:
        return remembered("claims", [tmp_path / "records"], lambda: calls.append(1) or results, tmp_path / folder)

    assert told() == told() == results and len(calls) == 1
    for count, (name, content) in enumerate({"records/machine/abc.0.json.gz": b"new", "source/claims.py": b"changed = True\n"}.items(), 2):
        (tmp_path / name).write_bytes(content)
        told()
        assert len(calls) == count
        (kept,) = (tmp_path / "cache").iterdir()  # the old file is gone
    kept.write_bytes(b"broken")
    told()
    assert len(calls) == 4
    (tmp_path / "file").write_text("")
    assert told("file") == results, "a folder that cannot be written is done without"
