"""Stacks of one kind of layer: sizes, and that the library's recurrence and the written-out one are the same function."""

import itertools

import pytest

from multigpu.workloads import find_model
from multigpu.workloads.stacks.description import StackConfig, describe


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
