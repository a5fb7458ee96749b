"""fp16: what a scaled loss trains, and that one replica's overflow leaves out the step of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.collectives import find_algorithm
from multigpu.engines.torch.buckets import BucketReducer
from multigpu.engines.torch.loss_scale import FIRST_SCALE, LossScale
from multigpu.engines.torch.variables import initial_values
from multigpu.engines.torch.wire import Wire
from multigpu.run import Run
from tests.collectives.memory import MemoryTransport, run_ranks
from tests.equivalence.cases import replica


class ThreadWire(Wire):
    """A replica's wire among threads of this process."""

    def __init__(self, transport: MemoryTransport) -> None:
        super().__init__(transport.rank, transport.size)
        self.transport = transport

    def all_reduce(self, tensor: torch.Tensor) -> None:
        self.count_all_reduce(tensor.nbytes)
        if self.replicas > 1:
            find_algorithm("everyone").all_reduce(tensor, self.transport)


def make_run(precision: str = "fp16", devices: int = 2, **more: Any) -> Run:
    common = {"workload": "cnn", "model": "resnet_tiny", "device_type": "cpu", "batch_size": 4, "optimizer": "momentum"}
    return Run(placement="replicated_allreduce", devices=devices, precision=precision, **common | more)  # type: ignore[arg-type]


def train(transport: MemoryTransport, run: Run, overflow_in: tuple[int, ...], overflow_on: int) -> list[dict[str, Any]]:
    """Three steps of one replica; in those of `overflow_in`, replica `overflow_on` gets an infinite gradient."""
    trainer, feed = replica(run, transport.rank, Path(), ThreadWire(transport))
    parameter = next(trainer.module.parameters())
    found = []
    for step in range(3):
        infinite = step in overflow_in and transport.rank == overflow_on
        hook = parameter.register_hook(lambda gradient: gradient * float("inf")) if infinite else None
        (loss,) = trainer.step([feed.shard(step)])
        if hook:
            hook.remove()
        scale = getattr(trainer, "scale", None)
        found.append(
            {
                "loss": float(loss),
                "values": trainer.full_values(),
                "skipped": trainer.skipped_steps(),
                "scale": None if scale is None else float(scale.scale),
            }
        )
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize(("optimizer", "overflows", "left_out"), [("momentum", (0, 1), [1, 2, 2]), ("adam", (1,), [0, 1, 1])])
def test_one_replicas_overflow_leaves_out_the_step_of_all(optimizer: str, overflows: tuple[int, ...], left_out: list[int]) -> None:
    """The second step overflows on replica 1; the first one too where the rule keeps momentum, which nobody has written then."""
    run = make_run(optimizer=optimizer, loss_scale=128)
    (first, second), _ = run_ranks(2, lambda transport: train(transport, run, overflows, overflow_on=1))
    for steps in (first, second):
        assert [step["skipped"] for step in steps] == left_out and {step["scale"] for step in steps} == {128.0}
        assert same(steps[0]["values"], steps[1]["values"]), "a step with an overflow changed the variables"
        assert not same(steps[1]["values"], steps[2]["values"])
        assert all(torch.isfinite(value).all() for value in steps[2]["values"].values())
    assert same(first[2]["values"], second[2]["values"])


def test_a_scaled_loss_trains_as_fp32_does() -> None:
    """One update: what scaling puts on, unscaling takes off, to the rounding of fp16."""
    updates = {}
    for scale in (None, 128, 1024):
        run = make_run("fp32" if scale is None else "fp16", 1, loss_scale=scale, batch_size=16)
        (steps,), _ = run_ranks(1, lambda transport, run=run: train(transport, run, (), 0))  # type: ignore[misc]
        assert steps[0]["skipped"] == (None if scale is None else 0)
        start = initial_values(run.description, run.seed, torch.device("cpu"), torch.float32)
        updates[scale] = torch.cat([(steps[0]["values"][variable.name] - value).flatten() for variable, value in start])
    size = updates[None].norm()
    assert (updates[128] - updates[None]).norm() < 0.1 * size
    assert (updates[128] - updates[1024]).norm() < 0.01 * size


def test_a_scale_that_is_found_falls_until_nothing_overflows() -> None:
    """A batch of 4 gives gradients too large for 2^16 in fp16: real overflows, none planted."""
    (steps,), _ = run_ranks(1, lambda transport: train(transport, make_run(devices=1), (), 0))
    assert steps[0]["skipped"] == 1 and all(step["scale"] == FIRST_SCALE / 2 ** step["skipped"] for step in steps)


def test_a_scale_grows_after_many_steps_without_overflow() -> None:
    scale = LossScale(torch.device("cpu"), None)
    for _ in range(2000):
        scale.start()
        scale.end()
    assert float(scale.scale) == 2 * FIRST_SCALE and int(scale.left_out) == 0


def test_buckets_wait_for_each_other_before_any_is_updated() -> None:
    weights = [torch.nn.Parameter(torch.ones(2**18)) for _ in range(3)]
    scale = LossScale(torch.device("cpu"), 8)

    def rule(group: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(group, lr=1.0, fused=True)
        scale.watch(optimizer)
        return optimizer

    reducer = BucketReducer(weights, rule, Wire(0, 1), bucket_mib=1, scale=scale)
    for factor, expected in ((float("inf"), 1.0), (0.25, 0.75)):
        scale.start()
        reducer.start()
        losses = [weight.sum() * (factor if index == 2 else 0.25) for index, weight in enumerate(weights)]
        (sum(losses[1:], losses[0]) * scale.scale).backward()
        reducer.update()
        scale.end()
        assert len(reducer.buckets) == 3 and [float(weight.detach()[0]) for weight in weights] == [expected] * 3
    assert int(scale.left_out) == 1 and float(scale.scale) == 8.0
