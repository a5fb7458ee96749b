"""Stacks of one kind of layer: sizes, and that the library's recurrence and the written-out one are the same function."""

import itertools

import pytest
import torch

from multigpu.workloads import find_model
from multigpu.workloads.stacks.description import StackConfig, describe
from multigpu.workloads.stacks.torch import build


def test_the_documents_model_has_42_million_parameters():
    model = find_model("stacks", "mlp42m")
    sizes = [440, 2560, 2560, 2560, 2560, 8192]
    assert model.parameters == sum(a * b + b for a, b in itertools.pairwise(sizes)) == 41_777_152
    assert model.forward_flops_per_unit == 2 * sum(a * b for a, b in itertools.pairwise(sizes))


def test_the_three_kinds_are_of_like_size_in_operations():
    flops = [find_model("stacks", f"stack_{kind}").forward_flops_per_unit for kind in ("dense", "convolution", "recurrent")]
    assert max(flops) / min(flops) < 1.15


def test_odd_bodies_are_refused():
    with pytest.raises(ValueError, match="odd has 3 layers of kind 'dense': they are cut in pairs"):
        describe("odd", StackConfig("dense", 4, 4, 3, 2), find_model("stacks", "mlp_tiny").optimizer)


@pytest.mark.parametrize("name", ["mlp_tiny", "stack_convolution_tiny", "stack_recurrent_tiny"])
def test_gradients_against_the_librarys_own_layers(name: str):
    """The loss of a whole stack, against `torch.nn` modules with the same weights, and the gradient of every variable."""
    model = find_model("stacks", name)
    config = model.config
    torch.manual_seed(0)
    losses, gradients = [], []
    for recurrence in ("fused", "stepwise") if config.kind == "recurrent" else (None,):
        module = build(model, recurrence=recurrence).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
        batch = {"samples": torch.randn(5, *config.row_shape, generator=generator, dtype=torch.float64)}
        batch["labels"] = torch.randint(config.classes, (5,), generator=generator)
        loss = module(batch)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append({n: p.grad for n, p in module.named_parameters()})
    weights = dict(module.named_parameters())
    x = batch["samples"]
    for layer in range(config.layers):
        if config.kind == "recurrent":
            lstm = torch.nn.LSTM(x.shape[2], config.width, batch_first=True, dtype=torch.float64)
            with torch.no_grad():
                lstm.weight_ih_l0.copy_(weights[f"recurrent_{layer}_input"].flatten(0, 1))
                lstm.weight_hh_l0.copy_(weights[f"recurrent_{layer}_hidden"].flatten(0, 1))
                lstm.bias_ih_l0.copy_(weights[f"recurrent_{layer}_bias"].flatten())
                lstm.bias_hh_l0.zero_()
            x, _ = lstm(x)
            continue
        kernel, bias = weights[f"{config.kind}_{layer}_kernel"], weights[f"{config.kind}_{layer}_bias"]
        x = torch.nn.functional.conv2d(x, kernel, bias, padding="same") if config.kind == "convolution" else x @ kernel.t() + bias
        x = torch.sigmoid(x) if config.activation == "sigmoid" else torch.relu(x)
    x = x.mean((2, 3)) if config.kind == "convolution" else x[:, -1] if config.kind == "recurrent" else x
    logits = x @ weights["head_kernel"].t() + weights["head_bias"]
    expected = torch.nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")
    assert losses == pytest.approx([float(expected.detach())] * len(losses), rel=1e-12)
    for own in gradients[1:]:
        assert all(torch.allclose(own[name], value, rtol=1e-9, atol=1e-12) for name, value in gradients[0].items())
