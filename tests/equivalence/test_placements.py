"""Every placement that is found trains as its semantics says and moves the bytes that its row predicts."""

from typing import Any

import pytest
import torch

from multigpu.engines.torch.variables import initial_values
from multigpu.placements import placements
from tests.equivalence.cases import Case, all_cases, predicted_of, reference_of, run_all

TOLERANCE = {("fp64", "momentum"): 1e-10, ("fp64", "adam"): 1e-10, ("fp32", "momentum"): 1e-5, ("fp32", "adam"): 5e-4}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest):
    """Of the cases that are asked for: `pytest -k NAME` trains no others."""
    asked = [item for item in request.session.items if item.module is request.module and "results" in item.fixturenames]
    chosen = {item.callspec.params["case"] for item in asked}
    return run_all([case for case in all_cases() if case in chosen])


def parts_of(case: Case, results) -> list[dict[str, Any]]:
    """What each replica knows at the end; one sentence where any of them failed."""
    parts = results[case.name]
    errors = {part["error"] for part in parts if "error" in part}
    assert len(parts) == case.run.devices and not errors, errors or f"{len(parts)} of {case.run.devices} replicas answered"
    return parts


def distance(case: Case, ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> float:
    """Norm of the difference over norm of the update, over all variables."""
    difference = update = 0.0
    dtype = torch.float64 if case.run.precision == "fp64" else torch.float32
    for variable, initial in initial_values(case.run.description, case.run.seed, torch.device("cpu"), dtype):
        expected = reference[variable.name].double()
        difference += float((ours[variable.name].double() - expected).square().sum())
        update += float((expected - initial.double()).square().sum())
    return (difference / update) ** 0.5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_equals_its_reference(case: Case, results) -> None:
    parts = parts_of(case, results)
    reference = reference_of(case)
    semantics = case.run.semantics
    tolerance = semantics.tolerance or TOLERANCE[case.run.precision, case.run.optimizer]
    if not semantics.facts.loss_is_shared:
        for part, values, losses in zip(parts, reference["values"], reference["losses"], strict=True):
            assert distance(case, part["values"], values) < tolerance
            assert part["losses"] == pytest.approx(losses, rel=1e-5)
        return
    assert semantics.facts.is_reproducible, f"write the comparison for {semantics}"
    assert distance(case, parts[0]["values"], reference["values"][0]) < tolerance
    joined = [sum(losses) for losses in zip(*(part["losses"] for part in parts), strict=True)]
    assert joined == pytest.approx(reference["losses"][0], rel=max(1e-5, semantics.tolerance))
    if placements()[case.run.placement].variables == "replica" or case.run.copies < case.run.devices:
        for part in parts[1:]:
            assert all(torch.equal(part["values"][name], value) for name, value in parts[0]["values"].items())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_moves_what_its_row_predicts(case: Case, results) -> None:
    parts = parts_of(case, results)
    counted: dict[str, int] = {}
    for part in parts:
        for kind, count in part["counted"].items():
            counted[kind] = counted.get(kind, 0) + count
    assert {kind: count for kind, count in counted.items() if count} == predicted_of(case, parts[0])
