"""Training discovered placements for a few steps on CPU processes, beside the reference; run once a test session."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.checked import train_averaged, train_reference
from multigpu.engines.torch.devices import Device, Devices
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.trainer import Context, open_context
from multigpu.engines.torch.wire import Wire
from multigpu.placements import placements
from multigpu.placements.checks import PARTITIONED
from multigpu.placements.step_bytes import step_bytes
from multigpu.run import Run
from multigpu.workloads import open_source
from tests.equivalence.partitions import partitioned_runs
from tests.forked import forking

STEPS = 3
WORLDS = (1, 2, 3)
RULES = (("momentum", "fp64"), ("adam", "fp64"), ("momentum", "fp32"), ("adam", "fp32"))
POINTS = [
    # (workload, model, inputs, joined batch): 7 and 13 do not divide by 2 and 3; sentences have lengths of their own
    ("nmt", "nmt_tiny", "lengths_000", 7),
    ("cnn", "resnet_small", "synthetic", 13),
    ("deepconn", "deepconn_tiny", "synthetic", 13),
]
SEEDS = {"nmt": 35}
"""Where the first seed will not do: it draws a sentence of 95 words, this one 7 to 20, and shards still differ in length."""


TRAVELLING: dict[tuple[str, str], list[dict[str, str]]] = {
    ("replicated_allreduce", "momentum"): [
        {"all_reduce_spec": "central_server:100:everyone:2k:ring"},
        {"all_reduce_spec": "ring:1k:library", "wire_dtype": "bf16"},
        {"wire_dtype": "fp16"},
    ],
    ("replicated_allreduce", "adam"): [{"all_reduce_spec": "library"}],
    ("ddp", "momentum"): [{"wire_dtype": "bf16"}, {"wire_dtype": "bf16", "execution": "captured"}],
    ("ddp", "adam"): [{"wire_dtype": "bf16", "execution": "captured"}],
}
"""Ways in which gradients may travel: what a Run says beside its placement and rule."""

FEW = [
    *(("cnn", devices, "momentum", "fp64") for devices in WORLDS),
    *(("cnn", 3, "adam", "fp64"), ("nmt", 2, "adam", "fp64"), ("deepconn", 3, "momentum", "fp64")),
]
"""(workload, devices, rule, precision) for placements that share their stores with others: these must differ in order only."""


MICRO = [
    ("cnn", 3, "momentum", {"micro_steps": 2}),
    ("deepconn", 3, "adam", {"micro_steps": 3}),
    ("deepconn", 2, "momentum", {"micro_steps": 4, "micro_sync": "each"}),
    ("nmt", 2, "momentum", {"micro_steps": 2}),
]
"""(workload, devices, rule, gradients added up over parts of a shard): 13 rows on 3 devices are shards of 5, 4 and 4, parts of 1 to 3."""


LOCAL: dict[str, Any] = {"local_steps": 4, "timed_steps": 32}


def steps_of(run: Run) -> int:
    """How many steps are compared: where variables are averaged, two averages and a step after them."""
    return STEPS if run.semantics.every == 1 else 2 * run.semantics.every + 1


def micro_steps_of(run: Run) -> list[dict[str, Any]]:
    """What of `MICRO` the Run's placement can do."""
    row = placements()[run.placement]
    merged = row.variables == "replica" and row.merges_gradients
    wanted = [more for *point, more in MICRO if point == [run.workload, run.devices, run.optimizer] and run.precision == "fp64"]
    long = run.workload == "nmt" and run.placement not in ("ddp", "exp2", "exp4", "zero1")
    return [more for more in wanted if (merged or "micro_sync" not in more) and not long]


def name_of(run: Run) -> str:
    """Of one placement on one workload with one rule and one number of replicas."""
    form = "" if run.execution == "eager" else f"-{run.execution}"
    form += "-one" if run.processes == "one" else ""
    form += "".join(f"-{value}" for value in (run.all_reduce_spec, run.wire_dtype, run.recurrence, run.batch_norm) if value)
    form += f"-{run.micro_steps}{run.micro_sync or 'last'}" if run.micro_steps else ""
    form += f"-by{run.model_parallel}" if run.model_parallel else ""
    return f"{run.placement}-{run.model}-{run.devices}-{run.optimizer}-{run.precision}{form}"


