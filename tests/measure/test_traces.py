"""Traced Runs on CPU processes: phases in order, a planted delay found as launch skew, GPU traces read from planted events."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import time
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace

import pytest

from multigpu.analysis.phases import launch_skew, steps_of
from multigpu.engines.tensorflow.xplane import STEP, Names, read_space, without_strays
from multigpu.engines.torch.tracing import read_events
from multigpu.measure.launch import Point, launch_of, measure
from multigpu.measure.trace import Activity, joined
from multigpu.record import Record, RecordStore
from multigpu.run import Run, build_run
from tests.measure.test_solo import PATHS

pytestmark = pytest.mark.alone

DELAYED, SERVER, OVERLAPPED = range(3)
DELAY_S = 0.005
REPEATS = 8
"""Of the delayed Run: the calmest counts."""
NOISE_S = 0.0015


def traced_run(seed: int, placement: str, **more: object) -> Run:
    """A Run whose replicas' steps take some milliseconds; its seed names it."""
    fields = {"workload": "nmt", "model": "nmt_tiny", "device_type": "cpu", "devices": 2, "batch_size": 4, "sequence_length": 6, **more}
    return Run(placement=placement, seed=seed, **{"warmup_steps": 3, "timed_steps": 5, "traced_steps": 3, **fields})


RUNS = [
    traced_run(DELAYED, "replicated_allreduce", traced_steps=20),
    traced_run(SERVER, "exp2"),
    traced_run(OVERLAPPED, "ddp"),
]


def skews_of(record: Record) -> list[float]:
    """The launch skew of each traced step, s."""
    assert record.measurement and record.measurement.trace
    return [launch_skew(step) for step in steps_of(record.measurement.trace)]


def noise(record: Record) -> float:
    """How much the skews of every other step, those without a delay, differ: between their quartiles, s."""
    calm = skews_of(record)[1::2]
    if len(calm) < 3:
        return 0.0
    low, _, high = quantiles(calm, n=4)
    return high - low


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, Record], Path]:
    """One launch of all Runs; in one of them rank 1 sleeps 5 ms at the start of every other step."""
    folder = tmp_path_factory.mktemp("traces")
    store = RecordStore(folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTS", json.dumps([{"seed": DELAYED, "stage": "step", "rank": 1, "fault": DELAY_S, "every": 2}]))
        patch.setenv("PYTHONPATH", PATHS)
        patch.setenv("MULTIGPU_TRACES", str(folder / "full"))
        repeats = [Point(RUNS[DELAYED], repeat, timeout_s=100.0) for repeat in range(1, REPEATS)]
        measure([*(Point(run, timeout_s=100.0) for run in RUNS), *repeats], store, progress=False, hook="tests.faults:strike")
    assert all(record.status == "ok" for record in store), [record.reason for record in store]
    return {record.run.seed: record for record in sorted(store, key=noise, reverse=True)}, folder / "full"


def trace_of(sweep, seed: int):
    measured = sweep[0][seed].measurement
    assert measured and measured.trace
    return measured.trace


def test_a_planted_delay_is_found_as_launch_skew(sweep) -> None:
    """Delayed and undelayed steps take turns in one Run, of whose repeats the one counts whose undelayed steps were most alike.

    Calls of the hook before the first traced step: 2 warm-up steps (the counted one has none), 5 timed, 1 that warms the
    profiler up; of the 28 of a Run the even ones sleep.
    """
    record = sweep[0][DELAYED]
    if noise(record) > NOISE_S:
        pytest.skip(f"this machine is too busy: undelayed steps' skews differ by {1e3 * noise(record):.1f} ms among themselves")
    delayed, calm = (median(skews_of(record)[half::2]) for half in (0, 1))
    assert delayed - calm == pytest.approx(DELAY_S, abs=0.0015)


def test_timed_steps_are_not_profiled_and_traced_ones_not_timed(sweep) -> None:
    measured = sweep[0][DELAYED].measurement
    assert all(len(steps) == 3 + 5 for steps in measured.step_time_s) and len(measured.loss) == 3 + 5
    assert [len(replica.steps) for replica in measured.trace.replicas] == [20, 20]


@pytest.mark.parametrize(
    ("seed", "names"),
    [
        (DELAYED, ["forward", "backward", "merge", "update"]),
        (SERVER, ["pull", "forward", "backward", "merge", "update"]),
        (OVERLAPPED, ["forward", "backward", "merge", "update"]),
    ],
)
def test_phases_follow_each_other(sweep, seed: int, names: list[str]) -> None:
    for replicas in steps_of(trace_of(sweep, seed)):
        for step in replicas:
            assert list(step.phases) == names
            starts = [start for start, _ in step.phases.values()]
            assert starts == sorted(starts)
            assert all(step.start_s <= start < end <= step.end_s for start, end in step.phases.values())
            assert 0 <= step.exposed_s <= step.communication_s <= step.end_s - step.start_s and step.kernels > 50
    assert min(step.start_s for replicas in steps_of(trace_of(sweep, seed)) for step in replicas) == 0


def test_communication_is_the_collective(sweep) -> None:
    for replicas in steps_of(trace_of(sweep, DELAYED)):
        for step in replicas:
            start, end = step.phases["merge"]
            assert 0 < step.communication_s <= end - start + 1e-6
            assert all(start - 1e-6 <= a < b <= end + 1e-6 for a, b in step.communication)
    assert all(step.communication_s == 0 for step in steps_of(trace_of(sweep, SERVER))[0]), "Exp2 uses shared memory on CPUs"


def test_full_traces_are_kept_where_asked(sweep) -> None:
    files = sorted(sweep[1].glob("*.json.gz"))
    assert len(files) == 2 * len(RUNS), "repeats write to the same name"
    assert json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]
    assert all(len(record.model_dump_json()) < 20_000 for seed, record in sweep[0].items() if seed >= SERVER)


