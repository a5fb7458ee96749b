"""Every placement of a model's stages trains as the whole model on one device does, and moves the
bytes that its graph predicts.
"""

import importlib
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from benchmarks.stage_search.measure import (
    describe,
    found_run,
    found_runs,
    hand_written,
    main,
    measure_stages,
    measured_s,
    planned,
    profile_run,
)
from benchmarks.stage_search.pricing import NOTHING

from multigpu.engines.common.session import Opening, measurement, open_session
from multigpu.engines.common.timing import most_steps
from multigpu.engines.torch.checked import train_reference
from multigpu.paths import STAGES
from multigpu.records.record import RecordStore
from multigpu.spec.run import Run
from multigpu.workloads.stages import graph_of
from multigpu_study.stages.costs import CopyCost, Costs, HostModel, StageCost, StagePass
from multigpu_study.stages.record import REFUTED, StageRecord, StageStore, stage_key
from tests.factory import make_machine, make_record
from tests.multigpu.equivalence.cases import make_context
from tests.refusals import refused
from tests.study.stages.test_stages import moves_of

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "single": {"placement": "single", "devices": 1},
    "tower_per_gpu": {"placement": "tower_per_gpu", "devices": 2},
    "alternating": {"placement": "alternating", "devices": 2, "feed": "arrays"},
    "searched": {
        "placement": "searched",
        "devices": 2,
        "stage_devices": "11010101100",
        "feed": "pipeline",
    },
    "replicated_allreduce": {"placement": "replicated_allreduce", "devices": 2, "feed": "arrays"},
}
TENSORFLOW_ALONE: dict[str, dict[str, Any]] = {
    "strings": {"placement": "alternating", "devices": 2, "feed": "strings"},
    "sparse": {"placement": "tower_per_gpu", "devices": 2, "embedding_gradients": "sparse"},
    "op by op": {"placement": "tower_per_gpu", "devices": 2, "execution": "eager"},
}


def run_of(framework: str, **fields: Any) -> Run:
    """Rows of planted reviews: a global batch of 11 is the same 11 rows however it is split."""
    common = {
        "workload": "deepconn",
        "model": "deepconn_tiny",
        "framework": framework,
        "inputs": "planted_reviews",
        "device_type": "cpu",
    }
    form = {"execution": "graph"} if framework == "tensorflow" else {}
    steps = {"warmup_steps": 1, "timed_steps": STEPS - 1}
    return Run(
        **(common | form | steps | fields),
        processes="one",
        batch_size=11,
        scaling="strong",
        precision="fp64",
    )


def train(run: Run) -> dict[str, Any]:
    """All variables, the losses, and what the first step moved."""
    opening = Opening(run, 0, 1, Path(tempfile.gettempdir()), 60.0, 0.0, lambda stage: None)
    session: Any = open_session(opening)
    try:
        session.warm_up()
        parts = session.time()
        values = session.trainer.full_values()
        losses = [sum(shares) for shares in zip(*(part["losses"] for part in parts), strict=True)]
        moved = {kind: count for kind, count in session.moved.items() if count}
        found = {
            "values": {
                name: value if run.framework == "tensorflow" else value.numpy()
                for name, value in values.items()
            }
        }
        return found | {
            "losses": losses,
            "moved": moved,
            "units": [part["units"] for part in parts],
        }
    finally:
        session.close()


def same(
    found: dict[str, Any], values: dict[str, np.ndarray], losses: list[float], run: Run
) -> None:
    """The largest difference of a variable's elements, over its largest element, is rounding; what
    moved is what the graph predicts.
    """
    assert found["values"].keys() == values.keys() and found["losses"] == pytest.approx(
        losses, rel=1e-10
    )
    for name, value in values.items():
        assert np.abs(found["values"][name] - value).max() < 1e-9 * max(
            1.0, float(np.abs(value).max())
        ), name
    assert run.placement == "replicated_allreduce" or found["moved"] == moves_of(run)


@pytest.fixture(scope="module")
def reference() -> tuple[dict[str, np.ndarray], list[float]]:
    """The library's own module on the same global batch."""
    run = run_of("torch", placement="single", devices=1)
    context, source = make_context(
        run.model_copy(update={"placement": "independent", "processes": "per_device"}), 0, Path()
    )
    values, losses = train_reference(context, source, STEPS, [0])
    return {name: value.numpy() for name, value in values.items()}, losses


@pytest.mark.parametrize("name", CASES)
def test_torch_trains_as_one_device_does(
    name: str, reference: tuple[dict[str, np.ndarray], list[float]]
) -> None:
    run = run_of("torch", **CASES[name])
    torch.set_num_threads(1)
    found = train(run)
    same(found, *reference, run)
    if name != "replicated_allreduce":
        assert found["units"] == [11 * (STEPS - 1), *([0] * (run.devices - 1))]


