"""Captured steps on GPUs, each rank's tests beside the others':

torchrun --nproc-per-node 2 -m pytest -c /dev/null --noconftest
tests/multigpu/user_model/test_wrap_gpu.py

It needs torch and pytest alone. Without torchrun one GPU trains.
"""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from multigpu import wrap
from multigpu.user_model.wrap import ModelTrainer
from tests.multigpu.ranks import RANK, RANKS
from tests.multigpu.user_model.cases import adamw, apart, batch, falling, loss_of, momentum, tiny

pytestmark = pytest.mark.gpu
ROWS = [4, 6, 4, 6, 4, 6, 4, 6][RANK]
PLACEMENTS = ["ddp", "zero1", "fsdp2"] if RANKS > 1 else ["one"]
WARM_UP = 11  # DistributedDataParallel cannot be captured earlier


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


def train(model: nn.Module, steps: int, rows: Any = None, **settings: Any) -> ModelTrainer:
    settings = {"optimizer": momentum, "warm_up": WARM_UP, "seed": 3} | settings
    optimizer = settings.pop("optimizer")
    trainer = wrap(model, loss_of, optimizer, **settings)
    for step in range(steps):
        trainer.step(batch(step, RANK, ROWS if rows is None else rows(step)))
    return trainer


def states(trainer: ModelTrainer) -> dict[str, Tensor]:
    return trainer.state_dict()["model"]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"micro_steps": 2, "gradient_clip": 0.05, "schedule": falling},
        {"dropout": 0.0, "recompute": True, "reshard": False, "gradient_clip": 0.05},
        {"recompute": True},
        {"optimizer": adamw, "schedule": falling},
    ],
    ids=["plain", "micro-clip-schedule", "recompute-kept", "recompute-dropout", "adamw"],
)
def test_captured_training_is_the_eager_one(placement: str, settings: dict[str, Any]) -> None:
    settings = dict(settings)
    dropout = settings.pop("dropout", 0.3)  # recomputed, it must draw what it drew before
    steps = WARM_UP + 8
    eager = train(tiny(RANK, dropout=dropout), steps, placement=placement, **settings)
    captured = train(
        tiny(RANK, dropout=dropout), steps, placement=placement, execution="captured", **settings
    )
    assert captured.ran == {"eager": WARM_UP, "captured": 8}, captured.notes
    allowed = 1e-6 if settings.get("optimizer") is adamw else 1e-10
    assert apart(states(eager), states(captured)) < allowed, captured.notes


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_another_shape_runs_eagerly_between_replays(placement: str) -> None:
    def rows(step: int) -> int:
        return 3 if step in (4, WARM_UP + 3) else ROWS

    eager = train(tiny(RANK), WARM_UP + 10, rows, placement=placement)
    captured = train(tiny(RANK), WARM_UP + 10, rows, placement=placement, execution="captured")
    assert captured.ran == {"eager": WARM_UP + 1, "captured": 9}, captured.notes
    assert apart(states(eager), states(captured)) < 1e-10
    assert any("batch" in note and "(3, 4)" in note for note in captured.notes)


class Asking(nn.Module):
    """Asks for a value on the host, always or only while it is captured."""

    def __init__(self, when: str, backward: bool = False) -> None:
        super().__init__()
        self.inner = tiny(RANK, dropout=0.3)
        self.when = when
        self.backward = backward

    def ask(self, value: Tensor) -> Tensor:
        if self.when == "always" or torch.cuda.is_current_stream_capturing():
            value.sum().item()
        return value

    def forward(self, x: Tensor) -> Tensor:
        output = self.inner(x)
        if self.backward:
            middle = self.inner.blocks[1].wide.weight
            if middle.requires_grad and torch.is_grad_enabled():
                output = Halfway.apply(output, self)
            return output
        return self.ask(output)


class Halfway(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: Tensor, asking: Asking) -> Tensor:
        context.asking = asking
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.asking.ask(gradient), None


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("when", ["always", "captured"])
def test_a_step_that_cannot_be_captured_trains_on(
    placement: str, when: str, backward: bool
) -> None:
    eager = train(Asking(when, backward), WARM_UP + 4, placement=placement)
    other = train(Asking(when, backward), WARM_UP + 4, placement=placement, execution="captured")
    assert other.ran == {"eager": WARM_UP + 4}
    said = "waits for the device" if when == "always" else "cannot be captured"
    assert any(said in note for note in other.notes), other.notes
    assert apart(states(eager), states(other)) == 0
    # and the process is whole: another model is captured in it
    after = train(tiny(RANK, dropout=0.3), WARM_UP + 2, placement=placement, execution="captured")
    assert after.form == "captured", after.notes


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_state_is_loaded_under_a_captured_step(placement: str) -> None:
    until = WARM_UP + 3
    first = train(tiny(RANK), until, placement=placement, execution="captured")
    state = first.state_dict()
    for step in range(until, until + 3):
        first.step(batch(step, RANK, ROWS))
    wanted = states(first)
    first.load_state_dict(state)
    for step in range(until, until + 3):
        first.step(batch(step, RANK, ROWS))
    assert first.form == "captured"
    assert apart(wanted, states(first)) < 1e-12


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("optimizer", [momentum, adamw])
def test_compiled_and_captured(placement: str, optimizer: Any) -> None:
    train(tiny(RANK).float(), WARM_UP + 1, placement=PLACEMENTS[0], execution="compiled_captured")
    settings = {"placement": placement, "optimizer": optimizer}
    eager = train(tiny(RANK).float(), WARM_UP + 6, **settings)
    both = train(tiny(RANK).float(), WARM_UP + 6, execution="compiled_captured", **settings)
    assert both.form == "compiled_captured", both.notes
    assert apart(states(eager), states(both)) < 1e-4


@pytest.mark.parametrize("precision", ["bf16", "bf16_params", "tf32"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_low_precision_is_captured_and_learns(placement: str, precision: str) -> None:
    trainer = wrap(
        tiny(RANK).float(), loss_of, momentum, placement, "captured",
        precision=precision, warm_up=WARM_UP,
    )  # fmt: skip
    losses = [trainer.step(batch(0, RANK, ROWS)).item() for _ in range(WARM_UP + 4)]
    assert trainer.form == "captured", trainer.notes
    assert losses[-1] < losses[0] - 0.05
