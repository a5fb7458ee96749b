"""What rows say that devices keep, against the memory that is held after a step."""

import gc
import tempfile
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from multigpu.build import build_run
from multigpu.engines.torch.host_store import HostStore
from multigpu.placements import placements
from multigpu.placements.memory import gradients_of_step, kept_on
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.further import asked, parameters
from tests.multigpu.equivalence.cases import dispatched, fork_processes, group, replica

pytestmark = pytest.mark.timeout(300)

JOBS: dict[int, dict[str, Any]] = {
    1: {"workload": "cnn", "model": "resnet_small", "optimizer": "sgd"},
    2: {"workload": "nmt", "model": "nmt_small", "optimizer": "adam", "sequence_length": 5},
    3: {"workload": "cnn", "model": "resnet_small", "optimizer": "momentum"},
}
"""Devices -> what they train: rules that keep no, two and one array of a variable's size; layers of
which a third is no whole number.
"""

RUNS = {
    f"{row.name}-{devices}-{processes}": build_run(
        placement=row.name,
        processes=processes,
        device_type="cpu",
        devices=devices,
        batch_size=1,
        **job,
    )
    for row in placements().values()
    if row.compute == "replica"
    for processes in sorted(
        {engine.processes for engine in row.engines if engine.framework == "torch"}
    )
    for devices, job in JOBS.items()
    if row.loss == "replica" or job["workload"] == "cnn"  # no other workload gives predictions
}

GPT: dict[str, Any] = {
    "workload": "gpt",
    "model": "gpt_small",
    "sequence_length": 8,
    "device_type": "cpu",
    "devices": 2,
    "batch_size": 1,
}
RUNS |= {
    f"{name}-2-{run.processes}": run
    for name, run in {
        "pipeline": build_run(placement="pipeline", micro_batches=2, **GPT),
        "interleaved": build_run(
            placement="pipeline", micro_batches=2, pipeline_schedule="interleaved", **GPT
        ),
        "tensor_split": build_run(placement="tensor_split", **GPT),
    }.items()
}


def on_host(trainer: Any) -> Iterator[Tensor]:
    """What a parameter server's process keeps in host memory besides what all of them share
    there.
    """
    for store in getattr(trainer, "stores", ()):
        if isinstance(store, HostStore):
            yield from (store.merged, *(merged for _, merged in store.ranges.values()))
            yield from (
                value for state in store.optimizer.state.values() for value in state.values()
            )
        if hasattr(store, "host"):
            yield from store.host.outgoing.values()


def held(aside: set[int]) -> int:
    """Bytes under all tensors of this process that lie in memory of its own and not at these
    addresses.
    """
    gc.collect()
    tensors = [one for one in gc.get_objects() if isinstance(one, Tensor)]
    gradients = [one.grad for one in tensors if one.is_leaf and one.grad is not None]
    local = [
        one.to_local() if hasattr(one, "to_local") else one
        for one in (*tensors, *gradients)
        if not one.is_meta
    ]
    found = {
        one.data_ptr(): one.nbytes()
        for one in (each.untyped_storage() for each in local)
        if not one.is_shared()
    }
    return sum(size for place, size in found.items() if place not in aside)


def counted(run: Run, rank: int, folder: Path) -> tuple[int, int]:
    """Bytes of what was made for a replica, or for all in one process, and is held on devices after
    two steps, but batches and buffers; and when the next step begins.
    """
    gc.collect()
    gc.freeze()  # what stands already is no longer told of
    alone = run.processes == "per_device"
    trainer, feeds = replica(run, rank, folder) if alone else dispatched(run, folder)
    feeds = [feeds] if alone else feeds
    for step in range(2):
        trainer.step([feed.shard(step) for feed in feeds])
    while feeds:
        feeds.pop().close()
    aside = [
        *on_host(trainer),
        *(buffer for module in trainer.modules.values() for buffer in module.buffers()),
    ]
    places = {one.untyped_storage().data_ptr() for one in aside}
    found = held(places)
    if hasattr(trainer, "_forget_gradients"):
        trainer._forget_gradients()
    began = held(places)
    trainer.close()
    return found, began


def worker(rank: int, folder: str, names: set[str]) -> None:
    """Every world that has this rank, of the Runs of these names."""
    torch.set_num_threads(1)
    for world in sorted(JOBS, reverse=True):
        if rank >= world:
            continue
        with group(rank, world, folder):
            found = {}
            for name in [
                name
                for name, run in RUNS.items()
                if world == (1 if run.processes == "one" else run.devices) and name in names
            ]:
                (shared := Path(folder) / name).mkdir(exist_ok=True)
                found[name] = counted(RUNS[name], rank, shared)
        torch.save(found, f"{folder}/{world}-{rank}.pt")


def features(name: str) -> set[Hashable]:
    """What `make test` shows once."""
    run, row = RUNS[name], placements()[RUNS[name].placement]
    return {(row.name, run.processes), (row.variables, run.devices), name.partition("-")[0]}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, list[tuple[int, int]]]:
    names = asked(request, "name")
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        fork_processes(worker, (folder, names), max(JOBS))
        parts = {
            world: [torch.load(f"{folder}/{world}-{rank}.pt") for rank in range(world)]
            for world in JOBS
        }
    return {
        name: [part[name] for part in parts[1 if run.processes == "one" else run.devices]]
        for name, run in RUNS.items()
        if name in names
    }


@pytest.mark.parametrize("name", parameters([*RUNS], features))
def test_keeps_what_its_row_predicts(found, name: str) -> None:
    run = RUNS[name]
    predicted = [kept_on(run, description_of(run), rank).total for rank in range(run.devices)]
    assert [after for after, _ in found[name]] == pytest.approx(
        predicted if run.processes == "per_device" else [sum(predicted)], rel=0.05
    )


APART = [name for name, run in RUNS.items() if run.processes == "per_device"]


@pytest.mark.parametrize("name", parameters(APART, features))
def test_gradients_are_there_when_a_step_begins_as_its_row_predicts(found, name: str) -> None:
    """The library's first buckets are gone by then."""
    run, predicted = RUNS[name], []
    model = description_of(run)
    for rank in range(run.devices):
        kept = kept_on(run, model, rank)
        there, _ = gradients_of_step(run, model, kept)
        twice = run.placement == "ddp"
        predicted.append(kept.total - kept.gradients + (there // 2 if twice else there))
    assert [began for _, began in found[name]] == pytest.approx(predicted, rel=0.05)