@pytest.fixture(scope="module")
def tensorflow(tf: Any) -> dict[str, Any]:
    return {
        name: train(run_of("tensorflow", **fields))
        for name, fields in (CASES | TENSORFLOW_ALONE).items()
    }


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", CASES | TENSORFLOW_ALONE)
def test_tensorflow_trains_as_one_device_does(name: str, tensorflow: dict[str, Any]) -> None:
    """What moved is read from the partitioned graphs, so a stage that ran elsewhere would show."""
    alone = tensorflow["single"]
    run = run_of("tensorflow", **(CASES | TENSORFLOW_ALONE)[name])
    same(tensorflow[name], alone["values"], alone["losses"], run)


def test_an_operation_that_strays_to_the_host_is_found(tf: Any) -> None:
    from multigpu_study.stages.tensorflow_engine import stray_ops

    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    named = [
        ("compute/0/user_conv/Conv2D", "Conv2D"),
        ("compute/-1/user_ids/find", "LookupTableFindV2"),
        ("compute/0/x/Const", "Const"),
    ]
    graphs: Any = SimpleNamespace(
        nodes=[SimpleNamespace(name=name, op=op, device=device) for name, op in named], shapes={}
    )
    devices: Any = SimpleNamespace(place=lambda name: -1)
    assert stray_ops(graphs, devices) == ["Conv2D compute/0/user_conv/Conv2D"]


