"""make_parallel: one model behind several towers. That it trains as the joined batch is tested with all placements."""

from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.run import Run
from tests.equivalence.cases import dispatched

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
