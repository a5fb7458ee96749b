"""Models that are parallel in themselves: cuts, bytes and bubbles worked out by hand, and what a
Run refuses.
"""

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from multigpu.analysis.limits import communication_time_s
from multigpu.build import build_run
from multigpu.placements.partition import (
    part_elements,
    pipeline_stages,
    section_places,
    sent_on,
    shared_in,
    stages_of,
)
from multigpu.placements.resolve import dims_of, shard_sizes
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.model import Exchange, Init, Model, Optimizer, Splitting, Variable
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Stage
from multigpu.workloads import description_of, workloads
from tests.refusals import refused


def make_run(**more: Any) -> Run:
    fields = {
        "workload": "stacks",
        "model": "mlp_tiny",
        "placement": "tensor_split",
        "device_type": "cpu",
        "batch_size": 12,
    }
    return build_run(**fields | {"scaling": "strong"} | more)


STAGES = {"placement": "layer_split", "processes": "one"}


def test_stages_are_the_best_contiguous_cut():
    rng = np.random.default_rng(3)
    for _ in range(20):
        work = rng.integers(0, 9, 7).astype(float).tolist()
        for devices in (1, 2, 3, 4):
            places = stages_of(work, devices)
            assert places == sorted(places) and set(places) == set(range(devices))
            own = [
                sum(w for w, p in zip(work, places, strict=True) if p == d) for d in range(devices)
            ]
            ours = max(own)
            cuts = [(0, *cut, 7) for cut in combinations(range(1, 7), devices - 1)]
            loads = [[sum(work[a:b]) for a, b in pairwise(cut)] for cut in cuts]
            assert ours == min(map(max, loads))
            # and of the cuts that are as good, one whose loads are nearest to equal
            squares = [sum(load**2 for load in one) for one in loads if max(one) == ours]
            assert sum(load**2 for load in own) == min(squares)
    refused("2 sections cannot be spread over 3 devices", stages_of, [1.0, 1.0], 3)


def bytes_of(run: Run, lookups: list[dict[str, int]]) -> dict[str, int]:
    return step_bytes(run, description_of(run), lookups)


def test_bytes_of_stages_by_hand():
    """A dense stack of 10 units over two devices: 12 rows of 10 numbers cross once and come
    back.
    """
    run = make_run(**STAGES, devices=2)
    model = description_of(run)
    assert len(model.graph.crossings(section_places(model, 2))) == 1
    assert bytes_of(run, [{}]) == {"device_to_device": 2 * 12 * 10 * 4}
    assert bytes_of(make_run(**STAGES, devices=2, micro_batches=3), [{}]) == bytes_of(run, [{}])
    # two copies of two: six rows each, and every gradient to an all-reduce of two
    hybrid = make_run(**STAGES, devices=4, model_parallel=2)
    assert bytes_of(hybrid, [{}, {}]) == {
        "device_to_device": 2 * 12 * 10 * 4,
        "all_reduce": 2 * 531 * 4,
    }


def test_bytes_of_cut_matrices_by_hand():
    """Four layers of 10 units: two pairs forward, one and the head's input backward, and three
    numbers a row of the loss.
    """
    run = make_run(devices=2)
    assert bytes_of(run, [{}]) == {"all_reduce": 2 * 12 * (2 * 10 + 10 + 10 + 3) * 4}
    assert bytes_of(make_run(devices=2, precision="bf16"), [{}]) == {
        "all_reduce": 2 * 12 * (40 * 2 + 3 * 4)
    }
    assert bytes_of(make_run(devices=1), [{}]) == {}
    recurrent = make_run(model="stack_recurrent_tiny", devices=2)
    gathered = 12 * 2 * 3 * 6 * 4  # rows, layers, positions, units, bytes
    assert bytes_of(recurrent, [{}]) == {
        "all_gather": gathered,
        "reduce_scatter": 2 * gathered,
        "all_reduce": 2 * 12 * 3 * 4,
    }


def made_up(*sections: Stage, splitting: Splitting | None = None) -> Model:
    """A model of three variables: a table of 30 that sections may share, one of 21 and one of 5."""
    init = Init("constant", 0.0)
    shapes = {"table": (10, 3), "middle": (7, 3), "end": (5,)}
    variables = tuple(Variable(name, shape, "dense", init) for name, shape in shapes.items())
    return Model(
        "made_up",
        "stacks",
        "samples",
        variables,
        Optimizer("sgd", 0.1),
        1.0,
        1.0,
        None,
        lambda: sections,
        splitting,
    )


GIVEN = {"x": {"rows": 10}, "shared_table": {"once": 30}}
FIRST = Stage("first", gives=GIVEN, variables=("table",), work={"rows": 5})
MIDDLE = Stage("middle", ("x",), (), {"y": {"rows": 7}}, variables=("middle",), work={"rows": 5})
LAST = ("y", "shared_table")
END = Stage("end", LAST, (), {"z": {"rows": 1}}, variables=("end",), work={"rows": 9})


