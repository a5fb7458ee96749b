"""Training every discovered placement for a few steps on CPU processes, beside the reference; run once a test session."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.reference import train_reference
from multigpu.engines.torch.trainer import Context
from multigpu.engines.torch.wire import Wire
from multigpu.placements import placements
from multigpu.placements.traffic import predicted_bytes
from multigpu.run import Run
from multigpu.workloads import workloads

STEPS = 3
WORLDS = (1, 2, 3)
POINTS = [
    # (workload, model, inputs, joined batch): 7 and 13 do not divide by 2 and 3; sentences have lengths of their own
    ("nmt", "nmt_tiny", "lengths_000", 7),
    ("cnn", "resnet_small", "synthetic", 13),
]


@dataclass(frozen=True)
class Case:
    """One placement on one workload with one rule and one number of replicas."""

    run: Run

    @property
    def name(self) -> str:
        run = self.run
        return f"{run.placement}-{run.model}-{run.devices}-{run.optimizer}-{run.precision}"


def all_cases() -> list[Case]:
    """Every PyTorch placement that is found, so that a new file is tested without a new test."""
    cases = []
    for placement in placements().values():
        if "torch" not in placement.frameworks:
            continue
        for workload, model, inputs, batch in POINTS:
            for devices in WORLDS:
                for optimizer, precision in (("momentum", "fp64"), ("adam", "fp64"), ("momentum", "fp32"), ("adam", "fp32")):
                    if precision == "fp32" and devices != 2:
                        continue
                    run = Run(
                        workload=workload,
                        model=model,
                        inputs=inputs,
                        placement=placement.name,
                        device_type="cpu",
                        devices=devices,
                        batch_size=batch,
                        scaling="strong",
                        layout="channels_last" if workload == "cnn" and devices == 3 else None,
                        optimizer=optimizer,  # type: ignore[arg-type]
                        precision=precision,  # type: ignore[arg-type]
                    )
                    cases.append(Case(run))
    return cases


def make_context(run: Run, rank: int, shared: Path) -> tuple[Context, Any]:
    """A replica's context and its source."""
    source = workloads()[run.workload].inputs[run.inputs](run, run.description)
    device = Device(run, rank, threads=1)
    return Context(run, rank, device, Wire(rank, run.devices), source.capacity, shared, 60.0), source


def train_case(case: Case, rank: int, shared: Path) -> dict[str, Any]:
    """Three steps of one replica: variables, losses, the first step's counted bytes."""
    context, source = make_context(case.run, rank, shared)
    trainer = build_trainer(context)
    feed = Feed(source, rank, context.device)
    losses, counted = [], {}
    for step in range(STEPS):
        shard = feed.shard(step)
        if step == 0:
            loss, counted = trainer.counted_step(shard)
        else:
            loss = trainer.step(shard)
        losses.append(float(loss))
    values = trainer.full_values()
    feed.close()
    trainer.close()
    return {"values": values, "losses": losses, "counted": counted, "lookups": source.batch(0, rank).lookups}


def reference_of(case: Case) -> dict[str, Any]:
    """What the case must equal: the joined batch in one process, or each shard by itself."""
    run = case.run
    context, source = make_context(run, 0, Path())
    if placements()[run.placement].semantics.kind == "independent":
        parts = [train_reference(context, source, STEPS, [rank]) for rank in range(run.devices)]
        return {"values": [p[0] for p in parts], "losses": [p[1] for p in parts]}
    values, losses = train_reference(context, source, STEPS, list(range(run.devices)))
    return {"values": [values], "losses": [losses]}


def worker(rank: int, world: int, folder: str) -> None:
    """One process of one world size: every case of that size, results saved by rank."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    results = {}
    for index, case in enumerate(all_cases()):
        if case.run.devices != world:
            continue
        shared = Path(folder) / f"shared{index}"
        shared.mkdir(exist_ok=True)
        try:
            results[case.name] = train_case(case, rank, shared)
        except Exception as error:
            results[case.name] = {"error": f"{type(error).__name__}: {error}"}
            torch.save(results, f"{folder}/result{world}-{rank}.pt")
            raise
    torch.save(results, f"{folder}/result{world}-{rank}.pt")
    dist.destroy_process_group()


def run_all() -> dict[str, list[dict[str, Any]]]:
    """Results of every case, by name, a list by rank."""
    import torch.multiprocessing as mp

    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for world in WORLDS:
            context = mp.spawn(worker, args=(world, folder), nprocs=world, join=False)
            assert context is not None
            try:
                while not context.join():
                    pass
            finally:
                for rank in range(world):
                    file = Path(folder) / f"result{world}-{rank}.pt"
                    if file.exists():
                        for name, result in torch.load(file).items():
                            found.setdefault(name, []).append(result)
    return found


def predicted_of(case: Case, result: dict[str, Any]) -> dict[str, int]:
    """The placement's own prediction for the first step of this case."""
    item = 8 if case.run.precision == "fp64" else 4
    return predicted_bytes(placements()[case.run.placement], case.run.description.variables, result["lookups"], item)
