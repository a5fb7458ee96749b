"""Phases, skew and parts of a step worked out by hand; intervals as sets."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.analysis import step_traces as profile
from multigpu.analysis import traces as phases
from multigpu.analysis.frame import frame_of
from multigpu.analysis.step_traces import SUMMARY, trace_summary, trace_table, write_trace_summary
from multigpu.analysis.traces import (
    PARTS,
    causes_frame,
    host_phases,
    phases_frame,
    step_parts,
    timed_parts,
)
from multigpu.engines.common.traced import (
    Activity,
    Host,
    joined,
    named_phases,
    replica_trace,
    short_name,
)
from multigpu.placements import find_placement
from multigpu.records.intervals import coalesced, intersection, length, uncovered, union, without
from multigpu.records.trace import CopyTotals, ReplicaTrace, StepTrace, TraceSummary
from tests.factory import make_record
from tests.multigpu.analysis.planted import ms, step_of, trace_of, traced

SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(
        lambda pair: (pair[0], pair[0] + pair[1])
    ),
    max_size=12,
)


def cells(spans) -> set[int]:
    """The unit cells that integer intervals cover: arithmetic on sets that cannot be wrong."""
    return {cell for start, end in spans for cell in range(start, end)}


@given(SPANS, SPANS, st.integers(1, 5))
def test_intervals_are_sets_and_coalescing_closes_the_smallest_gaps(a, b, most) -> None:
    assert cells(union(a)) == cells(a) and length(a) == len(cells(a))
    assert all(left[1] < right[0] for left, right in zip(union(a), union(a)[1:], strict=False)), (
        "disjoint, in order"
    )
    assert cells(intersection(a, b)) == cells(a) & cells(b)
    left = without(a, b)
    assert cells(left) == cells(a) - cells(b) and all(start < end for start, end in left)
    assert uncovered(a, b) == len(cells(left))
    found = coalesced(a, most)
    assert len(found) <= most and cells(a) <= cells(found)
    gaps = sorted(right[0] - left[1] for left, right in zip(union(a), union(a)[1:], strict=False))
    assert len(cells(found)) == len(cells(a)) + sum(gaps[: max(0, len(union(a)) - most)])


FIRST = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 11), update=(11, 12))
LATER = step_of(forward=(2, 5), backward=(5, 10), merge=(10, 11), update=(11, 12))


def test_phases_last_from_first_to_last_operation_and_skew_is_of_their_begins() -> None:
    for replicas, skew_ms in (
        ([FIRST, LATER], 2),  # equal work, begun 2 ms apart
        ([FIRST], 0),
        ([step_of(forward=(0, 3), backward=(4, 8))], 1),  # a gap counts: an upper bound
        ([step_of(forward=(0, 4), backward=(3, 8))], 0),  # overlap counts once
        ([step_of(forward_backward=(0, 8)), step_of(forward_backward=(1, 9))], 1),
    ):
        assert phases.launch_skew(replicas) == pytest.approx(ms(skew_ms))
    assert (
        phases.launch_skew([FIRST, step_of(forward=(0, 3))])
        is phases.launch_skew([FIRST, step_of(update=(0, 3))])
        is None
    )
    assert phases.phase_times(LATER) == pytest.approx(
        {"forward": ms(3), "backward": ms(5), "merge": ms(1), "update": ms(1)}
    )
    assert (
        phases.passes_time(FIRST)
        == phases.passes_time(step_of(forward=(0, 4), backward=(3, 8)))
        == pytest.approx(ms(8))
    )
    assert phases.passes_span([FIRST, LATER]) == pytest.approx(ms(10)) and phases.step_time(
        [FIRST, LATER]
    ) == pytest.approx(ms(12))


def activities() -> list[Activity]:
    """One step, ns: forward 0-30, backward 30-80 with an all-reduce 50-100 launched in it, update
    100-120, a copy 5-15.
    """
    return [
        Activity("gemm", "compute", 0, 30, 0, "forward", 1),
        Activity("Memcpy HtoD", "host_to_device", 5, 15, 0, "forward", 2, 64, kernel=False),
        Activity("gemm", "compute", 30, 80, 0, "backward", 3),
        Activity(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", 50, 100, 0, "backward", 4
        ),
        Activity(
            "multi_tensor_apply_kernel FusedAdamMathFunctor", "compute", 100, 120, 0, "update", 5
        ),
        Activity("gemm", "compute", 300, 310, None, None, 6),
    ]


def nanoseconds(part: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        name: (round(start * 1e9), round(end * 1e9))
        for name, (start, end) in part["replica"]["steps"][0]["phases"].items()
    }


def test_a_trace_is_reduced_to_its_sums_and_replicas_are_joined_on_one_clock() -> None:
    part = replica_trace(0, activities(), [Host(0, "update", 118, 130)], [(0, 90)], "kineto", {}, 7)
    (step,) = joined([part]).replicas[0].steps
    assert nanoseconds(part) == {
        "forward": (0, 30),
        "backward": (30, 80),
        "merge": (50, 100),
        "update": (100, 130),
    }
    assert (step.kernels, step.launches) == (4, 5), (
        "the copy is no kernel, and what lies outside of steps is not counted"
    )
    assert (step.busy_s, step.communication_s, step.exposed_s) == pytest.approx(
        (120e-9, 60e-9, 20e-9), abs=1e-12
    )
    assert step.exposed_copies_s == 0, "the copy ran while the device computed"
    (copies,) = part["replica"]["copies"]
    assert (copies["kind"], copies["calls"], copies["bytes"]) == ("host_to_device", 1, 64)
    assert part["replica"]["launch_lead_s"] == pytest.approx(7e-9)
    late, early = (
        [Activity("gemm", "compute", begun, 5_000_000, 0, "forward", 1)]
        for begun in (2_000_000, 1_000_000)
    )
    trace = joined(
        [
            replica_trace(rank, mine, [], [(rank * 500_000, 9)], "kineto", {})
            for rank, mine in enumerate((late, early))
        ]
    )
    assert [replica.steps[0].phases["forward"] for replica in trace.replicas] == [
        (0.001, 0.004),
        (0.0, 0.004),
    ]
    assert trace.kernels[0].calls == 2


def test_captured_steps_are_told_by_names_and_updates_beside_backward_do_not_end_it() -> None:
    unnamed = [
        Activity(a.name, a.kind, a.start_ns, a.end_ns, a.step, None, 9, a.bytes, a.kernel)
        for a in activities()
    ]
    found, missing = named_phases(unnamed)
    part = replica_trace(0, found, [], [(0, 90)], "kineto", missing)
    assert nanoseconds(part) == {
        "forward_backward": (0, 80),
        "merge": (50, 100),
        "update": (100, 120),
    }
    assert part["replica"]["steps"][0]["launches"] == 1 and set(missing) == {"forward", "backward"}
    plain = [Activity("ncclDevKernel_SendRecv", "collective", 0, 5, 0), *unnamed]
    assert {"pull", "merge"} <= set(named_phases(plain)[1]), "sends are not told apart"
    kernels = [
        ("gemm", 0, 30),
        ("gemm", 30, 45),
        ("fused_adam", 40, 60),
        ("gemm", 45, 80),
        ("fused_adam", 100, 120),
    ]
    found, missing = named_phases(
        [Activity(name, "compute", start, end, 0) for name, start, end in kernels],
        update_in_backward=True,
    )
    assert [a.phase for a in found] == [None, None, "update", None, "update"]
    part = replica_trace(0, found, [], [(0, 90)], "kineto", missing)
    assert set(nanoseconds(part)) == {"update"} and set(missing) == {
        "forward",
        "backward",
        "forward_backward",
    }
    assert "with updates beside backward" in missing["forward_backward"]


def test_kernels_have_short_names() -> None:
    generic = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<x>>(int)"
    collective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    assert [short_name(generic), short_name(collective)] == [
        "elementwise_kernel gpu_kernel_impl",
        collective.partition("(")[0],
    ]
    assert short_name("aten::addmm") == "aten::addmm" and len(short_name("x" * 300)) <= 72


def test_a_traces_row_and_its_summary_by_hand(tmp_path: Path) -> None:
    """A step of 2 ms; 0.3 ms of copies that nothing hides; copies take 2 x 2 x 0.5 ms of 2 x 10 ms
    on the devices.
    """
    record, *_ = traced("exp4", 2.0, trace_of(2, copies_ms=0.5, exposed_ms=0.3, sparse_ms=1.5))
    (row,) = trace_table([record]).to_dict("records")
    expected = {
        "timed_step_s": 0.002,
        "busy_share": 0.5,
        "step_without_copies_s": 0.0017,
        "copy_share": 0.1,
        "peer_copies_a_step": 19.0,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected) and row[
        "sparse_over_next"
    ] == pytest.approx(1.5)
    table = trace_summary(record)
    assert tuple(table.columns) == SUMMARY
    copies = table.set_index("operation").loc[
        "[memcpy PtoP]", ["calls", "bytes", "calls_a_step", "min_us", "max_us", "time_percent"]
    ]
    assert copies.tolist() == pytest.approx([38, 3800, 19.0, 4, 900, 10])
    written = pd.read_csv(write_trace_summary(record, tmp_path / "trace.csv"))
    assert (
        written[["key", "first_step", "last_step"]].to_numpy().tolist()
        == [[record.key, 835, 836]] * 3
    )


def step(busy=0.06, exposed=0.02, copies=0.01, communication=(), **phases) -> StepTrace:
    """A step of 0.1 s; phases in seconds."""
    told = {
        "start_s": 0.0,
        "end_s": 0.1,
        "kernels": 10,
        "launches": 12,
        "busy_s": busy,
        "communication_s": exposed,
        "exposed_s": exposed,
    }
    told |= {"exposed_copies_s": copies, "communication": list(communication)}
    return step_of(
        told=told, **{name: (1e3 * start, 1e3 * end) for name, (start, end) in phases.items()}
    )


def test_parts_of_a_step_add_up_and_the_profilers_slowness_falls_on_the_host_alone():
    # forward 0 to 40 ms and backward 40 to 60 on one replica: no skew; the host merges from 60 to
    # 90, copies run from 60 to 70
    one = step(
        forward=(0, 0.04), backward=(0.04, 0.06), merge=(0.06, 0.09), communication=[(0.06, 0.07)]
    )
    expected = {
        "compute": 0.04,
        "communication": 0.01,
        "host_copies": 0.01,
        "host_work": 0.02,
        "skew": 0,
        "launching": 0.02,
    }
    assert step_parts([one], ("merge", "update"), host_share=1.0) == pytest.approx(
        expected
    ) and sum(expected.values()) == pytest.approx(0.1)
    assert step_parts([one], ())["launching"] == pytest.approx(0.04), (
        "a merge that the device does is no work of the host's"
    )
    parts = dict.fromkeys(PARTS, 0.0) | {
        "compute": 0.04,
        "communication": 0.01,
        "skew": 0.02,
        "launching": 0.06,
    }
    assert timed_parts(parts, 0.09) == pytest.approx(parts | {"skew": 0.01, "launching": 0.03})
    shorter = timed_parts(parts, 0.025)
    assert (
        shorter["compute"] == pytest.approx(0.02)
        and shorter["launching"] == 0
        and sum(shorter.values()) == pytest.approx(0.025)
    )
    assert timed_parts(dict.fromkeys(PARTS, 0.0) | {"compute": 0.04}, 0.05)[
        "launching"
    ] == pytest.approx(0.01), "a traced step without idle time leaves the rest to launching"


def test_the_replica_that_waited_least_speaks_and_beginning_late_is_skew():
    waiting = step(busy=0.09, exposed=0.05, copies=0.0, forward=(0, 0.02), backward=(0.02, 0.04))
    late = step(busy=0.05, exposed=0.01, copies=0.0, forward=(0, 0.05), backward=(0.05, 0.09))
    parts = step_parts([waiting, late])
    assert [parts[name] for name in ("compute", "communication", "launching")] == pytest.approx(
        [0.04, 0.01, 0.05]
    )
    quiet = {"busy": 0.04, "exposed": 0, "copies": 0}
    apart = [
        step(**quiet, forward=(begun, begun + 0.02), backward=(begun + 0.02, begun + 0.04))
        for begun in (0, 0.05)
    ]
    parts = step_parts(apart)
    assert [parts["skew"], parts["launching"]] == pytest.approx([0.05, 0.01]), (
        "begun 50 ms apart with equal work"
    )
    first = step(**quiet, pull=(0, 0.01), forward=(0.01, 0.03), backward=(0.03, 0.05))
    second = step(**quiet, pull=(0, 0.05), forward=(0.05, 0.07), backward=(0.07, 0.09))
    assert step_parts([second, first], ("pull",))["host_work"] == pytest.approx(0.01), (
        "not while another replica computes"
    )


def test_a_row_a_traced_run_in_its_own_timed_step():
    """Of the time of copies three quarters are the host's."""
    ends = {"calls": 1, "bytes": 1, "min_s": 1.0, "max_s": 1.0}
    copied = [
        CopyTotals(kind=f"{kind}_to_device", total_s=s, **ends)
        for kind, s in (("host", 3.0), ("device", 1.0))
    ]
    steps = [
        step(busy=0.04, exposed=0.01, copies=0.008, forward=(0.0, 0.02), backward=(0.02, 0.04))
    ] * 3
    trace = TraceSummary(
        source="kineto",
        replicas=[ReplicaTrace(rank=rank, steps=steps, copies=copied) for rank in range(2)],
        kernels=[],
    )
    record = make_record(
        "exp4",
        2,
        traced_steps=3,
        processes="one",
        units_per_s=2 * 128 * 200 / 0.08,
        measurement={"trace": trace},
    )
    timed = make_record("ddp", 2)
    assert list(frame_of([record, timed])["key"]) == [timed.key], (
        "a traced Run never competes with a timed one"
    )
    frame = phases_frame([record, timed])
    assert (
        set(frame["key"]) == {record.key}
        and frame["forward_s"].tolist() == pytest.approx([0.02] * 6)
        and frame["pull_s"].isna().all()
    )
    (row,) = causes_frame([record, timed]).to_dict("records")
    assert row["timed_step_s"] == pytest.approx(record.measurement.wall_s / record.run.timed_steps)
    assert sum(row[f"{name}_s"] for name in PARTS) == pytest.approx(row["timed_step_s"])
    assert row["peer_copies_s"] == pytest.approx(0.002) and row["host_copies_s"] == pytest.approx(
        0.006
    )
    assert (row["kernels"], row["launches"]) == (10, 12) and host_phases(
        find_placement("exp2")
    ) == ("pull", "merge", "update")
    assert (
        host_phases(find_placement("exp3")) == ("pull",)
        and host_phases(find_placement("exp4")) == ()
    )


def test_a_whole_step_by_hand() -> None:
    """Passes 0 to 10, merge 8 to 11, update 11 to 13: 10 + 3 + 2 ms; the longest of one replica is
    8.
    """
    first = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 11), update=(11, 12))
    second = step_of(forward=(2, 3), backward=(5, 10), merge=(10, 11), update=(11, 13))
    found = profile.step_quantities([first, second])
    assert [
        found[name] for name in ("computation_s", "merge_s", "update_s", "total_s")
    ] == pytest.approx([ms(10), ms(3), ms(2), ms(15)])
    assert found["launch_skew_s"] == pytest.approx(ms(2))
    shares = {
        "computation_share": 10 / 15,
        "merge_share": 0.2,
        "forward_imbalance": 1.5,
        "backward_over_forward": 2.5,
    }
    assert {name: found[name] for name in shares} == pytest.approx(shares) and found[
        "forward_s"
    ] == pytest.approx(ms(2))
    assert (
        profile.step_quantities([first, step_of(forward=(0, 3))])
        == profile.step_quantities([step_of(forward_backward=(0, 8))])
        == {}
    )
