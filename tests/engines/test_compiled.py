"""A compiled step is the eager one, traced and differentiated by torch.compile, and its variables begin where code generated for others may
read them. Graphs run here as they are traced: generating code costs a CPU half a minute, and is left to the test on a GPU.
"""

from functools import partial
from itertools import accumulate, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from multigpu.engines.torch.stores import BOUNDARY, arranged, parts_by_place
from multigpu.placements import placements
from multigpu.placements.row import Placement
from multigpu.placements.traffic import HOST, assign
from multigpu.run import Run
from multigpu.workloads.cnn.description import FOR_CIFAR, FOR_IMAGENET
from tests.equivalence.cases import replica

STEPS = 3
JOBS: list[dict[str, Any]] = [
    {"workload": "nmt", "model": "nmt_tiny", "sequence_length": 6},
    {"workload": "cnn", "model": "resnet_small"},
    # with channels of 2 and 3, so that in a store's flat memory many variables begin misaligned
    {"workload": "cnn", "model": "resnet_tiny"},
]
NAMES = ["nmt", "cnn", "cnn_misaligned"]


def trained(execution: str, placement: str, device_type: str, shared: Path, **job: Any) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of the first steps, and all variables after them."""
    precision = "fp64" if device_type == "cpu" else "fp32"
    run = Run(execution=execution, placement=placement, device_type=device_type, batch_size=4, precision=precision, **job)
    trainer, feed = replica(run, 0, shared)
    losses = [float(*trainer.step([feed.shard(step)])) for step in range(STEPS)]
    values = trainer.full_values()
    feed.close()
    trainer.close()
    return losses, values


@pytest.mark.parametrize(("job", "placement"), [(JOBS[0], "exp4"), (JOBS[2], "replicated_allreduce"), (JOBS[2], "exp2")])
def test_compiled_steps_train_as_eager_ones(job: dict[str, Any], placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert all(torch.allclose(value, plain[1][name], rtol=1e-9, atol=1e-12) for name, value in values.items())


@pytest.mark.parametrize("model", ["vgg_tiny", "resnet_tiny"])
def test_every_layer_of_a_network_is_compiled(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own layers too, whose frames torch.compile does not trace of itself."""
    compiled: set[tuple[int, ...]] = set()

    def backend(graph: Any, inputs: Any) -> Any:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        compiled.update(tuple(value.shape) for name, value in zip(names, inputs, strict=True) if "parameters" in name)
        return graph.forward

    torch._dynamo.reset()  # what another test had compiled would be used again
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    _, values = trained("compiled", "replicated_allreduce", "cpu", tmp_path, workload="cnn", model=model)
    assert compiled == {tuple(value.shape) for value in values.values()}


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["replicated_allreduce", "exp2", "exp4"])
@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_compiled_steps_train_as_eager_ones_on_a_gpu(job: dict[str, Any], placement: str) -> None:
    """In one process on purpose: what `replicated_allreduce` compiled for aligned variables also serves the stores."""
    losses = []
    for execution in ("eager", "compiled"):
        with TemporaryDirectory(dir="/dev/shm") as shared:  # CUDA cannot page-lock what lies on a disk
            losses.append(trained(execution, placement, "cuda", Path(shared), **job)[0])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


COMPILED = [p for p in placements().values() if any(e.framework == "torch" and "compiled" in e.executions for e in p.engines)]
WITH_STORES = [p for p in COMPILED if p.variables != "replica"]


@pytest.mark.parametrize("placement", WITH_STORES, ids=lambda placement: placement.name)
def test_variables_of_document_001_begin_aligned(placement: Placement) -> None:
    """All of them, but for `trivial` on several devices: three of its variables are odd, and two devices may hold some. A store has each
    variable once, and each place's together.
    """
    for model, devices, item_bytes in product((*FOR_IMAGENET.values(), *FOR_CIFAR.values()), (1, 2, 3, 4, 8), (4, 8)):
        members = [m for m in assign(placement, model.variables, devices) if not m.by_row]
        for kind in {(m.home == HOST, m.update == HOST) for m in members}:
            dense = [m for m in members if (m.home == HOST, m.update == HOST) == kind]
            order = arranged(dense, item_bytes)
            assert sorted(m.variable.name for m in order) == sorted(m.variable.name for m in dense)
            starts = [0, *accumulate(m.variable.elements for m in order)]
            if not kind[1]:
                for place, part in enumerate(parts_by_place(order, devices)):
                    held = [start for start, m in zip(starts, order, strict=False) if m.update == place]
                    size = sum(m.variable.elements for m in order if m.update == place)
                    assert part == (slice(held[0], held[0] + size) if held else slice(0, 0))
            odd = {m.variable.name: m.update for m in dense if m.variable.elements * item_bytes % BOUNDARY}
            misaligned = {m.variable.name for start, m in zip(starts, order, strict=False) if start * item_bytes % BOUNDARY}
            assert len(set(odd.values())) > 1 or misaligned <= odd.keys(), (model.name, devices)
            assert len(odd) > 1 or not misaligned, (model.name, devices)
            assert len(odd) < 2 or model.name == "trivial"
            assert odd or devices > 1 or order == dense, "what is aligned keeps the order of declaration"


ALIGNED = [("cnn", "resnet_tiny"), ("cnn", "inception3_tiny"), ("deepconn", "deepconn_tiny")]
# staged placements look up no rows
PAIRS = [(placement, *job) for placement in WITH_STORES for job in ALIGNED if job[0] == "cnn" or not placement.staged]
# copies that overlap are made by the same lines, and need a group of processes
PAIRS += [(placement, *ALIGNED[0]) for placement in COMPILED if placement.variables == "replica" and not placement.overlap]


@pytest.mark.parametrize(("placement", "workload", "model"), PAIRS, ids=[f"{p.name}-{model}" for p, _, model in PAIRS])
def test_a_compiled_step_computes_with_aligned_variables(placement: Placement, workload: str, model: str, tmp_path: Path) -> None:
    """In copies of those that begin misaligned in their stretch; an eager step computes in the stretch itself."""
    for execution in ("compiled", "eager"):
        run = Run(execution=execution, device_type="cpu", placement=placement.name, workload=workload, model=model, batch_size=2)
        trainer, feed = replica(run, 0, tmp_path)
        dense = {name: p for name, p in trainer.module.named_parameters() if not p.is_meta}
        stores = getattr(trainer, "stores", [])
        views = {name: view for store in stores for name, view in store.views[0].items()}
        apart = {name for store in stores for name in store.apart[0]}
        assert all(dense[name].stride() == view.stride() for name, view in views.items())
        if execution == "compiled":
            assert all(p.data_ptr() % BOUNDARY == 0 for p in dense.values())
            assert bool(apart) == bool(stores) and all(views[name].data_ptr() % BOUNDARY for name in apart)
        else:
            assert not apart and all(dense[name].data_ptr() == view.data_ptr() for name, view in views.items())
        for store in stores:  # what a pull brought is what the module computes with
            store.values[0].normal_()
            store.fill_apart(0)
        assert all(torch.equal(dense[name], view) for name, view in views.items())
        feed.close()
        trainer.close()
