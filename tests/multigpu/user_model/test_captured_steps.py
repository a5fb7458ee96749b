"""When a captured step is recorded, replayed, refused: with a stand-in for CUDA's recorder."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from multigpu.engines.torch.recorder import RecordingFailed
from multigpu.user_model.wrap.settings import Settings
from multigpu.user_model.wrap.trainer import ModelTrainer
from tests.multigpu.user_model.cases import apart, batch, falling, loss_of, momentum, tiny
from tests.multigpu.user_model.processes import run as run_processes

WARM_UP = 4


class Replayed:
    """Runs the recorded step again, on the tensors that it was recorded with."""

    def __init__(self, step: Callable[[], Tensor], output: Tensor, wrong: float) -> None:
        self.step = step
        self.output = output
        self.wrong = wrong
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        self.output.copy_(self.step() + self.wrong)


class Recorder:
    """Records as a CUDA graph does: nothing runs, and replays read what the inputs hold then."""

    def __init__(self, fails: int = 0, wrong: float = 0.0) -> None:
        self.fails = fails
        self.wrong = wrong
        self.recorded: list[Replayed] = []

    def record(self, step: Callable[[], Tensor]) -> tuple[Replayed, Tensor]:
        if self.fails:
            self.fails -= 1
            raise RecordingFailed("operation not permitted when stream is capturing")
        output = torch.zeros((), dtype=torch.float64)
        self.recorded.append(Replayed(step, output, self.wrong))
        return self.recorded[-1], output


def trainer_of(
    recorder: Recorder | None, optimizer: Any = momentum, **settings: Any
) -> ModelTrainer:
    told = Settings(placement="one", execution="captured", warm_up=WARM_UP, **settings)
    model = settings.pop("model", None) or tiny(dropout=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ModelTrainer(model, loss_of, optimizer, told, "cpu", recorder)


def run(
    trainer: ModelTrainer, steps: range, rows: Callable[[int], int] = lambda _: 4
) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [trainer.step(batch(step, 0, rows(step))).item() for step in steps]


def pair(optimizer: Any = momentum, **settings: Any) -> tuple[ModelTrainer, ModelTrainer, Recorder]:
    """An eager and a captured training from the same weights."""
    recorder = Recorder()
    torch.manual_seed(5)
    eager = trainer_of(None, optimizer, seed=1, **settings)
    return eager, trainer_of(recorder, optimizer, seed=1, **settings), recorder


def same(eager: ModelTrainer, captured: ModelTrainer) -> bool:
    return apart(eager.state_dict()["model"], captured.state_dict()["model"]) < 1e-12


@pytest.mark.parametrize(
    "settings",
    [{}, {"micro_steps": 2, "gradient_clip": 0.1, "schedule": falling}, {"check": False}],
    ids=len,
)
def test_no_update_is_lost_or_applied_twice(settings: dict[str, Any]) -> None:
    eager, captured, recorder = pair(**settings)
    for steps in (range(WARM_UP), range(WARM_UP, WARM_UP + 1), range(WARM_UP + 1, 10)):
        assert run(eager, steps) == pytest.approx(run(captured, steps), abs=1e-12)
        assert same(eager, captured)
    assert captured.ran == {"eager": WARM_UP, "captured": 10 - WARM_UP}
    assert recorder.recorded[0].replays == 10 - WARM_UP


def test_the_caller_may_overwrite_a_batch_after_the_step() -> None:
    eager, captured, _ = pair()
    words, target = batch(0, 0, 4)
    for step in range(9):
        for trainer in (eager, captured):
            fresh = batch(step, 0, 4)
            words.copy_(fresh[0])
            target.copy_(fresh[1])
            trainer.step((words, target))
            words.zero_()
    assert captured.form == "captured" and same(eager, captured)


def changes() -> dict[str, tuple[Callable[[ModelTrainer], Any], str]]:
    def assigned(trainer: ModelTrainer) -> None:
        weight = trainer.model.blocks[0].wide.weight
        weight.data = weight.data.clone()

    def frozen(trainer: ModelTrainer) -> None:
        trainer.model.blocks[0].wide.weight.requires_grad_(False)

    def softer(trainer: ModelTrainer) -> None:
        trainer.optimizer.param_groups[0]["momentum"] = 0.5

    return {
        "evaluation": (lambda trainer: trainer.model.eval(), "evaluation mode"),
        "assigned": (assigned, "elsewhere in memory"),
        "frozen": (frozen, "requires_grad"),
        "momentum": (softer, "momentum 0.9 to 0.5"),
        "rate": (
            lambda trainer: trainer.optimizer.param_groups[0].update(lr=0.01),
            "lr 0.125 to 0.01",
        ),
    }


@pytest.mark.parametrize("name", changes())
def test_what_a_recorded_step_could_not_know_is_run_eagerly(name: str) -> None:
    change, said = changes()[name]
    eager, captured, recorder = pair()
    for trainer in (eager, captured):
        run(trainer, range(WARM_UP + 2))
        change(trainer)
    replays = recorder.recorded[0].replays
    for trainer in (eager, captured):
        run(trainer, range(WARM_UP + 2, WARM_UP + 5))
    assert recorder.recorded[0].replays == replays and captured.form == "eager"
    assert len([note for note in captured.notes if said in note]) == 1
    assert same(eager, captured)


def test_it_is_replayed_again_when_the_change_is_undone() -> None:
    eager, captured, recorder = pair()

    def rows(step: int) -> int:
        return 3 if step in (6, 8) else 4

    for trainer in (eager, captured):
        run(trainer, range(10), rows)
    assert captured.ran == {"eager": WARM_UP + 2, "captured": 4} and same(eager, captured)
    assert sum("(3, 4)" in note for note in captured.notes) == 1
    assert recorder.recorded[0].replays == 4


def test_other_types_and_structures_are_other_batches() -> None:
    _, captured, _ = pair()
    run(captured, range(WARM_UP + 1))
    words, target = batch(0, 0, 4)
    captured.step([words.int(), target])
    assert captured.form == "eager"
    captured.step([words, target])
    assert captured.form == "eager"  # a list, where a tuple was recorded
    captured.step((words, target))
    assert captured.form == "captured"


def test_a_recording_that_fails_trains_on_eagerly() -> None:
    eager, captured, recorder = pair(gradient_clip=0.1)
    recorder.fails = 9
    for trainer in (eager, captured):
        run(trainer, range(9))
    assert captured.ran == {"eager": 9} and same(eager, captured)
    assert any("not permitted when stream is capturing" in note for note in captured.notes)


def test_a_recorded_step_that_trains_otherwise_is_not_kept() -> None:
    eager, captured, recorder = pair()
    recorder.wrong = 1e-3
    for trainer in (eager, captured):
        run(trainer, range(9))
    assert captured.ran == {"eager": 9} and same(eager, captured)
    assert any("does not train as the eager one" in note for note in captured.notes)


class Counting(torch.optim.SGD):
    """Counts its steps in a Python number."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                self.state[each]["times"] = self.state[each].get("times", 0) + 1
                each.data.add_(each.grad, alpha=-0.1 / self.state[each]["times"])


