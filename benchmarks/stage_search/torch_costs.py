"""Measure in PyTorch the cost of each stage of a model on one device, and of a copy between two."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from multigpu.engines.torch.trainer import open_context
from multigpu.engines.torch.variables import make_optimizer
from multigpu.spec.run import Run
from multigpu.workloads import optimizer_of
from multigpu.workloads.sources import open_source
from multigpu_study.stages.costs import CopyCost, Costs, StageCost, StagePass
from multigpu_study.stages.torch_engine import StageFeed, StagesTrainer, copied


def measure_costs(run: Run, sizes: Sequence[int], repeats: int) -> Costs:
    """Costs of the stages of a Run under placement "single", and of copies of `sizes` bytes. On a
    GPU the device's time is its kernels', the host's that of starting them; on a CPU the host does
    all, and stand-ins do not work side by side.
    """
    source = open_source(run)
    context = open_context(
        run, 0, torch.get_num_threads(), source.capacity, Path(tempfile.gettempdir()), 0.0
    )
    trainer, devices = StagesTrainer(context), context.devices
    feed = StageFeed(source, run, devices)
    shard = feed.shard(0)
    feed.close()
    cuda = devices.cuda
    outputs: dict[str, Tensor] = {}
    stages = []
    for stage in trainer.graph.stages:
        inputs = [outputs[name].detach().requires_grad_() for name in stage.inputs]
        values = {name: trainer.values[name] for name in stage.variables}
        arrays = [shard.device[name] for name in stage.arrays]
        function = trainer.functions[stage.name]
        wanted = [*inputs, *values.values()]

        def forward(
            function: Any = function,
            values: Any = values,
            inputs: Any = inputs,
            arrays: Any = arrays,
        ) -> Tensor:
            return function(values, inputs, arrays)

        output = outputs[stage.name] = forward()
        gradient = torch.ones_like(output)

        def backward(output: Any = output, wanted: Any = wanted, gradient: Any = gradient) -> Any:
            return torch.autograd.grad(output, wanted, gradient, retain_graph=True)

        update = StagePass(device_s=0.0, host_s=0.0)
        own = [name for name, home in trainer.graph.variables.items() if home == stage.name]
        if own:
            for value, found in zip(values.values(), backward()[len(inputs) :], strict=True):
                value.grad = found.clone()
            parameters = [trainer.values[name] for name in own]
            optimizer = make_optimizer(optimizer_of(run), parameters)  # type: ignore[arg-type]
            update = _timed(optimizer.step, repeats, cuda)
        cost = StageCost(
            name=stage.name,
            forward=_timed(forward, repeats, cuda),
            backward=_timed(backward, repeats, cuda),
            update=update,
        )
        stages.append(cost)
    copies = tuple(_copy(size, repeats, cuda) for size in sorted(set(sizes)))
    hand_over_s = max(0.0, _gradient_crossing_s(repeats) - copies[0].host_s) if cuda else 0.0
    return Costs(
        stages=tuple(stages),
        copies=copies,
        threads="forward" if cuda else "one",
        hand_over_s=hand_over_s,
    )


def _timed(action: Callable[[], Any], repeats: int, cuda: bool) -> StagePass:
    """One call's time on the device and on the host."""
    for _ in range(3):
        action()
    if not cuda:
        return StagePass(device_s=0.0, host_s=_wall(action, repeats))
    torch.cuda.synchronize()
    host_s = _wall(action, repeats)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(repeats):
            action()
        torch.cuda.synchronize()
    kernels = [
        event
        for event in profiler.events() or []
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return StagePass(
        device_s=1e-6 * sum(event.time_range.elapsed_us() for event in kernels) / repeats,
        host_s=host_s,
    )


def _wall(action: Callable[[], Any], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - began) / repeats


def _copy(size: int, repeats: int, cuda: bool) -> CopyCost:
    start, end = (
        (torch.device("cuda", 0), torch.device("cuda", 1)) if cuda else (torch.device("cpu"),) * 2
    )
    source = torch.ones(max(1, size // 4), device=start)
    cost = _timed(lambda: copied(source, end), repeats, cuda)
    return CopyCost(bytes=size, device_s=cost.device_s, host_s=cost.host_s)


def _gradient_crossing_s(repeats: int, crossings: int = 16) -> float:
    """The host's seconds for one crossing of a small gradient between two GPUs, of a backward pass
    that does nothing else.
    """
    tensor = root = torch.ones(1, device=torch.device("cuda", 0), requires_grad=True)
    for index in range(crossings):
        tensor = copied(tensor, torch.device("cuda", (index + 1) % 2))
    gradient = torch.ones_like(tensor)

    def backward() -> None:
        torch.autograd.grad(tensor, root, gradient, retain_graph=True)

    for _ in range(3):
        backward()
    torch.cuda.synchronize()
    return _wall(backward, repeats) / crossings
