"""`multigpu.wrap` on CPU processes against one process on the global batch, in plain PyTorch."""

import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from multigpu import wrap
from multigpu.user_model.wrap.placed import laid_together
from tests.further import but
from tests.multigpu.user_model.cases import (
    adamw,
    apart,
    batch,
    falling,
    loss_of,
    momentum,
    plain,
    tiny,
)
from tests.multigpu.user_model.processes import run

ROWS = [4, 6, 3]
STEPS = 4
PLACEMENTS = ("ddp", "zero1", "fsdp2")


def told(micro: int, clip: float | None) -> dict[str, Any]:
    return {
        "micro_steps": micro,
        "gradient_clip": clip,
        "schedule": falling if clip else None,
        "optimizer": momentum if clip else adamw,
    }


def trained(
    rank: int, cases: list[tuple[str, str, bool, int, float | None]]
) -> list[tuple[list[float], dict[str, Any]]]:
    """Losses and states of one case after the other."""
    warnings.simplefilter("ignore")
    results = []
    for placement, execution, recompute, micro, clip in cases:
        torch._dynamo.reset()
        trainer = wrap(
            tiny(rank),
            loss_of,
            placement=placement,
            execution=execution,
            recompute=recompute,
            compile_options={"backend": "aot_eager"},
            **told(micro, clip),
        )
        losses = [trainer.step(batch(step, rank, ROWS[rank])).item() for step in range(STEPS)]
        assert trainer.form == execution, trainer.notes
        results.append((losses, trainer.state_dict()))
    return results


def check(folder: Path, count: int, cases: list[Any]) -> None:
    every = run(trained, count, folder, cases)
    wanted: dict[Any, Any] = {}
    for number, case in enumerate(cases):
        *_, clip = case
        if clip not in wanted:
            settings = told(1, clip)
            wanted[clip] = plain(
                settings["optimizer"], ROWS[:count], STEPS, clip, settings["schedule"]
            )
        losses, model = wanted[clip]
        for mine, state in (results[number] for results in every):
            assert mine == pytest.approx(losses, abs=1e-9), case
            assert apart(state["model"], model) < 1e-9, case
        first = every[0][number][1]
        for results in every[1:]:
            same_states(first, results[number][1])


def same_states(first: Any, second: Any) -> None:
    """Equal to the last bit, tensors in dicts and lists too."""
    if isinstance(first, Tensor):
        assert first.dtype == second.dtype and torch.equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            same_states(first[name], second[name])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for mine, theirs in zip(first, second, strict=True):
            same_states(mine, theirs)
    else:
        assert first == second


EAGER = list(itertools.product(PLACEMENTS, ["eager"], [False, True], [1, 3], [None, 0.05]))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_placement_is_one_process_on_the_global_batch(tmp_path: Path, count: int) -> None:
    """Unequal shards too: 4, 6 and 3 samples, and micro-batches of one and two."""
    check(tmp_path, count, EAGER if count == 2 else EAGER[:: 5 - count])


