"""Training discovered placements for a few steps on CPU processes, beside the reference; run once a
test session.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from multigpu.engines.torch import bucket, replicated
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.checked import train_averaged, train_reference
from multigpu.engines.torch.devices import Device, Devices
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.trainer import Context, open_context
from multigpu.engines.torch.variables import initial_values
from multigpu.engines.torch.wire import Wire
from multigpu.placements import placements
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.spec.parallel import PARTITIONED
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.sources import open_source
from tests.forked import forking
from tests.installed import installed
from tests.multigpu.equivalence.partitions import partitioned_runs
from tests.multigpu.peers import FilePeers
from tests.patience import PATIENCE_S

STEPS = 3
WORLDS = (1, 2, 3)
RULES = (("momentum", "fp64"), ("adam", "fp64"), ("momentum", "fp32"), ("adam", "fp32"))
POINTS = installed(
    [
        # (workload, model, inputs, global batch): 7 and 13 do not divide by 2 and 3; sentences have
        # lengths of their own
        ("nmt", "nmt_tiny", "lengths_000", 7),
        ("cnn", "resnet_small", "synthetic", 13),
        ("deepconn", "deepconn_tiny", "synthetic", 13),
        ("gpt", "gpt_tiny", "synthetic", 7),
    ]
)
# the first seed draws a sentence of 95 words, this one 7 to 20, and shards still differ in length
SEEDS = {"nmt": 35}

GROUPED = {"execution": "captured", "bucket_send": "grouped"}
COPIED = {"execution": "captured", "bucket_send": "copied_grouped"}
TRAVELLING: dict[tuple[str, str], list[dict[str, str]]] = {
    ("replicated_allreduce", "momentum"): [
        {"all_reduce_spec": "central_server:100:everyone:2k:ring"},
        {"all_reduce_spec": "ring:1k:library", "wire_dtype": "bf16"},
        {"wire_dtype": "fp16"},
    ],
    ("replicated_allreduce", "adam"): [{"all_reduce_spec": "library"}],
    ("ddp", "momentum"): [
        {"wire_dtype": "bf16"},
        {"wire_dtype": "bf16", "execution": "captured"},
        GROUPED,
        COPIED,
    ],
    ("ddp", "adam"): [{"wire_dtype": "bf16", "execution": "captured"}],
    ("zero1", "momentum"): [COPIED],
    ("zero1", "adam"): [COPIED],
}
"""Ways in which gradients may travel: what a Run says beside its placement and rule."""

FEW = installed(
    [
        *(("cnn", devices, "momentum", "fp64") for devices in WORLDS),
        *(
            ("cnn", 3, "adam", "fp64"),
            ("nmt", 2, "adam", "fp64"),
            ("deepconn", 3, "momentum", "fp64"),
            ("gpt", 2, "momentum", "fp64"),
        ),
    ]
)
"""(workload, devices, rule, precision) for placements that share their stores with others: these
must differ in order only.
"""

MICRO = installed(
    [
        ("cnn", 3, "momentum", {"micro_steps": 2}),
        ("deepconn", 3, "adam", {"micro_steps": 3}),
        ("deepconn", 2, "momentum", {"micro_steps": 4, "micro_sync": "each"}),
        ("nmt", 2, "momentum", {"micro_steps": 2}),
        ("gpt", 2, "momentum", {"micro_steps": 2}),
    ]
)
"""(workload, devices, rule, gradients added up over parts of a shard): 13 rows on 3 devices are
shards of 5, 4 and 4, parts of 1 to 3.
"""

BLOCKS: dict[str, list[dict[str, Any]]] = {
    "": [{"recompute": True}],
    "sharded": [
        {"reshard": False},
        {"reshard": False, "recompute": True, "micro_steps": 2},
        {"recompute": True, "micro_steps": 2, "micro_sync": "each"},
    ],
}
"""Home of variables ("": any) -> what a model of repeated blocks may also be told."""

LOCAL: dict[str, Any] = {"local_steps": 4, "timed_steps": 32}


def steps_of(run: Run) -> int:
    """How many steps are compared: where variables are averaged, two averages and a step after
    them.
    """
    return STEPS if semantics_of(run).every == 1 else 2 * semantics_of(run).every + 1


def micro_steps_of(run: Run) -> list[dict[str, Any]]:
    """What of `MICRO` the Run's placement can do."""
    row = placements()[run.placement]
    merged = row.variables == "replica" and row.reduces_gradients
    wanted = [
        more
        for *point, more in MICRO
        if point == [run.workload, run.devices, run.optimizer] and run.precision == "fp64"
    ]
    long = run.workload == "nmt" and run.placement not in ("ddp", "exp2", "exp4", "zero1")
    return [more for more in wanted if (merged or "micro_sync" not in more) and not long]


