"""Traced Runs on CPU processes: phases in order, a planted delay found as launch skew; GPU traces
read from planted events and planes.
"""

import gzip
import importlib.util
import json
import os
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.analysis.traces import launch_skew, steps_of
from multigpu.engines.common.traced import Activity, joined
from multigpu.engines.tensorflow.xplane import (
    STEP,
    Names,
    read_space,
    with_gradients,
    without_strays,
)
from multigpu.engines.torch import tracing
from multigpu.engines.torch.tracing import read_events
from multigpu.records.record import Record, RecordStore
from multigpu.records.trace import StepTrace, TraceSummary
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run
from tests.multigpu.runner.launched import PATHS, WORDS, fault

DELAYED, SERVER, OVERLAPPED = range(3)
DELAY_S, NOISE_S = 0.005, 0.0015
REPEATS = 8  # of the delayed Run: the calmest counts


def traced_run(seed: int, placement: str, **more: object) -> Run:
    """A Run whose replicas' steps take some milliseconds; its seed names it."""
    steps = {"warmup_steps": 3, "timed_steps": 5, "traced_steps": 3}
    return Run(placement=placement, seed=seed, devices=2, **WORDS | steps | more)


RUNS = [
    traced_run(DELAYED, "replicated_allreduce", traced_steps=20),
    traced_run(SERVER, "exp2"),
    traced_run(OVERLAPPED, "ddp"),
]
Sweep = tuple[dict[int, Record], Path, list[Record]]


def skews_of(record: Record) -> list[float]:
    """The launch skew of each traced step, s."""
    assert record.measurement and record.measurement.trace
    return [launch_skew(step) for step in steps_of(record.measurement.trace)]


def noise(record: Record) -> float:
    """How much the skews of every other step, those without a delay, differ: between their
    quartiles, s.
    """
    if len(calm := skews_of(record)[1::2]) < 3:
        return 0.0
    low, _, high = quantiles(calm, n=4)
    return high - low


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """One launch of all Runs; in one of them rank 1 sleeps 5 ms at the start of every other
    step.
    """
    folder = tmp_path_factory.mktemp("traces")
    store = RecordStore(folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTS", json.dumps([fault(DELAYED, "step", 1, DELAY_S, every=2)]))
        patch.setenv("PYTHONPATH", PATHS)
        patch.setenv("MULTIGPU_TRACES", str(folder / "full"))
        repeats = [Point(RUNS[DELAYED], repeat, timeout_s=100.0) for repeat in range(1, REPEATS)]
        measure(
            [*(Point(run, timeout_s=100.0) for run in RUNS), *repeats],
            store,
            progress=False,
            hook="tests.faults:strike",
        )
    assert all(record.status == "ok" for record in store), [record.reason for record in store]
    found = {record.run.seed: record for record in sorted(store, key=noise, reverse=True)}
    return found, folder / "full", [record for record in store if record.run.seed == DELAYED]


@pytest.mark.alone
def test_a_planted_delay_is_found_as_launch_skew(sweep: Sweep) -> None:
    """Delayed and undelayed steps take turns in one Run, of whose repeats those count whose
    undelayed steps were alike, and of them the one that nothing else disturbed most.

    Calls of the hook before the first traced step: 2 warm-up steps (the counted one has none), 5
    timed, 1 that warms the profiler up; of the 28 of a Run the even ones sleep.
    """
    if not (calm := [skews_of(record) for record in sweep[2] if noise(record) <= NOISE_S]):
        least = 1e3 * min(map(noise, sweep[2]))
        pytest.skip(f"too busy a machine: undelayed steps' skews differ by {least:.1f} ms and more")
    found = [median(skews[::2]) - median(skews[1::2]) for skews in calm]
    assert min(found, key=lambda delay: abs(delay - DELAY_S)) == pytest.approx(DELAY_S, abs=0.0015)


@pytest.mark.alone
@pytest.mark.parametrize("seed", [DELAYED, SERVER, OVERLAPPED])
def test_phases_follow_each_other_in_traced_steps_alone(sweep: Sweep, seed: int) -> None:
    measured = sweep[0][seed].measurement
    assert (
        measured
        and measured.trace
        and all(len(steps) == 3 + 5 for steps in measured.step_time_s)
        and len(measured.loss) == 3 + 5
    )
    assert [len(replica.steps) for replica in measured.trace.replicas] == [
        RUNS[seed].traced_steps
    ] * 2
    steps = [step for replicas in steps_of(measured.trace) for step in replicas]
    for step in steps:
        assert list(step.phases) == ["pull"] * (seed == SERVER) + [
            "forward",
            "backward",
            "merge",
            "update",
        ]
        starts = [start for start, _ in step.phases.values()]
        assert starts == sorted(starts)
        assert all(step.start_s <= start < end <= step.end_s for start, end in step.phases.values())
        assert (
            0 <= step.exposed_s <= step.communication_s <= step.end_s - step.start_s
            and step.kernels > 50
        )
        assert (step.communication_s == 0) is (seed == SERVER), "Exp2 uses shared memory on CPUs"
        if seed == DELAYED:
            start, end = step.phases["merge"]
            assert step.communication_s <= end - start + 1e-6
            assert all(start - 1e-6 <= a < b <= end + 1e-6 for a, b in step.communication)
    assert min(step.start_s for step in steps) == 0


@pytest.mark.alone
def test_full_traces_are_kept_where_asked(sweep: Sweep) -> None:
    files = sorted(sweep[1].glob("*.json.gz"))
    assert len(files) == 2 * len(RUNS), "repeats write to the same name"
    assert json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]
    assert all(
        len(record.model_dump_json()) < 20_000
        for seed, record in sweep[0].items()
        if seed >= SERVER
    )


