"""What rows say that devices keep, against the memory that is held after a step."""

from __future__ import annotations

import gc
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.feed import Feed
from multigpu.placements import placements
from multigpu.placements.memory import kept_on, most_kept
from multigpu.run import Run, build_run
from tests.equivalence.cases import make_context

DEVICES = 2


def runs() -> list[Run]:
    """Placements whose device memory a CPU can show: those that keep nothing on the host."""
    names = [
        name
        for name, row in placements().items()
        if row.compute == "replica"
        and not row.uses_host
        and any((engine.framework, engine.processes) == ("torch", "per_device") for engine in row.engines)
    ]
    fields = {"device_type": "cpu", "devices": DEVICES, "batch_size": 2, "optimizer": "adam", "sequence_length": 5}
    return [build_run(workload="nmt", model="nmt_small", placement=name, **fields) for name in names]


def held() -> dict[int, int]:
    """Every stretch of memory under a tensor of this process: where it begins -> its bytes."""
    gc.collect()
    found = {}
    for tensor in [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]:
        for each in (tensor, tensor.grad if tensor.is_leaf else None):
            if each is None or each.is_meta:
                continue
            local = each.to_local() if hasattr(each, "to_local") else each
            storage = local.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return found


def counted(run: Run, rank: int, folder: Path) -> int:
    """Bytes of what was made for a replica and is held after two steps, batches and running statistics left out."""
    gc.collect()
    gc.freeze()  # what stands already is no longer told of
    context, source = make_context(run, rank, folder)
    trainer = build_trainer(context)
    feed = Feed(source, rank, context.device)
    for step in range(2):
        trainer.step(feed.shard(step))
    feed.close()
    del feed, source
    aside = {buffer.untyped_storage().data_ptr() for buffer in trainer.module.buffers()}
    found = sum(size for place, size in held().items() if place not in aside)
    trainer.close()
    return found


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", DEVICES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=DEVICES, timeout=timedelta(seconds=60))
    torch.save([counted(run, rank, Path(folder)) for run in runs()], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(folder,), nprocs=DEVICES)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(DEVICES)]


@pytest.mark.parametrize("index", range(len(runs())), ids=[run.placement for run in runs()])
def test_keeps_what_its_row_predicts(found, index: int) -> None:
    run = runs()[index]
    for rank in range(DEVICES):
        assert found[rank][index] == pytest.approx(kept_on(run, rank).total, rel=0.05)


def test_which_placements_a_model_fits_under() -> None:
    """VGG-16 with momentum: 553.4 MB of variables, of which a device of ddp keeps three times as much, and one of eight of FSDP2 an eighth
    of that and its largest layer (102.8 M elements) four times.
    """
    fields = {"workload": "cnn", "model": "vgg16", "batch_size": 8, "optimizer": "momentum"}
    runs = [build_run(placement=name, devices=8, **fields) for name in ("ddp", "zero1", "fsdp2", "replicated_copy")]
    one = build_run(placement="ddp", devices=1, **fields)
    size = 4 * sum(variable.elements for variable in one.description.variables)
    assert size == pytest.approx(553.4e6, rel=1e-3)
    peaks = {run.placement: most_kept(run) for run in runs}
    assert sorted(peaks, key=peaks.__getitem__) == [
        "zero1",
        "ddp",
        "fsdp2",
        "replicated_copy",
    ]  # one layer of VGG holds three quarters of it
    assert peaks["ddp"] == 3 * size == most_kept(one) and peaks["replicated_copy"] - peaks["ddp"] == 7 * size
    assert peaks["zero1"] == pytest.approx((2 + 1 / 8) * size, rel=1e-3)