def name_of(run: Run) -> str:
    form = "" if run.execution == "eager" else f"-{run.execution}"
    form += "-one" if run.processes == "one" else ""
    ways = (run.all_reduce_spec, run.wire_dtype, run.bucket_send, run.recurrence, run.batch_norm)
    form += "".join(f"-{value}" for value in ways if value)
    form += f"-{run.micro_steps}{run.micro_sync or 'last'}" if run.micro_steps else ""
    form += f"-by{run.model_parallel}" if run.model_parallel else ""
    form += f"-{run.micro_batches or 1}{run.pipeline_schedule}" if run.pipeline_schedule else ""
    form += f"-over{run.sharded_over}" if run.sharded_over else ""
    form += "-sliced" if run.slicing else ""
    form += f"{'-recompute' * run.recompute}{'-kept' * (not run.reshard)}"
    return f"{run.placement}-{run.model}-{run.devices}-{run.optimizer}-{run.precision}{form}"


@cache
def all_cases() -> list[Run]:
    """Every PyTorch placement that is found, so that a new file is tested without a new test, in
    each shape of processes. For each workload and number of devices one rule, and for the other
    shape the other: a placement meets every pair of the three, the next one the rest.
    """
    cases = []
    for number, placement in enumerate(placements().values()):
        shapes = {engine.processes for engine in placement.engines if engine.framework == "torch"}
        if not shapes:
            continue
        if placement.compute in PARTITIONED:
            cases += partitioned_runs(placement)
            continue
        few = placement.staged or placement.loss == "gpu0"
        for workload, model, inputs, batch in POINTS:
            if placement.loss == "gpu0" and workload != "cnn":
                continue  # no workload but this one gives predictions
            for devices, (optimizer, precision) in product(WORLDS, RULES):
                if precision == "fp32" and (devices, workload) != (2, "cnn"):
                    # float64 shows what is computed; that float32 is passed through, one workload
                    # and count do
                    continue
                if few and (workload, devices, optimizer, precision) not in FEW:
                    continue
                # long sentences of different lengths on two devices alone: they take four times as
                # long as five words
                short = workload == "nmt" and devices != 2
                fields: dict[str, Any] = {
                    "workload": workload,
                    "model": model,
                    "batch_size": batch,
                    "seed": SEEDS.get(workload, 0),
                }
                fields |= (
                    {"inputs": "synthetic", "sequence_length": 5} if short else {"inputs": inputs}
                )
                fields |= {"layout": "channels_last"} if workload == "cnn" and devices == 3 else {}
                fields |= {
                    "placement": placement.name,
                    "devices": devices,
                    "optimizer": optimizer,
                    "precision": precision,
                }
                fields |= {"processes": "per_device" if "per_device" in shapes else "one"}
                fields |= LOCAL if placement.reduction == "average" else {}
                run = Run(device_type="cpu", scaling="strong", **fields)
                turn = (
                    number
                    + devices
                    + [point[0] for point in POINTS].index(workload)
                    + (optimizer == "adam")
                ) % 2
                if ("per_device" in shapes or precision == "fp64") and (few or not turn):
                    cases.append(run)
                if shapes == {"one", "per_device"} and precision == "fp64" and (few or turn):
                    cases.append(run.model_copy(update={"processes": "one"}))
                if (
                    (placement.name, optimizer) in TRAVELLING
                    and workload == "cnn"
                    and precision == "fp64"
                    and devices > 1
                ):
                    cases += [
                        run.model_copy(update=more)
                        for more in TRAVELLING[placement.name, optimizer]
                    ]
                if (
                    workload == "nmt"
                    and devices == 2
                    and (optimizer, precision) == ("momentum", "fp64")
                ):
                    # written out on CPUs
                    cases.append(run.model_copy(update={"recurrence": "persistent"}))
                if (
                    placement.name in ("ddp", "exp4")
                    and workload == "cnn"
                    and run.layout
                    and precision == "fp64"
                ):
                    # written out on CPUs
                    cases.append(run.model_copy(update={"batch_norm": "fused"}))
                if "per_device" in shapes:
                    cases += [run.model_copy(update=more) for more in micro_steps_of(run)]
                if (
                    placement.variables == "sharded"
                    and workload == "gpt"
                    and (devices, optimizer, precision) == (2, "momentum", "fp64")
                ):
                    # two groups of two devices
                    pairs = {"devices": 4, "sharded_over": 2}
                    cases.append(run.model_copy(update=pairs))
                    cases.append(run.model_copy(update=pairs | {"micro_steps": 2, "batch_size": 9}))
                if placement.copied_anew and workload in ("cnn", "gpt") and devices > 1:
                    cases.append(run.model_copy(update={"slicing": "device"}))
                if (
                    "per_device" in shapes
                    and workload == "gpt"
                    and (devices, optimizer, precision) == (2, "momentum", "fp64")
                ):
                    more = BLOCKS[""] + BLOCKS.get(placement.variables, [])
                    cases += [run.model_copy(update=each) for each in more]
                if placement.overlap and any(
                    "captured" in engine.executions for engine in placement.engines
                ):
                    # the step that a GPU captures, here run as it is; `Run` refuses to be built so
                    # for a CPU
                    fused = {"cross_entropy": "fused"} if workload in ("nmt", "gpt") else {}
                    cases += [
                        run.model_copy(update={"execution": "captured"} | more)
                        for more in ([fused] if turn else []) + micro_steps_of(run)
                    ]
    return cases


