"""Graphs of stages, what a step of them costs, and the search for the best placement."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from benchmarks.stage_search.measure import places_text
from benchmarks.stage_search.pricing import HOST_MODELS, NOTHING, Pricing, copy_cost

from multigpu.build import build_run
from multigpu.placements.stage_split import RULES
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.parse import parse_fields
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Places, Stage, StageGraph
from multigpu.workloads import description_of, find_model
from multigpu.workloads.stages import graph_of, places_of
from multigpu_study.stages.costs import CopyCost, Costs, StageCost, StagePass
from multigpu_study.workloads.deepconn.description import stage_graph
from tests.refusals import refused

FIELDS: dict[str, Any] = {
    "workload": "deepconn",
    "model": "deepconn",
    "processes": "one",
    "batch_size": 32,
    "scaling": "strong",
}
DOCUMENT = stage_graph(find_model("deepconn", "deepconn"))


def priced(
    graph: StageGraph, device_s: dict[str, float], copy_s: float, host_s: float = 0.0
) -> Costs:
    """Costs whose backward passes take twice their forward ones, and whose copies all take
    `copy_s`.
    """
    passes = {
        name: [StagePass(device_s=times * each, host_s=host_s) for times in (1, 2)]
        for name, each in device_s.items()
    }
    stages = (
        StageCost(name=name, forward=passes[name][0], backward=passes[name][1], update=NOTHING)
        for name in passes
    )
    copies = (CopyCost(bytes=size, device_s=copy_s, host_s=host_s) for size in (1, 10**9))
    return Costs(stages=tuple(stages), copies=tuple(copies))


def times(graph: StageGraph, costs: Costs, places: Places, **changed: Any) -> tuple[float, float]:
    """Seconds of a step, and with nothing side by side, of costs that differ in these fields."""
    pricing = Pricing(graph, costs.model_copy(update=changed), 4)
    return pricing.step_time_s(places), pricing.serial_s(places)


TOWERS = StageGraph(
    (
        Stage("a", gives={"a": {"rows": 4}}, tower="a"),
        Stage("b", gives={"b": {"rows": 4}}, tower="b"),
        Stage("join", ("a", "b")),
    )
)
ONE, TWO = {"a": 0, "b": 0, "join": 0}, {"a": 0, "b": 1, "join": 0}


def random_graph(seed: int, count: int) -> tuple[StageGraph, Costs]:
    rng = np.random.default_rng(seed)
    stages = [Stage("s0", gives={"s0": {"rows": int(rng.integers(1, 50))}})]
    for index in range(1, count):
        reads = sorted(set(rng.integers(0, index, 2).tolist()))
        shared = ("v",) if index in (1, count - 1) else ()
        stages.append(
            Stage(
                f"s{index}",
                tuple(f"s{n}" for n in reads),
                gives={f"s{index}": {"rows": int(rng.integers(1, 50))}},
                variables=shared,
            )
        )
    last = [
        stage.name for stage in stages if not any(stage.name in other.inputs for other in stages)
    ]
    stages.append(Stage("loss", tuple(last)))
    graph = StageGraph(tuple(stages))
    costs = priced(
        graph,
        {stage.name: float(rng.uniform(1, 10)) for stage in stages},
        float(rng.uniform(0.1, 3)),
        float(rng.uniform(0, 2)),
    )
    return graph, costs


def moves_of(run: Run) -> dict[str, int]:
    """The bytes that one step of a Run of stages must move."""
    return step_bytes(run, description_of(run), [], graph=graph_of(run))


def test_the_documents_placements_and_what_they_move() -> None:
    """By hand: rows (800 x 50) to the item tower's convolution and back, and its 64 features; the
    alternating ones add maps.
    """
    items = 32 * 4
    rows, maps, pooled, dense = 800 * 50, 798 * 10, 797 * 10, 64
    assert moves_of(Run(placement="single", devices=1, **FIELDS)) == {}
    assert moves_of(Run(placement="tower_per_gpu", devices=2, **FIELDS)) == {
        "device_to_device": 2 * items * (rows + dense)
    }
    # user: rows, maps, pooled, flat cross, item: maps, pooled, flat, and its features
    alternating = 2 * items * (rows + maps + pooled + pooled + maps + pooled + pooled + dense)
    assert moves_of(Run(placement="alternating", devices=2, **FIELDS)) == {
        "device_to_device": alternating
    }
    text = places_text(DOCUMENT, RULES["alternating"](DOCUMENT))
    assert text == "01010001010"
    searched = Run(placement="searched", devices=2, stage_devices=text, **FIELDS)
    assert places_of(searched) == places_of(Run(placement="alternating", devices=2, **FIELDS))
    assert moves_of(searched) == {"device_to_device": alternating}
    strings = Run(
        placement="single",
        devices=1,
        framework="tensorflow",
        execution="graph",
        feed="strings",
        **FIELDS,
    )
    assert (
        moves_of(strings) == {"host_to_device": 2 * 32 * 800 * 8}
        and len(graph_of(strings).stages) == 13
    )


REFUSED = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text())


@pytest.mark.parametrize(("more", "words"), REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(more: str, words: str) -> None:
    refused(words, build_run, **FIELDS | parse_fields(more.split()))


def test_two_equal_towers_overlap_unless_the_host_is_slow() -> None:
    """Forward 1, backward 2, join free. Side by side 3 s and two copies of 0.1; one after another
    6; a host of 1 s a start: no gain.
    """
    costs = priced(TOWERS, {"a": 1.0, "b": 1.0, "join": 0.0}, 0.1)
    assert times(TOWERS, costs, ONE) == pytest.approx((6, 6)) and times(
        TOWERS, costs, TWO
    ) == pytest.approx((3.2, 6.2))
    slow = priced(TOWERS, {"a": 0.01, "b": 0.01, "join": 0.01}, 0.01, host_s=1.0)
    assert times(TOWERS, slow, TWO)[0] > times(TOWERS, slow, ONE)[0]
    assert times(TOWERS, slow, TWO, threads="per_device")[0] < times(TOWERS, slow, TWO)[0], (
        "a thread a device starts both towers at once"
    )


def test_backward_passes_of_two_towers_start_side_by_side_whatever_the_order_of_stages() -> None:
    """A host of 1 s a start, devices that take no time: towers started by a thread each save one
    start, whichever tower comes first.
    """
    costs = priced(TOWERS, dict.fromkeys(TWO, 0.0), 0.0, host_s=1.0)
    for places in (TWO, {"a": 1, "b": 0, "join": 0}):
        steps = {model: times(TOWERS, costs, places, threads=model)[0] for model in HOST_MODELS}
        assert (
            steps["forward"] + 1 == pytest.approx(steps["one"])
            and steps["per_device"] <= steps["forward"]
        )


@pytest.mark.parametrize("threads", HOST_MODELS)
def test_handing_a_gradient_on_costs_the_host_and_calling_a_graph_delays_all_of_it(
    threads: Any,
) -> None:
    costs = priced(TOWERS, dict.fromkeys(TWO, 0.0), 0.0, host_s=1.0).model_copy(
        update={"threads": threads}
    )
    for places, apart in ((ONE, 0.0), (TWO, 0.5)):
        usual = np.array(times(TOWERS, costs, places))
        assert times(TOWERS, costs, places, hand_over_s=0.5) == pytest.approx(usual + apart)
        assert times(TOWERS, costs, places, call_s=0.25) == pytest.approx(usual + 0.25)


@pytest.mark.parametrize("true", HOST_MODELS)
def test_measured_steps_tell_which_model_of_the_host_holds(true: Any) -> None:
    graph, costs = random_graph(3, 7)
    costs = costs.model_copy(update={"threads": true})
    split = [
        {stage.name: (index // width) % 2 for index, stage in enumerate(graph.stages)}
        for width in (1, 2, 3)
    ]
    errors = Pricing(graph, costs, 4).host_model_errors(
        [(places, Pricing(graph, costs, 4).step_time_s(places)) for places in split]
    )
    assert errors[true] == pytest.approx(0) and min(errors, key=lambda model: errors[model]) == true
    assert Pricing(graph, costs, 4).host_model_errors([]) == {}


def test_copies_cost_what_was_measured_and_follow_bandwidth_beyond() -> None:
    copies = (
        CopyCost(bytes=size, device_s=seconds, host_s=0.5)
        for size, seconds in ((0, 1.0), (100, 2.0))
    )
    costs = Costs(stages=(), copies=tuple(copies))
    assert [copy_cost(costs, size).device_s for size in (0, 50, 100, 300)] == pytest.approx(
        [1.0, 1.5, 2.0, 4.0]
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_what_trying_everything_finds(seed: int) -> None:
    graph, costs = random_graph(seed, 7)
    for devices in (2, 3):
        _, step_s, tried = Pricing(graph, costs, 4).search(devices)
        groups, prices = graph.together, []
        for dealt in product(range(devices), repeat=len(groups)):
            places = {
                name: device for group, device in zip(groups, dealt, strict=True) for name in group
            }
            prices.append(Pricing(graph, costs, 4).step_time_s(places))
        assert step_s == pytest.approx(min(prices), rel=1e-6) and tried < len(prices)
    graph, costs = random_graph(seed, 40)
    refused(
        r"\d+ groups of stages have more than 100000 placements on 2 devices: choose fewer devices",
        Pricing(graph, costs, 4).search,
    )
