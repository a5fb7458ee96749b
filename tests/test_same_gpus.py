"""Machines with the same GPUs, read as one: what joins, what does not, and what is left to measure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu import paths, study
from multigpu.analysis.frame import frame_of
from multigpu.analysis.same_gpus import agreement_sentences, both_measured, figure_agreement
from multigpu.grid import find_grid
from multigpu.measure.point import Point
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from multigpu.same_gpus import as_one, kept_ahead, kind_of, leading_machine, needs_only_gpus, step_width, still_missing
from tests.factory import make_machine, make_record

FOUR, TWO, ONE = make_machine(4), make_machine(2), make_machine(1)
OTHER = make_machine(2, gpu="NVIDIA A100", name="2x-nvidia-a100")
CPU = make_machine(0)


def resnet(placement: str = "ddp", **more: Any) -> Run:
    fields: dict[str, Any] = {"workload": "cnn", "model": "resnet50_v1.5", "layout": "channels_last", "batch_size": 64, "devices": 2}
    return Run(placement=placement, **(fields | more))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"placement": "exp4"}, True),
        ({"placement": "ps_gpu0"}, True),
        ({"placement": "exp1"}, False),
        ({"placement": "exp2"}, False),
        ({"placement": "exp3"}, False),
        ({"device_type": "cpu"}, False),
        ({"inputs": "synthetic_host"}, False),
        ({"inputs": "synthetic_host", "prefetch": 1}, False),
        ({"device_ids": "0,1"}, False),
        ({"peer_access": "off"}, False),
        ({"host_cores": 2}, False),
        ({"energy_window_s": 10}, True),
    ],
)
def test_what_needs_only_gpus(more: dict[str, Any], expected: bool) -> None:
    assert needs_only_gpus(resnet(**more)) is expected


def test_kinds() -> None:
    assert kind_of(FOUR) == kind_of(TWO) == "NVIDIA H200" != kind_of(OTHER)
    assert kind_of(CPU) == "" == kind_of(TWO.model_copy(update={"hosts": 2}))
    assert kind_of(TWO.model_copy(update={"gpus": ["NVIDIA H200", "NVIDIA A100"]})) == ""


def records() -> list[Record]:
    """Of four GPUs: 1, 2 and 4 devices twice; of two: what four have, a third repeat, another placement, and one that needs the host.
    Whole graphs but for that one, which no graph can hold.
    """
    graph = {"execution": "captured"}
    own = [make_record("ddp", count, repeat=n, machine=FOUR, **graph) for count in (1, 2, 4) for n in range(2)]
    return [
        *own,
        make_record("ddp", 2, 1.005e6, repeat=1, machine=TWO, **graph),
        make_record("ddp", 2, 1.005e6, repeat=2, machine=TWO, **graph),
        make_record("exp4", 2, repeat=0, machine=TWO, **graph),
        make_record("exp2", 2, repeat=0, machine=TWO),
        make_record("ddp", 2, repeat=3, machine=OTHER, **graph),
        make_record("independent", 1, machine=ONE, **graph),
    ]


def test_a_machine_with_the_same_gpus_adds_what_the_main_one_lacks() -> None:
    found = as_one(records())
    assert [one.key for one in found] == [one.key for one in records()]
    joined = {(one.run.placement, one.repeat, one.machine.own_name) for one in found if one.machine.own_name}
    assert joined == {("ddp", 2, TWO.name), ("exp4", 0, TWO.name), ("independent", 0, ONE.name)}
    assert all(one.machine.name == FOUR.name for one in found if one.machine.own_name)
    left = [one for one in found if not one.machine.own_name]
    assert {(one.run.placement, one.repeat) for one in left if one.machine.name == TWO.name} == {("ddp", 1), ("exp2", 0)}
    assert sum(one.machine.name == OTHER.name for one in left) == 1


def test_reading_as_one_does_not_depend_on_order_and_changes_nothing_when_repeated() -> None:
    def told(found: list[Record]) -> set[tuple[str, str, str]]:
        return {(one.key, one.machine.name, one.machine.own_name) for one in found}

    few = records()[4:]
    expected = told(as_one(few))
    assert all(told(as_one(order)) == expected for order in itertools.islice(itertools.permutations(few), 0, 5040, 211))
    assert told(as_one(as_one(records()))) == told(as_one(records()))


def test_a_point_of_another_version_of_the_framework_is_another_point() -> None:
    graph = {"execution": "captured"}
    old = [make_record("exp4", devices, machine=FOUR, versions={"torch": "2.11.0"}, **graph) for devices in (1, 2, 4)]
    new = make_record("exp4", 2, machine=TWO, versions={"torch": "2.13.0"}, **graph)
    assert [one.machine.own_name for one in as_one([*old, new])][-1] == TWO.name, "the four GPUs hold no figure of this version"
    again = make_record("exp4", 2, machine=TWO, versions={"torch": "2.11.0"}, **graph)
    assert [one.machine.own_name for one in as_one([*old, again])][-1] == "", "what they measured themselves counts alone"


def test_of_several_machines_that_have_a_point_one_counts() -> None:
    found = as_one([*records(), make_record("exp4", 2, repeat=0, machine=make_machine(3), execution="captured")])
    joined = [one.machine.own_name for one in found if one.run.placement == "exp4"]
    assert sorted(joined) == ["", "3x-nvidia-h200"]  # the one with more GPUs


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=40))
def test_the_leading_machine_reaches_most_devices_of_those_that_measured_enough(measured: list[tuple[str, int]]) -> None:
    found = leading_machine(measured)
    counts = Counter(name for name, _ in measured)
    enough = [name for name in counts if 3 * counts[name] >= max(counts.values())]
    begun = [name for name in enough if (name, 1) in measured] or enough
    reach = {name: max(devices for own, devices in measured if own == name) for name in begun}
    assert found in begun and reach[found] == max(reach.values())
    assert all(counts[found] >= counts[name] for name in begun if reach[name] == reach[found])
    assert leading_machine(measured[::-1]) == found, "the order of Records tells nothing"


def test_the_leading_machine_of_planted_measurements() -> None:
    line = [("four", 1), ("four", 4)]
    assert leading_machine([*line, *[("two", 1)] * 6]) == "four"
    assert leading_machine([*line, *[("two", 1)] * 7]) == "two", "too few of the four's"
    assert leading_machine([("four", 4), ("four", 4), ("two", 1), ("two", 2)]) == "two", "a line begins at one device"


def test_the_main_machine_is_told_model_by_model() -> None:
    reviews = [make_record("ddp", 2, workload="deepconn", repeat=n, machine=TWO) for n in range(4)]
    found = as_one([*records(), *reviews, make_record("ddp", 1, workload="deepconn", machine=FOUR, execution="captured")])
    own = [one for one in found if one.run.workload == "deepconn"]
    assert {one.machine.name for one in own} == {TWO.name} and own[-1].machine.own_name == FOUR.name


def test_the_frame_says_where_each_row_was_measured() -> None:
    frame = frame_of(as_one(records()))
    moved = frame[frame["machine"].ne(frame["measured_on"])]
    assert set(moved["machine"]) == {FOUR.name} and set(moved["measured_on"]) == {TWO.name, ONE.name}
    words = study.record_keys(frame[frame["machine"].eq(FOUR.name)]).html
    assert "9 Records of 4x-nvidia-h200, 2 of them measured on 2x-nvidia-h200, which has the same GPUs, 1 of them measured on 1x" in words


def test_a_renamed_record_is_written_as_it_was_measured() -> None:
    moved = next(one for one in as_one(records()) if one.machine.own_name)
    assert "own_name" not in moved.model_dump_json()


def test_what_a_machine_can_still_add() -> None:
    points = [Point(one.run, one.repeat) for one in records()] + [Point(records()[4].run, 7), Point(records()[0].run, 7)]
    theirs = [one for one in records() if one.machine.name == FOUR.name]
    found = still_missing(points, theirs, TWO, theirs[0].versions)
    told = [(point.run.placement, point.run.devices, point.repeat) for point in found]
    assert told == [("ddp", 2, 2), ("exp4", 2, 0), ("ddp", 2, 3), ("independent", 1, 0), ("ddp", 1, 7)]
    assert still_missing(points[:9], [], TWO) == [point for point in points[:9] if point.run.devices <= 2]
    newer = still_missing(points, theirs, TWO, {"torch": "9.0"})
    assert {one.run.digest for one in theirs if needs_only_gpus(one.run) and one.run.devices <= 2} <= {point.run.digest for point in newer}
    assert len(newer) > len(found), "what another version measured is not known of this one"


def test_the_grid_asks_what_every_machine_with_two_gpus_can_measure() -> None:
    planned = find_grid("same_gpus", [1, 2, 4])
    assert planned == find_grid("same_gpus", [1, 2])
    assert all(needs_only_gpus(each.run) and each.run.devices <= 2 for each in planned)
    assert {each.run.execution for each in planned} == {"eager", "captured"}


def steps(varied: float, **more: Any) -> dict[str, Any]:
    """A measurement whose timed steps alternate by so much; 30 of them after 10 of warm-up, on two replicas."""
    timed = [0.02 * (1 + varied * (number % 2)) for number in range(30)]
    return {"step_time_s": [[0.5] * 10 + timed] * 2} | more


@pytest.mark.parametrize(
    ("placement", "more", "varied", "expected"),
    [
        ("ddp", {}, 0.0, True),
        ("ddp", {}, 0.009, True),
        ("ddp", {}, 0.05, False),
        ("ddp", {"execution": "captured"}, 0.05, True),
        ("layer_split", {"processes": "one"}, 0.0, False),
    ],
)
def test_a_step_that_varies_waited_for_its_host(placement: str, more: dict[str, Any], varied: float, expected: bool) -> None:
    own = [make_record(placement, 2, repeat=n, launch_id="aab"[n], machine=TWO, measurement=steps(varied), **more) for n in range(3)]
    assert kept_ahead(own) is expected
    main = [make_record("ddp", 1, repeat=n, machine=FOUR) for n in range(4)]
    assert {bool(one.machine.own_name) for one in as_one([*main, *own])} == ({False, True} if expected else {False})


def test_the_median_repeat_decides_and_reasons_join_only_where_memory_was_lacking() -> None:
    calm, restless, third = (
        make_record("ddp", 2, repeat=n, launch_id=str(n), machine=TWO, measurement=steps(varied))
        for n, varied in enumerate((0.0, 0.2, 0.0))
    )
    assert kept_ahead([calm, restless, third]) and not kept_ahead([restless]) and not kept_ahead([calm])
    assert step_width(restless) == pytest.approx(0.2 / 1.1)  # half of the steps are a fifth longer: the quartiles are the two lengths
    lacking, failed = (make_record("ddp", 2, machine=TWO, status=status) for status in ("out_of_memory", "failed"))
    assert kept_ahead([lacking]) and not kept_ahead([failed]) and math.isnan(step_width(failed))


@pytest.mark.parametrize(
    ("rates", "launches", "expected"), [((1e6, 1.01e6), "ab", True), ((1e6, 1.01e6), "aa", False), ((1e6, 1.05e6), "ab", False)]
)
def test_steps_that_are_steady_in_every_launch_must_be_as_long_in_each(rates: tuple[float, ...], launches: str, expected: bool) -> None:
    """A host that is late by as much at every step leaves no other trace."""
    both = list(enumerate(zip(rates, launches, strict=True)))
    own = [make_record("ddp", 2, rate, repeat=n, launch_id=name, machine=TWO, measurement=steps(0.0)) for n, (rate, name) in both]
    assert kept_ahead(own) is expected


@pytest.mark.parametrize(("theirs", "expected"), [(1e6, True), (1.015e6, True), (0.9e6, False)])
def test_what_took_the_main_machine_another_time_stays_apart(theirs: float, expected: bool) -> None:
    """One of the two waited, and repeats of both would be no repeats."""
    own = [make_record("ddp", 2, 1e6, repeat=n, machine=TWO, execution="captured") for n in range(3)]
    main = [make_record("ddp", 1, repeat=n, machine=FOUR) for n in range(9)]
    main.append(make_record("ddp", 2, theirs, machine=FOUR, execution="captured"))
    assert {bool(one.machine.own_name) for one in as_one([*main, *own]) if one.repeat > 0 and one.run.devices == 2} == {expected}


def test_a_graph_that_the_main_machine_lacks_is_added_whatever_its_repeats() -> None:
    """Nothing waits for the host in it; one slow repeat is its spread."""
    own = [make_record("ddp", 2, rate, repeat=n, machine=TWO, execution="captured") for n, rate in enumerate((1e6, 1e6, 0.96e6))]
    main = [make_record("ddp", 1, repeat=n, machine=FOUR) for n in range(9)]
    assert all(one.machine.own_name for one in as_one([*main, *own]) if one.run.devices == 2)


@pytest.mark.parametrize(
    ("rates", "launches", "expected"), [((1e6, 1.01e6), "ab", True), ((1e6, 1.01e6), "aa", False), ((1e6, 1.05e6), "ab", False)]
)
def test_where_the_host_keeps_the_clock_launches_tell(rates: tuple[float, ...], launches: str, expected: bool) -> None:
    """TensorFlow's marks are the host's: alike or not within one launch, they say nothing of it."""
    fields: dict[str, Any] = {"framework": "tensorflow", "processes": "one", "execution": "graph", "precision": "tf32", "machine": TWO}
    own = [
        make_record("exp4", 2, rate, repeat=n, launch_id=name, measurement=steps(0.3, step_clock="host"), **fields)
        for n, (rate, name) in enumerate(zip(rates, launches, strict=True))
    ]
    assert kept_ahead(own) is expected
    traced = make_record("exp4", 2, repeat=0, traced_steps=3, measurement=steps(0.3, step_clock="host"), **fields)
    assert not kept_ahead([traced]) and kept_ahead([*own, traced]) is expected
    found = as_one([*(make_record("ddp", 1, repeat=n, machine=FOUR) for n in range(9)), *own, traced])
    assert bool(found[-1].machine.own_name) is expected


def agreement() -> pd.DataFrame:
    """A graph that both machines have alike, an eager Run that the second one's host slows down, and one that needs the host."""
    found = []
    for machine, slower, varied in ((FOUR, 1.0, 0.0), (TWO, 2.0, 0.1)):
        found += [make_record("ddp", 2, 1e6, machine=machine, repeat=n, execution="captured") for n in range(2)]
        found += [make_record("ddp", 2, 1e6 / slower, machine=machine, measurement=steps(varied)), make_record("exp2", 2, machine=machine)]
    return both_measured([*found, make_record("ddp", 1, machine=FOUR), make_record("ddp", 2, machine=OTHER)])


