"""Planted causes are named, what was not measured is named so, and nothing is said to help that no Record shows."""

from __future__ import annotations

import json
import shlex

import pytest

from multigpu import paths
from multigpu.analysis.causes import causes_frame
from multigpu.analysis.explain import Explanation, explain_fields, explain_key, explained
from multigpu.analysis.explain_parts import STEP_PARTS, contributions, step_parts
from multigpu.analysis.explain_verdict import verdict
from multigpu.analysis.explain_words import as_dict, as_text, not_measured
from multigpu.analysis.frame import frame_of
from multigpu.analysis.helped import helped
from multigpu.analysis.metrics import summary
from multigpu.arguments import parse_fields
from multigpu.measure.trace import CopyTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.record import Record, RecordStore
from multigpu.run import build_run
from tests.factory import make_point, make_record, plant

UNITS = 25_600
"""Words that one device trains in a step of the planted job: 128 sentences of 100 words, both sides."""


def replica(busy: float, exposed: float = 0.0, copies: float = 0.0, begin: float = 0.0, end: float = 0.1, **phases) -> StepTrace:
    """A replica's step of 100 ms: forward and backward from `begin` on, without a gap, unless phases are given."""
    passes = {"forward": (begin, begin + 0.01), "backward": (begin + 0.01, begin + 0.02)}
    return StepTrace(
        start_s=0.0,
        end_s=end,
        host_s=end,
        phases=phases or passes,
        kernels=400,
        launches=410,
        busy_s=busy,
        communication_s=exposed,
        exposed_s=exposed,
        exposed_copies_s=copies,
        communication=[],
    )


def traced(
    *steps: StepTrace, step_s: float = 0.1, units: int = UNITS, kind: str = "device_to_device", devices: int | None = None, **fields
) -> Record:
    """A traced Run whose timed steps take `step_s` too, so that its parts are those planted."""
    copied = any(step.exposed_copies_s for step in steps)
    totals = [CopyTotals(kind=kind, calls=1, bytes=8, total_s=0.01, min_s=0.01, max_s=0.01)] if copied else []
    replicas = [ReplicaTrace(rank=rank, steps=[step], copies=totals) for rank, step in enumerate(steps)]
    trace = TraceSummary(source="kineto", replicas=replicas, kernels=[])
    count = devices or len(steps)
    return make_record(
        devices=count, units_per_s=units * count / step_s, traced_steps=1, measurement={"trace": trace}, timed_steps=10, **fields
    )


def point(step_s: float, devices: int = 2, spread: float = 0.001, **fields) -> list[Record]:
    """Five repeats over two launches of a point whose steps take `step_s`."""
    rates = [UNITS * devices / step_s * (1 + spread * off) for off in (-1, 0, 1, 0, 0)]
    return make_point(rates, devices=devices, **fields)


ONE = point(0.03, devices=1, execution="captured")
"""One device at its best: 30 ms a step."""


def only(records: list[Record], **fields) -> Explanation:
    found, _ = explain_fields(records, {"workload": "nmt", "devices": 2} | fields)
    return found[0]


PLANTED = {
    "launching": ([replica(busy=0.02)] * 2, {}, "the GPU idles 80.0 ms of a step of 100.0 ms while the host dispatches 410 launches"),
    "skew": ([replica(busy=0.02), replica(busy=0.02, begin=0.07)], {}, "replicas begin apart for up to 70.0 ms of a step of 100.0 ms"),
    "communication": ([replica(busy=0.09, exposed=0.065)] * 2, {}, "65.0 ms of a step of 100.0 ms are exposed communication"),
    "peer_copies": ([replica(busy=0.09, exposed=0.065, copies=0.065)] * 2, {}, "exposed copies between GPUs"),
    "host_copies": (
        [replica(busy=0.09, exposed=0.065, copies=0.065)] * 2,
        {"kind": "host_to_device", "placement": "exp2"},
        "65.0 ms of a step of 100.0 ms are exposed copies to and from the host",
    ),
    "host_work": (
        [replica(busy=0.02, forward=(0, 0.01), backward=(0.01, 0.02), merge=(0.02, 0.06), update=(0.06, 0.095))] * 2,
        {"placement": "exp2"},
        "the GPU idles 75.0 ms of a step of 100.0 ms while the host gathers, merges or updates",
    ),
    "compute": ([replica(busy=0.095)] * 2, {}, "each GPU computes 95.0 ms of a step of 100.0 ms"),
}


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_the_one_that_is_named(cause) -> None:
    steps, fields, words = PLANTED[cause]
    of_point = {name: value for name, value in fields.items() if name != "kind"}
    one = only([*ONE, *point(0.1, **of_point), traced(*steps, **fields)])
    added = one.added()
    assert added is not None and max(added, key=lambda name: added[name]) == cause
    # 2 GPUs x 25,600 words in 100 ms against 25,600 in 30 ms
    assert verdict(one).startswith("2 GPUs are slower than one, 0.600 times (0.599 to 0.601) one GPU at its best, because ")
    assert words in verdict(one)
    assert sum(one.parts.values()) == pytest.approx(0.1, rel=1e-3)
    assert one.traces and not one.command


