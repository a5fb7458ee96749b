"""A captured or compiled step is the eager one. Compiled graphs run as they are traced: generating
code for them is left to a GPU.
"""

from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from multigpu.engines.torch.captured import (
    WIDTH,
    CapturedTrainer,
    is_ragged,
    shape_of,
    with_few_shapes,
)
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.stores import BOUNDARY, arranged
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.placements.traffic import HOST, assign
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from tests.further import parameters
from tests.installed import installed
from tests.multigpu.equivalence.cases import answers, make_context, replica
from tests.refusals import refused


def tiny(**fields: object) -> Run:
    common = {
        "workload": "nmt",
        "model": "nmt_tiny",
        "placement": "ddp",
        "batch_size": 4,
        "sequence_length": 6,
    }
    return Run(**(common | fields))  # type: ignore[arg-type]


def feed_of(run: Run) -> Feed:
    context, source = make_context(run, 0, Path())
    return Feed(source, 0, context.device)


def test_a_cpu_has_no_graph() -> None:
    trainer, feed = replica(tiny(device_type="cpu", placement="independent"), 0, Path())
    refused("which a CPU does not have", CapturedTrainer, trainer, error=Unsupported)
    feed.close()


def test_a_graph_belongs_to_shapes_lengths_and_counts_but_not_to_the_words() -> None:
    feed = feed_of(tiny(device_type="cpu"))
    longer = feed_of(tiny(device_type="cpu", sequence_length=7))
    ragged = feed_of(tiny(device_type="cpu", sequence_length=None, inputs="lengths_000"))
    first = feed.shard(0)
    other_words = replace(
        first, device={name: value.flip(0) for name, value in first.device.items()}
    )
    assert shape_of(first) == shape_of(other_words)
    assert len({shape_of(each.shard(0)) for each in (feed, longer, ragged)}) == 3
    assert shape_of(ragged.shard(0)) != shape_of(ragged.shard(1))


def test_a_graph_for_lengths_on_the_device_belongs_to_shapes_alone() -> None:
    feed = feed_of(
        tiny(device_type="cpu", sequence_length=None, inputs="lengths_000", recurrence="persistent")
    )
    ragged = [feed.shard(step) for step in range(30)]
    assert all(is_ragged(shard) for shard in ragged) and not is_ragged(
        feed_of(tiny(device_type="cpu")).shard(0)
    )
    fitted = [with_few_shapes(shard, feed.device.torch) for shard in ragged]
    assert len({shape_of(shard) for shard in ragged}) > len({shape_of(shard) for shard in fitted})
    for before, after in zip(ragged, fitted, strict=True):
        assert after.terms is not None and int(after.terms[0]) == before.batch.loss_terms[0] == int(
            before.host["target_length"].sum()
        )
        for name in ("source", "target_input", "target_output"):
            width = before.device[name].shape[1]
            assert (
                after.device[name].shape[1] % WIDTH == 0
                and after.device[name].shape[1] - width < WIDTH
            )
            assert after.device[name][:, :width].equal(before.device[name])


def stepped(run: Run, captured: bool) -> tuple[list[float], int | None]:
    """Losses of eight steps, and how many of them were left out."""
    trainer, feed = replica(run, 0, Path())
    trainer = CapturedTrainer(trainer) if captured else trainer
    losses = [float(*trainer.step([feed.shard(step)])) for step in range(8)]
    left_out = trainer.skipped_steps()
    trainer.close()
    return losses, left_out


