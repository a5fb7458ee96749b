"""Every TensorFlow placement trains as its semantics says, moves what its row predicts, and runs each part where the row says."""

from typing import Any

import pytest

from multigpu.placements import placements
from multigpu.run import Run
from tests.equivalence.tensorflow_cases import REFUSED, UNSIZED, all_cases, name_of, process_cases, run_cases
from tests.equivalence.tensorflow_checks import check, result_of

pytestmark = pytest.mark.timeout(600)

TOLERANCE = {"fp64": 1e-10, "fp32": 5e-4, "bf16": 0.1}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tf: Any):
    """Of the cases that are asked for: `pytest -k NAME` trains no others."""
    asked = [item for item in request.session.items if item.module is request.module and "results" in item.fixturenames]
    if all(hasattr(item, "callspec") for item in asked):
        return run_cases({item.callspec.params["run"].name for item in asked})
    return run_cases({name_of(run) for run in (*all_cases(), REFUSED, UNSIZED, *process_cases())})


@pytest.mark.parametrize("run", all_cases(), ids=name_of)
def test_trains_moves_and_runs_as_its_row_says(run: Run, results) -> None:
    check(run, results, TOLERANCE[run.precision])


@pytest.mark.parametrize("run", process_cases(), ids=name_of)
def test_a_run_over_processes_equals_its_reference_and_counts_its_bytes_or_says_why_not(run: Run, results) -> None:
    """Each variable's sum and its distance from the start tell whether it is the reference's, without its values in a Record."""
    result = result_of(run, results)
    parts = result["parts"]
    assert [part["rank"] for part in parts] == list(range(run.devices))
    assert [sum(shares) for shares in zip(*(part["losses"] for part in parts), strict=True)] == pytest.approx(result["losses"], rel=1e-12)
    holders = parts if placements()[run.placement].variables == "replica" else parts[:1]
    for part in holders:
        assert part["prints"].keys() == result["prints"].keys()
        assert part["distance"] == pytest.approx(result["distance"], rel=1e-9)
        for name, total in result["prints"].items():
            assert abs(part["prints"][name] - total) < 1e-9 * result["distance"][name]
    moved = sum(part["moved"].get("all_reduce", 0) for part in parts)
    if placements()[run.placement].merge == "all_reduce":
        elements = sum(variable.elements for variable in run.description.variables)
        assert moved == run.devices * elements * 8 and not parts[0]["uncounted"]
    else:
        assert not moved and "gRPC" in parts[0]["uncounted"]


def test_what_cannot_be_sized_leaves_the_bytes_uncounted_and_says_so(results) -> None:
    """The Run is measured all the same: its Record has no moved bytes, and a flag with this sentence."""
    result = result_of(UNSIZED, results)
    assert result["steps"] == 1 and result["counted"] == {}
    assert result["uncounted"].startswith("the trace has no node 'gradient_tape/") and "no shape follows" in result["uncounted"]


def test_hierarchical_copy_refuses_an_odd_number_of_devices(results) -> None:
    said = results[name_of(REFUSED)]["error"]
    assert said.startswith("Unsupported") and "leaves out the last of 3: choose an even number of devices" in said
