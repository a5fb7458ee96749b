"""One PyTorch process for all devices, make_parallel among its placements; all are tested to train
as their rows say.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.build import build_run
from multigpu.engines.torch.devices import Device, Devices
from multigpu.engines.torch.wire import Copy, OneProcessWire
from multigpu.machine.lock import memory_folder
from multigpu.placements import placements
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from tests.multigpu.equivalence.cases import (
    dispatched,
    distance,
    reference_of,
    train_dispatched,
    trained,
)
from tests.refusals import refused

gpu = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
ONE = [
    p.name
    for p in placements().values()
    if any((e.framework, e.processes) == ("torch", "one") for e in p.engines)
]


@pytest.fixture
def memory() -> Iterator[Path]:
    """Memory-backed, as a launcher's: CUDA page-locks no file of a disk."""
    with memory_folder() as folder:
        yield folder


def make_run(placement: str, workload: str = "nmt", **more: Any) -> Run:
    fields = {"nmt": {"model": "nmt_tiny", "sequence_length": 5}, "cnn": {"model": "resnet_tiny"}}[
        workload
    ]
    common = {
        "devices": 2,
        "device_type": "cpu",
        "batch_size": 7,
        "scaling": "strong",
        "processes": "one",
    }
    return build_run(workload=workload, placement=placement, **fields | common | more)


def test_merging_during_backward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not run in 'torch' with processes 'one'"):
        make_run("ddp")
    run = make_run("independent").model_copy(update={"placement": "ddp"})
    refused("does not carry out", dispatched, run, tmp_path, error=Unsupported)


@pytest.mark.parametrize("faulty", [False, True])
def test_a_copy_that_sends_no_gradient_back_is_seen(faulty: bool, tmp_path: Path) -> None:
    run = make_run("data_parallel", "cnn", optimizer="momentum", precision="fp64")
    trainer, feeds = dispatched(run, tmp_path)
    copied = trainer._copied
    if faulty:
        trainer._copied = lambda rank, own: copied(rank, own).detach() if rank else copied(0, own)
    (found, _) = trained(run, trainer, feeds, range(2))
    apart = distance(run, found["values"], reference_of(run)["values"][0])
    assert apart > 1e-3 if faulty else apart < 1e-10


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("workload", ["nmt", "cnn"])
@pytest.mark.parametrize("placement", ONE)
def test_equals_one_gpu_and_moves_what_is_predicted(
    placement: str, workload: str, memory: Path
) -> None:
    """The order between streams is what a CPU cannot show: fp32 on up to four GPUs against one GPU
    on the global batch.
    """
    if workload != "cnn" and placements()[placement].loss == "gpu0":
        pytest.skip("predictions are gathered of images only")
    devices = min(4, torch.cuda.device_count())
    run = make_run(
        placement,
        workload,
        devices=devices,
        device_type="cuda",
        batch_size=4 * devices + 1,
        optimizer="momentum",
    )
    parts = train_dispatched(run, memory)
    assert {kind: count for kind, count in parts[0]["counted"].items() if count} == step_bytes(
        run, description_of(run), parts[0]["lookups"]
    )
    shared = placements()[placement].semantics.facts.loss_is_shared
    reference = reference_of(run)
    for rank, (values, losses) in enumerate(
        zip(reference["values"], reference["losses"], strict=True)
    ):
        assert distance(run, parts[rank]["values"], values, torch.device("cuda", 0)) < 1e-3
        ours = (
            [sum(each) for each in zip(*(part["losses"] for part in parts), strict=True)]
            if shared
            else parts[rank]["losses"]
        )
        assert ours == pytest.approx(losses, rel=1e-4)


@gpu
@pytest.mark.gpu
def test_exp1_updates_on_gpus_and_exp2_on_the_host(memory: Path) -> None:
    places = {}
    for placement in ("exp1", "exp2"):
        trainer, feeds = dispatched(
            make_run(placement, device_type="cuda", optimizer="adam"), memory
        )
        trainer.step([feed.shard(0) for feed in feeds])
        (store,) = trainer.stores
        optimizers = store.optimizers.values() if placement == "exp1" else [store.optimizer]
        places[placement] = {str(s["exp_avg"].device) for o in optimizers for s in o.state.values()}
        trainer.context.closing.close()
    assert places == {"exp1": {"cuda:0", "cuda:1"}, "exp2": {"cpu"}}


@gpu
@pytest.mark.gpu
def test_copies_wait_for_what_is_written_and_for_what_is_read() -> None:
    """A slow kernel before a copy's source is ready, and one that still reads its target: neither
    may be overtaken.
    """
    run = make_run("independent", device_type="cuda")
    wire = OneProcessWire(Devices([Device(run, rank, threads=1) for rank in (0, 1)]))
    source = torch.zeros(1 << 22, device="cuda:0")
    target = torch.full((1 << 22,), 2.0, device="cuda:1")
    copy = Copy(0, source, 1, target)
    wire.copy_all([copy])  # libraries and links warm up
    target.fill_(2.0)
    for rank in (0, 1):
        torch.cuda.synchronize(rank)
    with torch.cuda.device(0):
        torch.cuda._sleep(50_000_000)
        source.fill_(7.0)
    with torch.cuda.device(1):
        torch.cuda._sleep(100_000_000)
        before = target.clone()
    wire.copy_all([copy])
    source.fill_(9.0)
    after = target.clone()
    assert float(before.max()) == float(before.min()) == 2.0
    assert float(after.max()) == float(after.min()) == 7.0
