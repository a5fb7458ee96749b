"""Transports: what blocks is found, what is sent is counted, and gloo carries what memory does."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.collectives import algorithms
from tests.collectives.memory import MemoryTransport, run_ranks
from tests.equivalence.cases import answers

ELEMENTS = (0, 1, 3, 4, 1009)


def test_processes_that_both_send_first_are_found_out() -> None:
    """As between GPUs: nothing may rely on a buffer between the two."""

    def blocked(transport: MemoryTransport) -> None:
        peer = 1 - transport.rank
        transport.send(torch.ones(3), peer)
        transport.receive(torch.empty(3), peer)

    began = time.monotonic()
    with pytest.raises((TimeoutError, ConnectionError), match=r"waited until its messages to \[[01]\] are taken"):
        run_ranks(2, blocked, timeout_s=0.3)
    assert time.monotonic() - began < 3


def test_peers_must_exist() -> None:
    for peer in (0, 2, -1):
        with pytest.raises(ValueError, match=f"process 0 of 2 cannot exchange messages with process {peer}"):
            run_ranks(2, lambda t, peer=peer: t.send(torch.ones(1), peer) if t.rank == 0 else None)


def over_gloo(rank: int, folder: Path) -> dict[tuple[str, int], tuple[list[float], dict[Any, int]]]:
    """What every algorithm leaves this process of a group, and what it has sent on each link."""
    from multigpu.collectives.bench import distributed_transport

    found = {}
    for name, algorithm in algorithms().items():
        for elements in ELEMENTS:
            transport, tensor = distributed_transport(delay_s=0.001), values(rank, elements)
            algorithm.all_reduce(tensor, transport)
            found[name, elements] = (tensor.tolist(), dict(transport.sent_bytes))
    return found


def values(rank: int, elements: int) -> torch.Tensor:
    return (torch.arange(elements) % 29 + rank).float()


@pytest.mark.parametrize("size", [2, 3])
def test_gloo_processes_agree_with_memory(size: int) -> None:
    """The same sums and the same bytes on every link, between real processes."""
    found = answers(over_gloo, size)
    for name, elements in found[0]:
        mine = [values(rank, elements) for rank in range(size)]
        _, transports = run_ranks(size, lambda t, mine=mine, name=name: algorithms()[name].all_reduce(mine[t.rank], t))  # type: ignore[misc]
        for rank in range(size):
            expected = (mine[rank].tolist(), dict(transports[rank].sent_bytes))
            assert found[rank][name, elements] == expected, (name, elements, rank)
