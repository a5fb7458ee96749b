"""All 51 claims are there, with their documents' figures, and their predicates are data."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from multigpu.claims import Claim, Contrast, Predicate, Term, all_claims, find_claim, where
from multigpu.placements import placements
from multigpu.run import Run

# Of each claim: its documents, and words or figures of the documents that its row must show.
EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "C1": ("000", ("1.76x", "after 3 GPUs")),
    "C2": ("000", ("21.35K", "25.93K")),
    "C3": ("000", ("14.7K", "12.4K")),
    "C4": ("000", ("1.92x", "1.51x")),
    "C5": ("000", ("2.56x", "360", "1.92x", "128")),
    "C6": ("000", ("748", "1,715")),
    "C7": ("000", ("1,498", "2,250", "1.50x")),
    "C8": ("000", ("1.80",)),
    "C9": ("000", ("20.8%", "7.4%", "60%", "85%")),
    "C10": ("000", ("1.97",)),
    "C11": ("000", ("2 GPUs", "3")),
    "C12": ("001", ("1.93x / 3.87x / 7.44x", "96.4 / 96.8 / 93.0%")),
    "C13": ("001", ("Synthetic", "real")),
    "C14": ("001", ("64", "32")),
    "C15": ("001", ("1.61x", "ResNet-50", "Inception-v3")),
    "C16": ("001", ("1.22x to 1.73x", "NCHW", "NHWC")),
    "C17": ("001", ("400,000", "364,772", "2.00x")),
    "C18": ("001", ("58.7%", "75.7%", "82.1%")),
    "C19": ("001", ("5%", "15%")),
    "C20": ("001", ("1.17x", "1.22x")),
    "C21": ("001", ("consistently",)),
    "C22": ("001", ("NCCL", "many GPUs")),
    "C23": ("001", ("predictions", "gradients")),
    "C24": ("001", ("warm-up",)),
    "C25": ("002", ("2N(P-1)/P", "2N(P-1)")),
    "C26": ("002", ("P log P",)),
    "C27": ("002", ("higher error",)),
    "C28": ("002", ("N/K",)),
    "C29": ("002", ("95%", "84%")),
    "C30": ("002", ("flatters",)),
    "C31": ("002", ("2.2x on 8", "12x on 81")),
    "C32": ("002", ("learning rate", "warm-up")),
    "C33": ("002", ("staleness",)),
    "C34": ("002", ("precision", "accuracy")),
    "C35": ("003", ("20.455 / 22.500 / 23.021",)),
    "C36": ("003", ("20.08%", "24.53%")),
    "C37": ("003", ("fits one GPU",)),
    "C38": ("004", ("360", "700 ms", "16")),
    "C39": ("004", ("90 ms",)),
    "C40": ("004", ("LSTM",)),
    "C41": ("004", ("Shuffling", "periodic")),
    "C42": ("001", ("sometimes", "2 GPUs")),
    "C43": ("001", ("Inception", "ResNet", "AlexNet", "VGG", "NCCL")),
    "C44": ("002", ("50%",)),
    "C45": ("002", ("K-batch-sync", "K-batch-async")),
    "C46": ("002", ("bigger batch", "converges")),
    "C47": ("004", ("51K", "160K", "16")),
    "C48": ("002", ("Averaging",)),
    "C49": ("000, 001", ("4.4x", "P100", "K80", "Titan")),
    "C50": ("001", ("4.487x", "6 GPUs", "1.615x")),
    "C51": ("003", ("17.54%", "UnsortedSegment")),
}
CLAIMS = all_claims()
PREDICATES = [
    pytest.param(claim.predicate, id=claim.number)
    for claim in CLAIMS
    if type(claim.predicate) is Predicate  # other kinds of Records have test files of their own
]
UNTESTABLE = {"C19", "C20", "C49", "C50"}


def test_all_51_in_order():
    assert [claim.number for claim in CLAIMS] == [f"C{n}" for n in range(1, 52)] == list(EXPECTED)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.number)
def test_document_and_figure(claim):
    document, words = EXPECTED[claim.number]
    assert claim.document == document
    for word in words:
        assert word in f"{claim.sentence} {claim.figure}", word


def test_every_claim_is_decidable_or_says_why_not():
    for claim in CLAIMS:
        assert bool(claim.predicate) + bool(claim.needs) + bool(claim.untestable) == 1
        assert claim.sentence.endswith(".") and claim.sentence[0].isupper()
    assert {claim.number for claim in CLAIMS if claim.untestable} == UNTESTABLE
    assert {"C2", "C5"} <= {claim.number for claim in CLAIMS if claim.predicate}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_predicates_are_pure_data(predicate):
    assert Predicate.model_validate_json(predicate.model_dump_json()) == predicate
    assert Predicate.model_validate(predicate.model_dump()) == predicate
    assert hash(predicate) == hash(Predicate.model_validate(predicate.model_dump()))
    json.dumps(predicate.model_dump(mode="json"), allow_nan=False)
    with pytest.raises(ValidationError):
        predicate.min_n = 1


@pytest.mark.parametrize("predicate", PREDICATES)
def test_predicates_state_scope_margin_and_least_data(predicate):
    assert predicate.scope and predicate.protocol
    assert predicate.machines == "gpu"
    assert predicate.min_n >= 5 and predicate.min_launches >= 2
    assert predicate.warmup_steps >= 10 and predicate.timed_steps >= 20
    for contrast in predicate.contrasts:
        for selection in (predicate.where, contrast.where, *(term.select for term in contrast.terms)):
            assert {field for field, _ in selection} <= set(Run.model_fields)


def test_digests_are_the_same_in_every_process():
    code = "from multigpu.claims import all_claims; print(*(c.digest for c in all_claims() if c.predicate))"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        assert told.split() == [claim.digest for claim in CLAIMS if claim.predicate]


def test_a_changed_margin_changes_the_digest():
    predicate = find_claim("C5").predicate
    assert predicate is not None
    looser = predicate.contrasts[0].model_copy(update={"bound": 1.01})
    assert predicate.model_copy(update={"contrasts": (looser,)}).digest != predicate.digest


def test_the_spines_placements_are_named_as_they_are():
    named = {
        value
        for claim in CLAIMS
        if claim.predicate
        for contrast in claim.predicate.contrasts
        for selection in (claim.predicate.where, contrast.where, *(term.select for term in contrast.terms))
        for field, values in selection
        if field == "placement"
        for value in values
    }
    later = {"exp1", "exp3", "ps_gpu0", "replicated_copy", "replicated_allreduce", "layer_split", "single", "tower_per_gpu", "alternating"}
    assert named <= set(placements()) | later


def test_find_claim():
    assert find_claim("c5").number == "C5"
    with pytest.raises(ValueError, match="unknown claim 'C52': choose one of C1 to C51"):
        find_claim("C52")


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="a Run has no field colour"):
        where(colour="red")
    with pytest.raises(ValidationError, match="must have a predicate"):
        Claim(number="C1", sentence="A.", documents=("000",), figure="1")
    with pytest.raises(ValidationError, match="must have a predicate"):
        Claim(number="C1", sentence="A.", documents=("000",), figure="1", needs="Runs", untestable="old cards")
    predicate = find_claim("C5").predicate
    with pytest.raises(ValidationError, match="each must be of another kind"):
        Claim(number="C1", sentence="A.", documents=("000",), figure="1", predicate=predicate, further=(predicate,))
    with pytest.raises(ValidationError, match="each must be of another kind"):
        Claim(number="C1", sentence="A.", documents=("000",), figure="1", needs="Runs", further=(predicate,))
    with pytest.raises(ValidationError, match="needs a bound above 1"):
        Contrast(label="equal", over=(Term(),), direction="within", bound=0.95)
    with pytest.raises(ValidationError):
        Predicate(contrasts=(Contrast(label="rate", over=(Term(),)),), min_n=1)
