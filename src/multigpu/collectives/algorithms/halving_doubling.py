"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005): exchange halves with
partners at distance p/2, p/4, ... 1, then gather them back in the opposite order.

For N bytes and P = p + e processes, p the largest power of two: the last e first send all they have
to a partner among the first p, and receive the sum at the end. The busiest link carries N (half of
the tensor each way of the longest distance; a partner's link carries it whole). A process sends
2N(p-1)/p, and N more if it is a partner. Each part's sum is made by one process and copied.
"""

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport


def _all_reduce(tensor: Tensor, transport: Transport) -> None:
    rank, size = transport.rank, transport.size
    core = 1 << (size.bit_length() - 1)
    if rank >= core:
        transport.send(tensor, rank - core)
        transport.receive(tensor, rank - core)
        return
    folded = rank + core < size
    room = tensor.new_empty(tensor.numel() if folded else (tensor.numel() + 1) // 2)
    if folded:
        transport.receive(room, rank + core)
        tensor.add_(room)
    steps = []
    kept, distance = tensor, core // 2
    while distance:
        first, second = kept.tensor_split(2)
        kept, given = (second, first) if rank & distance else (first, second)
        received = room[: kept.numel()]
        transport.exchange([(rank ^ distance, given)], [(rank ^ distance, received)])
        kept.add_(received)
        steps.append((rank ^ distance, kept, given))
        distance //= 2
    for partner, kept, given in reversed(steps):
        transport.exchange([(partner, kept)], [(partner, given)])
    if folded:
        transport.send(tensor, rank + core)


def _cost(n: int, size: int) -> Cost:
    core = 1 << (size.bit_length() - 1)
    folded = size > core
    way = 2 * n * (core - 1) / core + n * folded
    return Cost(2 * (core.bit_length() - 1) + 2 * folded, n, way, 2 * way, 2 * n * (size - 1))


def _serial(size: int, processes: int) -> float:
    # processes beyond a power of two hand N over and wait for N
    return _cost(size, processes).busiest_way_bytes + (size if processes & (processes - 1) else 0)


ALGORITHM = Algorithm("halving_doubling", run=_all_reduce, formula=_cost, serial=_serial)