def test_agreement_of_two_machines() -> None:
    table = agreement().set_index(["execution", "only_gpus"])
    assert len(table) == 3
    graph, waits = table.loc[("captured", True)], table.loc[("eager", True)]
    assert (graph["main"], graph["other"], graph["main_n"], graph["other_n"]) == (FOUR.name, TWO.name, 2, 2)
    assert graph["ratio"] == pytest.approx(1) and graph["joins"] and not waits["joins"] and not table.loc[("eager", False), "joins"]
    assert waits["ratio"] == pytest.approx(2) and waits["width"] > 0.05
    first, second = agreement_sentences(agreement())
    assert first.startswith("1 Run, 1 of them whole CUDA graphs, ") and "1.000 to 1.000 times" in first
    assert second.startswith("1 Run whose steps or launches vary") and "2.000 to 2.000 times" in second
    picture = figure_agreement(agreement())
    assert picture.finding == "On the same GPUs steady steps agree to 0%, other steps differ by up to 100%" and len(picture.data) == 2


def test_steps_whose_blocks_alone_were_compiled_are_not_compared_with_todays() -> None:
    def compiled(measured_at: str, **more: Any) -> list[Any]:
        fields: dict[str, Any] = {"workload": "cnn", "execution": "compiled_captured"} | more
        found = [make_record("ddp", 1, machine=machine, **fields) for machine in (FOUR, TWO)]
        return [record.model_copy(update={"measured_at": measured_at}) for record in found]

    before, after = "2026-11-22T12:15:00+00:00", "2026-11-24T02:36:00+00:00"
    assert both_measured(compiled(before)).empty and len(both_measured(compiled(after))) == 1
    assert len(both_measured(compiled(before, execution="captured"))) == len(both_measured(compiled(before, workload="nmt"))) == 1


def test_agreement_without_a_second_machine_says_so() -> None:
    alone = both_measured([make_record("ddp", 2, machine=FOUR)])
    assert "No Run" in agreement_sentences(alone)[0] and "No Run" in figure_agreement(alone).alt


def test_committed_records_read_as_one_agree() -> None:
    """The rule, over what was measured on both: where it joins, machines agree; where it does not, they need not."""
    table = both_measured(RecordStore(paths.RUNS))
    steady = table[table["steady"]]
    assert len(steady) >= 30 and steady["ratio"].between(0.92, 1.05).all() and steady["joins"].mean() > 0.8
    assert table.loc[table["joins"], "ratio"].between(0.975, 1.025).all() and table.loc[table["joins"], "only_gpus"].all()
    assert table.loc[table["only_gpus"] & ~table["steady"], "ratio"].max() > 1.2