@cache
def all_cases() -> list[Run]:
    """Every PyTorch placement that is found, so that a new file is tested without a new test, in each shape of processes.

    For each workload and number of devices one rule, and for the other shape of processes the other: each placement meets every pair of
    the three, and the next placement the rest.
    """
    cases = []
    for number, placement in enumerate(placements().values()):
        shapes = {engine.processes for engine in placement.engines if engine.framework == "torch"}
        if not shapes:
            continue
        if placement.compute in PARTITIONED:
            cases += partitioned_runs(placement)
            continue
        for workload, model, inputs, batch in POINTS:
            if placement.loss == "gpu0" and workload != "cnn":
                continue  # no workload but this one gives predictions
            for devices, (optimizer, precision) in product(WORLDS, RULES):
                if precision == "fp32" and (devices, workload) != (2, "cnn"):
                    continue  # float64 shows what is computed; that float32 is passed through, one workload and count do
                if (placement.staged or placement.loss == "gpu0") and (workload, devices, optimizer, precision) not in FEW:
                    continue
                # long sentences of different lengths on two devices alone: they take four times as long as five words
                short = workload == "nmt" and devices != 2
                run = Run(
                    processes="per_device" if "per_device" in shapes else "one",
                    workload=workload,
                    model=model,
                    inputs="synthetic" if short else inputs,
                    sequence_length=5 if short else None,
                    placement=placement.name,
                    device_type="cpu",
                    devices=devices,
                    batch_size=batch,
                    scaling="strong",
                    layout="channels_last" if workload == "cnn" and devices == 3 else None,
                    optimizer=optimizer,  # type: ignore[arg-type]
                    precision=precision,  # type: ignore[arg-type]
                    seed=SEEDS.get(workload, 0),
                    **(LOCAL if placement.merge == "average" else {}),
                )
                few = placement.staged or placement.loss == "gpu0"
                turn = (number + devices + [point[0] for point in POINTS].index(workload) + (optimizer == "adam")) % 2
                if ("per_device" in shapes or precision == "fp64") and (few or not turn):
                    cases.append(run)
                if shapes == {"one", "per_device"} and precision == "fp64" and (few or turn):
                    cases.append(run.model_copy(update={"processes": "one"}))
                if placement.name in ("ddp", "replicated_allreduce") and workload == "cnn" and precision == "fp64" and devices > 1:
                    cases += [run.model_copy(update=more) for more in TRAVELLING[placement.name, optimizer]]
                if workload == "nmt" and devices == 2 and (optimizer, precision) == ("momentum", "fp64"):
                    cases.append(run.model_copy(update={"recurrence": "persistent"}))  # written out on CPUs
                if placement.name in ("ddp", "exp4") and workload == "cnn" and run.layout and precision == "fp64":
                    cases.append(run.model_copy(update={"batch_norm": "fused"}))  # written out on CPUs
                if "per_device" in shapes:
                    cases += [run.model_copy(update=more) for more in micro_steps_of(run)]
                if placement.overlap and any("captured" in engine.executions for engine in placement.engines):
                    # the step that a GPU captures, here run as it is; `Run` refuses to be built so for a CPU
                    fused = {"cross_entropy": "fused"} if workload == "nmt" else {}
                    held = [more for more in micro_steps_of(run) if "micro_sync" not in more]
                    cases += [run.model_copy(update={"execution": "captured"} | more) for more in ([fused] if turn else []) + held]
    return cases


def make_context(run: Run, rank: int, shared: Path, wire: Wire | None = None) -> tuple[Context, Any]:
    """A replica's context and its source. wire: one that stands in for a process group's."""
    source = open_source(run)
    devices = Devices([Device(run, rank, threads=1)])
    return Context(run, devices, wire or Wire(rank, run.devices), source.capacity, shared, 60.0), source


def replica(run: Run, rank: int, shared: Path, wire: Wire | None = None) -> tuple[Any, Feed]:
    """A replica's trainer and its feed."""
    context, source = make_context(run, rank, shared, wire)
    return build_trainer(context), Feed(source, run.copy_of(rank), context.device)


def dispatched(run: Run, shared: Path, fed: Run | None = None) -> tuple[Any, list[Feed]]:
    """The trainer of all replicas in this process and their feeds. fed: another Run whose shards they are given."""
    fed = fed or run
    source = open_source(fed)
    context = open_context(run, 0, 1, source.capacity, shared, 60.0)
    trainer, devices = build_trainer(context), context.devices
    sliced = placements()[run.placement].loss == "gpu0"  # a joined batch that is sliced lies on the first device
    return trainer, [Feed(source, run.copy_of(rank), devices.each[0] if sliced else device) for rank, device in enumerate(devices.each)]


def train_case(run: Run, rank: int, shared: Path) -> dict[str, Any]:
    """The steps of one replica: variables, losses, the counted bytes of the first of them, or of the first cycle."""
    trainer, feed = replica(run, rank, shared)
    losses, counted = [], Counter[str]()
    for step in range(steps_of(run)):
        shard = feed.shard(step)
        if step < run.semantics.every:
            (loss,), own = trainer.counted_step([shard])
            counted.update(own)
        else:
            (loss,) = trainer.step([shard])
        losses.append(float(loss))
    values, lookups = trainer.full_values(), feed.source.batch(0, run.copy_of(rank)).lookups
    feed.close()
    trainer.close()
    return {"values": values, "losses": losses, "counted": dict(counted), "lookups": lookups}


def train_dispatched(run: Run, shared: Path) -> list[dict[str, Any]]:
    """What `train_case` does, all replicas in this process; a result a rank."""
    trainer, feeds = dispatched(run, shared)
    first, counted = trainer.counted_step([feed.shard(0) for feed in feeds])
    steps = [first, *(trainer.step([feed.shard(step) for feed in feeds]) for step in range(1, STEPS))]
    losses = [[float(share) for share in shares] for shares in steps]
    found = []
    for rank, feed in enumerate(feeds):
        feed.close()
        mine = {"losses": [shares[rank] for shares in losses], "counted": counted if rank == 0 else {}}
        found.append({**mine, "values": trainer.full_values(rank), "lookups": feed.source.batch(0, run.copy_of(rank)).lookups})
    trainer.context.closing.close()
    return found


