"""Tree: the whole tensor is reduced up a binomial tree to process 0 and broadcast down it again.
Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH" (2005).

For N bytes and P processes: 2 ceil(log2 P) latency terms, the fewest of all that send each tensor
whole; the root receives N ceil(log2 P) and sends as much. The sum is made once, at the root, and
copied.
"""

from collections.abc import Sequence

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport


def reduce_to_first(tensor: Tensor, transport: Transport, members: Sequence[int]) -> None:
    """Sum over `members` at the first of them; the others are left with sums of their branch."""
    me, distance = members.index(transport.rank), 1
    room = tensor.new_empty(tensor.numel() if me % 2 == 0 and len(members) > 1 else 0)
    while distance < len(members):
        if me & distance:
            transport.send(tensor, members[me - distance])
            return
        if me + distance < len(members):
            transport.receive(room, members[me + distance])
            tensor.add_(room)
        distance *= 2


def broadcast_from_first(tensor: Tensor, transport: Transport, members: Sequence[int]) -> None:
    """The first member's tensor to all."""
    me, distance = members.index(transport.rank), 1 << (len(members) - 1).bit_length()
    while distance > 1:
        branch, distance = distance, distance // 2
        if me % branch == distance:
            transport.receive(tensor, members[me - distance])
        elif me % branch == 0 and me + distance < len(members):
            transport.send(tensor, members[me + distance])


def _all_reduce(tensor: Tensor, transport: Transport) -> None:
    members = range(transport.size)
    reduce_to_first(tensor, transport, members)
    broadcast_from_first(tensor, transport, members)


def _cost(n: int, size: int) -> Cost:
    depth = (size - 1).bit_length()
    return Cost(2 * depth, n, n * depth, 2 * n * depth, 2 * n * (size - 1))


ALGORITHM = Algorithm(
    "tree",
    run=_all_reduce,
    formula=_cost,
    serial=lambda size, processes: 2.0 * size * (processes - 1).bit_length(),
)
