"""Steps taken apart, on traces worked out by hand."""

import pytest

from multigpu.analysis.causes import PARTS, causes_frame, host_phases, host_share_of, step_parts, timed_parts
from multigpu.measure.trace import CopyTotals, ReplicaTrace, StepTrace, TraceSummary
from multigpu.placements import find_placement
from tests.analysis.traced import step_of
from tests.factory import make_record


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


def test_the_replica_that_waited_least_speaks():
    waiting = step(busy=0.09, exposed=0.05, copies=0.0, forward=(0, 0.02), backward=(0.02, 0.04))
    late = step(busy=0.05, exposed=0.01, copies=0.0, forward=(0, 0.05), backward=(0.05, 0.09))
    parts = step_parts([waiting, late])
    assert parts["compute"] == pytest.approx(0.04) and parts["communication"] == pytest.approx(0.01)
    assert parts["launching"] == pytest.approx(0.05)


def test_a_planted_delay_is_launch_skew():
    first = step(busy=0.04, exposed=0, copies=0, forward=(0, 0.02), backward=(0.02, 0.04))
    later = step(busy=0.04, exposed=0, copies=0, forward=(0.05, 0.07), backward=(0.07, 0.09))
    parts = step_parts([first, later])
    assert parts["skew"] == pytest.approx(0.05), "begun 50 ms apart with equal work"
    assert parts["launching"] == pytest.approx(0.01)


def test_one_replicas_pull_during_anothers_passes_is_no_work_of_the_hosts():
    first = step(busy=0.04, exposed=0, copies=0, pull=(0, 0.01), forward=(0.01, 0.03), backward=(0.03, 0.05))
    second = step(busy=0.04, exposed=0, copies=0, pull=(0, 0.05), forward=(0.05, 0.07), backward=(0.07, 0.09))
    assert step_parts([second, first], ("pull",))["host_work"] == pytest.approx(0.01)


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
