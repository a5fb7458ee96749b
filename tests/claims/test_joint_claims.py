"""Claims over two kinds of Records, Runs and training: either kind flips the verdict, and neither alone decides that it holds."""

from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.training import training_frame
from multigpu.claims import Result, all_claims, find_claim, wording
from tests.claims.cases import CASES
from tests.claims.planted import evaluate
from tests.training.planted import trained

REFERENCE: dict[str, Any] = {"devices": 1, "batch_size": 16, "scaling": "weak", "reference_batch": 16, "base_rate": 0.02, "epochs": 6}
WARMED: dict[str, Any] = REFERENCE | {"rate_scaling": "linear", "schedule": "warmup", "warmup_epochs": 2}


def batch(multiple: int) -> dict[str, Any]:
    return WARMED | {"batch_size": 16 * multiple}


JOINT: dict[str, tuple[tuple[Any, ...], ...]] = {
    "C34": ((REFERENCE | {"precision": "fp32"}, 0.9), (REFERENCE | {"precision": "bf16"}, 0.9, 0.8)),
    # not so, if nothing is lost at 128 times
    "C46": ((batch(1), 0.9), (batch(32), 0.6), (batch(128), 0.3, 0.88)),
}
"""Trainings as (fields, accuracy if the claim holds, accuracy if it does not, where that is another)."""


def trainings(number: str, holds: bool = True, seeds: int = 5, gpus: int = 4) -> pd.DataFrame:
    made = [(fields, accuracies[0 if holds else -1], seed) for fields, *accuracies in JOINT[number] for seed in range(seeds)]
    return training_frame([trained(accuracies=(one + 0.002 * (seed - 2),), seed=seed, gpus=gpus, **fields) for fields, one, seed in made])


each = pytest.mark.parametrize("number", sorted(JOINT))


def result_of(number: str, rows: list[dict[str, Any]], frame: pd.DataFrame | None) -> Result:
    return evaluate(find_claim(number), pd.DataFrame(rows), **({} if frame is None else {"training": frame}))


def test_every_claim_over_two_kinds_has_a_case() -> None:
    assert {claim.number for claim in all_claims() if claim.further} == set(JOINT)
    assert all(one.of == "training" for number in JOINT for one in find_claim(number).further)


@each
def test_it_holds_by_both_and_names_the_records_of_both(number: str) -> None:
    rows, frame = CASES[number].rows("holds"), trainings(number)
    result = result_of(number, rows, frame)
    assert result.verdict == "holds", result.why
    compared = frame[frame["multiple"] != 32]["key"]
    assert set(result.record_keys) == {row["key"] for row in rows} | set(compared)
    assert "n = 5 over 2 launches" in result.figure and "n = 5 seeds" in result.figure and "accuracy" in result.figure
    assert result.by_framework["torch"].verdict == "holds"
    told = wording.tested(result)
    for predicate in find_claim(number).predicates:
        assert predicate.scope in told and all(contrast.label in told for contrast in predicate.contrasts)


@each
def test_either_kind_refutes_and_neither_holds_alone(number: str) -> None:
    good, bad, frame, other = CASES[number].rows("holds"), CASES[number].rows("fails"), trainings(number), trainings(number, holds=False)
    by_runs, by_training = result_of(number, bad, frame), result_of(number, good, other)
    assert by_runs.verdict == by_training.verdict == "does not hold"
    assert "accuracy" not in by_runs.why and by_training.why.startswith("not so: accuracy")
    assert result_of(number, bad, None).verdict == result_of(number, [], other).verdict == "does not hold"
    runs, training = result_of(number, good, None), result_of(number, [], frame)
    assert runs.verdict == training.verdict == "not yet measured"
    assert "batch" in runs.why and "GPU" in training.why and "accuracy" in training.figure
    assert result_of(number, good, trainings(number, seeds=1)).verdict == "inconclusive"
    assert result_of(number, good, trainings(number, gpus=0)).verdict == "not yet measured"
