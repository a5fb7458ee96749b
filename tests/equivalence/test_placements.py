"""Every placement that is found trains as its semantics says and moves the bytes that its row predicts."""

from collections import Counter

import pytest
import torch

from multigpu.placements import placements
from multigpu.placements.step_bytes import step_bytes
from multigpu.run import Run
from tests.equivalence.cases import all_cases, distance, name_of, reference_of, run_all

TOLERANCE = {("fp64", "momentum"): 1e-10, ("fp64", "adam"): 1e-10, ("fp32", "momentum"): 1e-5, ("fp32", "adam"): 5e-4}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest):
    """Of the cases that are asked for: `pytest -k NAME` trains no others."""
    asked = [item for item in request.session.items if item.module is request.module and "results" in item.fixturenames]
    chosen = {item.callspec.params["run"] for item in asked}
    return run_all([run for run in all_cases() if run in chosen])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", all_cases(), ids=name_of)
def test_equals_its_reference_and_moves_what_its_row_predicts(run: Run, results) -> None:
    parts = results[name_of(run)]
    errors = {part["error"] for part in parts if "error" in part}
    assert len(parts) == run.devices and not errors, errors or f"{len(parts)} of {run.devices} replicas answered"
    counted = sum((Counter(part["counted"]) for part in parts), Counter[str]())
    assert dict(counted) == step_bytes(run, parts[0]["lookups"])
    reference, semantics = reference_of(run), run.semantics
    tolerance = semantics.tolerance or TOLERANCE[run.precision, run.optimizer]
    if not semantics.facts.loss_is_shared:
        for part, values, losses in zip(parts, reference["values"], reference["losses"], strict=True):
            assert distance(run, part["values"], values) < tolerance
            assert part["losses"] == pytest.approx(losses, rel=1e-5)
        return
    assert semantics.facts.is_reproducible, f"write the comparison for {semantics}"
    assert distance(run, parts[0]["values"], reference["values"][0]) < tolerance
    joined = [sum(losses) for losses in zip(*(part["losses"] for part in parts), strict=True)]
    assert joined == pytest.approx(reference["losses"][0], rel=max(1e-5, semantics.tolerance))
    if placements()[run.placement].variables == "replica" or run.copies < run.devices:
        for part in parts[1:]:
            assert all(torch.equal(part["values"][name], value) for name, value in parts[0]["values"].items())