def test_passes_of_a_graph_are_timed_although_nothing_reads_them(tf: Any) -> None:
    """A product called op by op, and one among several in a graph, where nothing reads what comes
    of it.
    """
    from benchmarks.stage_search.tensorflow_costs import PassClock, as_written

    from multigpu.engines.tensorflow.devices import Devices

    devices = Devices(run_of("tensorflow", placement="single", devices=1))
    with devices.at(0), as_written():
        matrix = tf.ones([500, 500], tf.float64)
        clock = PassClock(devices, True, 3)
        alone = clock.each(lambda: matrix @ matrix)
        among = clock.seconds(lambda one: one @ one, matrix)
    assert 0.1 < among / alone < 10


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_measured_costs_make_a_record_with_the_best_placement(
    framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On a CPU nothing runs side by side, so the whole model on one device is what is found."""
    run = run_of(framework, placement="single", devices=1)
    if framework == "tensorflow":
        request.getfixturevalue("tf")
    # of two calls each
    costs = importlib.import_module(f"benchmarks.stage_search.{framework}_costs").measure_costs(
        run, [4, 1 << 16], 2
    )
    graph = graph_of(run)
    assert [one.name for one in costs.stages] == [stage.name for stage in graph.placed]
    assert (costs.call_s > 0) == (framework == "tensorflow")
    assert sum(one.forward.host_s + one.backward.host_s for one in costs.stages) > 0
    assert all(
        one.update.host_s == 0 or one.name in graph.variables.values() for one in costs.stages
    )
    record = planned(record_of(costs, framework), {})
    assert [one.name for one in record.predictions] == [
        "single",
        "tower_per_gpu",
        "alternating",
        "searched",
    ]
    assert record.complete and record.tried >= 512 and record.costs == costs
    assert record.found.step_time_s <= min(one.step_time_s for one in record.predictions) * (
        1 + 1e-6
    )
    store = StageStore(tmp_path / "stages")
    store.write(record)
    assert next(iter(store)) == record and "placements priced, all there are" in describe(record)
    assert found_run(record).stage_devices == record.found.stage_devices


def record_of(costs: Costs, framework: str = "torch") -> StageRecord:
    """Measured costs of the tiny model for two devices, nothing planned yet."""
    run, machine = (run_of(framework, placement="single", devices=1), make_machine(2))
    made = {"machine": machine, "versions": {}, "measured_at": "", "commit": "", "clean_tree": True}
    fields = {
        "run": run,
        "devices": 2,
        "repeats": 2,
        "costs": costs,
        "predictions": [],
        "tried": 0,
        "complete": False,
    }
    return StageRecord(key=stage_key(run, 2, machine.name, "1"), **fields, **made)


def costed(
    part: StagePass, update: StagePass = NOTHING, copy_s: float = 1e-6, threads: HostModel = "one"
) -> StageRecord:
    """Of the tiny model on two devices: every pass costs the same, and starting a copy so much."""
    graph = graph_of(run_of("torch", placement="single", devices=1))
    stages = tuple(
        StageCost(name=stage.name, forward=part, backward=part, update=update)
        for stage in graph.placed
    )
    copies = (CopyCost(bytes=4, device_s=1e-6, host_s=copy_s),)
    return record_of(Costs(stages=stages, copies=copies, threads=threads))


def written(records: RecordStore, record: StageRecord, steps_s: dict[Run, float]) -> None:
    for run, step_s in steps_s.items():
        records.write(
            make_record(
                units_per_s=run.batch_size / step_s, machine=record.machine, **run.model_dump()
            )
        )


def planned_again(record: StageRecord, records: RecordStore) -> StageRecord:
    """What the command plans from costs that are known and the steps measured since."""
    by_hand_s = measured_s(hand_written(record.run, record.devices), record.machine.name, records)
    found = {each.stage_devices or "": each for each in found_runs(planned(record, by_hand_s))[0]}
    return planned(record, by_hand_s, measured_s(found, record.machine.name, records))


def test_steps_measured_since_lead_to_a_new_search(tmp_path: Path) -> None:
    """Costs of the host that two threads would halve; measured steps say that they do not, so one
    device is found in the end.
    """
    records, first = (
        RecordStore(tmp_path),
        planned(costed(StagePass(device_s=1e-6, host_s=1e-3), copy_s=1e-4, threads="forward"), {}),
    )
    assert first.found.devices == 2
    slow = {"single": 0.020, "tower_per_gpu": 0.023, "alternating": 0.028}
    written(records, first, {run: slow[name] for name, run in hand_written(first.run, 2).items()})
    found = planned_again(first, records)
    assert found.costs.threads == "one" and found.found.devices == 1
    assert (
        found.by_hand == "single"
        and found_runs(found) == ([], [])
        and "what was found is single" in describe(found)
    )
    assert found.measured_s == pytest.approx(slow) and "threads that start work: one" in describe(
        found
    )
    assert planned_again(found, records) == found


def test_what_was_measured_slower_than_by_hand_is_not_found(tmp_path: Path) -> None:
    """Two devices are priced low and take long: the fastest that was measured is found."""
    measured = costed(StagePass(device_s=1e-3, host_s=1e-6))
    by_hand = {"single": 0.020, "tower_per_gpu": 0.023}
    proposed = planned(measured, by_hand)
    digits = proposed.found.stage_devices
    assert (
        proposed.by_hand is None and proposed.found.devices == 2 and len(proposed.predictions) == 4
    )
    settled = planned(measured, by_hand, {digits: 0.030})
    assert [one.name for one in settled.predictions] == [
        "single",
        "tower_per_gpu",
        "alternating",
        REFUTED,
        "searched",
    ]
    assert (
        settled.by_hand == "single"
        and found_runs(settled) == ([], [])
        and settled.predictions[3].stage_devices == digits
    )
    held = planned(measured, by_hand, {digits: 0.015})
    assert held.found.stage_devices == digits and len(held.predictions) == 4
    records, runs = RecordStore(tmp_path), hand_written(measured.run, 2)
    written(
        records,
        measured,
        {runs[name]: step_s for name, step_s in by_hand.items()} | {found_run(proposed): 0.030},
    )
    again = planned_again(planned(measured, {}), records)
    assert again.by_hand == "single" and again.found_s == pytest.approx({digits: 0.030})
    assert planned_again(again, records) == again


def test_what_is_found_is_measured_and_traced_unless_written_by_hand() -> None:
    part = StagePass(device_s=1e-6, host_s=1e-4)
    record = planned(costed(part, part, 1e-4), {})
    assert record.by_hand == "single" and found_runs(record) == ([], [])
    best = record.found.model_copy(update={"stage_devices": "01111000000", "devices": 2})
    record = record.model_copy(update={"predictions": [*record.predictions[:-1], best]})
    found = [
        (run.stage_devices, run.traced_steps, run.timed_steps)
        for runs in found_runs(record)
        for run in runs
    ]
    assert found == [("01111000000", 0, record.run.timed_steps), ("01111000000", 20, 100)]
    assert record.by_hand is None and "what was found is" not in describe(record)


def test_the_command_refuses_what_is_its_own() -> None:
    refused("placement is chosen by this command", profile_run, {"placement": "single"})
    run = run_of("torch", placement="single", devices=1)
    refused("at least 2 devices, not 1", measure_stages, run, 1, StageStore(Path("nowhere")))


def test_a_window_of_steps_is_traced_where_the_run_asks_for_it(tmp_path: Path) -> None:
    """Steps 0 to 2 are warm-up and timed, 3 and 4 neither; 5 warms the profiler up, 6 and 7 are the
    window.
    """
    run = run_of("torch", placement="single", devices=1, traced_steps=2, traced_from=6)
    session: Any = open_session(Opening(run, 0, 1, tmp_path, 60.0, 0.0, lambda stage: None))
    session.step = (taken := Mock(wraps=session.step))
    session.warm_up()
    found = measurement(run, session.time(), 1.0)
    session.close()
    # the first one is counted
    assert [call.args for call in taken.call_args_list] == [(step,) for step in range(1, 8)]
    assert (
        found.trace is not None
        and found.trace.first_step == 6
        and len(found.trace.replicas[0].steps) == 2
    )
    assert most_steps(run) == 8 and most_steps(run.model_copy(update={"traced_from": None})) == 6


def test_committed_searches_found_nothing_slower_than_what_is_written_by_hand() -> None:
    known = list(StageStore(STAGES))
    assert {record.run.framework for record in known} == {"torch", "tensorflow"}
    assert all(
        (record.measured(record.found) or 1e9) <= min(record.measured_s.values())
        for record in known
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("placement=single", "placement is chosen by this command: leave it out"),
        ("--devices 1", "stages are spread over at least 2 devices, not 1"),
        ("batch_size=none", "batch_size"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_sentence(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert said in told and told.startswith("multigpu: ") and told.count("\n") == 1
