"""Traced Runs of TensorFlow: phases by name scopes, and GPU traces read from planted planes."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from multigpu.analysis.traces import launch_skew, steps_of
from multigpu.engines.tensorflow.xplane import STEP, Names, read_space, with_gradients, without_strays
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.measure.traced import Activity, joined
from multigpu.record import RecordStore
from tests.measure.test_traces import in_us, traced_run


def test_tensorflow_phases_come_from_name_scopes_and_a_trace_names_what_the_host_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two towers in one process. Exp2 adds up rows and gradients and updates on the host; all towers' passes are not the host's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "-1"))
    run, store = traced_run(0, "exp2", framework="tensorflow", processes="one", execution="graph", warmup_steps=2), RecordStore(tmp_path)
    measure([Point(run, timeout_s=100.0)], store, progress=False)
    (record,) = store
    assert record.measurement and record.measurement.trace, record.reason
    towers = record.measurement.trace
    assert towers.source == "xplane" and not towers.missing and len(towers.replicas) == 2
    ordered = []
    for replicas in steps_of(towers):
        assert launch_skew(replicas) is not None
        for step in replicas:
            assert list(step.phases) == ["pull", "forward", "backward", "merge", "update"]
            forward, backward, update = (step.phases[name] for name in ("forward", "backward", "update"))
            ordered.append(forward[0] < backward[0] < update[0] and forward[1] < backward[1])
            assert step.kernels > 100 and 0 < step.busy_s <= step.end_s - step.start_s
    # nothing waits for the loss to be added up, nor for what a gradient starts with: a busy host may do either when it likes
    assert sum(ordered) > len(ordered) / 2
    one, other = (replica.steps[0].phases for replica in towers.replicas)
    assert one["forward"] != other["forward"], "each tower has its own passes"
    assert one["update"] == other["update"], "one host updates for all"
    calls = {(one.phase, one.name): one.calls for one in towers.host_operations}
    assert {phase for phase, _ in calls} <= {"pull", "merge", "update"}
    steps = len(towers.replicas[0].steps)
    assert calls["merge", "UnsortedSegmentSum"] == 2 * steps, "one a table and step"
    assert calls["update", "ResourceApplyAdam"] % steps == 0
    assert all(0 < one.busy_s <= one.total_s + 1e-7 for one in towers.host_operations)


class Plane(SimpleNamespace):
    """Stands in for XSpace's plane, whose names are in tables of metadata; times here in µs."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, lines=[], event_metadata={}, stat_metadata={}, stats=[])

    def add(self, line: str, name: str, start_us: int, length_us: int, **stats: object) -> None:
        if line not in (names := [made.name for made in self.lines]):
            self.lines.append(SimpleNamespace(name=line, timestamp_ns=0, events=[]))
        found = self.lines[names.index(line) if line in names else -1]
        found.events.append(
            SimpleNamespace(
                metadata_id=self._known(self.event_metadata, name),
                offset_ps=start_us * 10**6,
                duration_ps=length_us * 10**6,
                stats=[self._stat(stat, value) for stat, value in stats.items()],
            )
        )

    def _known(self, table: dict[int, SimpleNamespace], name: str) -> int:
        key = next((key for key, metadata in table.items() if metadata.name == name), len(table) + 1)
        table[key] = SimpleNamespace(name=name)
        return key

    def _stat(self, name: str, value: object) -> SimpleNamespace:
        kind, value = ("ref_value", self._known(self.stat_metadata, value)) if isinstance(value, str) else ("uint64_value", value)
        return SimpleNamespace(metadata_id=self._known(self.stat_metadata, name), WhichOneof=lambda _: kind, **{kind: value})


