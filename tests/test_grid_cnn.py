"""The grids over document 001's models: which points repeat, and that none is planned twice."""

from __future__ import annotations

from multigpu.grid import OTHER_PLACEMENTS, SPINE_PLACEMENTS
from multigpu.grid.cnns import CNN_UPDATES, CNNS_OF_INTEREST, cnn_batches, cnn_models
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET


def test_models_at_their_batches_repeat_at_both_ends_only() -> None:
    planned = cnn_models((1, 2, 8))
    assert {entry.run.model for entry in planned} == {model.name for model in (*FOR_IMAGENET, *FOR_CIFAR)}
    assert all(entry.run.batch_size == entry.run.description.config.default_batch for entry in planned)
    for entry in planned:
        known = entry.run.model in CNNS_OF_INTEREST
        assert (entry.tier == "headline") == (known and entry.run.devices in (1, 8))
        assert entry.run.placement in (CNN_UPDATES if known else ("ddp", "exp2"))
    assert len({entry.run.digest for entry in planned}) == len(planned) == 3 * (12 * 6 + 12 * 2)


def test_batches_are_swept_under_every_placement() -> None:
    repeated = [entry for entry in cnn_batches((1, 2, 4)) if entry.tier == "headline"]
    assert {(e.run.devices, e.run.batch_size, e.run.execution) for e in repeated} == {(n, b, "captured") for n in (1, 4) for b in (16, 512)}
    planned = [entry for entry in cnn_batches((1, 4)) if entry.tier == "screening"]
    assert len({entry.run.digest for entry in planned}) == len(planned) == 2 * (3 * 3 + 1) * len(SPINE_PLACEMENTS + OTHER_PLACEMENTS)
    assert {entry.run.batch_size for entry in planned if entry.run.model == "alexnet"} == {512}
