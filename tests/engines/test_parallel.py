"""make_parallel: one model behind several towers. That it trains as the joined batch is tested with all placements."""

from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.run import Run
from tests.equivalence.cases import dispatched

UNNORMALISED = "alexnet_cifar_tiny"
"""A model without batch norm: what a tower computes of an image does not depend on the others of its slice."""

WAYS = ("make_parallel", "ps_gpu0")
"""Predictions concatenated, and gradients averaged."""


def make_run(placement: str = "make_parallel", **more: Any) -> Run:
    common = {"workload": "cnn", "model": "resnet_tiny", "device_type": "cpu", "devices": 3, "batch_size": 8, "scaling": "strong"}
    return Run(placement=placement, processes="one", **common | {"precision": "fp64", "optimizer": "sgd"} | more)  # type: ignore[arg-type]


def train_on_slices(run: Run, slices: Run, folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Joined losses of three steps and the variables after them: `run`'s trainer, fed with the slices of `slices`' joined batches."""
    trainer, feeds = dispatched(run, folder, slices)
    losses = [sum(float(loss) for loss in trainer.step([feed.shard(step) for feed in feeds])) for step in range(3)]
    for feed in feeds:
        feed.close()
    return losses, trainer.full_values(0)


@pytest.mark.parametrize("batch", [8, 9, 10])
def test_concatenating_predictions_equals_averaging_gradients(batch: int, tmp_path: Path) -> None:
    """Document 001's question (C23), in float64: the same batch by one loss over all predictions and by a loss on each tower, also where
    it does not divide by three. Left to itself, a server would take a remainder first; here both get make_parallel's slices.
    """
    ours = make_run(batch_size=batch)
    assert ours.shard_sizes == [batch // 3, batch // 3, batch - 2 * (batch // 3)]
    (concatenated, values), (averaged, others) = (train_on_slices(make_run(name, batch_size=batch), ours, tmp_path) for name in WAYS)
    assert concatenated == pytest.approx(averaged, rel=1e-12) and len(set(concatenated)) == 3
    assert values.keys() == others.keys()
    for name, value in values.items():
        assert torch.allclose(value, others[name], rtol=0, atol=1e-13), name


def test_only_the_first_device_has_a_loss_and_images_travel_to_the_others(tmp_path: Path) -> None:
    run = make_run(precision="fp32")
    trainer, feeds = dispatched(run, tmp_path)
    losses, counted = trainer.counted_step([feed.shard(0) for feed in feeds])
    assert float(losses[0]) > 0 and [float(loss) for loss in losses[1:]] == [0.0, 0.0]
    config, parameters = run.description.config, run.description.parameters
    images, predictions = 6 * config.channels * config.image_size**2 * 4, 6 * config.classes * 4
    assert counted == {"device_to_device": 2 * 2 * parameters * 4 + images + 2 * predictions}


@pytest.mark.parametrize("model", ["resnet_tiny", UNNORMALISED])
@pytest.mark.parametrize("placement", ["make_parallel", "make_parallel_cpu"])
def test_the_single_model_is_saved_predicts_and_is_loaded(placement: str, model: str, tmp_path: Path) -> None:
    trainer, feeds = dispatched(make_run(placement, model=model), tmp_path)
    shards = [feed.shard(0) for feed in feeds]
    for _ in range(2):
        trainer.step(shards)
    single = trainer.single()
    torch.save(single.state_dict(), tmp_path / "single.pt")
    saved = torch.load(tmp_path / "single.pt")
    later = [float(trainer.step(shards)[0]) for _ in range(2)]

    other, _ = dispatched(make_run(placement, model=model, seed=7), tmp_path)
    values = {name: saved[name] for name, _ in single.named_parameters()}
    other.load(values, {name: saved[name] for name, _ in single.named_buffers()})
    assert [float(other.step(shards)[0]) for _ in range(2)] == pytest.approx(later, rel=1e-12)

    images = torch.cat([shard.device["images"] for shard in shards])
    labels = torch.cat([shard.device["labels"] for shard in shards])
    fresh, _ = dispatched(make_run(placement, model=model, devices=1, seed=7), tmp_path)
    fresh.load(values)
    alone = fresh.single()
    with torch.no_grad():
        loss = float(alone.loss_of(alone.logits(images), labels)) / len(labels)  # type: ignore[operator]
    if model == UNNORMALISED:  # batch norm's statistics are those of a tower's slice, and no single model has them
        assert loss == pytest.approx(later[0], rel=1e-12)
    else:
        assert alone.state_dict().keys() == saved.keys() and all(
            torch.equal(value, saved[name]) for name, value in alone.named_parameters()
        )
    with pytest.raises(ValueError, match="load the same model's variables"):
        other.load({name: value[:1] for name, value in values.items()})