COMPILED = [
    ("ddp", "compiled", False, 1, None),
    ("zero1", "compiled", True, 1, 0.05),
    ("fsdp2", "compiled", True, 1, 0.05),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", but(COMPILED[:1], COMPILED), ids=lambda case: case[0])
def test_compiled_forms_are_one_process_on_the_global_batch(tmp_path: Path, case: Any) -> None:
    check(tmp_path, 2, [case])


def test_parameters_laid_together_begin_where_compiled_code_expects_them() -> None:
    """What was compiled for one module is used again for another whose memory begins elsewhere."""
    modules = [tiny(rank) for rank in range(2)]
    before = [parameter.detach().clone() for parameter in modules[1].parameters()]
    laid_together([*modules[1].parameters()])
    counter = CompileCounterWithBackend("eager")
    for module in modules:
        module.compile(backend=counter)
        module(batch(0, 0, 2)[0])
    assert counter.frame_count == 1
    for parameter, value in zip(modules[1].parameters(), before, strict=True):
        assert parameter.equal(value)
        assert parameter.storage_offset() * parameter.element_size() % 16 == 0


def part(
    rank: int, path: str, placement: str, steps: list[int], rows: list[int], again: bool
) -> dict[str, Any]:
    """Train some steps, from a file where it is there, and write it."""
    warnings.simplefilter("ignore")
    trainer = wrap(
        tiny(rank + 5 if again else rank),
        loss_of,
        adamw,
        placement=placement,
        schedule=falling,
        gradient_clip=0.5,
    )
    if again:
        trainer.load(path)
        assert trainer.steps == steps[0]
    for step in steps:
        trainer.step(batch(step, 0, 12)) if len(rows) == 1 else trainer.step(
            tuple(each[sum(rows[:rank]) : sum(rows[: rank + 1])] for each in batch(step, 0, 12))
        )
    trainer.save(path)
    return trainer.state_dict()


@pytest.mark.parametrize(
    "first, second",
    [(("fsdp2", [5, 7]), ("one", [12])), (("fsdp2", [5, 7]), ("zero1", [4, 5, 3])),
     (("zero1", [6, 6]), ("fsdp2", [4, 5, 3])), (("ddp", [6, 6]), ("fsdp2", [5, 7]))],
    ids=lambda each: f"{each[0]}-{len(each[1])}",
)  # fmt: skip
def test_training_resumes_on_other_devices_and_placements(
    tmp_path: Path, first: tuple[str, list[int]], second: tuple[str, list[int]]
) -> None:
    path = str(tmp_path / "state.pt")
    run(part, len(first[1]), tmp_path / "a", path, first[0], [0, 1, 2], first[1], False)
    resumed = run(part, len(second[1]), tmp_path / "b", path, second[0], [3, 4], second[1], True)
    straight = part(0, str(tmp_path / "x.pt"), "one", [0, 1, 2, 3, 4], [12], False)
    assert apart(resumed[0]["model"], straight["model"]) < 1e-9
    states = straight["optimizer"]["state"]
    for name, state in resumed[0]["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.allclose(value, states[name][key], rtol=0, atol=1e-9), (name, key)
    for mine in resumed[1:]:
        same_states(resumed[0], mine)
    known = torch.load(path, weights_only=True)  # tensors, numbers and text alone
    assert known["step"] == 5 and known["schedule"]["last_epoch"] == 5


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(x)).mean((2, 3)))


def normed(rank: int, placement: str) -> dict[str, Any]:
    torch.manual_seed(rank)
    trainer = wrap(Normed().double(), nn.CrossEntropyLoss(), momentum, placement)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        images = torch.randn(4, 3, 6, 6, generator=generator, dtype=torch.float64)
        trainer.step((images, torch.tensor([0, 1, 0, 1])))
    state = trainer.state_dict()
    images = torch.ones(4, 3, 6, 6, dtype=torch.float64)
    loss = trainer.evaluate((images, torch.tensor([0, 1, 0, 1])))
    assert trainer.model.training
    return state | {"loss": loss, "mine": trainer.model.norm.running_mean.clone()}


def test_running_statistics_are_the_mean_over_ranks(tmp_path: Path) -> None:
    by_placement = {
        placement: run(normed, 2, tmp_path / placement, placement) for placement in PLACEMENTS
    }
    for results in by_placement.values():
        same_states(results[0]["model"], results[1]["model"])
        assert torch.equal(results[0]["loss"], results[1]["loss"])
        mean = results[0]["model"]["norm.running_mean"]
        assert mean.abs().max() > 0.01 and torch.equal(results[0]["mine"], mean)
        assert apart(results[0]["model"], by_placement["ddp"][0]["model"]) < 1e-9
        assert results[0]["model"]["norm.num_batches_tracked"] == 3


def forgotten(rank: int, placement: str, where: str) -> tuple[list[float], dict[str, Tensor]]:
    model = tiny(rank)
    planted = {"now": False}

    def stop(*_: Any) -> None:
        if planted["now"]:
            raise ZeroDivisionError("planted")

    block = model.blocks[1]
    if where == "forward":
        block.wide.register_forward_hook(stop)
    else:
        block.wide.register_full_backward_hook(stop)
    trainer = wrap(model, loss_of, momentum, placement)
    losses = [trainer.step(batch(0, rank, ROWS[rank])).item()]
    planted["now"] = True
    with pytest.raises(ZeroDivisionError):
        trainer.step(batch(7, rank, ROWS[rank]))
    planted["now"] = False
    torch.distributed.barrier()
    trainer.placed.start_over()
    losses += [trainer.step(batch(step, rank, ROWS[rank])).item() for step in range(1, STEPS)]
    return losses, trainer.state_dict()["model"]


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("placement", ["ddp", "fsdp2"])
def test_a_step_that_broke_off_is_forgotten(tmp_path: Path, placement: str, where: str) -> None:
    """As after a capture that failed: hooks, gathered parameters, gradients under way."""
    every = run(forgotten, 2, tmp_path, placement, where)
    losses, model = plain(momentum, ROWS[:2], STEPS)
    for mine, state in every:
        assert mine == pytest.approx(losses, abs=1e-9)
        assert apart(state, model) < 1e-9
