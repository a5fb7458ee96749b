"""What each placement keeps on one GPU after two steps, counted by PyTorch's allocator, beside what its row predicts.

    python benchmarks/memory.py --out data/memory/kept.csv

A row is one placement and job: bytes allocated after the second step less those before the Run and those of running statistics, and the
bytes of variables, gradients, states and buffers by `multigpu.placements.memory`. Batches are tiny, so that theirs do not count.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist

from multigpu.measure.machine import source_state, this_machine
from multigpu.measure.session import open_session
from multigpu.placements import placements
from multigpu.placements.memory import kept_on
from multigpu.run import Run, build_run

JOBS: tuple[dict[str, Any], ...] = (
    {"workload": "cnn", "model": "resnet50_v1.5", "optimizer": "momentum", "layout": "channels_last", "precision": "bf16"},
    {"workload": "cnn", "model": "vgg16", "optimizer": "sgd", "layout": "channels_last", "precision": "bf16"},
    {"workload": "nmt", "model": "nmt000", "optimizer": "adam", "sequence_length": 5, "precision": "bf16"},
)
BATCH = 2


def runs(processes: str) -> list[Run]:
    """Every placement of whole replicas that PyTorch has in so many processes, on one GPU."""
    found = []
    for row in placements().values():
        engines = {(engine.framework, engine.processes) for engine in row.engines}
        if row.compute != "replica" or ("torch", processes) not in engines:
            continue
        for job in JOBS:
            if row.loss == "replica" or job["workload"] == "cnn":  # no other workload gives predictions
                found.append(build_run(**job, placement=row.name, processes=processes, devices=1, batch_size=BATCH))
    return found


def allocated() -> int:
    """Bytes of all tensors that are alive on the GPU."""
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


def counted(run: Run) -> int:
    """Bytes that a Run holds on the GPU after two steps, running statistics left out."""
    before = allocated()
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(run, 0, 1, Path(folder), 60.0, 0.0, lambda name: None)
        for step in range(2):
            session.step(step)
        modules = getattr(session.trainer, "modules", None) or [session.trainer.module]
        statistics = sum(buffer.untyped_storage().nbytes() for module in modules for buffer in module.buffers())
        found = allocated() - before - statistics
        session.close()
    return found


def count_all(processes: str, out: Path) -> None:
    """In a process of its own: the rows of one way of dispatching."""
    torch.cuda.set_device(0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        for run in runs(processes):
            predicted, found = kept_on(run), counted(run)
            row = {"placement": run.placement, "processes": processes, "model": run.model, "optimizer": run.optimizer}
            rows.append({**row, "predicted_bytes": predicted.total, "counted_bytes": found})
            print(
                f"{run.placement:24} {processes:10} {run.model:14} {found / predicted.total:.4f} of {predicted.total:,} bytes", flush=True
            )
        dist.destroy_process_group()
    pd.DataFrame(rows).to_csv(out, index=False)


def main() -> None:
    """Count, and write the table with its conditions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: run it on a machine with one; tests/placements/test_memory.py counts on CPUs")
    out.parent.mkdir(parents=True, exist_ok=True)
    tables = []
    for processes in ("per_device", "one"):
        process = multiprocessing.get_context("spawn").Process(target=count_all, args=(processes, out))
        process.start()
        process.join()
        if process.exitcode:
            parser.exit(1, f"counting ended with exit code {process.exitcode}: the lines above say why\n")
        tables.append(pd.read_csv(out))
    (commit, clean), machine = source_state(), this_machine()
    conditions = {"machine": machine.name, "driver": machine.driver, "torch": torch.__version__, "commit": commit, "clean": clean}
    pd.concat(tables).assign(**conditions).to_csv(out, index=False)


if __name__ == "__main__":
    main()