def test_traces_are_on_the_hosts_clock(tmp_path) -> None:
    """Kineto's timestamps lie between two readings of the host's real-time clock around the range, give or take 0.2 ms."""
    from torch.profiler import ProfilerActivity, profile, record_function

    readings = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(20):
            before = time.time_ns()
            with record_function("mark"):
                pass
            readings.append((before, time.time_ns()))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    marks = sorted(trace["baseTimeNanoseconds"] + e["ts"] * 1000 for e in trace["traceEvents"] if e.get("name") == "mark")
    assert all(before - 200_000 <= mark <= after + 200_000 for (before, after), mark in zip(readings, marks, strict=True))


# --- traces of GPUs, written out by hand ------------------------------------------------------------------------------------


def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": args}


def launched(correlation: int, at: float, cat: str, name: str, ts: float, dur: float, **args: object) -> list[dict[str, object]]:
    """A launch on the host at `at` and what it starts on device 0."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 2, correlation=correlation),
        event(cat, name, ts, dur, correlation=correlation, device=0, **args),
    ]


def gpu_step() -> list[dict[str, object]]:
    """In µs: host ranges 0-40, device work 20-200. An all-reduce 90-160 is launched in backward, which ends at 130."""
    ranges = [("multigpu/step", 0, 45), ("multigpu/pull", 0, 8), ("multigpu/forward", 8, 12), ("multigpu/backward", 20, 10)]
    ranges += [("multigpu/update", 30, 10), ("multigpu/merge@host", 41, 3)]
    return [
        *(event("user_annotation", name, ts, dur) for name, ts, dur in ranges),
        *launched(1, 1, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 10, bytes=4096),
        *launched(2, 9, "kernel", "gemm_forward", 40, 30),
        *launched(3, 21, "kernel", "gemm_backward", 80, 50),
        *launched(4, 25, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 90, 70),
        *launched(5, 31, "kernel", "void multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(x)", 170, 30),
        event("kernel", "orphan", 175, 5, correlation=99, device=0),
        event("gpu_user_annotation", "multigpu/forward", 40, 30),
    ]


def read_gpu(events: list[dict[str, object]]):
    return joined([read_events({"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": events}, 0, cuda=True)])


def test_a_gpu_trace_is_read_by_launches() -> None:
    trace = read_gpu(gpu_step())
    (step,) = trace.replicas[0].steps
    microseconds = {name: (round(start * 1e6), round(end * 1e6)) for name, (start, end) in step.phases.items()}
    assert microseconds == {"pull": (0, 10), "forward": (20, 50), "backward": (60, 110), "merge": (21, 140), "update": (150, 180)}
    assert (step.kernels, step.launches, trace.replicas[0].unlinked) == (5, 5, 1)
    assert step.busy_s == pytest.approx((10 + 30 + 80 + 30) * 1e-6)
    assert step.communication_s == pytest.approx(80e-6) and step.exposed_s == pytest.approx((10 + 30) * 1e-6)
    assert step.exposed_copies_s == pytest.approx(10e-6)
    (copies,) = trace.replicas[0].copies
    assert (copies.kind, copies.bytes, copies.mean_s) == ("host_to_device", 4096, pytest.approx(10e-6))
    assert trace.replicas[0].launch_lead_s == pytest.approx(19e-6) and not trace.missing
    assert trace.kernels[0].name == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_a_captured_gpu_trace_says_what_it_cannot_know() -> None:
    events = [event("user_annotation", "multigpu/step", 0, 10), event("cuda_runtime", "cudaGraphLaunch", 1, 5, correlation=7)]
    for name, ts, dur in (("gemm", 20, 60), ("ncclDevKernel_AllReduce_Sum_bf16", 50, 60), ("fused_adam", 120, 10)):
        events.append(event("kernel", name, ts, dur, correlation=7, device=0, **{"graph node id": ts}))
    trace = read_gpu(events)
    (step,) = trace.replicas[0].steps
    assert set(step.phases) == {"forward_backward", "merge", "update"} and step.launches == 1 and step.kernels == 3
    assert "one captured graph" in trace.missing["forward"]
    assert step.exposed_s == pytest.approx(30e-6)


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("Memcpy DtoH (Device -> Pinned)", {}, "device_to_host"),
        ("Memcpy PtoP (Device -> Device)", {"fromDevice": 0, "toDevice": 1, "inDevice": 0}, "device_to_device"),
        ("Memcpy DtoD (Device -> Device)", {"fromDevice": 0, "toDevice": 1}, "device_to_device"),
        ("Memcpy DtoD (Device -> Device)", {}, None),
    ],
)
def test_copies_have_kinds(name, args, kind) -> None:
    events = [event("user_annotation", "multigpu/step", 0, 10), *launched(1, 1, "gpu_memcpy", name, 20, 5, bytes=8, **args)]
    found = [copies.kind for copies in read_gpu(events).replicas[0].copies]
    assert found == ([kind] if kind else []), "a copy within a device is no traffic"


# --- the Run ------------------------------------------------------------------------------------------------------------------


def test_traced_runs_are_other_points_in_launches_of_their_own() -> None:
    timed, traced = traced_run(0, "ddp", traced_steps=0), traced_run(0, "ddp")
    assert timed.digest != traced.digest and launch_of(Point(timed)) != launch_of(Point(traced))
    with pytest.raises(ValueError, match="traced_steps"):
        build_run(**traced.model_dump(exclude_defaults=True) | {"traced_steps": 21})


# --- TensorFlow ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory):
    """One traced Run of two towers in one process."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    run = traced_run(0, "exp2", framework="tensorflow", processes="one", execution="graph", warmup_steps=2)
    store = RecordStore(tmp_path_factory.mktemp("towers"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "-1"))
        measure([Point(run, timeout_s=100.0)], store, progress=False)
    (record,) = store
    assert record.status == "ok", record.reason
    return record.measurement.trace


