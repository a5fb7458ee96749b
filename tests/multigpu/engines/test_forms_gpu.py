"""Placements in every form on GPUs against plain PyTorch in one process, each rank's tests beside
the others':

torchrun --nproc-per-node 2 -m pytest -c /dev/null --noconftest
tests/multigpu/engines/test_forms_gpu.py

With `-m "not further"` as few of them as show every two of job, placement, form and way together.
Without torchrun one GPU trains. Beside torch and pytest it needs NumPy, psutil and pydantic.
"""

import gc
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch import bucket, object_collectives
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.captured import EAGER_STEPS, CapturedTrainer
from multigpu.engines.torch.checked import train_reference
from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.trainer import open_context
from multigpu.engines.torch.variables import initial_values
from multigpu.placements import find_placement
from multigpu.placements.memory import kept_on
from multigpu.placements.resolve import dims_of
from multigpu.placements.step_bytes import step_bytes
from multigpu.spec.rules.engines import refusal
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu.workloads.sources import open_source
from tests.further import parameters
from tests.multigpu.ranks import RANK, RANKS, joined

pytestmark = pytest.mark.gpu
STEPS = EAGER_STEPS + 5
FORMS = ("eager", "compiled", "captured", "compiled_captured")
PLACEMENTS = ("ddp", "replicated_allreduce", "zero1", "zero2", "fsdp2")
ON_DEVICES = ("exp4", "ps_gpu0", "replicated_copy", "replicated_ring", "replicated_server")
"""The documents' placements with no variable on the host: one job, launched and captured."""
JOBS: dict[str, dict[str, Any]] = {
    "gpt": {"workload": "gpt", "model": "gpt_tiny"},
    "cnn": {"workload": "cnn", "model": "resnet_tiny"},
    "nmt": {"workload": "nmt", "model": "nmt_tiny", "sequence_length": 6},
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recompute": {"recompute": True},
    "micro": {"micro_steps": 2},
    "micro-each": {"micro_steps": 2, "micro_sync": "each"},
    "recompute-micro": {"recompute": True, "micro_steps": 2},
    "kept": {"reshard": False},
    "kept-micro-each": {"reshard": False, "micro_steps": 2, "micro_sync": "each"},
    "kept-recompute": {"reshard": False, "recompute": True},
}
COMPILED = {"gpt": ("plain", "recompute-micro", "kept-recompute"), "cnn": ("plain",), "nmt": ()}
"""Job -> ways in which its compiled steps are tried: the compiler takes most of the time."""
COMMON: dict[str, Any] = {"device_type": "cuda", "devices": RANKS, "optimizer": "momentum"}


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    with joined():
        torch.backends.cudnn.deterministic = True
        yield


def divided() -> Iterator[tuple[tuple[str, ...], Run]]:
    """One transformer over all GPUs: its stages by each schedule, and its matrices."""
    common = COMMON | {"batch_size": 4, "precision": "fp64", "workload": "gpt"}
    for schedule in (None, "1f1b", "interleaved") if RANKS > 1 else ():
        fields = {"placement": "pipeline", "pipeline_schedule": schedule, "micro_batches": RANKS}
        run = Run(**common | fields | {"model": "gpt_small"})
        yield ("gpt", "pipeline", schedule or "gpipe"), run
    run = Run(**common | {"placement": "tensor_split", "model": "gpt_small"})
    yield ("gpt", "tensor_split"), run


def cases() -> Iterator[tuple[tuple[str, ...], Run]]:
    """By its words, every placement in every form and way that a rule does not refuse."""
    for job, placement, form, way in [
        (job, placement, form, way)
        for job in JOBS
        for placement in PLACEMENTS
        for form in FORMS
        for way in WAYS
    ]:
        row, more = find_placement(placement), WAYS[way]
        tried = COMPILED[job] if "compiled" in form else WAYS if job == "gpt" else ("plain",)
        if refusal(row, "torch", "per_device", form) or way not in tried:
            continue
        if not more.get("reshard", True) and row.variables != "sharded":
            continue
        fields = JOBS[job] | COMMON | more | {"placement": placement, "execution": form}
        yield (job, placement, form, way), Run(batch_size=4, precision="fp64", **fields)
    copied = ("copied", "copied_small_last", "copied_grouped")
    for placement, way, send in (
        *product(["ddp"], ("plain", "micro-each"), copied),
        *product(["zero1"], ("plain", "micro"), copied),
    ):
        fields = COMMON | WAYS[way] | {"placement": placement, "execution": "captured"}
        fields |= {"workload": "gpt", "model": "gpt_small", "bucket_send": send}
        run = Run(batch_size=4, precision="fp64", **fields)
        yield ("gpt", placement, "captured", way, send), run
    for placement, form in product(ON_DEVICES, ("eager", "captured")):
        if not refusal(find_placement(placement), "torch", "per_device", form):
            fields = JOBS["cnn"] | COMMON | {"placement": placement, "execution": form}
            run = Run(batch_size=4, precision="fp64", **fields)
            yield ("cnn", placement, form), run


@cache
def reference(run: Run) -> dict[str, torch.Tensor]:
    """What plain PyTorch gets in one process from all ranks' batches."""
    source = open_source(run)
    context = open_context(run, RANK, 1, source.capacity, Path(), 60.0)
    copies = run.devices // (run.model_parallel or 1)
    return train_reference(context, source, STEPS, list(range(copies)))[0]


