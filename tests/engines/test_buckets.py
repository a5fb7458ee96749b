"""Buckets of the written-out overlapped all-reduce: what travels together."""

from __future__ import annotations

import torch
from torch import nn

from multigpu.engines.torch.buckets import BucketReducer, group_by_size
from multigpu.engines.torch.wire import Wire


def parameters(*mib: float) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(int(size * 2**18))) for size in mib]


def sizes(groups: list[list[nn.Parameter]]) -> list[list[float]]:
    return [[p.numel() / 2**18 for p in group] for group in groups]


def test_groups_close_at_their_limit_and_large_ones_stand_alone() -> None:
    found = group_by_size(parameters(0.5, 0.5, 1, 2, 2, 9, 1, 4, 0.5), limit_mib=4, first_mib=1)
    assert sizes(found) == [[0.5, 0.5], [1, 2, 2], [9], [1], [4], [0.5]]
    assert sizes(group_by_size(parameters(9, 9), 4, 1)) == [[9], [9]]
    assert sizes(group_by_size(parameters(0.25), 25, 1)) == [[0.25]]


def test_one_bucket_alone_is_not_packed_and_several_are_views_of_one_stretch() -> None:
    weights = parameters(3, 0.5, 0.5, 1)
    reducer = BucketReducer(weights, lambda group: torch.optim.SGD(group, lr=1.0), Wire(0, 1), bucket_mib=2)
    for _ in range(2):  # a second step starts anew
        reducer.start()
        sum(((index + 1) * weight).sum() for index, weight in enumerate(weights)).backward()
        alone, packed, large = reducer.buckets
        assert alone.flat is None and large.flat is None and packed.flat is not None
        assert [p.grad.untyped_storage().data_ptr() for p in packed.parameters] == [packed.flat.untyped_storage().data_ptr()] * 2
        assert [bucket.missing for bucket in reducer.buckets] == [0] * len(reducer.buckets)
        reducer.update()
    assert [float(weight.detach()[0]) for weight in weights] == [-2.0, -4.0, -6.0, -8.0]