IMAGES = {"workload": "cnn", "model": "resnet_tiny", "sequence_length": None}
each_job = pytest.mark.parametrize("job", [{"cross_entropy": "fused"}, IMAGES], ids=["nmt", "cnn"])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "placement", ["independent", "replicated_allreduce", "exp4", "ps_gpu0", "staged_gpu0"]
)
@each_job
def test_captured_steps_train_as_eager_ones(placement: str, job: dict[str, object]) -> None:
    eager, captured = (
        stepped(tiny(placement=placement, execution=form, **job), form == "captured")[0]
        for form in ("eager", "captured")
    )
    assert captured == pytest.approx(eager, rel=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("loss_scale", [None, 128])
@pytest.mark.parametrize("placement", ["ddp", "replicated_allreduce"])
def test_captured_steps_scale_their_loss_as_eager_ones(
    placement: str, loss_scale: int | None
) -> None:
    """`ddp` written out in buckets in both forms; what overflows is left out in the same steps."""
    run = tiny(
        placement=placement, execution="captured", precision="fp16", loss_scale=loss_scale, **IMAGES
    )
    (eager, left_out), (captured, also) = (stepped(run, as_graph) for as_graph in (False, True))
    assert captured == pytest.approx(eager, rel=1e-2) and left_out == also


@pytest.mark.gpu
@each_job
def test_captured_steps_train_alike_however_buckets_are_sent_and_updated(
    job: dict[str, object],
) -> None:
    ways = (
        {},
        {"bucket_update": "in_backward"},
        {"bucket_send": "grouped"},
        {"bucket_send": "grouped_small_last"},
        {"bucket_send": "copied"},
    )
    losses = [
        stepped(tiny(execution="captured", bucket_mib=1, **way, **job), captured=True)[0]
        for way in ways
    ]
    assert losses == [losses[0]] * len(ways)


STEPS = 3
JOBS: list[dict[str, Any]] = [
    {"workload": "nmt", "model": "nmt_tiny", "sequence_length": 6},
    {"workload": "cnn", "model": "resnet_small"},
    # with channels of 2 and 3, so that in a store's flat memory many variables begin misaligned
    {"workload": "cnn", "model": "resnet_tiny"},
]
NAMES = ["nmt", "cnn", "cnn_misaligned"]


def trained(
    execution: str, placement: str, device_type: str, shared: Path, **job: Any
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of the first steps, and all variables after them."""
    precision = "fp64" if device_type == "cpu" else "fp32"
    run = Run(
        execution=execution,
        placement=placement,
        device_type=device_type,
        batch_size=4,
        precision=precision,
        **job,
    )
    trainer, feed = replica(run, 0, shared)
    losses = [float(*trainer.step([feed.shard(step)])) for step in range(STEPS)]
    values = trainer.full_values()
    feed.close()
    trainer.close()
    return losses, values


@pytest.mark.parametrize(
    ("job", "placement"), [(JOBS[0], "exp4"), (JOBS[2], "replicated_allreduce"), (JOBS[2], "exp2")]
)
def test_compiled_steps_train_as_eager_ones(
    job: dict[str, Any], placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained("eager", placement, "cpu", tmp_path, **job)
    traced: list[Any] = []
    as_traced = torch._dynamo.lookup_backend("aot_eager")

    def backend(graph: Any, inputs: Any) -> Any:
        traced.append(graph)
        return as_traced(graph, inputs)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    losses, values = trained("compiled", placement, "cpu", tmp_path, **job)
    assert traced, "nothing was compiled"
    assert losses == pytest.approx(plain[0], rel=1e-12) and losses[0] != losses[-1]
    assert all(
        torch.allclose(value, plain[1][name], rtol=1e-9, atol=1e-12)
        for name, value in values.items()
    )


BLOCKS = {
    "workload": "gpt",
    "model": "gpt_tiny",
    "placement": "fsdp2",
    "device_type": "cpu",
    "devices": 2,
    "batch_size": 4,
    "precision": "fp64",
}


def blocks_trained(rank: int, folder: Path) -> dict[tuple[str, bool], Any]:
    """One replica's variables of a model of blocks after some steps, eager and compiled, and how
    many programs were made.
    """
    found: dict[tuple[str, bool], Any] = {}
    traced: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        traced.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    plain = torch.compile
    torch.compile = partial(plain, backend=backend)  # type: ignore[assignment]
    try:
        for execution, kept in product(("eager", "compiled"), (False, True)):
            more = {"execution": execution, "reshard": not kept, "recompute": kept}
            trainer, feed = replica(Run(**BLOCKS, **more), rank, folder)  # type: ignore[arg-type]
            for step in range(STEPS):
                trainer.step([feed.shard(step)])
            found[execution, kept] = trainer.full_values()
            feed.close()
            trainer.close()
            assert bool(traced) == (execution == "compiled")
    finally:
        torch.compile = plain
    return found


def test_compiled_blocks_that_are_gathered_train_as_eager_ones() -> None:
    for found in answers(blocks_trained, 2):
        for kept in (False, True):
            for name, value in found["eager", kept].items():
                other = found["compiled", kept][name]
                assert torch.allclose(value, other, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("model", ["vgg_tiny", "resnet_tiny"])
def test_every_layer_of_a_network_is_compiled(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own layers too, whose frames torch.compile does not trace of itself."""
    compiled: set[tuple[int, ...]] = set()

    def backend(graph: Any, inputs: Any) -> Any:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        compiled.update(
            tuple(value.shape)
            for name, value in zip(names, inputs, strict=True)
            if "parameters" in name
        )
        return graph.forward

    torch._dynamo.reset()  # what another test had compiled would be used again
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    _, values = trained(
        "compiled", "replicated_allreduce", "cpu", tmp_path, workload="cnn", model=model
    )
    assert compiled == {tuple(value.shape) for value in values.values()}


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["replicated_allreduce", "exp2", "exp4"])
@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_compiled_steps_train_as_eager_ones_on_a_gpu(job: dict[str, Any], placement: str) -> None:
    """In one process on purpose: what `replicated_allreduce` compiled for aligned variables also
    serves the stores.
    """
    losses = []
    for execution in ("eager", "compiled"):
        with TemporaryDirectory(
            dir="/dev/shm"
        ) as shared:  # CUDA cannot page-lock what lies on a disk
            losses.append(trained(execution, placement, "cuda", Path(shared), **job)[0])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


COMPILED = [
    p
    for p in placements().values()
    if any(e.framework == "torch" and "compiled" in e.executions for e in p.engines)
]
WITH_STORES = [p for p in COMPILED if p.variables != "replica"]


@pytest.mark.parametrize("placement", WITH_STORES, ids=lambda placement: placement.name)
def test_variables_of_document_001_begin_aligned(placement: Placement) -> None:
    """All of them, but for `trivial` on several devices: three of its variables are odd, and two
    devices may hold some.
    """
    for model, devices, item_bytes in product(
        (*FOR_IMAGENET.values(), *FOR_CIFAR.values()), (1, 2, 3, 4, 8), (4, 8)
    ):
        members = [m for m in assign(placement, model.variables, devices) if not m.by_row]
        for kind in {(m.home == HOST, m.update == HOST) for m in members}:
            dense = [m for m in members if (m.home == HOST, m.update == HOST) == kind]
            order = arranged(dense, item_bytes)
            assert sorted(m.variable.name for m in order) == sorted(m.variable.name for m in dense)
            starts = [0, *accumulate(m.variable.elements for m in order)]
            odd = {
                m.variable.name: m.update
                for m in dense
                if m.variable.elements * item_bytes % BOUNDARY
            }
            misaligned = {
                m.variable.name
                for start, m in zip(starts, order, strict=False)
                if start * item_bytes % BOUNDARY
            }
            assert len(set(odd.values())) > 1 or misaligned <= odd.keys(), (model.name, devices)
            assert len(odd) > 1 or not misaligned, (model.name, devices)
            assert len(odd) < 2 or model.name == "trivial"
            assert odd or devices > 1 or order == dense, (
                "what is aligned keeps the order of declaration"
            )


ALIGNED = installed(
    [("cnn", "resnet_tiny"), ("cnn", "inception3_tiny"), ("deepconn", "deepconn_tiny")]
)
# staged placements look up no rows
PAIRS = [
    (placement, *job)
    for placement in WITH_STORES
    for job in ALIGNED
    if job[0] == "cnn" or not placement.staged
]
# copies that overlap are made by the same lines, and need a group of processes
PAIRS += [
    (placement, *ALIGNED[0])
    for placement in COMPILED
    if placement.variables == "replica" and not placement.overlap
]


@pytest.mark.parametrize(
    "pair",
    parameters(PAIRS, lambda pair: {pair[0].name, pair[0].staged, pair[2]}),
    ids=lambda pair: f"{pair[0].name}-{pair[2]}",
)
def test_a_compiled_step_computes_with_aligned_variables(
    pair: tuple[Placement, str, str], tmp_path: Path
) -> None:
    """In copies of those that begin misaligned in their stretch; an eager step computes in the
    stretch itself.
    """
    placement, workload, model = pair
    for execution in ("compiled", "eager"):
        run = Run(
            execution=execution,
            device_type="cpu",
            placement=placement.name,
            workload=workload,
            model=model,
            batch_size=2,
        )
        trainer, feed = replica(run, 0, tmp_path)
        dense = {name: p for name, p in trainer.module.named_parameters() if not p.is_meta}
        stores = getattr(trainer, "stores", [])
        views = {name: view for store in stores for name, view in store.views[0].items()}
        apart = {name for store in stores for name in store.apart[0]}
        assert all(dense[name].stride() == view.stride() for name, view in views.items())
        if execution == "compiled":
            assert all(p.data_ptr() % BOUNDARY == 0 for p in dense.values())
            assert bool(apart) == bool(stores) and all(
                views[name].data_ptr() % BOUNDARY for name in apart
            )
        else:
            assert not apart and all(
                dense[name].data_ptr() == view.data_ptr() for name, view in views.items()
            )
        for store in stores:  # what a pull brought is what the module computes with
            store.values[0].normal_()
            store.fill_apart(0)
        assert all(torch.equal(dense[name], view) for name, view in views.items())
        feed.close()
        trainer.close()