def test_an_optimizer_that_counts_on_the_host_is_not_captured() -> None:
    eager, captured, recorder = pair(lambda parameters: Counting(parameters, lr=0.1))
    for trainer in (eager, captured):
        run(trainer, range(40))
    assert not recorder.recorded and same(eager, captured)
    assert any("'times'" in note or "times" in note for note in captured.notes)


def test_batches_that_change_postpone_the_recording() -> None:
    eager, captured, recorder = pair()

    def rows(step: int) -> int:
        return 4 if step != WARM_UP - 1 else 3

    for trainer in (eager, captured):
        run(trainer, range(16), rows)
    assert len(recorder.recorded) == 1 and captured.form == "captured" and same(eager, captured)
    assert any("tried again at step" in note for note in captured.notes)


def test_on_a_cpu_it_goes_on_eagerly_and_says_so() -> None:
    with pytest.warns(UserWarning, match="CUDA graph"):
        trainer = ModelTrainer(
            tiny(), loss_of, momentum, Settings(placement="one", execution="captured"), "cpu"
        )
    run(trainer, range(2))
    assert trainer.form == "eager"


def test_a_step_that_breaks_off_leaves_no_gradient() -> None:
    """What the recovery after a failed capture must undo: a step that stops in its backward."""

    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny()
            self.broken = True

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.inner(x)
            if self.broken:
                output.register_hook(lambda _: (_ for _ in ()).throw(ZeroDivisionError("planted")))
            return output

    model = Once()
    trainer = ModelTrainer(model, loss_of, momentum, Settings(placement="one"), "cpu")
    with pytest.raises(ZeroDivisionError):
        trainer.step(batch(0, 0, 4))
    model.broken = False
    trainer.placed.start_over()
    other = ModelTrainer(tiny(), loss_of, momentum, Settings(placement="one"), "cpu")
    assert run(trainer, range(3)) == run(other, range(3))


def on_ranks(rank: int, placement: str, fails: bool, rows: list[list[int]]) -> Any:
    """Steps with the stand-in, which fails on rank 1 alone if it shall."""
    warnings.simplefilter("ignore")
    recorder = Recorder(fails=9 if fails and rank == 1 else 0)
    told = Settings(placement=placement, execution="captured", warm_up=WARM_UP, gradient_clip=0.1)
    trainer = ModelTrainer(tiny(rank), loss_of, momentum, told, "cpu", recorder)
    losses = [trainer.step(batch(step, rank, each[rank])).item() for step, each in enumerate(rows)]
    return losses, trainer.state_dict()["model"], trainer.ran, trainer.notes


def eagerly(rank: int, placement: str, rows: list[list[int]]) -> Any:
    trainer = ModelTrainer(
        tiny(rank), loss_of, momentum, Settings(placement=placement, gradient_clip=0.1), "cpu"
    )
    losses = [trainer.step(batch(step, rank, each[rank])).item() for step, each in enumerate(rows)]
    return losses, trainer.state_dict()["model"]


@pytest.mark.parametrize("placement", ["ddp", "zero1", "fsdp2"])
def test_ranks_decide_together(tmp_path: Path, placement: str) -> None:
    """All go on eagerly where one cannot record; and where one's batch has another shape, it alone
    runs eagerly, beside replays of the other, to the same sums.
    """
    rows = [[4, 4]] * 6 + [[4, 3], [4, 4], [2, 4]]
    wanted = run_processes(eagerly, 2, tmp_path / "eager", placement, rows)
    for fails in (False, True):
        every = run_processes(on_ranks, 2, tmp_path / str(fails), placement, fails, rows)
        for (losses, model, ran, notes), (plain, eager) in zip(every, wanted, strict=True):
            assert losses == pytest.approx(plain, abs=1e-12) and apart(model, eager) < 1e-12
            assert ran == ({"eager": 9} if fails else {"eager": WARM_UP + 1, "captured": 4})
            assert any("cannot be captured" in note for note in notes) == fails
