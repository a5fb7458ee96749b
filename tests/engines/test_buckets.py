"""Buckets of the written-out overlapped all-reduce: what travels together."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from multigpu.engines.torch import buckets
from multigpu.engines.torch.buckets import BucketReducer, group_by_size, with_small_last
from multigpu.engines.torch.loss_scale import LossScale
from multigpu.engines.torch.wire import Wire
from tests.equivalence.cases import answers


def parameters(*mib: float) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(int(size * 2**18))) for size in mib]


def sizes(groups: list[list[nn.Parameter]]) -> list[list[float]]:
    return [[p.numel() / 2**18 for p in group] for group in groups]


def test_groups_close_at_their_limit_and_large_ones_stand_alone() -> None:
    found = group_by_size(parameters(0.5, 0.5, 1, 2, 2, 9, 1, 4, 0.5), limit_mib=4, first_mib=1)
    assert sizes(found) == [[0.5, 0.5], [1, 2, 2], [9], [1], [4], [0.5]]
    assert sizes(group_by_size(parameters(9, 9), 4, 1)) == [[9], [9]]
    assert sizes(group_by_size(parameters(0.25), 25, 1)) == [[0.25]]


def test_the_last_group_is_the_small_one() -> None:
    """In the order in which backward makes them: the last ones until they reach 1 MiB, the others up to the limit."""
    assert sizes(with_small_last(parameters(3, 2, 2, 9, 0.75, 0.5, 0.25, 0.5), limit_mib=4)) == [[3, 2], [2], [9], [0.75], [0.5, 0.25, 0.5]]
    assert sizes(with_small_last(parameters(2, 30), 25)) == [[2], [30]], "what comes last may be large: it travels alone"
    assert sizes(with_small_last(parameters(0.25, 0.25), 25)) == [[0.25, 0.25]]


def test_a_small_last_bucket_leaves_two_updates() -> None:
    """All that has travelled long before is updated at once; in backward each bucket still has its own."""
    made: list[int] = []

    def rule(group: list[nn.Parameter]) -> torch.optim.Optimizer:
        made.append(len(group))
        return torch.optim.SGD(group, lr=1.0)

    weights = parameters(0.5, 0.5, 1, 1, 1, 1)
    reducer = BucketReducer(weights, rule, Wire(0, 1), bucket_mib=2, grouped=True, small_last=True)
    assert [len(bucket.parameters) for bucket in reducer.buckets] == [2, 2, 2] and made == [4, 2]
    for _ in range(2):
        reducer.start()
        sum(((index + 1) * weight).sum() for index, weight in enumerate(weights)).backward()
        reducer.update()
    assert [float(weight.detach()[0]) for weight in weights] == [-2.0, -4.0, -6.0, -8.0, -10.0, -12.0]
    made.clear()
    BucketReducer(weights, rule, Wire(0, 1), bucket_mib=2, in_backward=True, small_last=True)
    assert made == [2, 2, 2]


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


@pytest.mark.parametrize("early", [False, True])
def test_a_closed_reducer_gives_its_parameters_back(early: bool) -> None:
    """Hooks in C++ close a circle that the collector does not see: 25 GiB of earlier models were left after 55 captured Runs."""
    weights = parameters(1, 2)
    reducer = BucketReducer(weights, lambda group: torch.optim.SGD(group, lr=1.0, momentum=0.9), Wire(0, 1), in_backward=early)
    reducer.start()
    sum(weight.sum() for weight in weights).backward()
    reducer.update()
    left = [weakref.ref(weight) for weight in weights]
    reducer.close()
    del reducer, weights
    gc.collect()
    assert [one() for one in left] == [None, None]


class Doubled:
    """Stands in for the work of an all-reduce whose other replica has the same gradients; the sum is there when it is waited for."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors

    def wait(self) -> None:
        for tensor in self.tensors:
            tensor.mul_(2)


def layers() -> tuple[nn.Module, list[nn.Parameter]]:
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Sequential(nn.Linear(300, 300), nn.Tanh()) for _ in range(6)), nn.Linear(300, 1)).double()
    return module, list(module.parameters())


@pytest.mark.parametrize("replicas", [1, 2])
def test_buckets_updated_in_backward_or_sent_unpacked_train_as_the_usual_ones(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "start_all_reduce", Doubled)
    batches = torch.randn(5, 8, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ends, counted = [], []
    ways = [(early, grouped, False) for early in (False, True) for grouped in (False, True)] + [
        (early, True, True) for early in (False, True)
    ]
    for early, grouped, last in ways:
        module, weights = layers()
        start, wire = [weight.detach().clone() for weight in weights], Wire(0, replicas)
        reducer = BucketReducer(weights, lambda group: torch.optim.Adam(group, lr=1e-3), wire, 1, None, None, early, grouped, last)
        for batch in batches:
            reducer.start()
            module(batch).square().mean().backward()
            changed = [bool((a.detach() != b).any()) for a, b in zip(weights, start, strict=True)]
            assert all(changed) if early else len(reducer.buckets) > 2
            reducer.update()
        ends.append([weight.detach().clone() for weight in weights])
        counted.append(dict(wire.counts))
        assert any(bucket.messages for bucket in reducer.buckets) == (replicas > 1 or not early), "a lone replica packs nothing"
        several = [bucket for bucket in reducer.buckets if len(bucket.parameters) > 1]
        assert several and all((bucket.flat is None) == grouped for bucket in several)
    assert all(torch.equal(one, other) for end in ends[1:] for one, other in zip(ends[0], end, strict=True))
    assert counted == [counted[0]] * 6, "unpacked gradients are as many bytes"


def summed(rank: int, folder: Path) -> list[float]:
    """What tensors of 1 and 2 hold after they are summed over the replicas: one, and several in one call."""
    tensors = [torch.full(shape, float(rank + 1)) for shape in [(3,), (3,), (2, 2), (5,)]]
    for sent in (tensors[:1], tensors[1:]):
        buckets.start_all_reduce(sent).wait()
    return torch.cat([tensor.flatten() for tensor in tensors]).tolist()


def test_one_tensor_or_several_are_summed_in_place_in_one_call() -> None:
    assert answers(summed, 2) == [[3.0] * 15] * 2


def test_a_bucket_is_updated_while_backward_goes_on() -> None:
    module, weights = layers()
    reducer = BucketReducer(weights, lambda group: torch.optim.SGD(group, lr=1.0), Wire(0, 1), bucket_mib=1, in_backward=True)
    last, first = weights[-1].detach().clone(), weights[0].detach().clone()
    seen = []
    weights[0].register_hook(lambda gradient: seen.append((not torch.equal(weights[-1], last), torch.equal(weights[0], first))))
    reducer.start()
    module(torch.ones(2, 300, dtype=torch.float64)).sum().backward()
    assert seen == [(True, True)], "the last layer's variables have changed before the first layer's gradient is there"


def test_a_scaled_loss_waits_for_all_buckets() -> None:
    scale = LossScale(torch.device("cpu"), 128)
    with pytest.raises(ValueError, match="checked for overflows over all buckets"):
        BucketReducer(parameters(1), lambda group: torch.optim.SGD(group, lr=1.0), Wire(0, 1), scale=scale, in_backward=True)
