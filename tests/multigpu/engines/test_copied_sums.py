"""Sums by copies between devices, on replicas that are threads of one process."""

import copy
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from multigpu.engines.torch.buckets import BucketReducer
from multigpu.engines.torch.copied_sums import ALIGNED, CopiedSums, Part, aligned
from multigpu.engines.torch.wire import Wire


class Group:
    """Memory of as many replicas, all within the reach of each. waits: whether they meet at all."""

    def __init__(self, replicas: int, waits: bool = True) -> None:
        self.replicas, self.waits = replicas, waits
        self.memory: dict[int, Tensor] = {}
        self.all_here = threading.Barrier(replicas)

    def maker(self, rank: int) -> Callable[[int, torch.dtype], "Reach"]:
        """Return what makes this replica's memory, when all replicas make theirs."""

        def make(numbers: int, dtype: torch.dtype) -> Reach:
            self.memory[rank] = torch.full((numbers,), float("nan"), dtype=dtype)
            self.all_here.wait(timeout=30)
            return Reach(self, rank)

        return make


class Reach:
    """A replica's reach, whose host is late now and then."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.replicas = group, rank, group.replicas
        self.chance = random.Random(rank)

    def of(self, rank: int, start: int, count: int) -> Tensor:
        time.sleep(self.chance.choice((0, 0, 1e-3)))
        return self.group.memory[rank][start : start + count]

    def meet(self) -> None:
        if self.group.waits:
            self.group.all_here.wait(timeout=30)


COUNTS = [[1], [ALIGNED], [37], [1000, 5, 40]]
ELSEWHERE = 3
"""The stretch whose first part is not put into it, but summed from where it is."""


def summed(group: Group, dtype: torch.dtype, rounds: int = 5) -> list[list[Tensor]]:
    """Return what each replica finds of every stretch in every round, by rank."""

    def replica(rank: int) -> list[Tensor]:
        sums = CopiedSums(COUNTS, group.maker(rank), group.replicas, dtype)
        assert sums.nbytes == group.memory[rank].nbytes
        found = []
        for turn in range(rounds):
            for index, given in enumerate(given_to(rank, turn, dtype)):
                parts = parts_within(sums.stretch(index), index)
                elsewhere = {0: given[0]} if index == ELSEWHERE else {}
                for number, (part, numbers) in enumerate(zip(parts, given, strict=True)):
                    part.copy_(numbers) if number not in elsewhere else part.fill_(math.nan)
                sums.start(index, elsewhere).wait()
                found.append(torch.cat(parts))
        return found

    with ThreadPoolExecutor(group.replicas) as pool:
        return list(pool.map(replica, range(group.replicas)))


def given_to(rank: int, turn: int, dtype: torch.dtype) -> list[list[Tensor]]:
    """Return the parts of stretches that a replica adds to the others' in a round."""
    drawn = torch.Generator().manual_seed(100 * turn + rank)
    return [
        [torch.randn(count, generator=drawn, dtype=torch.float64).to(dtype) for count in parts]
        for parts in COUNTS
    ]


def parts_within(stretch: Tensor, index: int) -> list[Tensor]:
    """Return the parts of a stretch as it lies in memory."""
    places = stretch.split(list(map(aligned, COUNTS[index])))
    return [place[:count] for place, count in zip(places, COUNTS[index], strict=True)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_every_replica_finds_the_sum_of_all_whoever_is_late(
    replicas: int, dtype: torch.dtype
) -> None:
    by_rank = summed(Group(replicas), dtype)
    for rank in range(1, replicas):
        assert all(torch.equal(a, b) for a, b in zip(by_rank[0], by_rank[rank], strict=True))
    expected = [
        torch.stack([torch.cat(parts) for parts in alike]).double().sum(0)
        for turn in range(5)
        for alike in zip(*(given_to(rank, turn, dtype) for rank in range(replicas)), strict=True)
    ]
    # added up in float32 and rounded once, whatever the type in which numbers travel
    tolerance = torch.finfo(dtype).eps * 4
    for found, sum_of_all in zip(by_rank[0], expected, strict=True):
        torch.testing.assert_close(found.double(), sum_of_all, rtol=tolerance, atol=tolerance)


def test_replicas_that_do_not_meet_find_other_sums() -> None:
    """Without a meeting a piece is added up, or taken home, before it is there."""
    right, wrong = (summed(Group(3, waits), torch.float64) for waits in (True, False))
    assert any(
        not torch.equal(a, b)
        for ours, theirs in zip(right, wrong, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize(("count", "replicas"), [(1, 4), (16, 1), (33, 2), (1000, 3)])
def test_pieces_cover_their_part_in_whole_lines(count: int, replicas: int) -> None:
    pieces = [Part(0, count, 0, replicas).piece_of(rank) for rank in range(replicas)]
    covered = [number for start, size in pieces for number in range(start, start + size)]
    assert covered == list(range(count))
    assert all(start % ALIGNED == 0 for start, size in pieces if size)


def trained(begun: nn.Module, rank: int, group: Group, **more: Any) -> list[Tensor]:
    """Train a copy of a model for three steps, a replica on its own part of each batch."""
    module = copy.deepcopy(begun)
    weights, wire = list(module.parameters()), Wire(rank, group.replicas)
    make = partial(torch.optim.Adam, lr=1e-3)
    reducer = BucketReducer(weights, make, wire, bucket_mib=1, peers=group.maker(rank), **more)
    drawn = torch.Generator().manual_seed(1)
    for _ in range(3):
        batch = torch.randn(8, 300, generator=drawn, dtype=torch.float64)
        reducer.start()
        module(batch.chunk(group.replicas)[rank]).square().sum().backward()
        reducer.update()
    assert len(reducer.buckets) > 2
    if group.replicas > 1:
        size = 2 if "wire_type" in more else 8
        whole = 3 * size * sum(weight.numel() for weight in weights)
        if "divided" in more:
            assert wire.counts["reduce_scatter"] == whole
            assert wire.counts["all_gather"] == (whole if rank == 0 else 0)
        else:
            assert wire.counts["all_reduce"] == whole
    reducer.close()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"in_backward": True},
        {"small_last": True},
        {"wire_type": torch.bfloat16},
        {"grouped": True},
        {"grouped": True, "in_backward": True},
        {"grouped": True, "wire_type": torch.bfloat16},
        {"grouped": True, "divided": True},
        {"divided": True},
    ],
    ids=lambda more: " ".join(more) or "usual",
)
def test_replicas_whose_buckets_are_copied_train_as_one_on_all_rows(more: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(300, 300), nn.Tanh()) for _ in range(6)]
    large = [nn.Linear(300, 500), nn.Tanh(), nn.Linear(500, 301)]  # odd, and of more than a MiB
    begun = nn.Sequential(*layers, *large, nn.Tanh(), nn.Linear(301, 1)).double()
    group = Group(2)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda rank: trained(begun, rank, group, **more), range(2))
    alone = trained(begun, 0, Group(1))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    tolerance = 1e-2 if "wire_type" in more else 1e-12
    for found, expected in zip(one, alone, strict=True):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