def test_tensorflow_phases_come_from_name_scopes(towers) -> None:
    assert towers.source == "xplane" and not towers.missing and len(towers.replicas) == 2
    for replicas in steps_of(towers):
        assert launch_skew(replicas) is not None
        for step in replicas:
            assert list(step.phases) == ["pull", "forward", "backward", "merge", "update"]
            starts = {name: start for name, (start, _) in step.phases.items()}
            ends = {name: end for name, (_, end) in step.phases.items()}
            assert starts["forward"] < starts["backward"] < ends["backward"] and ends["forward"] < ends["backward"]
            assert step.kernels > 100 and 0 < step.busy_s <= step.end_s - step.start_s
    apart = [replica.steps[0].phases["forward"] for replica in towers.replicas]
    assert apart[0] != apart[1], "each tower has its own passes"
    assert towers.replicas[0].steps[0].phases["update"] == towers.replicas[1].steps[0].phases["update"], "one host updates for all"


class Plane(SimpleNamespace):
    """Stands in for XSpace's plane, whose names are in tables of metadata; times here in µs."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, lines=[], event_metadata={}, stat_metadata={}, stats=[])

    def add(self, line: str, name: str, start_us: int, length_us: int, **stats: object) -> None:
        found = next((made for made in self.lines if made.name == line), None)
        if found is None:
            found = SimpleNamespace(name=line, timestamp_ns=0, events=[])
            self.lines.append(found)
        values = [self._stat(stat, value) for stat, value in stats.items()]
        metadata_id = self._known(self.event_metadata, name)
        found.events.append(
            SimpleNamespace(metadata_id=metadata_id, offset_ps=start_us * 10**6, duration_ps=length_us * 10**6, stats=values)
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
    stream = "Stream #13(Compute,MemcpyH2D)"
    gpu.add(stream, "MemcpyH2D", 8, 2, memcpy_details="kind_src:pinned kind_dst:device size:400 dest:0 async:1")
    gpu.add(stream, "gemm", 10, 30, tf_op="compute/0/MatMul:MatMul", correlation_id=1)
    gpu.add(stream, "gemm", 40, 40, tf_op="gradient_tape/compute/0/MatMul/MatMul:MatMul")
    gpu.add(stream, "MemcpyD2D", 80, 5, memcpy_details="kind_src:device kind_dst:device size:40 dest:1 async:1")
    gpu.add("TensorFlow Ops", "MatMul", 10, 70)  # derived
    names = Names(1, places={"update/w/ResourceApplyAdam": -1, "compute/0/MatMul": 0})
    trace = joined(read_space(SimpleNamespace(planes=[host, gpu]), names, True, {}))
    (step,) = trace.replicas[0].steps
    assert {name: (round(a * 1e6), round(b * 1e6)) for name, (a, b) in step.phases.items()} == {
        "forward": (2, 32),
        "backward": (32, 72),
        "update": (92, 112),
    }
    assert step.kernels == 2 and {copies.kind: copies.bytes for copies in trace.replicas[0].copies} == {
        "host_to_device": 400,
        "device_to_device": 40,
    }
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
    assert {name: (round(a * 1e6), round(b * 1e6)) for name, (a, b) in step.phases.items()} == {
        "forward": (9, 29),
        "backward": (29, 49),
        "merge": (49, 64),
        "update": (69, 79),
    }


def test_strays_belong_to_no_phase() -> None:
    """Of 102 ns of forward, the 1 ns before and the 1 ns after the rest are within 2% of the work."""
    work = [Activity("op", "compute", start, end, 0, "forward") for start, end in ((0, 1), (500, 560), (560, 600), (900, 901))]
    assert [a.phase for a in without_strays(work)] == [None, "forward", "forward", None]
    assert [a.phase for a in without_strays(work[1:3])] == ["forward", "forward"]
