"""Fused batch norm's kernels on a GPU against float64, on themselves, and in a captured step."""

import pytest
import torch

from multigpu.kernels.batch_norm import library_instead
from multigpu.workloads import find_model
from multigpu.workloads.cnn.torch import build
from tests.kernels.test_batch_norm import CASES, Case, check_kernels, distance, fused, inputs

MISSING = not torch.cuda.is_available() or library_instead(torch.device("cuda")) is not None
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING, reason="needs a GPU that runs the kernels")]

SIZED = Case((64, 2048, 7, 7), after=True), Case((33, 129, 13, 13)), Case((16, 64, 112, 112), pool=True)
LARGE = (*SIZED, Case((9, 256, 28, 28), after=True, twice=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES + LARGE, ids=str)
def test_kernels_equal_float64_and_repeat_bit_by_bit(case: Case, dtype: torch.dtype) -> None:
    check_kernels(case, dtype, "cuda")


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_a_model_under_autocast_is_as_near_float32_as_the_librarys(precision: torch.dtype) -> None:
    model = find_model("cnn", "resnet_small")
    generator = torch.Generator(device="cuda").manual_seed(0)
    images = torch.randn(32, *model.config.image_shape, generator=generator, device="cuda")
    batch = {"images": images, "labels": torch.arange(32, device="cuda") % model.config.classes}
    modules = {name: build(model, "channels_last", name) for name in (None, "fused")}
    weights = torch.Generator().manual_seed(1)
    for name, parameter in modules[None].named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.1, generator=weights)
    modules["fused"].load_state_dict(modules[None].state_dict())
    for module in modules.values():
        module.cuda()

    def gradients(name: str | None, kind: torch.dtype | None) -> torch.Tensor:
        modules[name].zero_grad()
        modules[name].reset_buffers()
        with torch.autocast("cuda", dtype=kind or torch.bfloat16, enabled=kind is not None):
            loss = modules[name](batch)
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in modules[name].parameters()])

    exact = gradients(None, None)
    assert distance(gradients("fused", None), exact) < 1e-3
    assert distance(gradients("fused", precision), exact) < 1.2 * distance(gradients(None, precision), exact)


def test_a_captured_pass_equals_an_eager_one() -> None:
    case = LARGE[3]
    given = inputs(case, torch.bfloat16, "cuda")
    eager = fused(case, given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        captured = fused(case, given)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(captured[name], eager[name]) for name in eager)