def test_a_host_bound_step_says_that_its_batch_is_too_small_and_names_what_larger_ones_gave() -> None:
    trace = traced(*[replica(busy=0.02)] * 2)
    larger = make_record(devices=2, batch_size=256, units_per_s=900_000)
    one = only([*ONE, *point(0.1), trace, larger], batch_size=128)
    assert one.too_small and "the batch is too small" in verdict(one)
    assert [(int(row["batch_size"]), round(times, 2)) for row, times in one.larger] == [(256, round(900_000 / 512_000, 2))]
    assert larger.key in as_text(one)
    busy = only([*ONE, *point(0.1), traced(*[replica(busy=0.095)] * 2)])
    assert busy.too_small is False and not busy.larger


def images(step_s: float, wait_s: float | None, **fields) -> Record:
    waits = {} if wait_s is None else {"input_wait_s": [[0.0] * 10 + [wait_s] * 30] * 2}
    return make_record(workload="cnn", devices=2, units_per_s=128 / step_s, measurement=waits, **fields)


FED = {"inputs": "jpeg_folder", "input_workers": 2, "prefetch": 1, "input_label": "JPEG files"}


def test_waiting_for_batches_is_named_without_a_trace() -> None:
    records = [images(0.02, None), images(0.1, 0.07, **FED)]
    one = explain_fields(records, {"inputs": "jpeg_folder"})[0][0]
    assert one.parts is None and one.wait_s == pytest.approx(0.07)
    expected = (
        "2 GPUs train 20% (measured once) of what they do with batches kept on the device, because each step waits 70.0 ms of its 100.0"
    )
    assert verdict(one).startswith(expected)
    there_in_time = explain_fields([images(0.02, None), images(0.1, 0.001, **FED)], {"inputs": "jpeg_folder"})[0][0]
    assert "batches are in time (it waits 1.00 ms a step), but why it takes longer was not measured" in verdict(there_in_time)
    unrecorded = explain_fields([images(0.02, None), images(0.1, None, **FED)], {"inputs": "jpeg_folder"})[0][0]
    assert not_measured(unrecorded)[0].startswith("waiting for batches, dispatch")


def test_a_traced_fed_point_is_taken_apart_beside_batches_kept_on_the_device() -> None:
    steps = [replica(busy=0.02)] * 2
    kept = traced(*steps, step_s=0.02, units=64, workload="cnn")
    fed = traced(*steps, units=64, workload="cnn", **FED)
    one = explain_fields([images(0.02, None), images(0.1, 0.07, **FED), kept, fed], {"inputs": "jpeg_folder"})[0][0]
    assert one.base == "kept" and one.baselines["kept"].parts is not None
    added = one.added()
    assert {name: round(value, 6) for name, value in added.items() if value > 1e-9} == {"input": 0.07, "launching": 0.01}
    assert "it waits 70.0 ms of a step of 100.0 ms for its batch" in verdict(one)
    assert "kept" in as_text(one).splitlines()[5] + as_text(one).splitlines()[6]


@pytest.mark.parametrize(("wait_s", "taken"), [(0.0, 0.0), (0.03, 0.03), (0.5, 0.08)])
def test_waits_come_out_of_the_hosts_idle_time_and_never_exceed_it(wait_s, taken) -> None:
    parts = step_parts(causes_frame([traced(*[replica(busy=0.02)] * 2)]), 0.1, wait_s)
    assert parts["input"] == pytest.approx(taken) and parts["launching"] == pytest.approx(0.08 - taken)
    assert list(parts) == list(STEP_PARTS) and sum(parts.values()) == pytest.approx(0.1)


def test_the_devices_parts_are_the_traces_and_the_hosts_share_the_rest() -> None:
    parts = step_parts(causes_frame([traced(*[replica(busy=0.06, exposed=0.02)] * 2)]), 0.07)
    assert parts["compute"] == pytest.approx(0.04) and parts["communication"] == pytest.approx(0.02)
    assert parts["launching"] == pytest.approx(0.01)


