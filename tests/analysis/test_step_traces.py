"""What a trace says of a step and of what it consists, on traces worked out by hand, and the claims that rest on it."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.causes import PARTS, causes_frame, host_phases, host_share_of, step_parts, timed_parts
from multigpu.analysis.step_traces import SUMMARY, trace_summary, trace_table, write_trace_summary
from multigpu.claims import find_claim
from multigpu.measure.trace import CopyTotals, KernelTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.measure.traced import Activity, joined, replica_trace
from multigpu.placements import find_placement
from multigpu.record import Record
from tests.analysis.traced import step_of
from tests.claims.planted import evaluate
from tests.factory import make_point, make_record

COMMON: dict[str, Any] = {"workload": "deepconn", "scaling": "strong", "processes": "one"}
DEVICES = {"single": 1, "tower_per_gpu": 2, "alternating": 2}


def point(placement: str, step_ms: float, batch: int = 32, **more: Any) -> list[Record]:
    """Five repeats over two launches, each at about this step time; epochs unless told otherwise."""
    rates = [batch / (step_ms / 1000) * (1 + 0.001 * index) for index in range(5)]
    fields = COMMON | {"devices": DEVICES.get(placement, 2), "batch_size": batch, "timed_steps": 824} | more
    return make_point(rates, placement=placement, **fields)


def trace_of(devices: int, copies_ms: float, exposed_ms: float, sparse_ms: float, busy_ms: float = 1.0) -> TraceSummary:
    """Two steps: on each device 9.5 copies a step of 10 us each, and two kernels."""
    told = {"kernels": 30, "launches": 30, "busy_s": busy_ms / 1000, "communication_s": copies_ms / 1000}
    step = step_of(told=told | {"exposed_s": exposed_ms / 1000, "exposed_copies_s": exposed_ms / 1000}, forward=(0, 1), backward=(1, 2))
    copied = CopyTotals(kind="device_to_device", calls=19, bytes=1900, total_s=copies_ms / 500, min_s=4e-6, max_s=9e-4)
    copies = [copied] if copies_ms else []
    replicas = [ReplicaTrace(rank=rank, steps=[step, step], copies=copies, device_time_s=0.01) for rank in range(devices)]
    kernels = [
        KernelTotals(name="UnsortedSegmentCustomKernel", calls=4, total_s=sparse_ms / 1000, min_s=1e-6, max_s=2e-3),
        KernelTotals(name="gemm", calls=8, total_s=0.001, min_s=1e-6, max_s=1e-3),
    ]
    return TraceSummary(source="kineto", replicas=replicas, kernels=kernels)


def traced(placement: str, step_ms: float, trace: TraceSummary, **more: Any) -> list[Record]:
    return point(placement, step_ms, measurement={"trace": trace}, traced_steps=2, **more)


def test_a_traces_row_and_its_summary_by_hand(tmp_path: Path) -> None:
    """A step of 2 ms; 0.3 ms of copies that nothing hides; copies take 2 x 2 x 0.5 ms of 2 x 10 ms on the devices."""
    (record, *_) = traced("tower_per_gpu", 2.0, trace_of(2, copies_ms=0.5, exposed_ms=0.3, sparse_ms=1.5))
    row = trace_table([record]).iloc[0]
    assert row["timed_step_s"] == pytest.approx(0.002) and row["busy_share"] == pytest.approx(0.5)
    assert row["step_without_copies_s"] == pytest.approx(0.0017) and row["copy_share"] == pytest.approx(0.1)
    assert row["peer_copies_a_step"] == 19.0 and row["sparse_over_next"] == pytest.approx(1.5)
    table = trace_summary(record)
    assert tuple(table.columns) == SUMMARY
    copies = table[table["operation"] == "[memcpy PtoP]"].iloc[0]
    assert (copies["calls"], copies["bytes"], copies["calls_a_step"]) == (38, 3800, 19.0)
    assert copies["min_us"] == pytest.approx(4) and copies["max_us"] == pytest.approx(900) and copies["time_percent"] == pytest.approx(10)
    written = pd.read_csv(write_trace_summary(record, tmp_path / "trace.csv"))
    assert written[["key", "first_step", "last_step"]].to_numpy().tolist() == [[record.key, 835, 836]] * 3


def test_kernels_and_all_that_a_device_did_keep_their_shortest_and_longest() -> None:
    def did(name: str, start: int, end: int, step: int | None = 0) -> Activity:
        return Activity(name, "compute", start, end, step, "forward", 1)

    every = [did("gemm", 0, 100), did("gemm", 200, 500), did("add", 0, 40), did("late", 0, 9, None)]
    part = replica_trace(0, every, [], [(0, 600)], "kineto", {})
    summary = joined([part, part], first_step=41)
    (gemm, add) = summary.kernels
    assert (gemm.calls, gemm.min_s, gemm.max_s) == (4, pytest.approx(1e-7), pytest.approx(3e-7))
    assert add.total_s == pytest.approx(1e-7, abs=4e-8)
    assert summary.replicas[0].device_time_s == pytest.approx(4.4e-7) and summary.first_step == 41


def both(copies_ms: float, tower_ms: float) -> pd.DataFrame:
    one, two = trace_of(1, 0, 0, sparse_ms=2.0), trace_of(2, copies_ms, copies_ms, sparse_ms=0.5)
    return trace_table([*traced("single", 2.0, one), *traced("tower_per_gpu", tower_ms, two)])


def test_c36_holds_if_the_copies_make_the_difference_and_not_if_the_host_does() -> None:
    claim = find_claim("C36")
    assert evaluate(claim, both(copies_ms=0.5, tower_ms=2.5)).verdict == "holds"
    assert evaluate(claim, both(copies_ms=0.05, tower_ms=2.5)).verdict == "does not hold"
    assert evaluate(claim, trace_table([])).verdict == "not yet measured"


def test_c51_asks_whether_the_sparse_gradients_kernels_lead() -> None:
    claim = find_claim("C51")
    for sparse_ms, verdict in ((2.0, "holds"), (0.5, "does not hold")):
        table = trace_table(traced("single", 2.0, trace_of(1, 0, 0, sparse_ms)))
        assert evaluate(claim, table).verdict == verdict


def step(busy=0.06, exposed=0.02, copies=0.01, communication=(), **phases) -> StepTrace:
    """A step of 0.1 s; phases in seconds."""
    told = {"start_s": 0.0, "end_s": 0.1, "kernels": 10, "launches": 12, "busy_s": busy, "communication_s": exposed, "exposed_s": exposed}
    told |= {"exposed_copies_s": copies, "communication": list(communication)}
    return step_of(told=told, **{name: (1e3 * start, 1e3 * end) for name, (start, end) in phases.items()})


def test_parts_of_a_step_add_up_to_it():
    # forward 0 to 40 ms and backward 40 to 60 on one replica: no skew; the host merges from 60 to 90, copies run from 60 to 70
    one = step(forward=(0, 0.04), backward=(0.04, 0.06), merge=(0.06, 0.09), communication=[(0.06, 0.07)])
    parts = step_parts([one], ("merge", "update"), host_share=1.0)
    assert parts == pytest.approx(
        {"compute": 0.04, "communication": 0.01, "host_copies": 0.01, "host_work": 0.02, "skew": 0, "launching": 0.02}
    )
    assert sum(parts.values()) == pytest.approx(0.1)
    assert step_parts([one], ())["launching"] == pytest.approx(0.04), "a merge that the device does is no work of the host's"


def test_the_replica_that_waited_least_speaks_and_beginning_late_is_skew():
    waiting = step(busy=0.09, exposed=0.05, copies=0.0, forward=(0, 0.02), backward=(0.02, 0.04))
    late = step(busy=0.05, exposed=0.01, copies=0.0, forward=(0, 0.05), backward=(0.05, 0.09))
    parts = step_parts([waiting, late])
    assert [parts[name] for name in ("compute", "communication", "launching")] == pytest.approx([0.04, 0.01, 0.05])
    quiet = {"busy": 0.04, "exposed": 0, "copies": 0}
    apart = [step(**quiet, forward=(begun, begun + 0.02), backward=(begun + 0.02, begun + 0.04)) for begun in (0, 0.05)]
    parts = step_parts(apart)
    assert [parts["skew"], parts["launching"]] == pytest.approx([0.05, 0.01]), "begun 50 ms apart with equal work"
    first = step(**quiet, pull=(0, 0.01), forward=(0.01, 0.03), backward=(0.03, 0.05))
    second = step(**quiet, pull=(0, 0.05), forward=(0.05, 0.07), backward=(0.07, 0.09))
    assert step_parts([second, first], ("pull",))["host_work"] == pytest.approx(0.01), "not while another replica computes"


def test_the_profilers_slowness_falls_on_the_host_alone():
    parts = dict.fromkeys(PARTS, 0.0) | {"compute": 0.04, "communication": 0.01, "skew": 0.02, "launching": 0.06}
    timed = timed_parts(parts, 0.09)
    assert timed["compute"] == 0.04 and timed["communication"] == 0.01
    assert timed["skew"] == pytest.approx(0.01) and timed["launching"] == pytest.approx(0.03)
    shorter = timed_parts(parts, 0.025)
    assert shorter["compute"] == pytest.approx(0.02) and shorter["launching"] == 0 and sum(shorter.values()) == pytest.approx(0.025)
    busy = dict.fromkeys(PARTS, 0.0) | {"compute": 0.04}
    assert timed_parts(busy, 0.05)["launching"] == pytest.approx(0.01), "a traced step without idle time leaves the rest to launching"


def test_copies_and_phases_of_the_host():
    def copies(kind, total_s):
        return CopyTotals(kind=kind, calls=1, bytes=1, total_s=total_s, min_s=total_s, max_s=total_s)

    two_replicas = [copies("host_to_device", 2.0), copies("device_to_device", 1.0), copies("host_to_device", 1.0)]
    assert host_share_of(two_replicas) == 0.75
    assert host_share_of([]) == 0
    assert host_phases(find_placement("exp2")) == ("pull", "merge", "update")
    assert host_phases(find_placement("exp3")) == ("pull",) and host_phases(find_placement("exp4")) == ()


def test_a_row_a_traced_run_in_its_own_timed_step():
    passes = {"forward": (0.0, 0.02), "backward": (0.02, 0.04)}
    steps = [step(busy=0.04, exposed=0.01, copies=0, **passes)] * 3
    trace = TraceSummary(source="kineto", replicas=[ReplicaTrace(rank=rank, steps=steps, copies=[]) for rank in range(2)], kernels=[])
    record = make_record("exp4", 2, traced_steps=3, processes="one", units_per_s=2 * 128 * 200 / 0.08, measurement={"trace": trace})
    causes = causes_frame([record, make_record("ddp", 2)])
    row = causes.iloc[0]
    assert len(causes) == 1 and row["timed_step_s"] == pytest.approx(record.measurement.wall_s / record.run.timed_steps)
    assert sum(row[f"{name}_s"] for name in PARTS) == pytest.approx(row["timed_step_s"])
    assert (row["kernels"], row["launches"]) == (10, 12)
