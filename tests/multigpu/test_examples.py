"""The placement that an example writes out is DistributedDataParallel's, and one process's."""

import importlib.util
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.multigpu.user_model.processes import run

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, RANKS, ROWS = 3, 2, 6


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network() -> nn.Module:
    """Two layers larger than a bucket, one without gradient, and small ones."""
    torch.manual_seed(7)
    layers = [nn.Linear(8, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 3)]
    model = nn.Sequential(*layers).double()
    model[0].bias.requires_grad_(False)
    return model


def batch(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(RANKS * ROWS, 8, dtype=torch.float64, generator=generator)


def descent(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05, momentum=0.9)


def trained(rank: int, way: str) -> tuple[list[Tensor], int]:
    """Parameters after some steps, and how many messages backward sent in the last."""
    ddp_step = example("ddp_step")
    model = network()
    if way == "written out" and rank:
        for parameter in model.parameters():
            nn.init.zeros_(parameter)  # what rank 0 begins with must arrive here
    optimizer, sent = descent(model), 0
    trainer = ddp_step.DataParallel(model, optimizer) if way == "written out" else None
    wrapped = DistributedDataParallel(model) if way == "library" else model
    for step in range(STEPS):
        shard = batch(step)[rank * ROWS : (rank + 1) * ROWS]
        if trainer:
            trainer.step(shard)
            sent = len(trainer.buckets)
        elif way == "simple":
            optimizer.zero_grad()
            ddp_step.simple_step(model, optimizer, shard)
        else:
            optimizer.zero_grad()
            wrapped(shard).square().mean().backward()
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()], sent


def test_the_written_out_step_trains_as_the_library_and_as_one_process(tmp_path: Path) -> None:
    model = network()
    optimizer = descent(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
    for way in ("written out", "library", "simple"):
        for parameters, sent in run(trained, RANKS, tmp_path / way, way):
            for ours, plain in zip(parameters, model.parameters(), strict=True):
                assert torch.allclose(ours, plain, rtol=1e-11, atol=1e-13), way
            assert sent == (2 if way == "written out" else 0)
