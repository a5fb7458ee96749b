"""The translation module against arithmetic written out, sentence by sentence and position by
position.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from multigpu.engines.torch.captured import with_few_shapes
from multigpu.engines.torch.feed import Shard
from multigpu.inputs.batch import Batch
from multigpu.spec.model import Model
from multigpu.workloads import find_model
from multigpu.workloads.nmt.projection_loss import IGNORED, projected_cross_entropy
from multigpu.workloads.nmt.torch import build
from multigpu.workloads.nmt.torch_sequences import library_loss
from tests.multigpu.workloads.helpers import filled, gradients, sentences
from tests.refusals import refused

TINY = find_model("nmt", "nmt_tiny")
MODULE = filled(TINY)


def alike(recurrence: str) -> nn.Module:
    """The same variables in a module that runs its cells so."""
    module = build(TINY, recurrence=recurrence).double()
    module.load_state_dict(MODULE.state_dict())
    module.reset_buffers()
    return module


RECURRENCES = ("fused", "stepwise", "persistent")
MODULES = {recurrence: alike(recurrence) for recurrence in RECURRENCES}
LENGTHS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    return bool((a - b).norm() <= tolerance * b.norm())


def step(x: Tensor, h: Tensor, c: Tensor, kernel: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One position of TensorFlow's cell: one product with [x, h], gates i, j, f, o, and forget bias
    1 added at run time.
    """
    i, j, f, o = 0, 2, 1, 3  # where the description keeps TensorFlow's gates
    matrix = torch.cat(list(kernel), 1)  # (4n, 2n)
    gates = (torch.cat((x, h), -1) @ matrix.T + bias).chunk(4, -1)
    c = torch.sigmoid(gates[f] + 1.0) * c + torch.sigmoid(gates[i]) * torch.tanh(gates[j])
    return torch.sigmoid(gates[o]) * torch.tanh(c), c


def by_hand(module: nn.Module, model: Model, batch: dict[str, Tensor]) -> Tensor:
    """The loss of a batch, one sentence after another and without any padding."""
    p = dict(module.named_parameters())
    n, total = model.config.units, torch.zeros((), dtype=torch.float64)

    def run(stack: str, words: list[Tensor], states: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        top = []
        for x in words:
            for layer, (h, c) in enumerate(states):
                x, c = step(x, h, c, p[f"{stack}_{layer}_kernel"], p[f"{stack}_{layer}_bias"])
                states[layer] = (x, c)
            top.append(x)
        return top

    for b in range(len(batch["source"])):
        source = list(p["source_embedding"][batch["source"][b, : batch["source_length"][b]]])
        length = int(batch["target_length"][b])
        zero = (torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64))
        forwards, backwards = [zero] * 2, [zero] * 2
        run("encoder_forward", source, forwards)
        run("encoder_backward", source[::-1], backwards)
        states = [forwards[0], backwards[0], forwards[1], backwards[1]]
        outputs = run(
            "decoder", list(p["target_embedding"][batch["target_input"][b, :length]]), states
        )
        total = total + F.cross_entropy(
            torch.stack(outputs) @ p["projection"],
            batch["target_output"][b, :length],
            reduction="sum",
        )
    return total


@pytest.mark.parametrize("recurrence", RECURRENCES)
@settings(max_examples=15, deadline=None)
@given(LENGTHS, st.integers(0, 3), st.integers(0, 9))
@example([(4, 5), (4, 5)], 0, 0)
@example([(4, 5), (4, 5)], 3, 0)
@example([(5, 3), (2, 6), (4, 1)], 0, 0)
def test_every_recurrence_equals_cells_written_out(
    recurrence: str, lengths: list[tuple[int, int]], wider: int, seed: int
) -> None:
    """Each sentence for itself and up to its end: so neither padding matters nor which sentences
    are together.
    """
    source, target = zip(*lengths, strict=True)
    batch, module = sentences(TINY, source, target, seed), MODULES[recurrence]
    batch["source"] = F.pad(batch["source"], (0, wider), value=7)
    found, written = module(batch), by_hand(module, TINY, batch)
    assert close(found, written)
    for mine, theirs in zip(gradients(module, found), gradients(module, written), strict=True):
        assert close(mine, theirs, 1e-10)