def test_what_is_added_to_a_traced_baseline_is_all_of_what_is_lost() -> None:
    alone = traced(replica(busy=0.025, end=0.03), step_s=0.03, execution="eager")
    records = [*point(0.03, devices=1), *point(0.1), alone, traced(*[replica(busy=0.04, exposed=0.01)] * 2)]
    one = only(records)
    base = one.baselines["one_best"]
    assert base.parts is not None and base.ideal_step_s == pytest.approx(0.03, rel=1e-3)
    added = one.added()
    assert sum(added.values()) == pytest.approx(one.step_s - base.ideal_step_s)
    assert added["compute"] == pytest.approx(0.03 - 0.025) and added["communication"] == pytest.approx(0.01)
    # untraced, computing counts by what it takes beyond the whole ideal step, and waits count whole
    parts = dict.fromkeys(STEP_PARTS, 0.0) | {"compute": 0.05, "launching": 0.05}
    untraced = only([*ONE, *point(0.1)]).baselines["one_best"]
    assert contributions(parts, untraced)["compute"] == pytest.approx(0.02, rel=1e-2)
    assert contributions(parts | {"compute": 0.01}, untraced)["compute"] == 0


def test_strong_scaling_is_measured_against_a_share_of_one_device() -> None:
    # one GPU takes 30 ms for 128 sentences; two should take 15 ms and take 40
    two = make_record(devices=2, scaling="strong", units_per_s=UNITS / 0.04)
    one = explain_fields([*ONE, two], {"scaling": "strong"})[0][0]
    base = one.baselines["one_best"]
    assert base.ratio == pytest.approx(0.75, rel=1e-3) and base.ideal_step_s == pytest.approx(0.015, rel=1e-3)


def test_without_a_trace_no_cause_is_named_and_the_command_measures_the_point() -> None:
    records = point(0.1, cross_entropy="fused")
    one = only([*ONE, *records])
    assert "why it takes longer was not measured, since no Run of this point was traced" in verdict(one)
    assert "because" not in verdict(one)
    words = shlex.split(one.command.strip("`"))
    assert words[:4] == ["python", "-m", "multigpu", "measure"]
    run = build_run(**parse_fields(words[4:]))
    assert run == records[0].run.model_copy(update={"traced_steps": run.traced_steps}) and run.traced_steps > 0
    missing = not_measured(one)
    for cause in ("dispatch by the host", "launch skew", "exposed communication", "copies", "slower computation", "too small"):
        assert cause in missing[0]
    alone = next(text for text in missing if text.startswith("the same placement on one GPU"))
    assert build_run(**parse_fields(shlex.split(alone.split("`")[1])[4:])).devices == 1
    data = as_dict(one)
    assert data["parts"] is None and data["batch_too_small"] is None
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_without_one_device_no_ratio_is_invented() -> None:
    one = only(point(0.1))
    assert verdict(one).startswith("No Run of this job on one GPU was measured") and not one.baselines
    assert any(text.startswith("one GPU at its best") for text in not_measured(one))


@pytest.mark.parametrize(
    ("step_s", "words"),
    [
        (0.0301, "2 GPUs train 1.99 times (1.99 to 2.00) what one GPU does at its best, 100% of 2 times: little is lost."),
        (0.06, "2 GPUs are not told apart from one, 1.00 times (1.00 to 1.00) one GPU at its best"),
        (0.04, "2 GPUs train 1.50 times"),
    ],
)
def test_the_verdict_goes_by_the_interval(step_s, words) -> None:
    assert verdict(only([*ONE, *point(step_s)])).startswith(words)


def test_one_measurement_is_said_to_be_one() -> None:
    one = only([ONE[0], point(0.1)[0]])
    assert "0.600 times (measured once)" in verdict(one)


def test_only_what_records_show_to_help_is_named() -> None:
    own = point(0.1)
    faster = point(0.05, execution="captured")
    records = [
        *own,
        *faster,
        *point(0.1, placement="exp4"),  # as fast
        make_record(placement="ps_gpu0", units_per_s=UNITS * 2 / 0.098),  # 2% faster, once: no evidence
        make_record(placement="replicated_copy", units_per_s=UNITS * 2 / 0.08),
        *point(0.04, placement="independent"),
        make_record(placement="staged_gpu0", units_per_s=UNITS * 2 / 0.07),
        *point(0.02, batch_size=256),  # another job
    ]
    frame = frame_of(records)
    points = summary(frame)
    found = helped(frame, points, points.iloc[0])
    assert [(h.row["placement"], h.changed, round(h.times, 2)) for h in found] == [
        ("ddp", ("execution",), 2.0),
        ("staged_gpu0", ("placement",), 1.43),
        ("replicated_copy", ("placement",), 1.25),
    ]
    assert found[0].key in {record.key for record in faster}
    text = as_text(only(records, placement="ddp", execution="eager", batch_size=128))
    assert "execution captured instead of eager: 2.00 times (2.00 to 2.00), n = 5 over 2 launches, Record" in text
    assert "(one side measured once: no interval)" in text and "(stale), so it is no equal of the others" in text


