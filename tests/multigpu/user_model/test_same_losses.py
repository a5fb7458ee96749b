"""A compiled or captured way that trains something else than launched steps is not called equal."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from multigpu.records.record import Equivalence, Record
from multigpu.user_model.result import Result
from multigpu.user_model.same_losses import FIRST, first_apart
from tests.multigpu.user_model.test_told import planted, result_of

LAUNCHED = [2.0 / (1 + step) for step in range(FIRST)]
STALE = [*LAUNCHED[:3], *[LAUNCHED[3]] * (FIRST - 3)]  # as if a replay's rate were frozen


def way(placement: str, devices: int, execution: str, losses: Sequence[float]) -> list[Record]:
    fast = 10.0 if execution == "eager" else 5.0
    records = planted(placement, devices, (fast, 1.01 * fast, 0.99 * fast))
    found = []
    for record in records:
        assert record.measurement is not None
        found.append(
            record.model_copy(
                update={
                    "run": record.run.model_copy(update={"execution": execution}),
                    "measurement": record.measurement.model_copy(update={"loss": list(losses)}),
                }
            )
        )
    return found


def compared(losses: Sequence[float], **told: Any) -> Result:
    return result_of(
        way("ddp", 1, "eager", LAUNCHED),
        way("ddp", 2, "eager", LAUNCHED),
        way("ddp", 2, "compiled", losses),
        **{"draws": False} | told,
    )


def test_a_way_whose_losses_leave_those_of_launched_steps_does_not_lead() -> None:
    result = compared(STALE)
    assert not result.trains_the_same("ddp, compiled")
    assert result.best is not None and result.best.name != "ddp, compiled"
    told = result.table().set_index("name")["equal"]["ddp, compiled"]
    assert told == "NOT equal: the loss of step 5 is 0.5 where ddp, launched step by step, has 0.4"


def test_rounding_is_no_other_training() -> None:
    result = compared([loss * (1 + 5e-5) for loss in LAUNCHED])
    assert result.trains_the_same("ddp, compiled")
    assert result.best is not None and result.best.name == "ddp, compiled"


@pytest.mark.parametrize("draws", [True, None])
def test_losses_of_a_model_that_draws_or_may_draw_tell_nothing(draws: bool | None) -> None:
    assert compared(STALE, draws=draws).trains_the_same("ddp, compiled")


@pytest.mark.parametrize("distance", [1e-12, 1e-2])
def test_a_form_is_as_equal_as_its_placements_launched_steps(distance: float) -> None:
    told = Equivalence(distance=distance, tolerance=1e-8, steps=3, precision="fp64")
    first, *later = way("ddp", 2, "eager", LAUNCHED)
    assert first.measurement is not None
    first = first.model_copy(
        update={"measurement": first.measurement.model_copy(update={"equivalence": told})}
    )
    zero = way("zero1", 2, "compiled", LAUNCHED)
    result = result_of([first, *later], way("ddp", 2, "compiled", LAUNCHED), zero, draws=False)
    assert result.equivalence("ddp, compiled") == told
    assert result.trains_the_same("ddp, compiled") == (distance < 1e-8)
    assert result.equivalence("zero1, compiled") is None


def test_another_placement_that_trains_alike_stands_in_for_launched_steps() -> None:
    launched = way("zero1", 2, "eager", LAUNCHED)
    alone = way("independent", 2, "eager", [2 * loss for loss in LAUNCHED])
    captured = way("ddp", 2, "compiled", STALE)
    result = result_of(alone, launched, captured, draws=False)
    assert "zero1, launched" in result.other_losses["ddp, compiled"]
    assert not result_of(alone, captured, draws=False).other_losses["ddp, compiled"]


@pytest.mark.parametrize(
    ("precision", "factor", "step"),
    [
        ("fp64", 1 + 1e-6, 0),
        ("fp32", 1 + 1e-6, None),
        ("bf16", 1 + 1e-3, None),
        ("bf16", 1.1, 0),
        ("bf16", math.nan, 0),
    ],
)
def test_how_far_losses_may_be_apart(precision: str, factor: float, step: int | None) -> None:
    assert first_apart([factor * loss for loss in LAUNCHED], LAUNCHED, precision) == step
    assert first_apart([math.nan] * 3, [math.nan] * 3, precision) is None
