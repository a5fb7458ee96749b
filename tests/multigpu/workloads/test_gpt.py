"""The transformers: published sizes, a block that is PyTorch's own, a loss without all logits, and
training on the catalogs to less than their words' frequencies tell.
"""

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from multigpu.build import build_run
from multigpu.inputs.sentences import EOS
from multigpu.inputs.tokens import StreamTokens, windows
from multigpu.workloads import find_model
from multigpu.workloads.gpt.chunked_loss import chunked_cross_entropy
from multigpu.workloads.gpt.description import GptConfig, describe
from multigpu.workloads.gpt.torch import build, library_loss
from multigpu.workloads.sources import open_source
from tests.multigpu.workloads.helpers import filled, gradients, tokens
from tests.refusals import refused

TINY = find_model("gpt", "gpt_tiny")
FIELDS: dict[str, Any] = {"workload": "gpt", "placement": "ddp", "device_type": "cpu", "devices": 1}


# parameters as published for 50,257 entries, and the width that each of the 47 added ones has
@pytest.mark.parametrize(
    ("name", "published", "width"),
    [
        ("gpt2_124m", 124_439_808, 768),
        ("gpt2_350m", 354_823_168, 1024),
        ("gpt2_774m", 774_030_080, 1280),
    ],
)
def test_sizes_are_those_published(name: str, published: int, width: int) -> None:
    model = find_model("gpt", name)
    assert model.parameters == published + 47 * width
    with torch.device("meta"):
        module = build(model)
        counter = FlopCounterMode(display=False)
        with counter:
            module(tokens(model, 1, 1024))
    # norms, biases and positions are no products
    assert counter.get_total_flops() == pytest.approx(
        1024 * model.forward_flops_per_unit, rel=0.012
    )
    training = 3 * model.at(512).forward_flops_per_unit
    layers = model.config.layers
    assert training == 6 * model.parameters + 12 * layers * width * 512


