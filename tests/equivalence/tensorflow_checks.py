"""What must be true of a case that `tensorflow_cases` trained, on CPUs and on GPUs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from multigpu.placements import placements
from multigpu.placements.traffic import REPLICA, assign
from multigpu.run import Run
from tests.equivalence.tensorflow_cases import name_of

LOSS_TOLERANCE = {"fp64": 1e-10, "fp32": 1e-4, "bf16": 2e-2}
"""Of each step's joined loss, relative."""
UPDATES = {"adam": "ResourceApplyAdam", "momentum": "ResourceApplyMomentum", "sgd": "ResourceApplyGradientDescent"}
PASSES = ("MatMul", "Conv2D", "Tanh")
"""Operations of a forward pass; a CPU's own begin with _MklNative."""


def result_of(run: Run, results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What the case's process wrote of it, which must be no error."""
    result = results[name_of(run)]
    assert "error" not in result, result["error"]
    return result


def distance(ours: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], start: Mapping[str, np.ndarray]) -> float:
    """Norm of the difference over norm of the update, over all variables."""
    difference = sum(float(np.square(ours[name].astype(np.float64) - reference[name]).sum()) for name in reference)
    update = sum(float(np.square(reference[name].astype(np.float64) - start[name]).sum()) for name in reference)
    return (difference / update) ** 0.5


def check_equality(run: Run, result: Mapping[str, Any], tolerance: float) -> None:
    """It trained as the joined batch on one device (an independent replica: as its own shard there), and copies are equal.

    tolerance: the largest `distance` after the steps.
    """
    close = LOSS_TOLERANCE[run.precision]
    if not placements()[run.placement].semantics.facts.is_one_model:
        for values, losses, (reference, expected) in zip(result["values"], result["losses"], result["references"], strict=True):
            assert distance(values, reference, result["start"]) < tolerance
            assert losses == pytest.approx(expected, rel=close)
        return
    reference, expected = result["references"][0]
    assert distance(result["values"][0], reference, result["start"]) < tolerance
    assert [sum(shares) for shares in zip(*result["losses"], strict=True)] == pytest.approx(expected, rel=close)
    for values in result["values"][1:]:
        assert all(np.array_equal(values[name], value) for name, value in result["values"][0].items())


def check_places(run: Run, result: Mapping[str, Any]) -> None:
    """Each look-up, tower, merge and update ran where the placement's row says, as the partitioned graphs tell."""
    found: dict[tuple[str, str], set[int]] = {}
    for part, name, op, place in result["ran"]:
        sparse = run.embedding_gradients == "sparse" and name.endswith(("_embedding", "_embeddings"))
        if part != "update" or op == UPDATES[run.optimizer] or sparse:
            found.setdefault((part, name), set()).add(place)
    everywhere = set(range(run.devices))
    for rank in everywhere:
        assert found["compute", str(rank)] == {rank}
    for a in assign(placements()[run.placement], run.description.variables, run.devices):
        name, table = a.variable.name, a.variable.kind == "embedding"
        if table:
            assert found["lookup", name] == (everywhere if a.lookup == REPLICA else {a.lookup})
        else:
            assert found["read", name] == (everywhere if a.home == REPLICA else {a.home})
        expected = everywhere if a.update == REPLICA else {a.update}
        if table and run.embedding_gradients == "sparse":
            assert found["update", name] >= expected
        else:
            assert found["update", name] == expected, f"{name} was updated at {found['update', name]}"
            if a.update != REPLICA:
                # nothing is merged on one device, and of two sums that are found to be equal one is left
                assert found.get(("merge", name), {a.update}) == {a.update}


def check_compiled(run: Run, result: Mapping[str, Any]) -> None:
    """Under `xla` each tower is one call that XLA must compile, on the tower's device, with the passes inside; else there is none."""
    towers = range(run.devices) if run.execution == "xla" else []
    assert sorted(result["compiled"]) == [("compute", str(rank), rank) for rank in towers]
    outside = {op for part, _, op, _ in result["ran"] if part == "compute" and op.endswith(PASSES)}
    assert not (towers and outside), f"{outside} were left to the graph"


def check(run: Run, results: Mapping[str, dict[str, Any]], tolerance: float) -> None:
    """It trained as its semantics says, moved what its row predicts, ran each part where the row says, and compiled what was asked for."""
    result = result_of(run, results)
    check_equality(run, result, tolerance)
    assert result["counted"] == result["predicted"]
    check_places(run, result)
    check_compiled(run, result)
