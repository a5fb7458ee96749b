"""What a placement's row says of itself, and what cannot run says what prevents it: every row that
is found.
"""

from itertools import product
from typing import get_args

import pytest

from multigpu.analysis.traces import host_phases
from multigpu.placements import find_placement, placements
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SPLIT
from multigpu.placements.traffic import HOST, assign
from multigpu.spec.rules.engines import (
    HOST_IN_THE_MIDDLE,
    IN_LAYERS,
    NOT_BUILT,
    NOT_RECORDED,
    ONE_POOL,
    ONE_PROGRAM,
    refusal,
)
from multigpu.spec.run import Execution
from multigpu.workloads import find_model

EVERY: list[Placement] = [*placements().values(), *SPLIT.values()]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_no_part_of_a_row_is_on_the_host_unseen(row: Placement) -> None:
    """By every field there is, so that a new one which may say "host" is not forgotten; by where
    variables go; by what the host does.
    """
    assert row.uses_host is ("host" in row.model_dump().values()) is bool(host_phases(row))
    if row.compute == "replica":  # parts of one model have no places of this kind
        assigned = assign(row, find_model("nmt", "nmt_tiny").variables, 2)
        assert row.uses_host is any(
            HOST in (each.home, each.lookup, each.update) for each in assigned
        )


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_every_refusal_has_a_reason_and_says_what_is_allowed(row: Placement) -> None:
    for framework, processes, execution in product(
        ("torch", "tensorflow"), ("per_device", "one"), get_args(Execution)
    ):
        found = refusal(row, framework, processes, execution)
        possible = any(
            (e.framework, e.processes) == (framework, processes) and execution in e.executions
            for e in row.engines
        )
        assert (found is None) == possible
        if found is None:
            continue
        assert found.why != NOT_BUILT and not found.why.startswith("it runs")
        assert (
            found.said.startswith(f"placement {row.name!r} does not ") and found.why in found.said
        )
        assert all(value in found.said for value in found.allowed) and found.allowed


ON_DEVICES = (
    "exp4",
    "ps_gpu0",
    "replicated_copy",
    "replicated_allreduce",
    "independent",
    "make_parallel",
    "layer_split",
)
WITH_HOST = ("exp1", "exp2", "exp3", "make_parallel_cpu")


@pytest.mark.parametrize(
    ("names", "processes", "executions", "reason"),
    [
        (ON_DEVICES, "one", ("captured", "compiled_captured"), ONE_POOL),
        (WITH_HOST, "one", ("captured",), HOST_IN_THE_MIDDLE),
        (ON_DEVICES + WITH_HOST, "one", ("compiled",), ONE_PROGRAM),
        (("tensor_split",), "per_device", ("compiled", "compiled_captured"), IN_LAYERS),
        (("tensor_split",), "per_device", ("captured",), NOT_RECORDED),
    ],
)
def test_what_prevents_a_form_of_execution(
    names: tuple[str, ...], processes: str, executions: tuple[str, ...], reason: str
) -> None:
    found = [
        refusal(find_placement(name), "torch", processes, execution)
        for name in names
        for execution in executions
    ]
    assert {one and one.why for one in found} == {reason}


@pytest.mark.parametrize(
    ("name", "asked", "field", "allowed", "why"),
    [
        ("make_parallel", "torch per_device eager", "processes", "one", "one over all replicas"),
        ("ddp", "torch one eager", "processes", "per_device", "while backward runs"),
        ("exp2", "tensorflow one captured", "execution", "graph eager xla", "of PyTorch"),
        ("exp2", "torch per_device graph", "execution", "eager compiled", "of TensorFlow"),
    ],
)
def test_what_is_refused_is_told_first(
    name: str, asked: str, field: str, allowed: str, why: str
) -> None:
    found = refusal(find_placement(name), *asked.split())
    assert found is not None and why in found.why
    assert (found.field, found.allowed) == (field, tuple(allowed.split()))
