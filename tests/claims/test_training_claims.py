"""Claims over TrainingRecords: planted ones for which C32 holds, does not hold, and decides nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.training import training_frame
from multigpu.claims import all_claims, evaluate, find_claim
from multigpu.training.record import TrainingRecord
from tests.training.planted import trained

SMALL = {"devices": 1, "batch_size": 16, "scaling": "weak", "reference_batch": 16, "base_rate": 0.02}
LARGE: dict[str, Any] = {**SMALL, "devices": 2, "batch_size": 64}
SCALED = {"rate_scaling": "linear", "schedule": "warmup", "warmup_epochs": 2}


def runs(scaled: float, unscaled: float = 0.5, seeds: int = 5) -> list[TrainingRecord]:
    """0.95 at a batch of 16; these accuracies at 128, and one that was scaled without a warm-up."""
    found = []
    for seed in range(seeds):
        noise = 0.002 * (seed - 2)
        for accuracy, fields in (
            (0.95, SMALL),
            (scaled, LARGE | SCALED),
            (unscaled, LARGE),
            (0.1, LARGE | {"rate_scaling": "linear"}),
        ):
            found.append(trained(accuracies=(accuracy + noise,), seed=seed, epochs=6, **fields))
    return found


def test_every_claim_over_training_has_a_case() -> None:
    assert {claim.number for claim in all_claims() if claim.predicate and claim.predicate.of == "training"} == {"C32"}


def test_it_holds_and_names_its_records() -> None:
    planted = runs(0.95)
    result = evaluate(find_claim("C32"), training_frame(planted))
    assert result.verdict == "holds", result.why
    compared = {r.key for r in planted if r.training.schedule == "warmup" or r.training.run.batch_size == 16}
    assert set(result.record_keys) == compared and len(compared) == 10
    assert "n = 5 seeds" in result.figure


@pytest.mark.parametrize("scaled", [0.5, 0.9])
def test_it_does_not_hold_where_accuracy_is_lost(scaled: float) -> None:
    assert evaluate(find_claim("C32"), training_frame(runs(scaled))).verdict == "does not hold"


def test_what_is_not_scaled_decides_nothing() -> None:
    """Only the scaled and warmed-up runs are compared, however the others end."""
    assert evaluate(find_claim("C32"), training_frame(runs(0.95, unscaled=0.99))).verdict == "holds"
    without = [r for r in runs(0.95) if r.training.schedule != "warmup"]
    result = evaluate(find_claim("C32"), training_frame(without))
    assert result.verdict == "not yet measured" and "batch" in result.why


def test_one_seed_decides_nothing_and_none_is_not_yet_measured() -> None:
    assert evaluate(find_claim("C32"), training_frame(runs(0.95, seeds=1))).verdict == "inconclusive"
    assert evaluate(find_claim("C32"), pd.DataFrame()).verdict == "not yet measured"