def make_context(run: Run, rank: int, shared: Path) -> tuple[Context, Any]:
    """A replica's, also of a Run in one process, and its source."""
    source = open_source(run)
    devices = Devices([Device(run, rank, threads=1)])
    return Context(run, devices, Wire(rank, run.devices), source.capacity, shared, 60.0), source


def replica(run: Run, rank: int, shared: Path) -> tuple[Any, Feed]:
    context, source = make_context(run, rank, shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicated, "PeerMemory", partial(FilePeers, shared))
        patch.setattr(bucket, "UNPACKED_MIB", 0.005)  # some of a tiny model's are large, too
        trainer = build_trainer(context)
    return trainer, Feed(source, dims_of(run).copy_of(rank), context.device)


def dispatched(run: Run, shared: Path, fed: Run | None = None) -> tuple[Any, list[Feed]]:
    """The trainer of all replicas in this process and their feeds. fed: another Run whose shards
    they are given.
    """
    fed = fed or run
    source = open_source(fed)
    context = open_context(run, 0, 1, source.capacity, shared, 60.0)
    trainer, devices = build_trainer(context), context.devices
    # a global batch that is sliced lies on the first device
    sliced = placements()[run.placement].loss == "gpu0" or run.slicing is not None
    return trainer, [
        Feed(source, dims_of(run).copy_of(rank), devices.each[0] if sliced else device)
        for rank, device in enumerate(devices.each)
    ]


def trained(
    run: Run, trainer: Any, feeds: list[Feed], ranks: Iterable[int]
) -> list[dict[str, Any]]:
    """Of each replica: variables, losses, and the bytes of the first step or cycle, which the first
    tells for all of this process.
    """
    losses: list[list[torch.Tensor]] = []
    counted = Counter[str]()
    for step in range(steps_of(run)):
        shards = [feed.shard(step) for feed in feeds]
        if step < semantics_of(run).every:
            shares, own = trainer.counted_step(shards)
            counted.update(own)
        else:
            shares = trainer.step(shards)
        losses.append(shares)  # nobody waits for the devices between steps
    found = []
    for place, (rank, feed) in enumerate(zip(ranks, feeds, strict=True)):
        kept = {
            "values": trainer.full_values(rank),
            "lookups": feed.source.batch(0, dims_of(run).copy_of(rank)).lookups,
        }
        found.append(
            {
                **kept,
                "losses": [float(shares[place]) for shares in losses],
                "counted": {} if place else dict(counted),
            }
        )
        feed.close()
    trainer.context.closing.close()
    return found


def train_dispatched(run: Run, shared: Path) -> list[dict[str, Any]]:
    """All replicas in this process."""
    trainer, feeds = dispatched(run, shared)
    return trained(run, trainer, feeds, range(run.devices))


@cache
def train_once(
    run: Run, ranks: tuple[int, ...], stale: int, every: int
) -> list[tuple[dict[str, torch.Tensor], list[float]]]:
    """The reference on these shards, or of replicas whose variables are averaged; who takes a
    remainder alone matters of the placement.
    """
    context, source = make_context(run, 0, Path())
    if every > 1:
        return train_averaged(context, source, 2 * every + 1, run.devices, every)
    return [train_reference(context, source, STEPS, list(ranks), stale)]


