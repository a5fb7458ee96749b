"""Checkpoints: what is damaged, foreign or half written; and that on one device, slots and random numbers come back too."""

import os
from pathlib import Path

import pytest
import torch

from multigpu.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from multigpu.training.experiment import TrainingItem, folder_of
from multigpu.training.measure import train
from multigpu.training.record import TrainingStore
from tests.refusals import refused
from tests.training.cases import Case, in_this_process, session_of, training

STATE = {"replicas": [{"variables": {"w": torch.arange(5.0)}}], "history": "{}"}


def test_one_that_is_not_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_checkpoint(tmp_path, training(), 3, STATE)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("No space", write_checkpoint, tmp_path, training(), 4, STATE, error=OSError)
    step, state = read_checkpoint(checkpoint_path(tmp_path), training())
    assert step == 3 and torch.equal(state["replicas"][0]["variables"]["w"], torch.arange(5.0))
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[:-7], "is damaged"),
        (lambda data: data[:-7] + b"x" + data[-6:], "is damaged"),
        (lambda data: b"", "is no checkpoint of this program"),
        (lambda data: os.urandom(300), "is no checkpoint of this program"),
        (lambda data: data.replace(b"checkpoint 2", b"checkpoint 9", 1), "this version reads"),
    ],
    ids=["short", "flipped", "empty", "noise", "newer"],
)
def test_broken_ones_are_one_sentence(tmp_path: Path, damage, sentence: str):
    path = write_checkpoint(tmp_path, training(), 3, STATE)
    path.write_bytes(damage(path.read_bytes()))
    assert str(path) in refused(sentence, read_checkpoint, path, training())


def test_a_foreign_one_is_one_sentence_before_anything_starts(tmp_path: Path):
    path = write_checkpoint(folder_of(tmp_path, training(), 0), training(seed=5), 3, STATE)
    told = "belongs to another training run"
    said = refused(told, train, [TrainingItem.of(training())], TrainingStore(tmp_path / "records"), tmp_path)
    assert str(path) in said and "seed 5" in said and not (tmp_path / "records").exists()
    case = Case("one", training("replicated_allreduce", devices=1))
    write_checkpoint(tmp_path / "run-one", training(seed=5), 3, STATE)
    assert told in in_this_process(case, tmp_path)["refused"]


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_slots_schedule_data_and_random_numbers_come_back(tmp_path: Path, precision: str):
    """Adam's slots and step count, a rate that changes every step, the order of images, and random numbers drawn as dropout does."""
    fields = {"optimizer": "adam", "base_rate": 1e-3, "schedule": "luong10", "schedule_steps": 8, "precision": precision}
    run = training("replicated_allreduce", devices=1, steps=6, checkpoint_every=3, batch_size=20, **fields)

    def noise(module: torch.nn.Module, inputs: tuple[dict[str, torch.Tensor], None]) -> None:
        inputs[0]["images"].mul_(1 + 0.1 * torch.rand(1).item())

    ended = []
    for name, steps in (("whole", 6), ("half", 4), ("again", 6)):  # "half" ends one step after its checkpoint
        session = session_of(Case(name, run, folder="run-half" if name == "again" else ""), 0, tmp_path)
        session.trainer.module.register_forward_pre_hook(noise)
        session.warm_up()
        assert session.at == (3 if name == "again" else 0)
        session.total = steps
        session.time()
        ended.append((session.history.loss, session.trainer.full_values()))
        session.close()
    (losses, values), _, again = ended
    assert losses == again[0] and all(torch.equal(value, again[1][name]) for name, value in values.items())


def test_rates_kept_on_the_device_train_as_plain_ones(tmp_path: Path):
    """What a captured step needs: the optimizers read the rate from a tensor. Here on the CPU, uncaptured."""
    run = training("replicated_allreduce", devices=1, steps=4, schedule="luong10", schedule_steps=4, batch_size=20)
    found = []
    for name in ("plain", "tensors"):
        session = session_of(Case(name, run), 0, tmp_path)
        session.warm_up()
        if name == "tensors":
            session.replicas[0].make_rates_tensors()
        (part,) = session.time()
        assert part["fault"] is None
        found.append((session.history.rate, session.trainer.full_values()))
        session.close()
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6) and len(set(found[0][0])) > 1
    assert all(torch.allclose(value, found[1][1][name], rtol=1e-5, atol=1e-7) for name, value in found[0][1].items())
