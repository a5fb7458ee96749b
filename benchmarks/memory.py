"""What each placement keeps on one GPU after two and four steps, counted by PyTorch's allocator,
beside what its row predicts.

    python benchmarks/memory.py --out data/memory/kept.csv

A row is one placement, job and number of steps: bytes allocated after them, in a process of its
own, less those of running statistics, and the bytes of variables, gradients, states and buffers by
`multigpu.placements.memory`. Batches are tiny, so that theirs do not count.
"""

import argparse
import gc
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist

from multigpu.build import build_run
from multigpu.engines.common.session import Opening, open_session
from multigpu.machine.machine import source_state, this_machine
from multigpu.placements import placements
from multigpu.placements.memory import kept_on
from multigpu.spec.run import Run
from multigpu.workloads import description_of

JOBS: tuple[dict[str, Any], ...] = (
    {
        "workload": "cnn",
        "model": "resnet50_v1.5",
        "optimizer": "momentum",
        "layout": "channels_last",
        "precision": "bf16",
    },
    {
        "workload": "cnn",
        "model": "vgg16",
        "optimizer": "sgd",
        "layout": "channels_last",
        "precision": "bf16",
    },
    {
        "workload": "nmt",
        "model": "nmt000",
        "optimizer": "adam",
        "sequence_length": 5,
        "precision": "bf16",
    },
)
BATCH, AT_ONCE = 2, 8
STEPS = (2, 4)
"""After how many it is counted. At first `ddp` keeps the buckets that it began with beside those in
the order of a backward pass.
"""


def runs(processes: str) -> list[Run]:
    """Every placement of whole replicas that PyTorch has in so many processes, on one GPU."""
    found = []
    for row in placements().values():
        engines = {(engine.framework, engine.processes) for engine in row.engines}
        if row.compute != "replica" or ("torch", processes) not in engines:
            continue
        for job in JOBS:
            # no other workload gives predictions
            if row.loss == "replica" or job["workload"] == "cnn":
                found.append(
                    build_run(
                        **job, placement=row.name, processes=processes, devices=1, batch_size=BATCH
                    )
                )
    return found


def allocated() -> int:
    """Bytes of all tensors that are alive on the GPU."""
    gc.collect()
    torch.cuda.synchronize()
    # only a request lets the allocator take back what another stream was the last to use
    torch.empty(1, device="cuda")
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


def counted(run: Run) -> list[int]:
    """Bytes that a Run holds on the GPU after each of `STEPS`, without running statistics; in a
    process of its own that holds no more.
    """
    torch.cuda.set_device(0)
    found = []
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1
        )
        session = open_session(Opening(run, 0, 1, Path(folder), 60.0, 0.0, lambda name: None))
        buffers = sum(
            buffer.untyped_storage().nbytes()
            for module in session.trainer.modules.values()
            for buffer in module.buffers()
        )
        for step in range(STEPS[-1]):
            session.step(step)
            if step + 1 in STEPS:
                found.append(allocated() - buffers)
        session.close()
        dist.destroy_process_group()
    return found


def main() -> None:
    """Count, and write the table with its conditions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        parser.error(
            "PyTorch finds no GPU here: run it on a machine with one;"
            " tests/multigpu/placements/test_memory.py counts on CPUs"
        )
    chosen, rows = [run for processes in ("per_device", "one") for run in runs(processes)], []
    with multiprocessing.get_context("spawn").Pool(AT_ONCE, maxtasksperchild=1) as pool:
        for run, found in zip(chosen, pool.imap(counted, chosen, chunksize=1), strict=True):
            predicted, job = (
                kept_on(run, description_of(run)).total,
                {"model": run.model, "optimizer": run.optimizer},
            )
            named = {
                "placement": run.placement,
                "processes": run.processes,
                **job,
                "predicted_bytes": predicted,
            }
            rows += [
                named | {"steps": steps, "counted_bytes": size}
                for steps, size in zip(STEPS, found, strict=True)
            ]
            print(
                f"{run.placement:24} {run.processes:10} {run.model:14} {found[-1] / predicted:.4f}"
                f" of {predicted:,} bytes",
                flush=True,
            )
    (commit, clean), machine = source_state(), this_machine()
    conditions = {
        "machine": machine.name,
        "driver": machine.driver,
        "torch": torch.__version__,
        "commit": commit,
        "clean": clean,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).assign(**conditions).to_csv(out, index=False)


if __name__ == "__main__":
    main()