def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": ts,
        "dur": dur,
        "pid": 1,
        "tid": 1,
        "args": args,
    }


def launched(
    correlation: int, at: float, cat: str, name: str, ts: float, dur: float, **args: object
) -> list[dict[str, object]]:
    """A launch on the host at `at` and what it starts on device 0."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 2, correlation=correlation),
        event(cat, name, ts, dur, correlation=correlation, device=0, **args),
    ]


def gpu_step() -> list[dict[str, object]]:
    """In µs: host ranges 0-40, device work 20-200. An all-reduce 90-160 is launched in backward,
    which ends at 130.
    """
    ranges = [
        ("multigpu/step", 0, 45),
        ("multigpu/pull", 0, 8),
        ("multigpu/forward", 8, 12),
        ("multigpu/backward", 20, 10),
    ]
    ranges += [("multigpu/update", 30, 10), ("multigpu/merge@host", 41, 3)]
    return [
        *(event("user_annotation", name, ts, dur) for name, ts, dur in ranges),
        *launched(1, 1, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 10, bytes=4096),
        *launched(2, 9, "kernel", "gemm_forward", 40, 30),
        *launched(3, 21, "kernel", "gemm_backward", 80, 50),
        *launched(4, 25, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 90, 70),
        *launched(
            5,
            31,
            "kernel",
            "void multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(x)",
            170,
            30,
        ),
        event("kernel", "orphan", 175, 5, correlation=99, device=0),
        event("gpu_user_annotation", "multigpu/forward", 40, 30),
    ]


def read_gpu(events: list[dict[str, object]]) -> TraceSummary:
    return joined(
        [
            read_events(
                {"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": events},
                0,
                cuda=True,
            )
        ]
    )


def in_us(step: StepTrace) -> dict[str, tuple[int, int]]:
    return {
        name: (round(start * 1e6), round(end * 1e6)) for name, (start, end) in step.phases.items()
    }


def test_a_gpu_trace_is_read_by_launches() -> None:
    trace = read_gpu(gpu_step())
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {
        "pull": (0, 10),
        "forward": (20, 50),
        "backward": (60, 110),
        "merge": (21, 140),
        "update": (150, 180),
    }
    assert (step.kernels, step.launches, trace.replicas[0].unlinked) == (5, 5, 1)
    assert step.busy_s == pytest.approx((10 + 30 + 80 + 30) * 1e-6)
    assert [step.communication_s, step.exposed_s, step.exposed_copies_s] == pytest.approx(
        [80e-6, (10 + 30) * 1e-6, 10e-6]
    )
    (copies,) = trace.replicas[0].copies
    assert (copies.kind, copies.bytes, copies.mean_s) == (
        "host_to_device",
        4096,
        pytest.approx(10e-6),
    )
    assert trace.replicas[0].launch_lead_s == pytest.approx(19e-6) and not trace.missing
    assert trace.kernels[0].name == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_a_captured_gpu_trace_says_what_it_cannot_know() -> None:
    events = [
        event("user_annotation", "multigpu/step", 0, 10),
        event("cuda_runtime", "cudaGraphLaunch", 1, 5, correlation=7),
    ]
    for name, ts, dur in (
        ("gemm", 20, 60),
        ("ncclDevKernel_AllReduce_Sum_bf16", 50, 60),
        ("fused_adam", 120, 10),
    ):
        events.append(
            event("kernel", name, ts, dur, correlation=7, device=0, **{"graph node id": ts})
        )
    trace = read_gpu(events)
    (step,) = trace.replicas[0].steps
    assert (
        set(step.phases) == {"forward_backward", "merge", "update"}
        and step.launches == 1
        and step.kernels == 3
    )
    assert "one captured graph" in trace.missing["forward"]
    assert step.exposed_s == pytest.approx(30e-6)
    early = read_events({"traceEvents": events}, 0, cuda=True, update_in_backward=True)
    assert (
        set(early["replica"]["steps"][0]["phases"]) == {"merge", "update"}
        and "forward_backward" in early["missing"]
    )


@pytest.mark.parametrize("more", [{}, {"bucket_update": "in_backward"}])
def test_a_tracer_knows_whether_its_run_updates_in_backward(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        tracing, "read_events", lambda *arguments: asked.append(arguments[1:]) or {}
    )
    for name in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):
        monkeypatch.setenv(name, "1")  # which tracing a captured step sets: it ends with this test
    run = traced_run(
        0,
        "ddp",
        device_type="cuda",
        execution="captured",
        cross_entropy="fused",
        warmup_steps=4,
        **more,
    )
    device: Any = SimpleNamespace(synchronise=lambda: None)
    tracing.trace(run, [0], lambda index: None, 8, device, lambda: None)
    assert asked == [(0, True, False, bool(more))]


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("Memcpy DtoH (Device -> Pinned)", {}, "device_to_host"),
        (
            "Memcpy PtoP (Device -> Device)",
            {"fromDevice": 0, "toDevice": 1, "inDevice": 0},
            "device_to_device",
        ),
        ("Memcpy DtoD (Device -> Device)", {"fromDevice": 0, "toDevice": 1}, "device_to_device"),
        ("Memcpy DtoD (Device -> Device)", {}, None),
    ],
)
def test_copies_have_kinds(name, args, kind) -> None:
    events = [
        event("user_annotation", "multigpu/step", 0, 10),
        *launched(1, 1, "gpu_memcpy", name, 20, 5, bytes=8, **args),
    ]
    found = [copies.kind for copies in read_gpu(events).replicas[0].copies]
    assert found == ([kind] if kind else []), "a copy within a device is no traffic"


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_tensorflow_phases_come_from_name_scopes_and_a_trace_names_what_the_host_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two towers in one process. Exp2 adds up rows and gradients and updates on the host; all
    towers' passes are not the host's.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "-1"))
    run, store = (
        traced_run(
            0, "exp2", framework="tensorflow", processes="one", execution="graph", warmup_steps=2
        ),
        RecordStore(tmp_path),
    )
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
            forward, backward, update = (
                step.phases[name] for name in ("forward", "backward", "update")
            )
            ordered.append(forward[0] < backward[0] < update[0] and forward[1] < backward[1])
            assert step.kernels > 100 and 0 < step.busy_s <= step.end_s - step.start_s
    # nothing waits for the loss to be added up, nor for what a gradient starts with: a busy host
    # may do either when it likes
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
        key = next(
            (key for key, metadata in table.items() if metadata.name == name), len(table) + 1
        )
        table[key] = SimpleNamespace(name=name)
        return key

    def _stat(self, name: str, value: object) -> SimpleNamespace:
        kind, value = (
            ("ref_value", self._known(self.stat_metadata, value))
            if isinstance(value, str)
            else ("uint64_value", value)
        )
        return SimpleNamespace(
            metadata_id=self._known(self.stat_metadata, name),
            WhichOneof=lambda _: kind,
            **{kind: value},
        )


def test_a_gpus_plane_is_read() -> None:
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0")
    host.add("python", STEP, 0, 50)
    host.add("python", "cuLaunchKernel", 5, 1, correlation_id=1)
    host.add("python", "compute/0/MatMul:MatMul", 5, 2)  # its dispatch, no work of the host
    host.add("python", "update/w/ResourceApplyAdam:ResourceApplyAdam", 100, 20)
    host.add("another thread", "update/v/ResourceApplyAdam:ResourceApplyAdam", 110, 30)
    stream = "Stream #13(Compute,MemcpyH2D)"
    gpu.add(
        stream,
        "MemcpyH2D",
        8,
        2,
        memcpy_details="kind_src:pinned kind_dst:device size:400 dest:0 async:1",
    )
    gpu.add(stream, "gemm", 10, 30, tf_op="compute/0/MatMul:MatMul", correlation_id=1)
    gpu.add(stream, "gemm", 40, 40, tf_op="gradient_tape/compute/0/MatMul/MatMul:MatMul")
    gpu.add(
        stream,
        "MemcpyD2D",
        80,
        5,
        memcpy_details="kind_src:device kind_dst:device size:40 dest:1 async:1",
    )
    gpu.add("TensorFlow Ops", "MatMul", 10, 70)  # derived
    names = Names(
        1,
        places={
            "update/w/ResourceApplyAdam": -1,
            "update/v/ResourceApplyAdam": -1,
            "compute/0/MatMul": 0,
        },
    )
    trace = joined(read_space(SimpleNamespace(planes=[host, gpu]), names, True, {}))
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {"forward": (2, 32), "backward": (32, 72), "update": (92, 132)}
    (adam,) = trace.host_operations
    assert (adam.name, adam.phase, adam.calls) == ("ResourceApplyAdam", "update", 2)
    assert (adam.total_s, adam.busy_s) == pytest.approx((50e-6, 40e-6)), (
        "10 of 50 µs ran side by side"
    )
    copied = {copies.kind: copies.bytes for copies in trace.replicas[0].copies}
    assert step.kernels == 2 and copied == {"host_to_device": 400, "device_to_device": 40}
    assert trace.replicas[0].launch_lead_s == pytest.approx(5e-6)


def test_copies_out_of_a_tower_are_no_part_of_its_passes() -> None:
    """A copy bears the name of its source: rows of gradients stand in the tower's scope, and travel
    when backward has ended.
    """
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0")
    host.add("python", STEP, 0, 100)
    stream = "Stream #13(Compute,MemcpyD2H)"

    def copy(start: int, node: str, size: int) -> None:
        gpu.add(
            stream,
            "MemcpyD2H",
            start,
            5,
            memcpy_details=f"kind_src:device kind_dst:pinned size:{size} dest:0",
            tf_op=node,
        )

    gpu.add(stream, "MemcpyD2D", 1, 1, tf_op="update/w/strided_slice_1:StridedSlice")
    gpu.add(stream, "gemm", 10, 20, tf_op="compute/0/MatMul:MatMul")
    copy(12, "compute/0/while/Less/_5:_Send", 1)
    gpu.add(stream, "gemm", 30, 20, tf_op="gradient_tape/compute/0/MatMul:MatMul")
    copy(50, "gradient_tape/compute/0/concat_3/_51:_Send", 4096)
    copy(60, "compute/0/Reshape_15/_57:_Send", 8192)
    gpu.add(stream, "adam", 70, 10, tf_op="update/w/ResourceApplyAdam:ResourceApplyAdam")
    trace = joined(read_space(SimpleNamespace(planes=[host, gpu]), Names(1), True, {}))
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {
        "forward": (9, 29),
        "backward": (29, 49),
        "merge": (49, 64),
        "update": (69, 79),
    }


def test_an_update_begins_with_gradients_and_strays_belong_to_no_phase() -> None:
    """An update's work before backward has begun on its device is in no phase; work beside
    backward, and where there is none, is.
    """
    step = [
        ("forward", 0, 10),
        ("update", 2, 4),
        ("backward", 10, 30),
        ("update", 8, 12),
        ("update", 31, 33),
    ]
    work = [Activity("op", "compute", start, end, 0, phase) for phase, start, end in step]
    later = [
        Activity("op", "compute", 100 + start, 100 + end, 1, phase) for phase, start, end in step
    ]
    assert [a.phase for a in with_gradients(work + later)] == 2 * [
        "forward",
        None,
        "backward",
        "update",
        "update",
    ]
    alone = [Activity("op", "compute", 2, 4, 0, "update")]
    assert with_gradients(alone) == alone
    # of 102 ns of forward, the 1 ns before and the 1 ns after the rest are within 2% of the work
    work = [
        Activity("op", "compute", start, end, 0, "forward")
        for start, end in ((0, 1), (500, 560), (560, 600), (900, 901))
    ]
    assert [a.phase for a in without_strays(work)] == [None, "forward", "forward", None]
    assert [a.phase for a in without_strays(work[1:3])] == ["forward", "forward"]
