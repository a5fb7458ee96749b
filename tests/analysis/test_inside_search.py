"""What page 09 says of searches: measured steps by places, the minimum cut beside what was found, and what is missing."""

from __future__ import annotations

import re
from itertools import product

import pytest

from multigpu.analysis import inside_search
from multigpu.analysis.frame import frame_of
from multigpu.stages.check import graph_of
from multigpu.stages.cost import CopyCost, Costs, Part, StageCost
from multigpu.stages.graph import Stage, StageGraph
from multigpu.stages.measure import planned
from multigpu.stages.record import StageRecord
from multigpu.stages.search import cut_bytes, fewest_bytes
from multigpu.workloads import find_model
from multigpu.workloads.deepconn.stages import stage_graph
from tests.analysis.test_inside_model import point
from tests.factory import make_machine
from tests.stages.test_stages import DOCUMENT, FIELDS
from tests.stages.trained import record_of


def searched(device_s: float = 1e-6) -> StageRecord:
    """The document's model, whose stages the host starts slowly from one thread: all on one GPU is cheapest."""
    from multigpu.run import Run

    run = Run(placement="single", devices=1, timed_steps=824, **FIELDS)
    start, nothing = Part(device_s=device_s, host_s=1e-4), Part(device_s=0.0, host_s=0.0)
    stages = tuple(StageCost(name=stage.name, forward=start, backward=start, update=nothing) for stage in graph_of(run).placed)
    costs = Costs(stages=stages, copies=(CopyCost(bytes=4, device_s=1e-6, host_s=1e-4),))
    return planned(record_of(run, costs, make_machine(8)), {})


def test_the_found_placement_is_measured_where_an_equal_one_was() -> None:
    record = searched()
    frame = frame_of([*point("single", 2.0), *point("single", 9.0, timed_steps=100), *point("tower_per_gpu", 2.2)])
    assert record.by_hand == "single" and record.found.stage_devices == "0" * 11
    steps = inside_search.measured_s(record, record.found.stage_devices, frame)
    assert len(steps) == 5 and sum(steps) / 5 == pytest.approx(0.002, rel=0.01)  # the epochs, not the 100 steps
    assert inside_search.measured_s(record, "1" * 11, frame) == steps  # equal devices
    html = inside_search.search_table([record], frame).html
    assert html.count(">2.00<") == 2 and "fewest bytes over two GPUs (002)" in html and "0000000000" not in html
    found = inside_search.found_table([record], frame).html
    assert ">one GPU<" in found and ">2.00<" in found and ">2.00, one GPU<" in found and "Of 512 placements priced (all there are)" in found
    (cut, tensorflow) = inside_search.search_sentences([record], frame)
    assert cut.startswith("Document 002 cuts where the least crosses: on two GPUs that parts rating from the rest")
    assert (
        tensorflow.startswith("TensorFlow: its stages have not been measured") and "stages framework=tensorflow --devices 2`" in tensorflow
    )


def test_a_price_that_measuring_refuted_is_told_and_one_that_it_bore_out_too() -> None:
    costed, by_hand = searched(), {"single": 0.0020, "tower_per_gpu": 0.0024}
    found = "01111000001"
    refuted = planned(costed, by_hand, {found: 0.0030}, propose=False)
    # the Records of today, not what the search was told: 3.2 ms and not 3.0
    frame = frame_of([*point("single", 2.0), *point("searched", 3.2, stage_devices=found)])
    said = inside_search.search_sentences([refuted], frame)[0]
    assert "measuring refuted the prices: with user conv to dense and rating on GPU 1 a step was priced at" in said
    assert "and took 3.19 ms, against 2.00 ms of one GPU." in said and found not in said
    html = inside_search.search_table([refuted], frame).html
    assert "priced lower, measured slower" in html and html.count(">3.19<") == 1
    assert ">one GPU<" in inside_search.found_table([refuted], frame).html
    kept = planned(costed, by_hand, {found: 0.0015})
    frame = frame_of([*point("single", 2.0), *point("searched", 1.6, stage_devices=found)])
    held = inside_search.found_table([kept], frame).html
    assert ">user conv to dense and rating on GPU 1<" in held and ">1.60<" in held and ">2.00, one GPU<" in held
    assert ">1.60<" in inside_search.search_table([kept], frame).html, "one figure for one quantity"
    assert not any("refuted" in text for text in inside_search.search_sentences([kept], frame))


def test_how_far_prices_miss_is_a_table() -> None:
    record = searched().model_copy(update={"host_model_errors": {"one": 0.17, "forward": 0.37, "per_device": 0.46}})
    record = record.model_copy(update={"measured_s": {"single": 0.002, "tower_per_gpu": 0.0022}})
    html = inside_search.misses_table([record]).html
    assert re.findall(r'bold;"[^>]*>([^<]*)<', html) == ["17%"] and ">37%<" in html and ">46%<" in html and ">2<" in html
    assert "yet" in inside_search.misses_table([searched()]).html and "yet" in inside_search.found_table([], frame_of([])).html


def test_a_searchs_records_and_those_of_the_same_places_are_one() -> None:
    """One tower a GPU under the search's name, with the devices the other way round."""
    digits = next(one.stage_devices for one in searched().predictions if one.name == "tower_per_gpu")
    other = digits.translate(str.maketrans("01", "10"))
    frame = frame_of([*point("tower_per_gpu", 2.2), *point("searched", 2.4, stage_devices=other)])
    assert len(inside_search.measured_s(searched(), digits, frame)) == 10


def test_the_minimum_cut_crosses_the_fewest_bytes_of_all_that_use_two_gpus() -> None:
    best = fewest_bytes(DOCUMENT, 32)
    groups = DOCUMENT.together
    every = [
        {name: device for group, device in zip(groups, places, strict=True) for name in group}
        for places in product((0, 1), repeat=len(groups))
        if len(set(places)) == 2
    ]
    assert cut_bytes(DOCUMENT, best, 32) == min(cut_bytes(DOCUMENT, places, 32) for places in every) and len(set(best.values())) == 2
    assert cut_bytes(DOCUMENT, best, 32) == 2 * 2 * 32 * 64 * 4  # both towers' 64 features of 32 rows, there and back
    cut = inside_search.minimum_cut(searched())
    assert cut.cut_bytes == 32_768 and "parts rating from the rest, and" in inside_search.cut_sentence([searched()])
    with pytest.raises(ValueError, match="cannot be parted"):
        fewest_bytes(StageGraph((Stage("a", variables=("v",)), Stage("b", ("a",), variables=("v",)))), 1)
    assert stage_graph(find_model("deepconn", "deepconn")).together == groups
