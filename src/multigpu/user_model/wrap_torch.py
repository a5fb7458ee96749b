"""A user's module under a placement, for a training loop of their own that `torchrun` starts, one
process a device.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from multigpu.engines.torch import object_collectives
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.feed import Shard
from multigpu.engines.torch.trainer import open_context
from multigpu.inputs.batch import Batch
from multigpu.machine.machine import threads_for
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.run import Run
from multigpu.user_model.wrap import ModelTrainer, wrap
from multigpu.user_model.wrap.settings import Placement as WrapPlacement
from multigpu.workloads.own.description import PREFIX, Described, know
from multigpu.workloads.own.job import pack
from multigpu.workloads.own.structure import checked_rows, is_built_alike, taken_apart
from multigpu.workloads.own.torch import tensors_of


def joined_group(run: Run) -> tuple[int, int]:
    """This process's rank and how many there are, as many as were compared, its group made if there
    is none; else a ValueError.
    """
    if not dist.is_initialized() and run.devices > 1:
        if "RANK" not in os.environ:
            raise ValueError(
                "no process group is here: start the script with torchrun --nproc-per-node"
                f" {run.devices}"
            )
        dist.init_process_group("cpu:gloo,cuda:nccl" if run.device_type == "cuda" else "gloo")
    here = dist.get_world_size() if dist.is_initialized() else 1
    if here != run.devices:
        raise ValueError(
            f"{here} processes are here and {run.devices} were compared: start"
            f" {run.devices}, or compare again"
        )
    return (dist.get_rank() if dist.is_initialized() else 0), here


def wrapped(
    run: Run, described: Described, folder: Path, module: nn.Module
) -> "ModelTrainer | Trained":
    """The module as the placement trains it, from the first process's values, with the job's loss
    and optimizer: what `multigpu.wrap` makes, where it has the placement; else a `Trained`.
    """
    if run.placement not in get_args(WrapPlacement) and run.devices > 1:
        joined_group(run)
        return Trained(run, described, folder, module)
    joined_group(run)
    job = described.load(folder / "jobs")
    return wrap(
        module,
        job.loss,
        job.optimizer,
        run.placement,
        run.execution,
        precision=run.precision,
        micro_steps=run.micro_steps or 1,
        gradient_clip=job.gradient_clip,
        schedule=job.schedule,
        shard=job.shard,
        device="cpu" if run.device_type == "cpu" else None,
    )


class Trained:
    """A module under a placement, with the job's loss and rule: `step` trains in every process."""

    def __init__(self, run: Run, described: Described, folder: Path, module: nn.Module) -> None:
        self.rank, self.replicas = joined_group(run)
        self.module, self.described = module, described
        self.memory = tempfile.TemporaryDirectory(
            dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        shared = Path(object_collectives.broadcast(self.memory.name))
        job = replace(described.load(folder / "jobs"), model=module.cpu())
        self.run = self._own_run(run, job)
        capacity = {name: table.ids * run.batch_size for name, table in described.tables.items()}
        context = open_context(
            self.run, self.rank, threads_for(self.replicas), capacity, shared, 600.0
        )
        self.device, self.trainer = context.device, build_trainer(context)

    def _own_run(self, run: Run, job: Any) -> Run:
        folder = Path(self.memory.name) / "jobs"
        folder.mkdir()
        know(folder)
        names = [name for name, _ in self.described.variables] + self.described.fixed
        values = {
            f"{PREFIX}{name}": value.detach().clone()
            for name, value in self.module.state_dict().items()
        }
        values |= {
            f"{PREFIX}{name}": value.detach().clone()
            for name, value in self.module.named_buffers(remove_duplicate=False)
        }
        values = object_collectives.broadcast(
            {name: values[name] for name in dict.fromkeys([*names, *values])}
        )
        name = f"{self.described.name}-here-{os.getpid()}"
        torch.save(values, folder / f"{name}.values")
        (folder / f"{name}.job").write_bytes(pack(job))
        own = self.described.model_copy(
            update={"name": name, "job": f"{name}.job", "file": False, "values": f"{name}.values"}
        )
        (folder / f"{name}.json").write_text(own.model_dump_json())
        return run.model_copy(update={"model": name})

    def step(self, batch: Any) -> float:
        """Train on this process's batch, built as the job's and of its size (else a ValueError);
        the global batch's mean loss.
        """
        structure, arrays = taken_apart(batch)
        if not is_built_alike(structure, self.described.structure):
            raise ValueError(
                f"the batch is built as {structure}, not as the job's, {self.described.structure}"
            )
        checked_rows(arrays, self.run.batch_size, "this loop")
        sizes = shard_sizes(self.run)
        lookups = tuple(
            {name: table.ids * size for name, table in self.described.tables.items()}
            for size in sizes
        )
        host = tensors_of(arrays, self.device.dtype)
        placed = {name: tensor.to(self.device.torch) for name, tensor in host.items()}
        shard = Shard(Batch({}, self.rank, sizes[0], sizes[0], tuple(sizes), lookups), placed, host)
        (share,) = self.trainer.step([shard])
        loss = share.detach().cpu()
        dist.all_reduce(loss)
        return float(loss)

    def state_dict(self) -> dict[str, Tensor]:
        """The current values by the module's own names, on the CPU (whole in the first process)."""
        values = {
            name.removeprefix(PREFIX): value for name, value in self.trainer.full_values().items()
        }
        return {
            name: values.get(name, value.detach().cpu())
            for name, value in self.module.state_dict().items()
        }

    def close(self) -> None:
        self.trainer.close()
        self.memory.cleanup()
