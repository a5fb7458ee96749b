"""Real runs of the study's image model: a server on the host or on GPU 0, a worker on every GPU, nothing injected or one straggler.

`gpus` and `gpus_injected` need GPUs, as many as workers; `devices_cpu` is the same in small, so that every path is tried where there is
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multigpu.synchrony.experiment import ServerDevice, build_experiment
from multigpu.synchrony.laws import Computed, Law, ShiftedExponential
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
SERVER_START_S = 6.0
"""In addition where the server is on a device: its framework starts, then every worker's second context, on GPU 0."""
GPU_LAW = ShiftedExponential(shift_s=0.04, scale_s=0.02)
"""Injected times, longer than a batch takes on a GPU: so a real run and the simulator draw the same ones."""
CPU_LAW = ShiftedExponential(shift_s=0.1, scale_s=0.05)
UPDATES = 100
RESNET20 = TrainedModel(workload="cnn", model="resnet20", batch_size=128, rows=8192, test_rows=2048, device="cuda", precision="bf16")
SMALL = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=16, rows=256, test_rows=128)


def _runs(
    problem: TrainedModel, workers: int, rate: float, time_s: float, straggler_s: float, part: str, server: ServerDevice = "host"
) -> Iterator[Planned]:
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
                server_device=server,
            )
            yield Planned(part, experiment, time_s + START_S + (SERVER_START_S if server != "host" else 0.0))


def _injected(problem: TrainedModel, workers: int, law: Law, rate: float, updates: int, start_s: float, part: str) -> Iterator[Planned]:
    """sync, async and K-sync with K = P/2 under an injected law: for real, and without gradients on the virtual clock."""
    protocols: tuple[tuple[ProtocolName, int | None], ...] = (("sync", None), ("async", None), ("k_sync", workers // 2))
    for protocol, k in protocols:
        common: dict[str, Any] = {"protocol": protocol, "workers": workers, "gradients": k, "law": law, "updates": updates}
        real = build_experiment(**common, problem=problem, rate=ConstantRate(rate=rate), evaluations=5, clock="real")
        yield Planned(part, real, updates * law.order_mean_s(workers, workers) + start_s)
        yield Planned(part, build_experiment(**common, clock="virtual"), 0.1)


def gpus_injected() -> Iterator[Planned]:
    """Does the simulator hold on GPUs? 100 updates of ResNet-20 under one law on 8, 4 and 2 GPUs, and the same draws simulated."""
    for workers in GPU_WORKERS:
        yield from _injected(RESNET20, workers, GPU_LAW, 0.1, UPDATES, START_S, "gpus_injected")


def gpus() -> Iterator[Planned]:
    """ResNet-20 on images of CIFAR's size, 128 a gradient, bf16, on 8, 4 and 2 GPUs; sync and async in float32 too; then the bf16 runs
    again with the server on GPU 0.
    """
    for workers in GPU_WORKERS:
        yield from _runs(RESNET20, workers, 0.1, TIME_S, STRAGGLER_S, "gpus")
    for workers in GPU_WORKERS:
        yield from list(_runs(RESNET20.model_copy(update={"precision": "fp32"}), workers, 0.1, TIME_S, STRAGGLER_S, "gpus"))[:2]
    for workers in GPU_WORKERS:
        yield from _runs(RESNET20, workers, 0.1, TIME_S, STRAGGLER_S, "gpus", "cuda")


def devices_cpu() -> Iterator[Planned]:
    """A ResNet of 7,560 parameters on two CPU processes: two seconds each, then 40 updates under an injected law and simulated; at last
    the runs of two seconds with a server that holds tensors.
    """
    yield from _runs(SMALL, 2, 0.1, 2.0, 0.05, "devices_cpu")
    yield from _injected(SMALL, 2, CPU_LAW, 0.1, 40, 4.0, "devices_cpu")
    yield from _runs(SMALL, 2, 0.1, 2.0, 0.05, "devices_cpu", "cpu")
