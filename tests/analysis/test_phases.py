"""Phases, skew and exposed communication on steps worked out by hand; interval arithmetic against counting."""

import gzip
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.analysis import traces as phases
from multigpu.analysis.frame import frame_of
from multigpu.analysis.traces import phases_frame
from multigpu.measure.intervals import coalesced, intersection, length, uncovered, union
from multigpu.measure.trace import MOST_SPANS, TOP_KERNELS, StepTrace
from multigpu.measure.traced import Activity, Host, joined, named_phases, replica_trace, short_name
from tests.analysis.traced import STEPS, ms, step_of, traced_record
from tests.factory import make_record

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12)


def cells(spans) -> set[int]:
    """The unit cells that integer intervals cover: arithmetic on sets that cannot be wrong."""
    return {cell for start, end in spans for cell in range(start, end)}


@given(SPANS, SPANS)
def test_intervals_are_sets(a, b) -> None:
    assert cells(union(a)) == cells(a) and length(a) == len(cells(a))
    assert all(left[1] < right[0] for left, right in zip(union(a), union(a)[1:], strict=False)), "disjoint, in order"
    assert cells(intersection(a, b)) == cells(a) & cells(b)
    assert uncovered(a, b) == len(cells(a) - cells(b))


@given(SPANS, st.integers(1, 5))
def test_coalescing_keeps_every_point_and_closes_the_smallest_gaps(a, most) -> None:
    found = coalesced(a, most)
    assert len(found) <= most and cells(a) <= cells(found)
    gaps = sorted(right[0] - left[1] for left, right in zip(union(a), union(a)[1:], strict=False))
    assert len(cells(found)) == len(cells(a)) + sum(gaps[: max(0, len(union(a)) - most)])


FIRST = step_of(forward=(0, 3), backward=(3, 8), merge=(8, 11), update=(11, 12))
LATER = step_of(forward=(2, 5), backward=(5, 10), merge=(10, 11), update=(11, 12))


@pytest.mark.parametrize(
    ("replicas", "skew_ms"),
    [
        ([FIRST, LATER], 2),  # equal work, begun 2 ms apart
        ([FIRST], 0),
        ([step_of(forward=(0, 3), backward=(4, 8))], 1),  # a gap counts: an upper bound
        ([step_of(forward=(0, 4), backward=(3, 8))], 0),  # overlap counts once
        ([step_of(forward_backward=(0, 8)), step_of(forward_backward=(1, 9))], 1),
        ([FIRST, step_of(forward=(0, 3))], None),
        ([FIRST, step_of(update=(0, 3))], None),
        ([], None),
    ],
)
def test_skew_is_how_far_apart_replicas_begin_where_their_passes_are_known(replicas, skew_ms) -> None:
    assert phases.launch_skew(replicas) == (None if skew_ms is None else pytest.approx(ms(skew_ms)))


def test_phases_last_from_their_first_to_their_last_operation() -> None:
    assert phases.phase_times(LATER) == pytest.approx({"forward": ms(3), "backward": ms(5), "merge": ms(1), "update": ms(1)})
    assert phases.passes_time(FIRST) == phases.passes_time(step_of(forward=(0, 4), backward=(3, 8))) == pytest.approx(ms(8))
    assert phases.passes_span([FIRST, LATER]) == pytest.approx(ms(10)) and phases.step_time([FIRST, LATER]) == pytest.approx(ms(12))


def activities() -> list[Activity]:
    """One step, ns: forward 0-30, backward 30-80 with an all-reduce 50-100 launched in it, update 100-120, a copy 5-15."""
    return [
        Activity("gemm", "compute", 0, 30, 0, "forward", 1),
        Activity("Memcpy HtoD", "host_to_device", 5, 15, 0, "forward", 2, 64, kernel=False),
        Activity("gemm", "compute", 30, 80, 0, "backward", 3),
        Activity("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", 50, 100, 0, "backward", 4),
        Activity("multi_tensor_apply_kernel FusedAdamMathFunctor", "compute", 100, 120, 0, "update", 5),
        Activity("gemm", "compute", 300, 310, None, None, 6),
    ]


def test_a_trace_is_reduced_to_its_sums() -> None:
    part = replica_trace(0, activities(), [Host(0, "update", 118, 130)], [(0, 90)], "kineto", {}, 7)
    (step,) = joined([part]).replicas[0].steps
    nanoseconds = {name: (round(start * 1e9), round(end * 1e9)) for name, (start, end) in part["replica"]["steps"][0]["phases"].items()}
    assert nanoseconds == {"forward": (0, 30), "backward": (30, 80), "merge": (50, 100), "update": (100, 130)}
    assert (step.kernels, step.launches) == (4, 5), "the copy is no kernel, and what lies outside of steps is not counted"
    assert (step.busy_s, step.communication_s, step.exposed_s) == pytest.approx((120e-9, 60e-9, 20e-9), abs=1e-12)
    assert step.exposed_copies_s == 0, "the copy ran while the device computed"
    (copies,) = part["replica"]["copies"]
    assert (copies["kind"], copies["calls"], copies["bytes"]) == ("host_to_device", 1, 64)
    assert part["replica"]["launch_lead_s"] == pytest.approx(7e-9)


