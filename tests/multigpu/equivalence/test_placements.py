"""Every placement trains as its semantics says and moves the bytes that its row predicts; planted
faults are seen by either.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch.averaged import TRAINED
from multigpu.engines.torch.fully_sharded import CountedScatter
from multigpu.placements import placements
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.placements.step_bytes import step_bytes
from multigpu.placements.traffic import laid_out
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of
from tests.further import parameters
from tests.installed import DEEPCONN
from tests.multigpu.equivalence.cases import (
    LOCAL,
    all_cases,
    answers,
    distance,
    name_of,
    reference_of,
    replica,
    run_all,
    steps_of,
)

TOLERANCE = {
    ("fp64", "momentum"): 1e-10,
    ("fp64", "adam"): 1e-10,
    ("fp32", "momentum"): 1e-5,
    ("fp32", "adam"): 5e-4,
}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest):
    """Of the cases that are asked for: `pytest -k NAME` trains no others."""
    asked = [
        item
        for item in request.session.items
        if item.module is request.module and "results" in item.fixturenames
    ]
    chosen = {item.callspec.params["run"] for item in asked}
    return run_all([run for run in all_cases() if run in chosen])


def features(run: Run) -> set[Hashable]:
    """What of a case `make test` shows once of each placement, and once of each workload."""
    plain = {"batch_size", "inputs", "layout", "model", "seed", "sequence_length", "workload"}
    told = run.model_dump(exclude_defaults=True, exclude=plain)
    own = told | {name: getattr(run, name) for name in ("devices", "optimizer", "precision")}
    shown: set[Hashable] = {(run.placement, name, str(value)) for name, value in own.items()}
    shown |= {(run.placement, run.workload), (run.workload, run.model)}
    return shown | {(run.workload, getattr(run, name)) for name in ("devices", "optimizer")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", parameters(all_cases(), features), ids=name_of)
def test_equals_its_reference_and_moves_what_its_row_predicts(run: Run, results) -> None:
    parts = results[name_of(run)]
    errors = {part["error"] for part in parts if "error" in part}
    assert len(parts) == run.devices and not errors, (
        errors or f"{len(parts)} of {run.devices} replicas answered"
    )
    counted = sum((Counter(part["counted"]) for part in parts), Counter[str]())
    assert dict(counted) == step_bytes(run, description_of(run), parts[0]["lookups"])
    reference, semantics = reference_of(run), semantics_of(run)
    tolerance = semantics.tolerance or TOLERANCE[run.precision, run.optimizer]
    if not semantics.facts.loss_is_shared:
        for part, values, losses in zip(
            parts, reference["values"], reference["losses"], strict=True
        ):
            assert distance(run, part["values"], values) < tolerance
            assert part["losses"] == pytest.approx(losses, rel=1e-5)
        return
    assert semantics.facts.is_reproducible, f"write the comparison for {semantics}"
    assert distance(run, parts[0]["values"], reference["values"][0]) < tolerance
    joined = [sum(losses) for losses in zip(*(part["losses"] for part in parts), strict=True)]
    assert joined == pytest.approx(reference["losses"][0], rel=max(1e-5, semantics.tolerance))
    if placements()[run.placement].variables == "replica" or dims_of(run).copies < run.devices:
        for part in parts[1:]:
            assert all(
                torch.equal(part["values"][name], value)
                for name, value in parts[0]["values"].items()
            )


DEVICES = 2
PLAIN = Run(
    **{
        "workload": "deepconn" if DEEPCONN else "stacks",
        "model": "deepconn_tiny" if DEEPCONN else "mlp_tiny",
        "placement": "zero1",
        "device_type": "cpu",
        "devices": DEVICES,
    },
    **{"batch_size": 13, "scaling": "strong", "optimizer": "adam", "precision": "fp64"},
)
RUNS = {
    "zero1": PLAIN,
    "ddp in parts": PLAIN.model_copy(update={"placement": "ddp", "micro_steps": 3}),
    "zero1 in parts": PLAIN.model_copy(update={"micro_steps": 3}),
    "zero2": PLAIN.model_copy(update={"placement": "zero2"}),
    "zero2 in parts": PLAIN.model_copy(update={"placement": "zero2", "micro_steps": 3}),
    "pipeline": PLAIN.model_copy(
        update={"placement": "pipeline", "workload": "gpt", "model": "gpt_tiny"}
        | {"batch_size": 12, "micro_batches": 2, "pipeline_schedule": "interleaved"}
    ),
    "local_sgd": PLAIN.model_copy(update={"placement": "local_sgd", **LOCAL}),
    "fsdp2": PLAIN.model_copy(update={"placement": "fsdp2"}),
    "exp4 in parts": PLAIN.model_copy(update={"placement": "exp4", "micro_steps": 3}),
}


def only_own(trainer: Any) -> None:
    class Own(CountedScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            output_tensor.copy_(input_tensor.chunk(DEVICES)[trainer.rank])

    trainer.module.set_custom_reduce_scatter(Own(trainer.wire))


def twice(owner: str, name: str) -> Callable[[Any], None]:
    """What the trainer, or a part of it, does once a step is done twice."""

    def plant(trainer: Any) -> None:
        part = getattr(trainer, owner) if owner else trainer
        once = getattr(part, name)
        setattr(part, name, lambda: (once(), once()))

    return plant


def last_part_only(trainer: Any) -> None:
    every = trainer.parts
    trainer.parts = lambda shard, rows=None: every(shard, rows)[-1:]


def averaged_once(trainer: Any) -> None:
    once = trainer._average

    def first() -> None:
        once()
        trainer._average = lambda: None

    trainer._average = first


FAULTS: dict[tuple[str, str], Callable[[Any], None]] = {
    ("zero1", "not scattered"): lambda trainer: setattr(
        trainer.wire, "reduce_scatter", lambda own, whole: None
    ),
    ("zero1", "updated twice"): twice("optimizer", "step"),
    ("pipeline", "the table's ends apart"): lambda trainer: setattr(
        trainer, "_share", lambda: None
    ),
    ("zero2", "not scattered"): lambda trainer: setattr(
        trainer.wire, "start_reduce_scatter", lambda own, whole: None
    ),
    ("zero2", "updated twice"): twice("optimizer", "step"),
    ("zero2", "new values stay"): lambda trainer: setattr(
        trainer.wire, "all_gather", lambda whole, own: None
    ),
    ("zero2 in parts", "merged at each"): lambda trainer: setattr(trainer, "_no_sync", nullcontext),
    ("fsdp2", "not scattered"): only_own,
    ("fsdp2", "updated twice"): twice("optimizer", "step"),
    **{
        (name, "last part only"): last_part_only
        for name in ("ddp in parts", "zero1 in parts", "zero2 in parts", "exp4 in parts")
    },
    ("zero1 in parts", "merged twice"): twice("", "_reduce_after_backward"),
    ("local_sgd", "averaged a step late"): lambda trainer: trainer.optimizer.param_groups[0].update(
        {TRAINED: -1}
    ),
    ("local_sgd", "averaged in the first cycle only"): averaged_once,
    ("ddp in parts", "merged at each"): lambda trainer: setattr(trainer, "_no_sync", nullcontext),
}
"""(run, fault) -> what plants it; the last of them trains right and moves too much."""
EVERY = {**{(name, ""): (lambda trainer: None) for name in RUNS}, **FAULTS}


def trained(name: str, fault: str, rank: int, folder: Path) -> dict[str, Any]:
    """Some steps with a fault, and what this replica keeps after them."""
    trainer, feed = replica(RUNS[name], rank, folder)
    EVERY[name, fault](trainer)
    counted = [
        Counter(trainer.counted_step([feed.shard(step)])[1]) for step in range(steps_of(RUNS[name]))
    ]
    cycle = sum(counted[: semantics_of(RUNS[name]).every], Counter[str]())
    found = {
        "values": trainer.full_values(),
        "counted": dict(cycle),
        "lookups": feed.source.batch(0, dims_of(RUNS[name]).copy_of(rank)).lookups,
    }
    if name in ("zero1", "fsdp2"):
        states, groups = trainer.optimizer.state.values(), trainer.optimizer.param_groups
        found["slots"] = sum(
            value.nbytes for state in states for value in state.values() if value.dim()
        )
        found["own"] = sum(own.nbytes for group in groups for own in group["params"])
    feed.close()
    trainer.close()
    return found


def every_fault(rank: int, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What one replica keeps, by run and fault."""
    return {(name, fault): trained(name, fault, rank, folder) for name, fault in EVERY}


