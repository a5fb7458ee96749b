"""Transports: what blocks is found, what is sent is counted, and gloo carries what memory does."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from multigpu.collectives import algorithms
from multigpu.collectives.algorithm import Transport
from tests.collectives.memory import CountingWire, MemoryTransport, run_ranks
from tests.forked import forking


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


def test_a_message_that_never_comes_and_one_of_the_wrong_size() -> None:
    def lonely(transport: MemoryTransport) -> None:
        if transport.rank == 0:
            transport.receive(torch.empty(3), 1)

    with pytest.raises(TimeoutError, match="process 0 waited for a message from process 1"):
        run_ranks(2, lonely, timeout_s=0.2)

    def unequal(transport: MemoryTransport) -> None:
        if transport.rank:
            transport.send(torch.ones(2), 0)
        else:
            transport.receive(torch.empty(3), 1)

    with pytest.raises((ValueError, ConnectionError), match=r"process 1 sent \(2,\).* waits for \(3,\)|another process failed"):
        run_ranks(2, unequal, timeout_s=5)


def test_peers_must_exist() -> None:
    for peer in (0, 2, -1):
        with pytest.raises(ValueError, match=f"process 0 of 2 cannot exchange messages with process {peer}"):
            run_ranks(2, lambda t, peer=peer: t.send(torch.ones(1), peer) if t.rank == 0 else None)


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_a_merge_moves_what_is_predicted(name: str) -> None:
    def work(transport: MemoryTransport) -> tuple[torch.Tensor, int]:
        wire, gradients = CountingWire(transport), torch.arange(11.0)
        algorithms()[name].all_reduce(gradients, Transport(wire.rank, wire.replicas, wire.exchange))
        return gradients, wire.counts["device_to_device"]

    results, _ = run_ranks(3, work)
    assert all(torch.equal(gradients, 3 * torch.arange(11.0)) for gradients, _ in results)
    assert sum(count for _, count in results) == algorithms()[name].moved_bytes(11, 4, 3)


def over_gloo(rank: int, folder: str, queue: Any) -> None:
    """Every algorithm between three processes, then between the first two of them."""
    from multigpu.collectives.bench import distributed_transport

    torch.set_num_threads(1)
    found = {}
    for size in (3, 2):
        if rank >= size:
            continue
        dist.init_process_group("gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size)
        for name, algorithm in algorithms().items():
            for elements in (0, 1, size + 1, 1009):
                transport = distributed_transport(delay_s=0.001)
                tensor = (torch.arange(elements) % 29 + rank).float()
                algorithm.all_reduce(tensor, transport)
                found[size, name, elements] = (tensor.tolist(), dict(transport.sent_bytes))
        dist.barrier()
        dist.destroy_process_group()
    queue.put((rank, found))


def test_gloo_processes_agree_with_memory(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The same sums and the same bytes on every link, between real processes (they start once: importing torch is what takes time)."""
    context = forking()
    queue = context.Queue()
    workers = [context.Process(target=over_gloo, args=(rank, str(tmp_path), queue), daemon=True) for rank in range(3)]
    for worker in workers:
        worker.start()
    results = dict(queue.get(timeout=90) for _ in workers)
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert len(results[0]) == 2 * 4 * len(algorithms())
    for size, name, elements in results[0]:
        mine = [(torch.arange(elements) % 29 + rank).float() for rank in range(size)]
        _, transports = run_ranks(size, lambda t, mine=mine, name=name: algorithms()[name].all_reduce(mine[t.rank], t))  # type: ignore[misc]
        for rank in range(size):
            expected = (mine[rank].tolist(), dict(transports[rank].sent_bytes))
            assert results[rank][size, name, elements] == expected, (size, name, elements, rank)
