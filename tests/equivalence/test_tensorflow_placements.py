"""Every TensorFlow placement trains as its semantics says, moves what its row predicts, and runs each part where the row says."""

from typing import Any

import pytest

from multigpu.placements import placements
from tests.equivalence.tensorflow_cases import REFUSED, UNSIZED, Case, all_cases, process_cases, run_cases
from tests.equivalence.tensorflow_checks import check, result_of

pytestmark = pytest.mark.timeout(600)

TOLERANCE = {"fp64": 1e-10, "fp32": 5e-4, "bf16": 0.1}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tf: Any):
    """Of the cases that are asked for: `pytest -k NAME` trains no others."""
    asked = [item for item in request.session.items if item.module is request.module and "results" in item.fixturenames]
    if all(hasattr(item, "callspec") for item in asked):
        return run_cases({item.callspec.params["case"].name for item in asked})
    return run_cases({case.name for case in (*all_cases(), REFUSED, UNSIZED, *process_cases())})


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_trains_moves_and_runs_as_its_row_says(case: Case, results) -> None:
    check(case, results, TOLERANCE[case.run.precision])


@pytest.mark.parametrize("case", process_cases(), ids=lambda case: case.name)
def test_a_run_over_processes_equals_its_reference(case: Case, results) -> None:
    """Each variable's sum and its distance from the start tell whether it is the reference's, without its values in a Record."""
    result = result_of(case, results)
    parts = result["parts"]
    assert [part["rank"] for part in parts] == list(range(case.run.devices))
    assert [sum(shares) for shares in zip(*(part["losses"] for part in parts), strict=True)] == pytest.approx(result["losses"], rel=1e-12)
    holders = parts if placements()[case.run.placement].variables == "replica" else parts[:1]
    for part in holders:
        assert part["prints"].keys() == result["prints"].keys()
        assert part["distance"] == pytest.approx(result["distance"], rel=1e-9)
        for name, total in result["prints"].items():
            assert abs(part["prints"][name] - total) < 1e-9 * result["distance"][name]


@pytest.mark.parametrize("case", process_cases(), ids=lambda case: case.name)
def test_bytes_of_a_run_over_processes_are_counted_or_said_not_to_be(case: Case, results) -> None:
    parts = result_of(case, results)["parts"]
    moved = sum(part["moved"].get("all_reduce", 0) for part in parts)
    if placements()[case.run.placement].merge == "all_reduce":
        elements = sum(variable.elements for variable in case.run.description.variables)
        assert moved == case.run.devices * elements * 8 and not parts[0]["uncounted"]
    else:
        assert not moved and "gRPC" in parts[0]["uncounted"]


def test_what_cannot_be_sized_leaves_the_bytes_uncounted_and_says_so(results) -> None:
    """The Run is measured all the same: its Record has no moved bytes, and a flag with this sentence."""
    result = result_of(UNSIZED, results)
    assert result["steps"] == 1 and result["counted"] == {}
    assert result["uncounted"].startswith("the trace has no node 'gradient_tape/") and "no shape follows" in result["uncounted"]


def test_hierarchical_copy_refuses_an_odd_number_of_devices(results) -> None:
    said = results[REFUSED.name]["error"]
    assert said.startswith("Unsupported") and "leaves out the last of 3: choose an even number of devices" in said
