"""Central server: process 0 receives every tensor, adds them up and sends the sum back (document
002's parameter server).

For N bytes and P processes all messages of one direction go at once; the server's link carries
N(P-1) in and N(P-1) out, 2N(P-1) as the document counts. The server needs room for P tensors. The
sum is in the order of ranks, made once and copied.
"""

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport


def _all_reduce(tensor: Tensor, transport: Transport) -> None:
    if transport.rank:
        transport.send(tensor, 0)
        transport.receive(tensor, 0)
        return
    workers = range(1, transport.size)
    received = [tensor.new_empty(tensor.numel()) for _ in workers]
    transport.exchange([], list(zip(workers, received, strict=True)))
    for part in received:
        tensor.add_(part)
    transport.exchange([(worker, tensor) for worker in workers], [])


def _cost(n: int, size: int) -> Cost:
    return Cost(2, n, n * (size - 1), 2 * n * (size - 1), 2 * n * (size - 1))


# the server first receives, then sends
ALGORITHM = Algorithm(
    "central_server",
    run=_all_reduce,
    formula=_cost,
    serial=lambda size, processes: 2.0 * size * (processes - 1),
)
