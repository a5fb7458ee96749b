"""Real runs of the study's image model: a server on the host, a worker on every GPU, nothing injected or one straggler.

`gpus` needs GPUs, as many as workers; `devices_cpu` is the same in small, so that every path is tried where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

from multigpu.synchrony.experiment import build_experiment
from multigpu.synchrony.laws import Computed
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.protocol import ProtocolName
from multigpu.synchrony.rates import ConstantRate
from multigpu.synchrony.trained_models import TrainedModel

GPU_WORKERS = (8, 4, 2)
"""Most first: what an entry with more workers than GPUs needs is left out."""
STRAGGLER_S = 0.02
"""Added to every batch of the last worker: two to three times what a batch takes."""
TIME_S, START_S = 8.0, 22.0
"""Seconds that a run lasts, and that its processes take to start, warm up and evaluate."""
RESNET20 = TrainedModel(workload="cnn", model="resnet20", batch_size=128, rows=8192, test_rows=2048, device="cuda", precision="bf16")
SMALL = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=16, rows=256, test_rows=128)


def _runs(problem: TrainedModel, workers: int, rate: float, time_s: float, straggler_s: float, part: str) -> Iterator[Planned]:
    """sync, async and K-sync with K = P/2, first with nothing injected, then with the last worker delayed."""
    protocols: tuple[tuple[ProtocolName, int | None], ...] = (("sync", None), ("async", None), ("k_sync", workers // 2))
    for delay_s in (0.0, straggler_s):
        for protocol, k in protocols:
            experiment = build_experiment(
                protocol=protocol,
                workers=workers,
                gradients=k,
                law=Computed(),
                problem=problem,
                rate=ConstantRate(rate=rate),
                delays_s=(*(0.0,) * (workers - 1), delay_s) if delay_s else None,
                time_s=time_s,
                evaluations=20,
                clock="real",
            )
            yield Planned(part, experiment, time_s + START_S)


def gpus() -> Iterator[Planned]:
    """ResNet-20 on images of CIFAR's size, 128 a gradient, bf16, on 8, 4 and 2 GPUs; the first at most GPUs in float32 too."""
    for workers in GPU_WORKERS:
        yield from _runs(RESNET20, workers, 0.1, TIME_S, STRAGGLER_S, "gpus")
    for workers in GPU_WORKERS:
        yield from list(_runs(RESNET20.model_copy(update={"precision": "fp32"}), workers, 0.1, TIME_S, STRAGGLER_S, "gpus"))[:2]


def devices_cpu() -> Iterator[Planned]:
    """A ResNet of 7,560 parameters on two CPU processes for two seconds each."""
    yield from _runs(SMALL, 2, 0.1, 2.0, 0.05, "devices_cpu")
