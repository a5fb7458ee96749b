"""Compressed gradients: what travels, what is left for the next step, and what that trains."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from multigpu.engines.torch import replicated
from multigpu.placements.compression import WHOLE_STEPS, factors_of, kept_of
from multigpu.placements.resolve import semantics_of
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.multigpu.equivalence.cases import answers, replica

REPLICAS, STEPS = 2, 5
COMMON: dict[str, Any] = {"workload": "cnn", "model": "resnet_small", "device_type": "cpu"}
COMMON |= {"placement": "ddp", "devices": REPLICAS, "batch_size": 4, "precision": "fp64"}


def make_run(**more: Any) -> Run:
    return Run(**COMMON, optimizer="momentum", **more)


def trained(rank: int, folder: Path, run: Run) -> dict[str, Any]:
    """Train a few steps; the second is counted, as a Run's is."""
    trainer, feed = replica(run, rank, folder)
    moved: dict[str, int] = {}
    for step in range(STEPS):
        shards = [feed.shard(step)]
        if step == 1:
            _, moved = trainer.counted_step(shards)
        else:
            trainer.step(shards)
    values = torch.cat([value.flatten() for value in trainer.full_values().values()])
    trainer.close()
    return {"values": values, "moved": moved}


class ByHand:
    """The mean of all replicas' largest numbers, computed here from whole gradients."""

    def __init__(self, share: float) -> None:
        self.share, self.left = share, dict[Any, Tensor]()

    def register(self, wrapped: DistributedDataParallel, counting: bool) -> None:
        wrapped.register_comm_hook(None, self._exchange)

    def _exchange(self, state, bucket):  # type: ignore[no-untyped-def]
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            whole = gradient + self.left.get(parameter, 0)
            limit = whole.abs().flatten().sort(descending=True).values
            sent = whole * (whole.abs() >= limit[kept_of(whole.numel(), self.share) - 1])
            self.left[parameter] = whole - sent
            torch.distributed.all_reduce(sent)
            gradient.copy_(sent / REPLICAS)
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def by_hand(rank: int, folder: Path, run: Run) -> dict[str, Any]:
    """Train with the plain definition of what a Run asks for."""

    class Library:
        def register(self, wrapped: DistributedDataParallel, counting: bool) -> None:
            kept = PowerSGDState(None, run.powersgd_rank or 1, start_powerSGD_iter=WHOLE_STEPS)
            kept.iter = WHOLE_STEPS if counting else 0
            wrapped.register_comm_hook(kept, powerSGD_hook)

    one = ByHand(run.top_k) if run.top_k else Library()
    replicated.compression_of = lambda *_: one  # type: ignore[attr-defined] # of this process
    return trained(rank, folder, run)


@pytest.mark.parametrize("more", [{"top_k": 0.05}, {"top_k": 0.7}, {"powersgd_rank": 2}], ids=str)
def test_replicas_train_as_the_definition_says_and_send_what_is_predicted(
    more: dict[str, Any],
) -> None:
    run = make_run(**more)
    found, expected = (answers_of(work, run) for work in (trained, by_hand))
    assert torch.equal(found[0]["values"], found[1]["values"]), "replicas agree"
    torch.testing.assert_close(found[0]["values"], expected[0]["values"], rtol=1e-9, atol=1e-12)
    assert not semantics_of(run).facts.is_equal_training
    predicted = step_bytes(run, description_of(run), [{}] * REPLICAS)
    moved = [each["moved"] for each in found]
    assert {kind: sum(each[kind] for each in moved) for kind in moved[0]} == predicted
    whole = step_bytes(make_run(), description_of(run), [{}] * REPLICAS)
    assert sum(predicted.values()) < 1.4 * sum(whole.values())
    plain = answers_of(trained, make_run())
    assert not torch.allclose(found[0]["values"], plain[0]["values"], rtol=1e-6)


def answers_of(work: Any, run: Run) -> list[dict[str, Any]]:
    """What `work` gives for a Run in each of its processes."""
    return answers(partial(work, run=run), REPLICAS)


def test_sizes_by_hand() -> None:
    assert [kept_of(1000, 0.01), kept_of(3, 0.01), kept_of(10, 0.95)] == [10, 1, 10]
    assert factors_of((64, 32, 3, 3), 4) == (64 + 288) * 4
    assert factors_of((64,), 4) == 64 and factors_of((16, 16), 4) == 256
