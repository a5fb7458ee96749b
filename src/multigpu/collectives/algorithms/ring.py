"""Ring: reduce-scatter then all-gather between neighbours, each step a P-th of the tensor
(Patarasuk and Yuan 2009; document 002).

For N bytes and P processes each of the P links in use carries 2N(P-1)/P, which is also what every
process sends: no algorithm can make every process send less. Each part's sum is made along the ring
    and copied.
"""

from collections.abc import Sequence

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport


def reduce_scatter(parts: Sequence[Tensor], transport: Transport, members: Sequence[int]) -> int:
    """Sum over the ring of `members`, one part each, the first the longest: which part this process
    then holds the sum of. The others are left with sums of some members only.
    """
    size, me = len(members), members.index(transport.rank)
    after, before = members[(me + 1) % size], members[me - 1]
    room = parts[0].new_empty(parts[0].numel() if size > 1 else 0)
    for step in range(size - 1):
        passed, own = parts[(me - step) % size], parts[(me - step - 1) % size]
        received = room[: own.numel()]
        transport.exchange([(after, passed)], [(before, received)])
        own.add_(received)
    return (me + 1) % size


def all_gather(parts: Sequence[Tensor], transport: Transport, members: Sequence[int]) -> None:
    """Pass every part on along the ring, as `reduce_scatter` left them."""
    size, me = len(members), members.index(transport.rank)
    after, before = members[(me + 1) % size], members[me - 1]
    for step in range(size - 1):
        transport.exchange(
            [(after, parts[(me + 1 - step) % size])], [(before, parts[(me - step) % size])]
        )


def ring(tensor: Tensor, transport: Transport, members: Sequence[int]) -> None:
    """Sum `tensor` (flat) over `members`, in place."""
    parts = tensor.tensor_split(len(members))
    reduce_scatter(parts, transport, members)
    all_gather(parts, transport, members)


def _cost(n: int, size: int) -> Cost:
    way = 2 * n * (size - 1) / size
    return Cost(2 * (size - 1), way, way, 2 * way, 2 * n * (size - 1))


ALGORITHM = Algorithm(
    "ring",
    run=lambda tensor, transport: ring(tensor, transport, range(transport.size)),
    formula=_cost,
)
