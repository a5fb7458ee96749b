"""A compiled step is the eager one, traced and differentiated by torch.compile. Here its graphs run as they are traced: generating code
for them costs a CPU half a minute, and is left to the test on a GPU.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from multigpu.engines.torch.split import Group
from multigpu.engines.torch.wire import Wire
from multigpu.placements.refusals import IN_LAYERS, refusal
from multigpu.placements.tensor_split import PLACEMENT as TENSOR_SPLIT
from multigpu.run import Run
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


def test_a_matrix_over_devices_is_refused_for_the_reason_that_torch_compile_gives() -> None:
    """Its collectives count bytes in a dictionary of the host inside autograd functions."""
    parts = Group(Wire(0, 2), [0, 1], None)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="side effect"):
        torch.compile(lambda x: parts.total(parts.spread(x) * 2).sum(), fullgraph=True, backend="eager")(torch.ones(2, requires_grad=True))
    found = refusal(TENSOR_SPLIT, "torch", "per_device", "compiled")
    assert found is not None and found.why == IN_LAYERS