@cache
def train_once(run: Run, ranks: tuple[int, ...], stale: int = 0) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The reference on these shards; how the Run places its parts does not matter to it, beyond who takes a remainder."""
    context, source = make_context(run, 0, Path())
    return train_reference(context, source, STEPS, list(ranks), stale)


@cache
def average_once(run: Run, every: int) -> list[tuple[dict[str, torch.Tensor], list[float]]]:
    """The reference of replicas whose variables are averaged."""
    context, source = make_context(run, 0, Path())
    return train_averaged(context, source, 2 * every + 1, run.devices, every)


def reference_of(run: Run) -> dict[str, Any]:
    """What the case must equal: the joined batch in one process, or each shard by itself."""
    row = placements()[run.placement]
    groups = [tuple(range(run.copies))] if row.semantics.facts.is_one_model else [(rank,) for rank in range(run.devices)]
    plain = {"placement": "" if row.loss == "replica" else run.placement, "processes": "per_device"}
    # who shares a copy of the model decides how batches are shared out
    plain |= {"model_parallel": run.degree if row.compute in PARTITIONED else None, "micro_batches": None}
    plain |= {"all_reduce_spec": None, "wire_dtype": None, "execution": "eager", "recurrence": None, "batch_norm": None}
    # batch norm takes each part by itself; for all others the joined batch is one
    plain |= {"micro_sync": None, "micro_steps": run.micro_steps if run.workload == "cnn" else None}
    every = run.semantics.every
    plain |= {"local_steps": None}
    if every > 1:
        parts = average_once(run.model_copy(update=plain), every)
        return {"values": [p[0] for p in parts], "losses": [p[1] for p in parts]}
    parts = [train_once(run.model_copy(update=plain), ranks, row.semantics.steps) for ranks in groups]
    return {"values": [p[0] for p in parts], "losses": [p[1] for p in parts]}


def fork_processes(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> None:
    """`work(rank, *arguments)` in so many processes, forked by a server that has the framework imported: each would take seconds to."""
    forking()
    mp.start_processes(work, arguments, count, start_method="forkserver")


@contextmanager
def group(rank: int, world: int, folder: str) -> Iterator[None]:
    """This process as one of a group of so many, which meets in a file of the folder; on one thread."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    yield
    dist.destroy_process_group()


def member(rank: int, work: Callable[[int, Path], Any], world: int, folder: str) -> None:
    """One of the processes of `answers`."""
    with group(rank, world, folder):
        torch.save(work(rank, Path(folder)), f"{folder}/{rank}.pt")


def answers(work: Callable[[int, Path], Any], world: int) -> list[Any]:
    """What `work(rank, folder)`, a function of a module, gives in each process of a group of so many."""
    with tempfile.TemporaryDirectory() as folder:
        fork_processes(member, (work, world, folder), world)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(world)]


def worker(rank: int, cases: list[Run], folder: str) -> None:
    """One process of every world size that has this rank, largest first, so that none waits for the others; results saved by rank."""
    for world in sorted({run.devices for run in cases}, reverse=True):
        if rank < world:
            with group(rank, world, folder):
                train_world(rank, world, cases, folder)


def train_world(rank: int, world: int, cases: list[Run], folder: str) -> None:
    """Every case of one world size."""
    results: dict[str, dict[str, Any]] = {}
    try:
        for index, run in enumerate(cases):
            if run.devices == world:
                shared = Path(folder) / f"shared{index}"
                shared.mkdir(exist_ok=True)
                results[name_of(run)] = train_case(run, rank, shared)
    except Exception as error:
        results[name_of(run)] = {"error": f"{type(error).__name__}: {error}"}
        raise
    finally:
        torch.save(results, f"{folder}/result{world}-{rank}.pt")


def run_all(cases: list[Run]) -> dict[str, list[dict[str, Any]]]:
    """Results of these cases, by name, a list by rank; of a case that failed or was never reached, what went wrong."""
    found: dict[str, list[dict[str, Any]]] = {}
    stopped = ""
    apart = [run for run in cases if run.processes == "per_device"]
    worlds = {run.devices for run in apart}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        try:
            fork_processes(worker, (apart, folder), max(worlds, default=0))
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            stopped = f"not reached, since another case stopped all processes: {error}"
        for world in worlds:
            for rank in range(world):
                file = Path(folder) / f"result{world}-{rank}.pt"
                for name, result in torch.load(file).items() if file.exists() else ():
                    found.setdefault(name, []).append(result)
        for run in cases:
            if run.processes == "one":
                found[name_of(run)] = train_dispatched(run, Path(folder))
    return {name_of(run): found.get(name_of(run), [{"error": stopped}]) for run in cases}


def predicted_of(run: Run, result: dict[str, Any]) -> dict[str, int]:
    """The placement's own prediction for the first step of this case."""
    return step_bytes(run, result["lookups"])