def reference_of(run: Run) -> dict[str, Any]:
    """What the case must equal: the global batch in one process, or each shard by itself."""
    row = placements()[run.placement]
    groups = (
        [tuple(range(dims_of(run).copies))]
        if row.semantics.facts.is_one_model
        else [(rank,) for rank in range(run.devices)]
    )
    ways = (
        "all_reduce_spec",
        "wire_dtype",
        "bucket_send",
        "recurrence",
        "batch_norm",
        "local_steps",
        "micro_batches",
        "micro_sync",
        "slicing",
        "pipeline_schedule",
    )
    plain: dict[str, Any] = dict.fromkeys(ways) | {"processes": "per_device", "execution": "eager"}
    plain |= {"recompute": False, "reshard": True, "sharded_over": None}
    plain |= {"placement": "" if row.loss == "replica" else run.placement}
    # who shares a copy of the model decides how batches are shared out
    plain |= {"model_parallel": dims_of(run).degree if row.compute in PARTITIONED else None}
    # batch norm takes each part by itself; for all others the global batch is one
    plain |= {"micro_steps": run.micro_steps if run.workload == "cnn" else None}
    alike, every = run.model_copy(update=plain), semantics_of(run).every
    parts = [
        part
        for ranks in groups[: None if every == 1 else 1]
        for part in train_once(alike, ranks, row.semantics.steps, every)
    ]
    return {"values": [p[0] for p in parts], "losses": [p[1] for p in parts]}


def distance(
    run: Run, ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor], device: Any = "cpu"
) -> float:
    """Norm of the difference over norm of the update, over all variables, which were drawn on this
    device.
    """
    difference = update = 0.0
    dtype = torch.float64 if run.precision == "fp64" else torch.float32
    for variable, initial in initial_values(
        description_of(run), run.seed, torch.device(device), dtype
    ):
        expected = reference[variable.name].double()
        difference += float((ours[variable.name].double() - expected).square().sum())
        update += float((expected - initial.cpu().double()).square().sum())
    return (difference / update) ** 0.5


def fork_processes(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> None:
    """`work(rank, *arguments)` in so many processes, forked by a server that has the framework
    imported: each would take seconds to.
    """
    forking()
    mp.start_processes(work, arguments, count, start_method="forkserver")


@contextmanager
def group(rank: int, world: int, folder: str) -> Iterator[None]:
    """This process as one of a group of so many, which meets in a file of the folder; on one
    thread.
    """
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store{world}", world)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE_S)
    )
    yield
    dist.destroy_process_group()


def member(rank: int, work: Callable[[int, Path], Any], world: int, folder: str) -> None:
    """One of the processes of `answers`."""
    with group(rank, world, folder):
        torch.save(work(rank, Path(folder)), f"{folder}/{rank}.pt")


def answers(work: Callable[[int, Path], Any], world: int) -> list[Any]:
    """What `work(rank, folder)`, a function of a module, gives in each process of a group of so
    many.
    """
    with tempfile.TemporaryDirectory() as folder:
        fork_processes(member, (work, world, folder), world)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(world)]


def worker(rank: int, cases: list[Run], folder: str) -> None:
    """One process of every world size that has this rank, largest first, so that none waits for the
    others; results saved by rank.
    """
    for world in sorted({run.devices for run in cases}, reverse=True):
        if rank >= world:
            continue
        results: dict[str, dict[str, Any]] = {}
        with group(rank, world, folder):
            try:
                for index, run in enumerate(cases):
                    if run.devices == world:
                        shared = Path(folder) / f"shared{index}"
                        shared.mkdir(exist_ok=True)
                        trainer, feed = replica(run, rank, shared)
                        (results[name_of(run)],) = trained(run, trainer, [feed], [rank])
            except Exception as error:
                results[name_of(run)] = {"error": f"{type(error).__name__}: {error}"}
                raise
            finally:
                torch.save(results, f"{folder}/result{world}-{rank}.pt")


def run_all(cases: list[Run]) -> dict[str, list[dict[str, Any]]]:
    """Results of these cases, by name, a list by rank; of a case that failed or was never reached,
    what went wrong.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    stopped = ""
    apart = [run for run in cases if run.processes == "per_device"]
    worlds = {run.devices for run in apart}
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
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
