"""Every TensorFlow placement trains as its semantics says, moves what its row predicts, and runs
each part where the row says. MULTIGPU_STAND_INS=3 runs what is for GPUs on so many stand-ins of a
CPU, where there is none.
"""

import os
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multigpu.machine.machine import gpu_count
from multigpu.placements import placements
from multigpu.placements.traffic import REPLICA, assign
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.further import but, parameters
from tests.multigpu.equivalence import tensorflow_cases as cases
from tests.multigpu.equivalence.tensorflow_cases import (
    TOWERS,
    all_cases,
    make_run,
    name_of,
    opened,
    process_cases,
    train_case,
)
from tests.refusals import refused

pytestmark = pytest.mark.timeout(600)
STAND_INS = int(os.environ.get("MULTIGPU_STAND_INS", "0"))
KIND, DEVICES = ("cpu", STAND_INS) if STAND_INS else ("cuda", min(4, gpu_count()))
ON = () if STAND_INS else pytest.mark.gpu
LOSS_TOLERANCE = {"fp64": 1e-10, "fp32": 1e-4, "bf16": 2e-2}  # of each step's joined loss, relative
UPDATES = {
    "adam": "ResourceApplyAdam",
    "default": "ResourceApplyAdam",  # of the transformers: AdamW
    "momentum": "ResourceApplyMomentum",
    "sgd": "ResourceApplyGradientDescent",
}
# operations of a forward pass; a CPU's own begin with _MklNative
PASSES = ("MatMul", "Conv2D", "Tanh")


def distance(
    ours: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
) -> float:
    """Norm of the difference over norm of the update, over all variables."""
    difference = sum(
        float(np.square(ours[name].astype(np.float64) - reference[name]).sum())
        for name in reference
    )
    update = sum(
        float(np.square(reference[name].astype(np.float64) - start[name]).sum())
        for name in reference
    )
    return (difference / update) ** 0.5


def check_equality(run: Run, result: Mapping[str, Any], tolerance: float) -> None:
    """It trained as the global batch on one device (an independent replica: as its own shard
    there), and copies are equal.
    """
    close = LOSS_TOLERANCE[run.precision]
    if not placements()[run.placement].semantics.facts.is_one_model:
        for values, losses, (reference, expected) in zip(
            result["values"], result["losses"], result["references"], strict=True
        ):
            assert distance(values, reference, result["start"]) < tolerance
            assert losses == pytest.approx(expected, rel=close)
        return
    reference, expected = result["references"][0]
    assert distance(result["values"][0], reference, result["start"]) < tolerance
    assert [sum(shares) for shares in zip(*result["losses"], strict=True)] == pytest.approx(
        expected, rel=close
    )
    for values in result["values"][1:]:
        assert all(
            np.array_equal(values[name], value) for name, value in result["values"][0].items()
        )