def apart(run: Run, found: dict[str, torch.Tensor]) -> float:
    """Norm of the difference from the reference over norm of the reference's update."""
    ways = ("micro_steps", "micro_sync", "slicing", "micro_batches", "pipeline_schedule")
    ways += ("bucket_send", "bucket_mib")
    plain: dict[str, Any] = dict.fromkeys(ways)
    plain |= {"recompute": False, "reshard": True, "processes": "per_device"}
    plain |= {"model_parallel": dims_of(run).degree}  # who shares a copy of the model
    expected = reference(run.model_copy(update=plain | {"placement": "", "execution": "eager"}))
    difference = update = 0.0
    device = torch.device("cuda", RANK)
    for variable, initial in initial_values(description_of(run), run.seed, device, torch.float64):
        value = expected[variable.name]
        difference += float((found[variable.name] - value).square().sum())
        update += float((value - initial.cpu()).square().sum())
    return (difference / update) ** 0.5


CASES = [*cases(), *divided()]


@pytest.mark.parametrize(
    "case",
    parameters(CASES, lambda case: set(combinations(case[0], 2))),
    ids=["-".join(words) for words, _ in CASES],
)
def test_trains_as_plain_pytorch_on_all_batches(
    case: tuple[tuple[str, ...], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = case[1]
    monkeypatch.setattr(bucket, "UNPACKED_MIB", 0.05)  # some of a tiny model's are large, too
    torch._dynamo.reset()
    source = open_source(run)
    context = open_context(run, RANK, 1, source.capacity, Path(), 60.0)
    feed = Feed(source, dims_of(run).copy_of(RANK), context.device)
    trainer: Any = build_trainer(context)
    if context.captured:
        trainer = CapturedTrainer(trainer)
    _, counted = trainer.counted_step([feed.shard(0)])
    for step in range(1, STEPS):
        trainer.step([feed.shard(step)])
    if context.captured:
        assert len(trainer.graphs) == 1
    values = trainer.full_values()
    feed.close()
    trainer.close()
    everyone = sum(
        (Counter(each) for each in object_collectives.all_gather(counted)), Counter[str]()
    )
    lookups = source.batch(0, dims_of(run).copy_of(RANK)).lookups
    assert dict(everyone) == step_bytes(run, description_of(run), lookups)
    assert apart(run, values) < 1e-10


@pytest.mark.skipif(RANKS > 1, reason="one process works for all GPUs")
@pytest.mark.parametrize("slicing", [None, "device"])
@pytest.mark.parametrize("job", [*JOBS, "stacks"])
def test_data_parallel_trains_as_plain_pytorch(job: str, slicing: str | None) -> None:
    """One process, on two GPUs where there are two; the library's copies, threads and sums."""
    if job == "nmt" and slicing:
        pytest.skip("sentences are not sliced on the device")
    devices = min(2, torch.cuda.device_count())
    fields = JOBS.get(job, {"workload": "stacks", "model": "mlp_tiny"}) | COMMON
    fields |= {"placement": "data_parallel", "processes": "one", "devices": devices}
    run = Run(batch_size=4, precision="fp64", slicing=slicing, **fields)
    source = open_source(run)
    context = open_context(run, 0, 1, source.capacity, Path(), 60.0)
    each = context.devices.each
    feeds = [Feed(source, rank, each[0] if slicing else device) for rank, device in enumerate(each)]
    trainer = build_trainer(context)
    _, counted = trainer.counted_step([feed.shard(0) for feed in feeds])
    for step in range(1, STEPS):
        trainer.step([feed.shard(step) for feed in feeds])
    values = trainer.full_values()
    for feed in feeds:
        feed.close()
    trainer.close()
    moved = {kind: count for kind, count in counted.items() if count}
    assert moved == step_bytes(run, description_of(run), source.batch(0, 0).lookups)
    assert apart(run, values) < 1e-10


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_keeps_what_its_row_predicts(placement: str) -> None:
    """Between steps, activations aside: a transformer of 124 million parameters, AdamW."""
    fields = {"workload": "gpt", "model": "gpt2_124m", "sequence_length": 32}
    run = Run(**fields | COMMON | {"placement": placement, "batch_size": 1, "optimizer": "default"})
    gc.collect()
    time.sleep(1)  # NCCL's watchdog still holds the buckets of an earlier test's last sums
    before = torch.cuda.memory_allocated()
    source = open_source(run)
    context = open_context(run, RANK, 1, source.capacity, Path(), 60.0)
    feed = Feed(source, RANK, context.device)
    trainer = build_trainer(context)
    for step in range(3):
        trainer.step([feed.shard(step)])
    torch.cuda.synchronize()
    kept = torch.cuda.memory_allocated() - before
    feed.close()
    trainer.close()
    assert kept == pytest.approx(kept_on(run, description_of(run), RANK).total, rel=0.05)


def test_a_launch_of_a_kernel_is_timed() -> None:
    """Longer than the driver can be fast, shorter than a synchronised one on a slow host."""
    measured = Device(
        Run(**JOBS["gpt"] | COMMON, placement="ddp", batch_size=1), RANK, 1
    ).launch_s()
    assert measured is not None and 5e-7 < measured < 2e-4
