"""Variables in bfloat16 beside float32 masters: bit by bit what is written out with plain PyTorch,
near the same for cut variables, and back from what was kept.
"""

import copy
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from multigpu.build import build_run
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.variables import begun, make_optimizer
from multigpu.placements.memory import kept_on
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of
from multigpu.workloads.gpt.torch import build
from multigpu.workloads.sources import open_source
from tests.multigpu.equivalence.cases import answers, distance, replica

STEPS = 4
FIELDS: dict[str, Any] = {
    "workload": "gpt",
    "model": "gpt_tiny",
    "precision": "bf16_params",
    "device_type": "cpu",
    "batch_size": 8,
    "scaling": "strong",
}


def run_of(placement: str, devices: int, **more: Any) -> Run:
    return build_run(**FIELDS | {"placement": placement, "devices": devices} | more)


def trained(run: Run, rank: int, folder: Path) -> dict[str, Any]:
    """Values after some steps, the losses, and the bytes of the first step."""
    trainer, feed = replica(run, rank, folder)
    losses, counted = trainer.counted_step([feed.shard(0)])
    shares = [losses[0]] + [trainer.step([feed.shard(step)])[0] for step in range(1, STEPS)]
    values = trainer.full_values(rank)
    trainer.context.closing.close()
    return {"values": values, "losses": [float(loss) for loss in shares], "counted": counted}


def of_placement(placement: str, rank: int, folder: Path) -> dict[str, Any]:
    return trained(run_of(placement, 2, optimizer="momentum"), rank, folder)


def written_out(run: Run) -> dict[str, Tensor]:
    """One process on the global batch: masters, their copies in bfloat16, gradients of these."""
    device, model = Device(run, 0, 1), description_of(run)
    with torch.device("meta"):
        module = build(model)
    masters = begun(module, model, run.seed, device.torch, torch.float32)
    low = copy.deepcopy(module).to(torch.bfloat16)
    optimizer = make_optimizer(optimizer_of(run), list(masters.values()))
    source = open_source(run)
    shards = [source.batch(0, rank) for rank in range(run.devices)]
    arrays = {
        name: torch.cat([torch.from_numpy(shard.arrays[name]) for shard in shards])
        for name in ("tokens", "targets")
    }
    for _ in range(STEPS):
        low.zero_grad()
        (low(arrays) / shards[0].global_loss_terms).backward()
        for master, parameter in zip(masters.values(), low.parameters(), strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters.values(), low.parameters(), strict=True):
                parameter.copy_(master)
    return {name: master.detach() for name, master in masters.items()}


def alone(rank: int, folder: Path) -> list[dict[str, Any]]:
    """Each form of one replica by itself."""
    return [
        trained(run_of("ddp", 1).model_copy(update={"execution": form}), rank, folder)
        for form in ("eager", "captured")
    ] + [trained(run_of("replicated_allreduce", 1), rank, folder)]


def test_one_replica_is_what_plain_pytorch_does_bit_by_bit() -> None:
    expected = written_out(run_of("ddp", 1))
    (found,) = answers(alone, 1)
    for one in found:
        assert all(torch.equal(one["values"][name], value) for name, value in expected.items())
        assert one["losses"][-1] < one["losses"][0] - 0.01


@pytest.mark.parametrize(
    ("placement", "counted"),
    [
        # 6,468 variables: gradients in 2 bytes from each of two replicas
        ("ddp", {"all_reduce": 2 * 2 * 6468}),
        ("replicated_allreduce", {"all_reduce": 2 * 2 * 6468}),
        # each brings its half in 2 bytes, twice, and hands the whole over in 4
        ("fsdp2", {"all_gather": 2 * 2 * 6468, "reduce_scatter": 2 * 4 * 6468}),
    ],
)
def test_two_replicas_train_nearly_the_same(placement: str, counted: dict[str, int]) -> None:
    parts = answers(partial(of_placement, placement), 2)
    run = run_of(placement, 2, optimizer="momentum")
    found = parts[0]["values"]
    assert {value.dtype for value in found.values()} == {torch.float32}
    print(placement, distance(run, found, written_out(run)))
    assert distance(run, found, written_out(run)) < 0.01
    total = Counter(parts[0]["counted"]) + Counter(parts[1]["counted"])
    assert dict(total) == counted == step_bytes(run, description_of(run), [{}, {}])


def test_memory_counts_masters_and_their_copies() -> None:
    run = run_of("ddp", 2)
    kept = kept_on(run, description_of(run))
    assert (kept.weights, kept.gradients, kept.slots) == (6 * 6468, 2 * 6468, 8 * 6468)
