"""What only a GPU can show: cuDNN takes the weights as they are laid out, the host never waits, and a graph can be captured."""

import warnings

import pytest
import torch
from torch import Tensor

from multigpu.workloads import find_model
from tests.workloads.helpers import filled, gradients, sentences

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")]

MODEL = find_model("nmt", "nmt_small")
LENGTHS = {"equal lengths": ([20] * 16, [15] * 16), "ragged": (list(range(3, 19)), list(range(4, 20)))}


def on_gpu(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Lengths stay on the host."""
    return {name: array if name.endswith("_length") else array.cuda() for name, array in batch.items()}


def distance(mine: list[Tensor], theirs: list[Tensor]) -> float:
    """Norm of the difference over the norm of `theirs`."""
    a, b = (torch.cat([x.double().cpu().flatten() for x in these]) for these in (mine, theirs))
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-4), (True, 3e-2)], ids=["fp32", "bf16"])
def test_cudnn_equals_the_host_without_copying_weights_or_waiting(
    case: str, bf16: bool, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.set_float32_matmul_precision("highest")  # what a library's environment may have lowered
    batch = sentences(MODEL, *LENGTHS[case])
    reference = filled(MODEL)
    expected = reference(batch)
    module, placed = filled(MODEL, dtype=torch.float32).cuda(), on_gpu(batch)
    module(placed)  # the libraries start up
    torch.cuda.set_sync_debug_mode("error")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*single contiguous chunk.*")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
                loss = module(placed)
            found = gradients(module, loss)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance / 10)
    assert distance(found, gradients(reference, expected)) < tolerance


def test_a_captured_pass_equals_an_eager_one() -> None:
    module, batch = filled(MODEL, dtype=torch.float32).cuda(), on_gpu(sentences(MODEL, [20] * 16, [15] * 16))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            eager = gradients(module, module(batch))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = gradients(module, module(batch))
    graph.replay()
    torch.cuda.synchronize()
    assert distance(captured, eager) < 1e-6
