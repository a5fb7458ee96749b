"""Staged variables, one step old, train to the end: as the reference says, unlike the placement that does not stage, resumed bit by bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch.reference import train_reference
from multigpu.training.grid import staged_twins
from multigpu.training.run import TrainingRun
from tests.equivalence.cases import make_context
from tests.training import broken
from tests.training.cases import Case, Results, fault_of, training

pytestmark = pytest.mark.timeout(300)

TWINS = staged_twins()
STEPS = 5
DOUBLE: dict[str, Any] = {"precision": "fp64", "steps": STEPS, "base_rate": None, "evaluate_every": 1}
"""At the rule's own rate, which the reference takes."""
ADAM: dict[str, Any] = {"optimizer": "adam", "base_rate": 1e-3, "schedule": "luong10", "schedule_steps": 8, "checkpoint_every": 2}
"""Slots, a count of steps and a rate that changes: all of it must come back, and so must what was staged."""

FIRST = [
    *(Case(f"double-{name}", training(name, **DOUBLE)) for name in (*TWINS, *TWINS.values())),
    *(Case(f"whole-{name}", training(name, **ADAM)) for name in TWINS),
    Case("fetched-apart", training("staged_cpu"), broken.FetchedApart),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("staged"), [FIRST], {name: training(name, **ADAM) for name in TWINS}, 1)


def reference(run: TrainingRun, stale: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The repository's own: one process on both shards, with gradients so many steps old."""
    context, source = make_context(run.run.model_copy(update={"placement": ""}), 0, Path())
    return train_reference(context, source, STEPS, [0, 1], stale)


@pytest.mark.parametrize("placement", sorted(TWINS))
def test_it_is_the_reference_with_gradients_one_step_old(results: Results, placement: str) -> None:
    """Five steps in float64, on two processes: no further from it than another order of summing leads."""
    values, losses = reference(results.cases[f"double-{placement}"].training, stale=1)
    ours = results.of(f"double-{placement}")
    assert ours.loss == pytest.approx(losses, rel=1e-6) and len(losses) == STEPS  # a Record keeps seven digits
    found = results[f"double-{placement}"][0]["values"]
    assert found.keys() == values.keys()
    assert all(torch.allclose(value, values[name], rtol=0, atol=1e-13) for name, value in found.items())
    fresh, _ = reference(results.cases[f"double-{placement}"].training, stale=0)
    assert not all(torch.allclose(value, fresh[name], rtol=0, atol=1e-6) for name, value in found.items())


@pytest.mark.parametrize(("placement", "twin"), sorted(TWINS.items()))
def test_it_leaves_its_twin_after_the_first_step(results: Results, placement: str, twin: str) -> None:
    """Both take the first step at the initial variables; the second is taken there again where they are staged. What is scored are the
    newest variables: after one step those of both are the same, and no longer the first.
    """
    staged, plain = results.of(f"double-{placement}"), results.of(f"double-{twin}")
    assert staged.start_hashes == plain.start_hashes and len(set(staged.start_hashes)) == 1
    assert staged.loss[0] == plain.loss[0]
    assert all(abs(a / b - 1) > 1e-4 for a, b in zip(staged.loss[1:], plain.loss[1:], strict=True))
    scores = [[evaluation.scores["loss"] for evaluation in run.evaluations] for run in (staged, plain)]
    assert scores[0][:2] == pytest.approx(scores[1][:2], rel=1e-6) and abs(scores[0][1] / scores[0][0] - 1) > 1e-4
    assert abs(scores[0][2] / scores[1][2] - 1) > 1e-4


@pytest.mark.parametrize("placement", sorted(TWINS))
def test_duties_are_audited_on_every_replica(results: Results, placement: str) -> None:
    run = results.of(f"whole-{placement}")
    (audit,) = run.epochs
    assert (audit.distinct, audit.shared) == (600, 0) and run.replicas_agree is True and len(run.end_hashes) == 1
    assert run.files_by_rank[1] == [] and run.evaluations_by_rank == [0, 0]
    assert run.rate == pytest.approx([1e-3] * 5 + [5e-4])  # luong10 over 8 steps halves for the first time after the fifth


def test_replicas_that_fetch_something_else_are_found(results: Results) -> None:
    told = "replicas hold different weights after step 6: they did not fetch the same for their next step"
    assert fault_of(results["fetched-apart"]) == told


@pytest.mark.parametrize("placement", sorted(TWINS))
def test_killed_and_resumed_is_bitwise_the_unbroken_run(results: Results, placement: str) -> None:
    results.check_resumed(placement, f"whole-{placement}")