def test_the_best_of_all_changes_comes_first_where_several_are_faster_than_one() -> None:
    records = [*point(0.1), *point(0.05, execution="captured"), *point(0.02, execution="captured", placement="exp4")]
    frame = frame_of(records)
    points = summary(frame)
    assert [h.changed for h in helped(frame, points, points.iloc[0])] == [("placement", "execution"), ("execution",)]


def test_a_key_names_its_point_and_a_traced_one_needs_no_timed_one_beside_it() -> None:
    records = [*ONE, *point(0.1), traced(*[replica(busy=0.02)] * 2)]
    for key in (records[5].key, records[-1].key[:12]):
        found, rest = explain_key(records, key)
        assert rest == "" and found[0].step_s == pytest.approx(0.1, rel=1e-3) and found[0].row["n"] == 5
    alone = traced(*[replica(busy=0.02)] * 2)
    found, _ = explain_key([*ONE, alone], alone.key)
    assert found[0].row["n"] == 1 and found[0].traces == (alone.key,) and "410 launches" in verdict(found[0])
    failed = make_record(status="out_of_memory", reason="150 GiB wanted")
    assert explain_key([failed], failed.key) == ([], f"Record {failed.key} holds no measurement (out of memory): 150 GiB wanted")


def test_the_plainest_point_comes_first_and_others_are_named() -> None:
    records = [*point(0.1, execution="captured"), make_record(units_per_s=1.0, timed_steps=5), *point(0.1)]
    found, rest = explain_fields(records, {"workload": "nmt"}, most=1)
    assert found[0].row["execution"] == "eager" and found[0].row["n"] == 5
    assert rest.startswith("1 further point") and "captured" in rest
    found, rest = explain_fields(records, {"timed_steps": 5})
    assert found[0].row["n"] == 1 and rest == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["workload=tea"], "unknown workload 'tea'"),
        (["workload=nmt", "model=gpt"], "unknown model 'gpt'"),
        (["placement=psychic"], "unknown placement 'psychic'"),
        (["execution=fast"], "choose one of eager, compiled, captured"),
        (["wire_dtype=int8"], "choose one of bf16, fp16"),
        (["workload=nmt", "inputs=tea"], "unknown inputs 'tea'"),
        (["seed=3"], "points are not told apart by it"),
        (["feeling=good"], "unknown field 'feeling'"),
        (["abc"], "no Record is called 'abc'"),
        (["workload=nmt", "abc"], "'abc' is not of the form field=value"),
    ],
)
def test_unknown_values_are_refused(tmp_path, words, expected) -> None:
    store = plant(RecordStore(tmp_path), [make_record()])
    with pytest.raises(ValueError, match=expected):
        explained(store, words)


def test_what_has_no_record_is_said_with_the_command_that_measures_it(tmp_path) -> None:
    store = plant(RecordStore(tmp_path), [make_record(devices=2)])
    text = explained(store, ["workload=nmt", "devices=8"])
    assert "has devices = 8: measured are 2" in text
    assert "`python -m multigpu measure workload=nmt model=... placement=... batch_size=... devices=8`" in text
    assert "No Record has workload = cnn" in explained(RecordStore(tmp_path / "none"), ["workload=cnn"])
    with pytest.raises(ValueError, match="no Record is of machine 'x': choose one of 8x-nvidia-h200"):
        explained(store, ["workload=nmt"], machine="x")
    with pytest.raises(ValueError, match="--limit 0"):
        explained(store, ["workload=nmt"], most=0)


def test_committed_traces_of_two_gpus_are_explained() -> None:
    records = [record for record in RecordStore(paths.RUNS) if record.machine.name == "2x-nvidia-h200"]
    keys = [record.key for record in records if record.run.traced_steps and record.run.devices == 2]
    assert keys
    for key in keys[:2]:
        (one,), _ = explain_key(records, key)
        assert sum(one.parts.values()) == pytest.approx(one.step_s) and key in one.traces
        assert json.dumps(as_dict(one), allow_nan=False) and "\n" in as_text(one)
