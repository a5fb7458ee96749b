"""The six parts of a traced step, on timelines made by hand: which moment belongs where."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from multigpu.engines.common.timeline import Timeline, last_arrivals, six_parts
from multigpu.engines.torch.moments import INPUT, STEP, closed, layer_times, layers_named, timelines
from multigpu.records.intervals import without
from multigpu.records.trace import SIX_PARTS

MS = 1_000_000


def ms(*spans: tuple[float, float]) -> list[tuple[float, float]]:
    """Stretches of milliseconds, in ns."""
    return [(start * MS, end * MS) for start, end in spans]


def told(parts: dict[str, float]) -> dict[str, float]:
    """Parts in ms, those that take something; all are there, and they add up."""
    assert list(parts) and set(parts) == set(SIX_PARTS)
    return {name: round(1e3 * value, 6) for name, value in parts.items() if value}


def test_each_moment_belongs_to_one_part_and_they_add_up() -> None:
    one = Timeline(
        window=(0, 100 * MS),
        computing=ms((20, 50), (45, 60)),
        collectives={"all_reduce": ms((55, 80))},
        input=ms((0, 10), (50, 56)),
        host=ms((5, 25), (80, 90)),
    )
    (found,) = six_parts([one])
    assert sum(found.values()) == pytest.approx(0.1)
    assert told(found) == {"computing": 40, "merging": 20, "input": 10, "launch": 20, "rest": 10}


def test_waiting_ends_when_the_last_rank_has_come() -> None:
    early = Timeline(window=(0, 100 * MS), collectives={"sum": ms((10, 70), (80, 90))})
    late = Timeline(window=(0, 100 * MS), collectives={"sum": ms((60, 70), (79, 90))})
    assert last_arrivals([early, late]) == {"sum": [60 * MS, 80 * MS]}
    first, second = map(told, six_parts([early, late]))
    assert first == {"waiting": 50, "merging": 20, "rest": 30}
    assert second == {"waiting": 1, "merging": 20, "rest": 79}
    # what overlaps with computing is no waiting
    busy = early.model_copy(update={"computing": ms((10, 60))})
    assert told(six_parts([busy, late])[0]) == {"computing": 50, "merging": 20, "rest": 30}


def test_collectives_that_ranks_count_differently_are_merging_alone() -> None:
    some = Timeline(window=(0, 10 * MS), collectives={"send": ms((0, 4))})
    none = Timeline(window=(0, 10 * MS), collectives={"send": ms((2, 3), (5, 6))})
    assert told(six_parts([some, none])[0]) == {"merging": 4, "rest": 6}


def test_a_thread_that_calls_operations_waits_for_no_collective_beside_it() -> None:
    one = Timeline(
        window=(0, 10 * MS),
        calling=ms((0, 6)),
        computing=ms((0, 1)),
        collectives={"gloo:all_reduce": ms((2, 8))},
    )
    assert told(six_parts([one])[0]) == {"computing": 1, "launch": 5, "merging": 2, "rest": 2}


def test_stretches_are_closed_and_taken_away() -> None:
    assert closed([(0, 10), (15, 20), (40, 41)], 5) == [(0, 20), (40, 41)]
    assert without([(0, 10), (20, 30)], [(5, 22), (25, 26)]) == [(0, 5), (22, 25), (26, 30)]
    assert without([(0, 10)], []) == [(0, 10)] and without([(0, 10)], [(0, 10)]) == []


def event(name: str, start_ms: float, end_ms: float, cat: str = "cpu_op", tid: int = 1) -> dict:
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": 1e3 * start_ms,
        "dur": 1e3 * (end_ms - start_ms),
        "tid": tid,
    }


def test_a_thread_beside_the_step_computes_nothing_of_it() -> None:
    """It makes the next batch; the step's own thread waits for that, computes, and then pauses."""
    trace = {
        "traceEvents": [
            event(STEP, 0, 100, "user_annotation"),
            event(INPUT, 0, 30, "user_annotation"),
            event("aten::rand", 0, 90, tid=2),
            event("aten::addmm", 30, 50),
            event("aten::add", 31, 32),
            event("multigpu/merge", 60, 70, "user_annotation"),
        ]
    }
    (found,) = timelines(trace, cuda=False)
    (parts,) = six_parts([found])
    shown = told(parts)
    assert shown["input"] == 30 and shown["merging"] == 10 and shown["rest"] == 40
    assert shown["computing"] == pytest.approx(20, abs=0.02)


def on_gpu(name: str, start_ms: float, end_ms: float, launch: int, cat: str = "kernel") -> dict:
    return event(name, start_ms, end_ms, cat, tid=7) | {"args": {"correlation": launch}}


def test_a_gpu_computes_where_its_kernels_run_whatever_its_host_does() -> None:
    """The host is done with both steps before the device is with the first."""
    trace = {
        "traceEvents": [
            event(STEP, 0, 4, "user_annotation"),
            event(STEP, 4, 6, "user_annotation"),
            on_gpu("cudaLaunchKernel", 0, 2, 1, "cuda_runtime"),
            on_gpu("cudaLaunchKernel", 2, 4, 2, "cuda_runtime"),
            on_gpu("cuLaunchKernelEx", 4, 5, 3, "cuda_driver"),
            on_gpu("gemm", 5, 8, 1),
            on_gpu("ncclDevKernel_AllReduce", 7, 9, 2),
            on_gpu("gemm", 9.5, 12, 3),
            # the profiler shows each range of the host a second time, where its kernels run
            on_gpu(STEP, 5, 9, 0, "gpu_user_annotation"),
            on_gpu(STEP, 9.5, 12, 0, "gpu_user_annotation"),
        ]
    }
    first, second = timelines(trace, cuda=True)
    assert (first.window, second.window) == ((0, 9 * MS), (9 * MS, 12 * MS))
    assert told(six_parts([first])[0]) == {"launch": 5, "computing": 3, "merging": 1}
    assert told(six_parts([second])[0]) == {"computing": 2.5, "rest": 0.5}


class Parts(nn.Module):
    """A large layer between two small ones, and an operation of its own before them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.large = nn.Linear(8, 512), nn.Linear(512, 2048)
        self.last = nn.Linear(2048, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.large(self.first((2 * x).float())))


def test_forward_backward_and_update_are_told_by_layer(tmp_path: Path) -> None:
    model = Parts()
    rule, x = torch.optim.SGD(model.parameters(), 0.1), torch.rand(512, 8)
    with layers_named(model), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with record_function(STEP):
                rule.zero_grad()
                model(x).sum().backward()
                with record_function("multigpu/update"):
                    rule.step()
    assert not model.large._forward_hooks and not model.large._forward_pre_hooks
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    found = {name: seconds for name, _, _, seconds in layer_times(trace, False, model)}
    shares = {name: share for name, _, share, _ in layer_times(trace, False, model)}
    whole = sum(own.window[1] - own.window[0] for own in timelines(trace, cuda=False)) * 1e-9
    assert next(iter(found)) == "large" and found["large"] > 0.5 * sum(found.values())
    assert sum(found.values()) < whole and found[""] < 0.2 * whole
    assert sum(shares.values()) == pytest.approx(1) and shares["large"] > 0.9
