"""Repeated blocks: what is gathered at a time, and what is computed twice and counted once."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.engines.torch.blocks import gathered_parts, recompute
from multigpu.spec.model import block_of
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.multigpu.equivalence.cases import replica

GPT = Run(
    workload="gpt",
    model="gpt_tiny",
    placement="zero1",
    device_type="cpu",
    batch_size=2,
    recompute=True,
)


class Normed(nn.Module):
    """A block with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x + self.norm(torch.tanh(self.dense(x)))


def test_recomputed_blocks_train_alike_and_count_a_batch_once() -> None:
    found: list[Any] = []
    for twice in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(*(Normed() for _ in range(3)))
        if twice:
            for block in model:
                recompute(block)
        model(torch.randn(5, 4)).square().sum().backward()
        assert [block.passes for block in model] == [1 + twice] * 3
        found.append([*model.buffers(), *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    model.eval()
    model(torch.randn(5, 4))
    assert [block.passes for block in model] == [3] * 3


def test_a_run_recomputes_the_blocks_that_its_description_names(tmp_path: Path) -> None:
    trainer, feed = replica(GPT, 0, tmp_path)
    passes: list[str] = []
    for name, block in gathered_parts(trainer.module).items():
        block.norm_1.register_forward_hook(lambda *_, name=name: passes.append(name))
    trainer.step([feed.shard(0)])
    feed.close()
    trainer.close()
    named = {block_of(variable.name) for variable in description_of(GPT).variables} - {""}
    assert named == {"blocks.0", "blocks.1", "blocks.2"}
    assert sorted(passes) == sorted([*named, *named])


def test_a_parameter_of_two_blocks_leaves_the_model_one_part() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList(nn.Linear(3, 3) for _ in range(2))})
    assert list(gathered_parts(model)) == ["blocks.0", "blocks.1"]
    model["blocks"][1].weight = model["blocks"][0].weight  # type: ignore[index]
    assert not gathered_parts(model)
