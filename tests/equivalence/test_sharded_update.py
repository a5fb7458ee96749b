"""What each replica of a sharded update keeps, and faults in it: a gradient that is not scattered, a stretch that is updated twice."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.sharded_update import ShardedUpdateTrainer
from multigpu.placements.traffic import laid_out
from multigpu.run import Run
from tests.equivalence.cases import Case, make_context, reference_of
from tests.equivalence.test_placements import distance

DEVICES, STEPS = 2, 3
RUN = Run(
    **{"workload": "deepconn", "model": "deepconn_tiny", "placement": "zero1", "device_type": "cpu", "devices": DEVICES},
    **{"batch_size": 13, "scaling": "strong", "optimizer": "adam", "precision": "fp64"},
)
FAULTS = ("", "not scattered", "updated twice")


def trained(fault: str, rank: int, folder: Path) -> dict[str, Any]:
    """Three steps with a fault, and what this replica keeps after them."""
    context, source = make_context(RUN, rank, folder)
    trainer = build_trainer(context)
    assert isinstance(trainer, ShardedUpdateTrainer)
    if fault == "not scattered":
        trainer.wire.reduce_scatter = lambda own, whole: None  # type: ignore[method-assign]
    if fault == "updated twice":
        once = trainer.optimizer.step
        trainer.optimizer.step = lambda: (once(), once())  # type: ignore[method-assign,assignment]
    feed = Feed(source, rank, context.device)
    for step in range(STEPS):
        trainer.step(feed.shard(step))
    slots = [value for state in trainer.optimizer.state.values() for value in state.values() if value.dim()]
    found = {"values": trainer.full_values(), "slots": sum(slot.nbytes for slot in slots), "own": trainer.stretch.nbytes}
    feed.close()
    trainer.close()
    return found


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", DEVICES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=DEVICES, timeout=timedelta(seconds=60))
    torch.save({fault: trained(fault, rank, Path(folder)) for fault in FAULTS}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(folder,), nprocs=DEVICES)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(DEVICES)]


def test_only_the_faultless_equals_the_joined_batch(found) -> None:
    case = Case(RUN)
    expected = reference_of(case)["values"][0]
    apart = {fault: distance(case, found[0][fault]["values"], expected) for fault in FAULTS}
    assert apart[""] < 1e-10
    assert apart["not scattered"] > 1e-3 and apart["updated twice"] > 0.1, apart


def test_each_replica_keeps_its_share_of_the_optimiser_states(found) -> None:
    elements = sum(variable.elements for variable in RUN.description.variables)
    for part in found:
        kept = part[""]
        assert kept["slots"] == RUN.rule.slots * kept["own"]
        assert 0 <= kept["own"] * DEVICES - elements * 8 <= 16 * (len(RUN.description.variables) + DEVICES)


def test_stretches_are_equal_and_variables_begin_aligned() -> None:
    starts, length = laid_out([5, 8, 3], item_bytes=4, devices=3)
    assert starts == [0, 8, 16] and length == 24
    assert laid_out([5, 8, 3], item_bytes=8, devices=3) == ([0, 6, 14], 18)