@pytest.mark.parametrize("source", [(4, 4), (4, 2)], ids=["equal lengths", "ragged"])
@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_bfloat16_arithmetic_is_near_exact_with_gradients_in_float32(
    recurrence: str, source: tuple[int, ...]
) -> None:
    module, batch = alike(recurrence).float(), sentences(TINY, source, (3, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(batch)
    expected = MODULE(batch)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.item(), rel=0.02)
    for mine, theirs in zip(gradients(module, loss), gradients(MODULE, expected), strict=True):
        assert mine.dtype == torch.float32 and close(mine.double(), theirs, 0.03)


def test_what_cannot_work_is_refused() -> None:
    batch = sentences(TINY, (3, 2), (2, 2))
    refused("empty sentence", MODULE, {**batch, "source_length": torch.tensor([3, 0])})
    refused(
        "source_length is on meta",
        MODULE,
        {**batch, "source_length": batch["source_length"].to("meta")},
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [((5, 2, 4), (3, 6, 1)), ((4, 4), (5, 5))],
    ids=["ragged", "equal lengths"],
)
def test_lengths_on_the_device_and_wider_arrays_change_nothing(
    source: tuple[int, ...], target: tuple[int, ...]
) -> None:
    batch = sentences(TINY, source, target)
    module = MODULES["persistent"]
    assert module.reads_lengths_on_device and not MODULE.reads_lengths_on_device
    host = {name: tensor for name, tensor in batch.items() if name.endswith("_length")}
    shard = with_few_shapes(
        Shard(Batch({}, 0, 0, 0, (sum(target), 7), ({}, {})), batch, host), torch.device("cpu")
    )
    assert {
        tuple(shard.device[name].shape) for name in ("source", "target_input", "target_output")
    } == {(len(source), 10)}
    assert shard.terms is not None and shard.terms.tolist() == [sum(target), sum(target) + 7]
    found, expected = (
        module({**shard.device, "source_length": None, "target_length": host["target_length"] * 0}),
        MODULE(batch),
    )
    assert close(found, expected)
    assert all(
        close(a, b, 1e-10)
        for a, b in zip(gradients(module, found), gradients(MODULE, expected), strict=True)
    )


@pytest.mark.parametrize("ignored", [0.3, 1.0])
def test_the_fused_loss_equals_the_library(ignored: float) -> None:
    torch.manual_seed(0)
    targets = torch.randint(0, 1300, (1100,))  # more rows than are worked on at once
    targets[torch.rand(1100) < ignored] = IGNORED
    found = []
    for loss in (library_loss, projected_cross_entropy):
        torch.manual_seed(1)
        x = torch.randn(1100, 8, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(8, 1300, dtype=torch.float64, requires_grad=True)
        value = loss(x, weight, targets)
        (value / 900).backward()
        found.append((value.detach(), x.grad, weight.grad))
    for library, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, library, rtol=1e-12, atol=1e-12)


ON_BOTH = {
    "equal lengths": ([20] * 16, [15] * 16),
    "ragged": (list(range(3, 19)), list(range(4, 20))),
}


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_BOTH)
@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-4), (True, 3e-2)], ids=["fp32", "bf16"])
def test_cudnn_equals_the_host_without_copying_weights_or_waiting(
    case: str, bf16: bool, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.set_float32_matmul_precision("highest")  # what a library's environment may have lowered
    small = find_model("nmt", "nmt_small")
    batch, reference, module = (
        sentences(small, *ON_BOTH[case]),
        filled(small),
        filled(small, dtype=torch.float32).cuda(),
    )
    expected, placed = (
        reference(batch),
        {key: array if key.endswith("_length") else array.cuda() for key, array in batch.items()},
    )
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
    ours, theirs = (
        torch.cat([x.double().cpu().flatten() for x in each])
        for each in (found, gradients(reference, expected))
    )
    assert close(ours, theirs, tolerance)