def test_a_gpus_plane_is_read() -> None:
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0")
    host.add("python", STEP, 0, 50)
    host.add("python", "cuLaunchKernel", 5, 1, correlation_id=1)
    host.add("python", "compute/0/MatMul:MatMul", 5, 2)  # its dispatch, no work of the host
    host.add("python", "update/w/ResourceApplyAdam:ResourceApplyAdam", 100, 20)
    host.add("another thread", "update/v/ResourceApplyAdam:ResourceApplyAdam", 110, 30)
    stream = "Stream #13(Compute,MemcpyH2D)"
    gpu.add(stream, "MemcpyH2D", 8, 2, memcpy_details="kind_src:pinned kind_dst:device size:400 dest:0 async:1")
    gpu.add(stream, "gemm", 10, 30, tf_op="compute/0/MatMul:MatMul", correlation_id=1)
    gpu.add(stream, "gemm", 40, 40, tf_op="gradient_tape/compute/0/MatMul/MatMul:MatMul")
    gpu.add(stream, "MemcpyD2D", 80, 5, memcpy_details="kind_src:device kind_dst:device size:40 dest:1 async:1")
    gpu.add("TensorFlow Ops", "MatMul", 10, 70)  # derived
    names = Names(1, places={"update/w/ResourceApplyAdam": -1, "update/v/ResourceApplyAdam": -1, "compute/0/MatMul": 0})
    trace = joined(read_space(SimpleNamespace(planes=[host, gpu]), names, True, {}))
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {"forward": (2, 32), "backward": (32, 72), "update": (92, 132)}
    (adam,) = trace.host_operations
    assert (adam.name, adam.phase, adam.calls) == ("ResourceApplyAdam", "update", 2)
    assert (adam.total_s, adam.busy_s) == pytest.approx((50e-6, 40e-6)), "10 of 50 µs ran side by side"
    copied = {copies.kind: copies.bytes for copies in trace.replicas[0].copies}
    assert step.kernels == 2 and copied == {"host_to_device": 400, "device_to_device": 40}
    assert trace.replicas[0].launch_lead_s == pytest.approx(5e-6)


def test_copies_out_of_a_tower_are_no_part_of_its_passes() -> None:
    """A copy bears the name of its source: rows of gradients stand in the tower's scope, and travel when backward has ended."""
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0")
    host.add("python", STEP, 0, 100)
    stream = "Stream #13(Compute,MemcpyD2H)"

    def copy(start: int, node: str, size: int) -> None:
        gpu.add(stream, "MemcpyD2H", start, 5, memcpy_details=f"kind_src:device kind_dst:pinned size:{size} dest:0", tf_op=node)

    gpu.add(stream, "MemcpyD2D", 1, 1, tf_op="update/w/strided_slice_1:StridedSlice")
    gpu.add(stream, "gemm", 10, 20, tf_op="compute/0/MatMul:MatMul")
    copy(12, "compute/0/while/Less/_5:_Send", 1)
    gpu.add(stream, "gemm", 30, 20, tf_op="gradient_tape/compute/0/MatMul:MatMul")
    copy(50, "gradient_tape/compute/0/concat_3/_51:_Send", 4096)
    copy(60, "compute/0/Reshape_15/_57:_Send", 8192)
    gpu.add(stream, "adam", 70, 10, tf_op="update/w/ResourceApplyAdam:ResourceApplyAdam")
    trace = joined(read_space(SimpleNamespace(planes=[host, gpu]), Names(1), True, {}))
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {"forward": (9, 29), "backward": (29, 49), "merge": (49, 64), "update": (69, 79)}


def test_an_update_begins_with_gradients() -> None:
    """An update's work before backward has begun on its device is in no phase; work beside backward, and on a device without one, is."""
    step = [("forward", 0, 10), ("update", 2, 4), ("backward", 10, 30), ("update", 8, 12), ("update", 31, 33)]
    work = [Activity("op", "compute", start, end, 0, phase) for phase, start, end in step]
    later = [Activity("op", "compute", 100 + start, 100 + end, 1, phase) for phase, start, end in step]
    assert [a.phase for a in with_gradients(work + later)] == 2 * ["forward", None, "backward", "update", "update"]
    alone = [Activity("op", "compute", 2, 4, 0, "update")]
    assert with_gradients(alone) == alone


def test_strays_belong_to_no_phase() -> None:
    """Of 102 ns of forward, the 1 ns before and the 1 ns after the rest are within 2% of the work."""
    work = [Activity("op", "compute", start, end, 0, "forward") for start, end in ((0, 1), (500, 560), (560, 600), (900, 901))]
    assert [a.phase for a in without_strays(work)] == [None, "forward", "forward", None]
    assert [a.phase for a in without_strays(work[1:3])] == ["forward", "forward"]