def check_places(run: Run, result: Mapping[str, Any]) -> None:
    """Each look-up, tower, merge and update ran where the placement's row says, as the partitioned
    graphs tell.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for part, name, op, place in result["ran"]:
        sparse = run.embedding_gradients == "sparse" and name.endswith(
            ("_embedding", "_embeddings")
        )
        if part != "update" or op == UPDATES[run.optimizer] or sparse:
            found.setdefault((part, name), set()).add(place)
    everywhere = set(range(run.devices))
    for rank in everywhere:
        assert found["compute", str(rank)] == {rank}
    for a in assign(placements()[run.placement], description_of(run).variables, run.devices):
        name, table = a.variable.name, a.variable.kind == "embedding"
        if table:
            assert found["lookup", name] == (everywhere if a.lookup == REPLICA else {a.lookup})
        else:
            assert found["read", name] == (everywhere if a.home == REPLICA else {a.home})
        expected = everywhere if a.update == REPLICA else {a.update}
        if table and run.embedding_gradients == "sparse":
            assert found["update", name] >= expected
        else:
            assert found["update", name] == expected, (
                f"{name} was updated at {found['update', name]}"
            )
            if a.update != REPLICA:
                # nothing is merged on one device, and of two sums that are found to be equal one is
                # left
                assert found.get(("merge", name), {a.update}) == {a.update}


def check_compiled(run: Run, result: Mapping[str, Any]) -> None:
    """Under `xla` each tower is one call that XLA must compile, on the tower's device, with the
    passes inside; else there is none.
    """
    towers = range(run.devices) if run.execution == "xla" else []
    assert sorted(result["compiled"]) == [("compute", str(rank), rank) for rank in towers]
    outside = {op for part, _, op, _ in result["ran"] if part == "compute" and op.endswith(PASSES)}
    assert not (towers and outside), f"{outside} were left to the graph"


def check(run: Run, result: Mapping[str, Any], tolerance: float) -> None:
    """It trained as its semantics says, moved what its row predicts, ran each part where the row
    says, and compiled what was asked for.
    """
    check_equality(run, result, tolerance)
    assert result["counted"] == result["predicted"]
    check_places(run, result)
    check_compiled(run, result)


def features(run: Run) -> set[Hashable]:
    """What of a case `make test` shows once of each placement, of each home of variables, and of
    all.
    """
    home = placements()[run.placement].variables
    of_all = {run.execution, run.model, run.optimizer, (run.devices, run.precision)}
    ways = (run.inputs, run.embedding_gradients, run.devices > 2)
    return {*of_all, (home, run.workload), *((run.placement, own) for own in ways)}


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("run", parameters(all_cases(), features), ids=name_of)
def test_trains_moves_and_runs_as_its_row_says(run: Run) -> None:
    check(run, train_case(run), {"fp64": 1e-10, "fp32": 5e-4, "bf16": 0.1}[run.precision])


@pytest.fixture(scope="module")
def of_devices():
    return cases.run_devices(KIND, DEVICES)


@pytest.mark.skipif(DEVICES < 2, reason="needs two NVIDIA GPUs")
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, marks=ON, id=name_of(run))
        for run in cases.device_cases(KIND, max(2, DEVICES))
    ],
)
def test_trains_on_gpus_as_one_gpu_on_the_global_batch(run: Run, of_devices) -> None:
    """fp32 is fp32 (TF32 is off), on up to four GPUs."""
    assert not isinstance(of_devices[name_of(run)], str), of_devices[name_of(run)]
    check(run, of_devices[name_of(run)], {"fp32": 1e-3, "bf16": 0.1}[run.precision])


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("run", but(process_cases()[:1], process_cases()), ids=name_of)
def test_a_run_over_processes_equals_its_reference_and_counts_its_bytes_or_says_why_not(
    run: Run, tmp_path: Path
) -> None:
    """Each variable's sum and its distance from the start tell whether it is the reference's,
    without its values in a Record.
    """
    result, parts = cases.expect_case(run), cases.measured_case(run, tmp_path)
    assert [part["rank"] for part in parts] == list(range(run.devices))
    assert [
        sum(shares) for shares in zip(*(part["losses"] for part in parts), strict=True)
    ] == pytest.approx(result["losses"], rel=1e-12)
    holders = parts if placements()[run.placement].variables == "replica" else parts[:1]
    for part in holders:
        assert part["prints"].keys() == result["prints"].keys()
        assert part["distance"] == pytest.approx(result["distance"], rel=1e-9)
        for name, total in result["prints"].items():
            assert abs(part["prints"][name] - total) < 1e-9 * result["distance"][name]
    moved = sum(part["moved"].get("all_reduce", 0) for part in parts)
    if placements()[run.placement].reduction == "all_reduce":
        elements = sum(variable.elements for variable in description_of(run).variables)
        assert moved == run.devices * elements * 8 and not parts[0]["uncounted"]
    else:
        assert not moved and "gRPC" in parts[0]["uncounted"]


@pytest.mark.usefixtures("tf")
def test_what_cannot_be_sized_leaves_the_bytes_uncounted_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Run is measured all the same: its Record has no moved bytes, and a flag with this
    sentence.
    """

    def forgotten(*arguments: Any) -> Any:
        graphs = collected(*arguments)
        sent = next(
            node.input[0]
            for node in graphs.nodes
            if node.op == "_Send" and node.input[0].startswith("gradient_tape/")
        )
        next(node for node in graphs.nodes if node.name == sent).op = "MadeByAnOptimiser"
        return replace(
            graphs,
            outputs={name: outputs for name, outputs in graphs.outputs.items() if name != sent},
        )

    context, source = opened(make_run(TOWERS, "exp2", 2, optimizer="sgd", precision="fp32"))
    collected, trainer = cases.engine.collected, cases.build_trainer(context)
    monkeypatch.setattr(cases.engine, "collected", forgotten)
    assert (
        trainer.counted_step(cases.Feed(source, context.devices).shards(0)) == {}
        and trainer.steps_done == 1
    )
    assert (
        trainer.uncounted.startswith("the trace has no node 'gradient_tape/")
        and "no shape follows" in trainer.uncounted
    )


@pytest.mark.usefixtures("tf")
def test_hierarchical_copy_refuses_an_odd_number_of_devices() -> None:
    run = make_run(TOWERS, "mirrored_hierarchical", 3, optimizer="adam", precision="fp64")
    refused(
        "leaves out the last of 3: choose an even number of devices",
        train_case,
        run,
        error=Unsupported,
    )