@pytest.fixture(scope="module")
def found():
    return answers(every_fault, DEVICES)


def apart(found, name: str, fault: str) -> float:
    """From the reference, in norms of its update."""
    return distance(
        RUNS[name], found[0][name, fault]["values"], reference_of(RUNS[name])["values"][0]
    )


def moves_as_predicted(found, name: str, fault: str) -> bool:
    counted = sum((Counter(part[name, fault]["counted"]) for part in found), Counter[str]())
    return dict(counted) == step_bytes(
        RUNS[name], description_of(RUNS[name]), found[0][name, fault]["lookups"]
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_faultless_equals_its_reference(found, name: str) -> None:
    assert apart(found, name, "") < 1e-10
    assert moves_as_predicted(found, name, "")


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_is_seen(found, name: str, fault: str) -> None:
    assert apart(found, name, fault) > 1e-3 or not moves_as_predicted(found, name, fault)


def test_each_replica_keeps_its_share_of_the_optimiser_states(found) -> None:
    elements = sum(variable.elements for variable in description_of(PLAIN).variables)
    count = len(description_of(PLAIN).variables)
    for part in found:
        kept = part["zero1", ""]
        assert kept["slots"] == optimizer_of(PLAIN).slots * kept["own"]
        assert 0 <= kept["own"] * DEVICES - elements * 8 <= 16 * (count + DEVICES)
        assert part["fsdp2", ""]["slots"] == optimizer_of(PLAIN).slots * part["fsdp2", ""]["own"]
    assert sum(part["fsdp2", ""]["own"] for part in found) == elements * 8


def test_stretches_are_equal_and_variables_begin_aligned() -> None:
    starts, length = laid_out([5, 8, 3], item_bytes=4, devices=3)
    assert starts == [0, 8, 16] and length == 24
    assert laid_out([5, 8, 3], item_bytes=8, devices=3) == ([0, 6, 14], 18)
