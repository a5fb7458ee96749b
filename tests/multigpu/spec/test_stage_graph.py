"""A model of five stages by hand: words that the host looks up, a table that two stages share."""

import pytest

from multigpu.spec.stage_graph import HOST, Crossing, Stage, StageGraph, parse_places
from tests.refusals import refused

GRAPH = StageGraph(
    (
        Stage("words", gives={"words": {"rows": 4}}, integers=True, host=True),
        Stage("look_up", ("words",), gives={"look_up": {"rows": 12}}, variables=("table",)),
        Stage("tower", ("look_up",), gives={"tower": {"rows": 2}}, variables=("weight",)),
        Stage("score", ("look_up",), gives={"score": {"rows": 1}}, variables=("table",)),
        Stage("loss", ("tower", "score")),
    )
)
ROWS = {"rows": 5}


def test_tensors_travel_once_to_each_device_and_their_gradients_back() -> None:
    places = GRAPH.check({"look_up": 0, "tower": 1, "score": 0, "loss": 1}, 2)
    assert places["words"] == HOST and GRAPH.bytes_of("look_up", ROWS) == 5 * 12 * 4
    assert GRAPH.crossings(places) == [
        Crossing("words", HOST, (0,), False),
        Crossing("look_up", 0, (1,), True),
        Crossing("score", 0, (1,), True),
    ]
    assert GRAPH.moved(places, ROWS) == {
        "host_to_device": 5 * 4 * 8,
        "device_to_device": 2 * (5 * 12 + 5) * 4,
    }
    assert GRAPH.moved(places, ROWS, 8)["device_to_device"] == 2 * (5 * 12 + 5) * 8
    on_the_host = StageGraph((*GRAPH.stages[:4], Stage("loss", ("tower", "score"), host=True)))
    placed = on_the_host.check({"look_up": 0, "tower": 0, "score": 0}, 1)
    back = (5 * 2 + 5) * 4
    assert on_the_host.moved(placed, ROWS) == {
        "host_to_device": 5 * 4 * 8 + back,
        "device_to_host": back,
    }


def test_stages_of_one_variable_stand_together_where_there_are_devices() -> None:
    assert GRAPH.together == (("look_up", "score"), ("tower",), ("loss",))
    assert GRAPH.variables == {"weight": "tower", "table": "look_up"}
    places = {"look_up": 0, "tower": 1, "score": 0, "loss": 1}
    refused("look_up and score use 'table'", GRAPH.check, places | {"score": 1}, 2)
    for device in (-1, 2):
        refused(f"placed on device {device}", GRAPH.check, places | {"loss": device}, 2)
    assert parse_places(GRAPH, "0101") == places | {"tower": 1, "loss": 1}
    for text in ("010", "01010", "01x1", ""):
        refused("must be 4 digits", parse_places, GRAPH, text)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((Stage("a", ("b",)), Stage("b")), "'a' reads 'b', which does not stand before it"),
        ((Stage("a"), Stage("a")), "two stages are called 'a'"),
        ((Stage("a", ("a",)),), "which does not stand before it"),
    ],
)
def test_a_graph_is_in_an_order_in_which_it_can_run(stages: tuple[Stage, ...], why: str) -> None:
    refused(why, StageGraph, stages)