def test_replicas_are_joined_on_one_clock() -> None:
    late = [Activity("gemm", "compute", 2_000_000, 5_000_000, 0, "forward", 1)]
    early = [Activity("gemm", "compute", 1_000_000, 5_000_000, 0, "forward", 1)]
    parts = [replica_trace(rank, mine, [], [(rank * 500_000, 9)], "kineto", {}) for rank, mine in enumerate((late, early))]
    trace = joined(parts)
    assert [replica.steps[0].phases["forward"] for replica in trace.replicas] == [(0.001, 0.004), (0.0, 0.004)]
    assert trace.kernels[0].calls == 2


def test_a_captured_step_is_told_by_names() -> None:
    unnamed = [Activity(a.name, a.kind, a.start_ns, a.end_ns, a.step, None, 9, a.bytes, a.kernel) for a in activities()]
    found, missing = named_phases(unnamed)
    (step,) = replica_trace(0, found, [], [(0, 90)], "kineto", missing)["replica"]["steps"]
    nanoseconds = {name: (round(start * 1e9), round(end * 1e9)) for name, (start, end) in step["phases"].items()}
    assert nanoseconds == {"forward_backward": (0, 80), "merge": (50, 100), "update": (100, 120)}
    assert step["launches"] == 1 and set(missing) == {"forward", "backward"}
    plain = [Activity("ncclDevKernel_SendRecv", "collective", 0, 5, 0), *unnamed]
    assert {"pull", "merge"} <= set(named_phases(plain)[1]), "sends are not told apart"


def test_updates_beside_backward_do_not_end_it() -> None:
    """Backward 30-80 goes on beside an update 40-60: nothing tells its kernels from forward's, nor where it ends."""
    kernels = [("gemm", 0, 30), ("gemm", 30, 45), ("fused_adam", 40, 60), ("gemm", 45, 80), ("fused_adam", 100, 120)]
    found, missing = named_phases([Activity(name, "compute", start, end, 0) for name, start, end in kernels], update_in_backward=True)
    assert [a.phase for a in found] == [None, None, "update", None, "update"]
    (step,) = replica_trace(0, found, [], [(0, 90)], "kineto", missing)["replica"]["steps"]
    assert set(step["phases"]) == {"update"} and set(missing) == {"forward", "backward", "forward_backward"}
    assert "with updates beside backward" in missing["forward_backward"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<x>>(int)", "elementwise_kernel gpu_kernel_impl"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("aten::addmm", "aten::addmm"),
    ],
)
def test_kernels_have_short_names(name, short) -> None:
    assert short_name(name) == short and len(short_name("x" * 300)) <= 72


def test_traced_runs_make_frames_and_no_throughput() -> None:
    records = [traced_record(devices=2), make_record(devices=2)]
    assert list(frame_of(records)["key"]) == [records[1].key], "a traced Run never competes with a timed one"
    frame = phases_frame(records)
    assert len(frame) == 2 * 3 and set(frame["key"]) == {records[0].key}
    assert frame["forward_s"].tolist() == pytest.approx([0.003] * 6) and frame["pull_s"].isna().all()
    assert phases_frame([]).empty and list(phases_frame([]).columns) == list(frame.columns)


def test_a_record_stays_small() -> None:
    """Eight replicas, three steps, every list as long as it may be, no two numbers or names alike: below 20 kB compressed."""
    draw, small = random.Random(0), traced_record(devices=8)

    def unlike(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: f"{draw.getrandbits(280):x}" if name == "name" else unlike(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [unlike(one) for one in value]
        return round(value + draw.random() / 1000, 7) if isinstance(value, float) else value

    trace = small.measurement.trace.model_dump()
    for replica in trace["replicas"]:
        replica["copies"] = [replica["copies"][0] | {"kind": kind} for kind in ("host_to_device", "device_to_host", "device_to_device")]
        for step in replica["steps"]:
            step["communication"] *= MOST_SPANS
    trace["kernels"] *= TOP_KERNELS
    record = make_record(devices=8, traced_steps=STEPS, measurement={"trace": unlike(trace)})
    assert len(gzip.compress(record.model_dump_json().encode())) < 20_000
    assert type(record).model_validate_json(record.model_dump_json()) == record
    assert all(isinstance(step, StepTrace) for step in record.measurement.trace.replicas[0].steps)
