"""Plant hangs of distributed training, as users report them: what each rank prints, what its dumps
hold, and what `explain --stuck` says of them; then the same script with its remedy, which ends.

    python benchmarks/hangs.py                       # two CPU processes over gloo, every case
    python benchmarks/hangs.py --backend nccl        # the same on two GPUs
    python benchmarks/hangs.py --case uneven --out hangs.csv
"""

import argparse
import contextlib
import csv
import faulthandler
import math
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C import _distributed_c10d
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from multigpu.user_model.stuck import find_stuck, told
from multigpu.user_model.stuck_dumps import read_dump

DUMP_S, TIMEOUT_S = 1.5, 3.0
"""After so many seconds a rank that still runs leaves its dumps; after so many a collective ends in
the library's error.
"""


def replica(device: torch.device) -> DistributedDataParallel:
    """Return a small model that reduces its gradients in backward."""
    return DistributedDataParallel(torch.nn.Linear(8, 8).to(device))


def trained(model: Any, batches: int, device: torch.device) -> None:
    """Train the model on so many batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(batches):
        optimizer.zero_grad()
        model(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()


def uneven(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 has a batch less."""
    model = replica(device)
    with Join([model]) if mended else contextlib.nullcontext():
        trained(model, 4 - rank, device)


def uneven_then_barrier(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 has a batch less, and waits for all at the end of the epoch."""
    trained(replica(device), 3 if mended else 4 - rank, device)
    dist.barrier()


def skipped(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 passes over a collective, as behind a `continue`."""
    for step in range(3):
        if step == 1 and rank == 1 and not mended:
            continue
        dist.all_reduce(torch.ones(4, device=device))


def skipped_for_another(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 0 alone waits for all, as before it writes a checkpoint."""
    dist.all_reduce(torch.ones(4, device=device))
    if rank == 0 or mended:
        dist.broadcast(torch.ones(3, device=device), 0)
    dist.all_reduce(torch.ones(4, device=device))


def dead(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 ends without a word, as the kernel's memory killer ends it."""
    dist.all_reduce(torch.ones(4, device=device))
    if rank == 1 and not mended:
        os._exit(1)
    dist.all_reduce(torch.ones(4, device=device))


def shapes(rank: int, device: torch.device, mended: bool) -> None:
    """Ranks reduce tensors of different lengths, as of padded batches."""
    dist.all_reduce(torch.ones(4, device=device))
    dist.all_reduce(torch.ones(1000 if mended else 1000 + rank, device=device))


def shapes_sent(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 has a longer table than rank 0 sends, and training goes on with what came of it."""
    dist.broadcast(torch.ones(1000 if mended else 1000 + rank, device=device), 0)
    trained(replica(device), 3 if mended else 4 - rank, device)


def dtypes(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 receives doubles where rank 0 sends floats."""
    dtype = torch.float64 if rank == 1 and not mended else torch.float32
    dist.broadcast(torch.ones(1000, device=device, dtype=dtype), 0)
    trained(replica(device), 3 if mended else 4 - rank, device)


def busy(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 never comes back from its input."""
    dist.all_reduce(torch.ones(4, device=device))
    if rank == 1 and not mended:
        load_for_ever()
    dist.all_reduce(torch.ones(4, device=device))


def load_for_ever() -> None:
    """Wait for a batch that never comes."""
    threading.Event().wait()


def subgroup(rank: int, device: torch.device, mended: bool) -> None:
    """Within a group of two of the ranks one skips a collective."""
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(4, device=device))
    if rank == 0 or mended:
        dist.all_reduce(torch.ones(2, device=device), group=group)


def unsent(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 1 waits for a message that rank 0 never sends, as between stages."""
    tensor = torch.ones(4, device=device)
    for step in range(2):
        if rank == 1:
            dist.recv(tensor, 0)
        elif step == 0 or mended:
            dist.send(tensor, 1)


def alone(rank: int, device: torch.device, mended: bool) -> None:
    """Rank 0 alone evaluates, with a model that reduces."""
    model = replica(device)
    trained(model, 1, device)
    if rank == 0 and not mended:
        trained(model, 1, device)
    dist.barrier()


class Case(NamedTuple):
    """A planted hang. culprit: the rank at fault; op: the collective that it never began, or in
    which ranks differ.
    """

    plant: Callable[[int, torch.device, bool], None]
    culprit: int
    op: str
    remedy: str


CASES = {
    "uneven": Case(uneven, 1, "all_reduce", "Join([model])"),
    "uneven_then_barrier": Case(uneven_then_barrier, 1, "barrier", "drop_last=True"),
    "skipped": Case(skipped, 1, "all_reduce", "every rank calls it"),
    "skipped_for_another": Case(skipped_for_another, 1, "broadcast", "every rank calls it"),
    "dead": Case(dead, 1, "all_reduce", "that rank's own log"),
    "shapes": Case(shapes, 1, "all_reduce", "equal shapes"),
    "shapes_sent": Case(shapes_sent, 1, "broadcast", "equal shapes"),
    "dtypes": Case(dtypes, 1, "broadcast", "equal types"),
    "busy": Case(busy, 1, "all_reduce", "that rank's stack"),
    "subgroup": Case(subgroup, 1, "all_reduce", "every rank of the group calls it"),
    "unsent": Case(unsent, 0, "send", "as many sends as receives"),
    "alone": Case(alone, 1, "barrier", "evaluate model.module"),
}


def work(rank: int, case: str, backend: str, port: int, folder: str, mended: bool) -> None:
    """Run one rank of a case; its dumps and its last word go into the folder."""
    os.environ.update(TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="0")
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    came, errors = (
        time.perf_counter(),
        os.open(Path(folder, f"errors_{rank}"), os.O_CREAT | os.O_WRONLY),
    )
    os.dup2(errors, 2)

    def record() -> None:
        recorder = getattr(_distributed_c10d, "_dump_fr_trace")  # noqa: B009 (no stub names it)
        Path(folder, f"nccl_trace_rank_{rank}").write_bytes(recorder())

    def dump() -> None:
        record()
        with open(Path(folder, f"stack_rank_{rank}"), "w") as file:
            faulthandler.dump_traceback(file)

    watch = threading.Timer(DUMP_S, dump)
    watch.daemon = True
    watch.start()
    word = "ended"
    try:
        CASES[case].plant(rank, device, mended)
        if backend == "nccl":
            torch.cuda.synchronize()
        took = time.perf_counter() - came
        if not mended:
            watch.join()
            time.sleep(0.5)
    except Exception as error:
        took, word = time.perf_counter() - came, str(error).splitlines()[0]
        if took < DUMP_S:
            record()
    Path(folder, f"word_{rank}").write_text(f"{took:.3f} {word}")
    os._exit(0)


def planted(
    case: str, folder: Path, backend: str = "gloo", mended: bool = False, context: Any = None
) -> dict[int, tuple[float, str]]:
    """Plant a case; return rank -> (seconds until its last word, the word), of ranks that had one
    within twice the time-out.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = context or multiprocessing.get_context("spawn")  # CUDA cannot be forked
    ranks = [
        context.Process(target=work, args=(rank, case, backend, port, str(folder), mended))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    give_up = time.monotonic() + 60
    for process in ranks:
        dumped = folder / f"stack_rank_{ranks.index(process)}"
        while process.is_alive() and time.monotonic() < give_up and not dumped.exists():
            process.join(0.1)
        process.join(2 * TIMEOUT_S)
        process.kill()
        process.join()
    words = {}
    for rank in range(2):
        if (said := folder / f"word_{rank}").exists():
            took, word = said.read_text().split(" ", 1)
            words[rank] = float(took), word
        elif last := re.findall(r"what\(\):\s*(.*)", (folder / f"errors_{rank}").read_text()):
            words[rank] = math.nan, last[0]
    return words


def main() -> int:
    """Plant every case, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--out", type=Path, default=Path("hangs.csv"))
    arguments = parser.parse_args()
    if arguments.backend == "nccl" and torch.cuda.device_count() < 2:
        print("hangs.py --backend nccl needs two GPUs: this machine has fewer", file=sys.stderr)
        return 2
    context = None
    if arguments.backend == "gloo":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch._dynamo", "hangs"])
    rows = []
    for case in arguments.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            words = planted(case, Path(folder), arguments.backend, context=context)
            dumps = [read_dump(path) for path in sorted(Path(folder).glob("*_rank_*"))]
            named = told(find_stuck(dumps))[0]
        with tempfile.TemporaryDirectory() as folder:
            mended = planted(case, Path(folder), arguments.backend, True, context)
        rows.append(
            {
                "case": case,
                "what": (CASES[case].plant.__doc__ or "").strip(),
                "backend": arguments.backend,
                **{f"seconds_{rank}": words.get(rank, ("", ""))[0] for rank in range(2)},
                **{f"message_{rank}": words.get(rank, ("", "no word"))[1] for rank in range(2)},
                "named": named,
                "remedy": CASES[case].remedy,
                "mended": len(mended) == 2 and all(word == "ended" for _, word in mended.values()),
                "torch": torch.__version__,
            }
        )
        print(case, rows[-1], sep="\n  ", flush=True)
    with open(arguments.out, "w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