def test_a_block_is_pytorchs_own_layer() -> None:
    module = filled(TINY)
    block, n, heads = module.blocks[0], TINY.config.width, TINY.config.heads
    layer = nn.TransformerEncoderLayer(
        n,
        heads,
        4 * n,
        dropout=0.0,
        activation=lambda x: nn.functional.gelu(x, approximate="tanh"),
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )

    def by_part(rows: Tensor) -> Tensor:
        """From head after head to all queries, all keys, all values."""
        return rows.unflatten(0, (heads, 3, n // heads)).transpose(0, 1).flatten(0, 2)

    own = dict(block.named_parameters())
    names = {
        "self_attn.out_proj": "out",
        "linear1": "up",
        "linear2": "down",
        "norm1": "norm_1",
        "norm2": "norm_2",
    }
    values = {
        f"{theirs}.{part}": own[f"{ours}.{part}"]
        for theirs, ours in names.items()
        for part in ("weight", "bias")
    }
    values |= {
        f"self_attn.in_proj_{part}": by_part(own[f"qkv.{part}"]) for part in ("weight", "bias")
    }
    layer.load_state_dict(values)
    x = torch.randn(2, 9, n, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    assert torch.allclose(block(x), layer(x, mask, is_causal=True), rtol=0, atol=1e-12)


def test_no_token_sees_a_later_one() -> None:
    module, batch = filled(TINY), tokens(TINY, 2)
    x = module.embed(batch["tokens"])
    for block in module.blocks:
        whole, first = block(x), block(x[:, :5])
        assert torch.allclose(whole[:, :5], first, rtol=0, atol=1e-12)
        assert not torch.allclose(whole[:, 5:], block(x[:, 5:]))
        x = whole


class Widest(TorchDispatchMode):
    """Keeps the most elements that any operation gave."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            self.most = max(self.most, each.numel() if isinstance(each, Tensor) else 0)
        return out


@pytest.mark.parametrize("chunk", [1, 7, 24, 100])
def test_the_loss_in_chunks_is_the_plain_one(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    table = torch.randn(50, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(50, (24,), generator=generator)
    plain, whole = library_loss(x, table, targets), Widest()
    expected = torch.autograd.grad(plain / 3, (x, table))
    with whole:
        library_loss(x, table, targets)
    parts = Widest()
    with parts:
        loss = chunked_cross_entropy(x, table, targets, chunk)
        found = torch.autograd.grad(loss / 3, (x, table))
    assert loss.item() == pytest.approx(plain.item(), rel=1e-14)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-13)
    assert whole.most == 24 * 50
    assert parts.most == max(min(chunk, 24) * 50, 50 * 8)
    with torch.no_grad():
        assert chunked_cross_entropy(x, table, targets, chunk) == loss


@pytest.mark.parametrize(
    ("device", "entries"), [("cpu", 50), pytest.param("cuda", 50_304, marks=pytest.mark.gpu)]
)
def test_the_loss_in_chunks_under_autocast_is_near_the_exact_one(device: str, entries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, generator=generator).to(device).requires_grad_()
    table = torch.randn(entries, 16, generator=generator).to(device).requires_grad_()
    targets = torch.randint(entries, (64,), generator=generator).to(device)
    exact = torch.autograd.grad(library_loss(x, table, targets), (x, table))
    with torch.autocast(device, torch.bfloat16):
        plain = torch.autograd.grad(library_loss(x, table, targets), (x, table))
        parts = torch.autograd.grad(chunked_cross_entropy(x, table, targets, 10), (x, table))
    for one, other, right in zip(parts, plain, exact, strict=True):
        assert one.dtype == right.dtype
        assert (one - right).norm() < 1.5 * (other - right).norm() + 1e-3 * right.norm()


def test_dropout_is_of_training_alone() -> None:
    config = GptConfig(2, 12, 3, 50, 16, dropout=0.3)
    module = filled(describe("dropping", config, TINY.optimizer))
    plain = filled(describe("plain", GptConfig(2, 12, 3, 50, 16), TINY.optimizer))
    batch = tokens(TINY, 4)
    assert module(batch) != module(batch)
    assert module.eval()(batch) == plain(batch)


def test_sections_are_the_whole_model() -> None:
    """The table, which leaves the first section and enters the last, gets both ends' gradients."""
    module, batch = filled(TINY), tokens(TINY, 2)
    functions = importlib.import_module("multigpu.workloads.gpt.torch").section_functions(module)
    values = dict(batch)
    for section in TINY.graph.stages:
        given = functions[section.name](values)
        assert given.keys() == (section.gives.keys() or {"loss"})
        values |= given
    whole = module(batch)
    for one, other in zip(gradients(module, values["loss"]), gradients(module, whole), strict=True):
        assert torch.equal(one, other)


def test_the_stream_is_every_catalog_but_those_held_out() -> None:
    run = build_run(**FIELDS, model="gpt_small", inputs="pieces_package", batch_size=8)
    source = open_source(run)
    assert isinstance(source, StreamTokens)
    first, second = (source.batch(step, 0).arrays for step in (0, 1))
    assert first["tokens"].shape == (8, 64) and first["tokens"].dtype == np.int64
    # in the corpus's order each sequence goes on where the one before it ended
    row = np.concatenate([first["tokens"].ravel(), second["tokens"].ravel()])
    assert (first["targets"].ravel() == row[1 : 8 * 64 + 1]).all()
    assert 5 < np.diff(np.flatnonzero(row == EOS)).mean() < 50
    drawn = open_source(run.model_copy(update={"shuffle": True}))
    taken = np.concatenate([drawn.items(step, 0) for step in range(source.count // 8)])
    assert len(np.unique(taken)) == len(taken) and (np.diff(taken) != 1).any()
    assert drawn.fingerprint != source.fingerprint


def test_windows_overlap_by_the_token_between_them() -> None:
    assert windows(np.arange(8), 3).tolist() == [[0, 1, 2, 3], [3, 4, 5, 6]]
    assert windows(np.arange(7), 3).tolist() == [[0, 1, 2, 3], [3, 4, 5, 6]]
    assert windows(np.arange(6), 3).tolist() == [[0, 1, 2, 3]]


def test_unusable_inputs_are_refused() -> None:
    small = FIELDS | {"batch_size": 2}
    run = build_run(**small, model="gpt_tiny", inputs="pieces")
    refused("sentencepiece cannot learn 50 pieces from", open_source, run)
    refused(
        "sequence_length 65 is longer than what 'gpt_small' can read: choose at most 64",
        build_run,
        **small,
        model="gpt_small",
        sequence_length=65,
    )
    refused("has no meaning for tokens", build_run, **small, model="gpt_small", recurrence="fused")