def test_a_pipeline_sends_what_its_stages_end_with_and_both_ends_keep_what_they_share():
    model = made_up(FIRST, MIDDLE, END)
    piped = {"placement": "pipeline", "micro_batches": 2}
    run = make_run(**piped, devices=2)
    stages = pipeline_stages(run, model)
    assert stages == [(FIRST, MIDDLE), (END,)]
    assert [sent_on(stage) for stage in stages] == [["y"], ["z"]] and sent_on([FIRST]) == ["x"]
    assert [shared_in(stage) for stage in stages] == [[], ["table"]]
    crossing, shared = 2 * 7 * 12, 2 * 30
    assert step_bytes(run, model, [{}]) == {"device_to_device": 4 * (crossing + shared)}
    exact = make_run(**piped, devices=2, precision="fp64")
    assert step_bytes(exact, model, [{}]) == {"device_to_device": 8 * (crossing + shared)}
    copies = make_run(**piped, devices=4, model_parallel=2)
    assert step_bytes(copies, model, [{}, {}]) == {
        "device_to_device": 4 * (crossing + 2 * shared),
        "all_reduce": 2 * (56 + 30) * 4,
    }
    assert [part_elements(copies, model, rank) for rank in range(4)] == [51, 35] * 2
    # one process keeps what is shared where it is first
    together = make_run(**STAGES, devices=2)
    assert [part_elements(together, model, rank) for rank in range(2)] == [51, 5]
    whole = make_run(**piped, devices=2, model_parallel=1)
    assert step_bytes(whole, model, [{}, {}]) == {"all_reduce": 2 * 56 * 4}
    alone = make_run(**piped, devices=1)
    assert step_bytes(alone, model, [{}]) == {} and part_elements(alone, model, 0) == 56


def test_stages_that_interleave_are_two_a_device_in_turn():
    run = make_run(
        placement="pipeline", devices=2, micro_batches=2, pipeline_schedule="interleaved"
    )
    last = replace(END, name="last", variables=())
    model = made_up(FIRST, MIDDLE, END, last)
    assert pipeline_stages(run, model) == [(FIRST,), (MIDDLE,), (END,), (last,)]
    assert part_elements(run, model, 0) == 35 and part_elements(run, model, 1) == 21 + 30
    assert step_bytes(run, model, [{}]) == {
        "device_to_device": 4 * (2 * (10 + 7 + 1) * 12 + 2 * 30)
    }


@pytest.mark.parametrize(
    ("precision", "own", "exact"), [("fp32", 4, 4), ("bf16", 2, 4), ("fp64", 8, 8)]
)
def test_copies_of_cut_matrices_join_parts_with_parts(precision: str, own: int, exact: int):
    """Of the one that is cut along its 7 rows the first device has four; the other two are whole
    on both, and all copies' gradients of all of them are joined.
    """
    exchanges = (Exchange("all_reduce", 3, exact=True), Exchange("all_gather", 6))
    model = made_up(splitting=Splitting({"middle": 0}, exchanges))
    run = make_run(devices=4, model_parallel=2, precision=precision)
    assert [part_elements(run, model, rank) for rank in range(4)] == [47, 44] * 2
    weights = 2 * (21 + 2 * 35) * (8 if precision == "fp64" else 4)
    assert step_bytes(run, model, [{}, {}]) == {
        "all_reduce": 2 * 3 * 12 * exact + weights,
        "all_gather": 6 * 12 * own,
    }


def test_copies_share_the_batch_and_parts_do_not():
    run = make_run(devices=4, model_parallel=2, batch_size=13)
    assert (dims_of(run).degree, dims_of(run).copies, shard_sizes(run)) == (2, 2, [7, 6])
    assert [dims_of(run).copy_of(rank) for rank in range(4)] == [0, 0, 1, 1] and [
        dims_of(run).leads(rank) for rank in range(4)
    ] == [True, False] * 2
    # 12 rows a device, all of them through each
    assert shard_sizes(make_run(devices=4, scaling="weak")) == [48]
    assert shard_sizes(make_run(devices=4, placement="ddp")) == [3] * 4


def test_a_workload_that_a_framework_lacks_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(
        workloads().made, "stacks", replace(workloads()["stacks"], frameworks=("torch",))
    )
    fields = {
        "framework": "tensorflow",
        "placement": "exp4",
        "processes": "one",
        "execution": "graph",
    }
    refused("'stacks' is not built in 'tensorflow': choose torch", make_run, **fields)


def test_the_least_time_of_a_hybrids_collectives_is_that_of_its_smallest_group():
    assert communication_time_s({"all_reduce": 8e9}, 4, 1e9, 1e9, group=2) == pytest.approx(2.0)
    assert communication_time_s({"all_gather": 8e9}, 4, 1e9, 1e9) == pytest.approx(6.0)
    assert communication_time_s({"reduce_scatter": 8e9}, 4, 1e9, 1e9) == pytest.approx(1.5)


def test_sections_name_every_variable_once():
    models = [
        model
        for workload in workloads().values()
        for model in workload.models.values()
        if model.graph.stages
    ]
    assert {model.workload for model in models} == {"nmt", "cnn", "stacks", "gpt"}
    for model in models:
        named = [variable for section in model.graph.stages for variable in section.variables]
        assert sorted(named) == sorted(v.name for v in model.variables)
        given = {tensor for section in model.graph.stages for tensor in section.gives}
        assert {tensor for section in model.graph.stages for tensor in section.inputs} == given
