"""Traced Runs on CPU processes: phases in order, a planted delay found as launch skew, GPU traces read from planted events."""

import gzip
import json
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.analysis.traces import launch_skew, steps_of
from multigpu.engines.torch import tracing
from multigpu.engines.torch.tracing import read_events
from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.measure.trace import StepTrace, TraceSummary
from multigpu.measure.traced import joined
from multigpu.record import Record, RecordStore
from multigpu.run import Run
from tests.measure.launched import PATHS

pytestmark = pytest.mark.alone

DELAYED, SERVER, OVERLAPPED = range(3)
DELAY_S, NOISE_S = 0.005, 0.0015
REPEATS = 8  # of the delayed Run: the calmest counts


def traced_run(seed: int, placement: str, **more: object) -> Run:
    """A Run whose replicas' steps take some milliseconds; its seed names it."""
    fields = {"workload": "nmt", "model": "nmt_tiny", "device_type": "cpu", "devices": 2, "batch_size": 4, "sequence_length": 6, **more}
    return Run(placement=placement, seed=seed, **{"warmup_steps": 3, "timed_steps": 5, "traced_steps": 3, **fields})


RUNS = [traced_run(DELAYED, "replicated_allreduce", traced_steps=20), traced_run(SERVER, "exp2"), traced_run(OVERLAPPED, "ddp")]
Sweep = tuple[dict[int, Record], Path]


def skews_of(record: Record) -> list[float]:
    """The launch skew of each traced step, s."""
    assert record.measurement and record.measurement.trace
    return [launch_skew(step) for step in steps_of(record.measurement.trace)]


def noise(record: Record) -> float:
    """How much the skews of every other step, those without a delay, differ: between their quartiles, s."""
    if len(calm := skews_of(record)[1::2]) < 3:
        return 0.0
    low, _, high = quantiles(calm, n=4)
    return high - low


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
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


def test_a_planted_delay_is_found_as_launch_skew(sweep: Sweep) -> None:
    """Delayed and undelayed steps take turns in one Run, of whose repeats the one counts whose undelayed steps were most alike.

    Calls of the hook before the first traced step: 2 warm-up steps (the counted one has none), 5 timed, 1 that warms the
    profiler up; of the 28 of a Run the even ones sleep.
    """
    record = sweep[0][DELAYED]
    if noise(record) > NOISE_S:
        pytest.skip(f"this machine is too busy: undelayed steps' skews differ by {1e3 * noise(record):.1f} ms among themselves")
    delayed, calm = (median(skews_of(record)[half::2]) for half in (0, 1))
    assert delayed - calm == pytest.approx(DELAY_S, abs=0.0015)


@pytest.mark.parametrize("seed", [DELAYED, SERVER, OVERLAPPED])
def test_phases_follow_each_other_in_traced_steps_alone(sweep: Sweep, seed: int) -> None:
    measured = sweep[0][seed].measurement
    assert measured and measured.trace and all(len(steps) == 3 + 5 for steps in measured.step_time_s) and len(measured.loss) == 3 + 5
    assert [len(replica.steps) for replica in measured.trace.replicas] == [RUNS[seed].traced_steps] * 2
    steps = [step for replicas in steps_of(measured.trace) for step in replicas]
    for step in steps:
        assert list(step.phases) == ["pull"] * (seed == SERVER) + ["forward", "backward", "merge", "update"]
        starts = [start for start, _ in step.phases.values()]
        assert starts == sorted(starts)
        assert all(step.start_s <= start < end <= step.end_s for start, end in step.phases.values())
        assert 0 <= step.exposed_s <= step.communication_s <= step.end_s - step.start_s and step.kernels > 50
        assert (step.communication_s == 0) is (seed == SERVER), "Exp2 uses shared memory on CPUs"
        if seed == DELAYED:
            start, end = step.phases["merge"]
            assert step.communication_s <= end - start + 1e-6
            assert all(start - 1e-6 <= a < b <= end + 1e-6 for a, b in step.communication)
    assert min(step.start_s for step in steps) == 0


def test_full_traces_are_kept_where_asked(sweep: Sweep) -> None:
    files = sorted(sweep[1].glob("*.json.gz"))
    assert len(files) == 2 * len(RUNS), "repeats write to the same name"
    assert json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]
    assert all(len(record.model_dump_json()) < 20_000 for seed, record in sweep[0].items() if seed >= SERVER)


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


def read_gpu(events: list[dict[str, object]]) -> TraceSummary:
    return joined([read_events({"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": events}, 0, cuda=True)])


def in_us(step: StepTrace) -> dict[str, tuple[int, int]]:
    return {name: (round(start * 1e6), round(end * 1e6)) for name, (start, end) in step.phases.items()}


def test_a_gpu_trace_is_read_by_launches() -> None:
    trace = read_gpu(gpu_step())
    (step,) = trace.replicas[0].steps
    assert in_us(step) == {"pull": (0, 10), "forward": (20, 50), "backward": (60, 110), "merge": (21, 140), "update": (150, 180)}
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
    early = read_events({"traceEvents": events}, 0, cuda=True, update_in_backward=True)
    assert set(early["replica"]["steps"][0]["phases"]) == {"merge", "update"} and "forward_backward" in early["missing"]


@pytest.mark.parametrize(("more", "early"), [({}, False), ({"bucket_update": "in_backward"}, True)])
def test_a_tracer_knows_whether_its_run_updates_in_backward(more: dict[str, Any], early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(tracing, "read_events", lambda *arguments: asked.append(arguments[1:]))
    for name in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):
        monkeypatch.setenv(name, "1")  # which tracing a captured step sets: it ends with this test
    run = traced_run(0, "ddp", device_type="cuda", execution="captured", cross_entropy="fused", warmup_steps=4, **more)
    device = SimpleNamespace(synchronise=lambda: None)
    tracing.trace(run, [0], lambda index: None, 8, device, lambda: None)  # type: ignore[arg-type]
    assert asked == [(0, True, False, early)]


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
