"""Two levels: each group of g neighbours reduces to its leader (tree), the m = P/g leaders
all-reduce (ring), leaders broadcast (tree).
Source: document 002's servers of eight GPUs; P. Goyal et al., "Accurate, Large Minibatch SGD"
    (2017).

g is the larger side of the most nearly square grid (4: 2, 6: 3, 8: 4). A prime P has no such grid:
every process is a leader, and the algorithm is a ring.

For N bytes a link within a group carries N, one between leaders 2N(m-1)/m. A leader sends N
ceil(log2 g) + 2N(m-1)/m and receives as much; 2N(P-1) in all, of which 2N(m-1) between groups. Sums
are made once and copied.
"""

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport, grid_of
from multigpu.collectives.algorithms.ring import ring
from multigpu.collectives.algorithms.tree import broadcast_from_first, reduce_to_first


def _group_size(size: int) -> int:
    rows, columns = grid_of(size)
    return columns if rows > 1 else 1


def _all_reduce(tensor: Tensor, transport: Transport) -> None:
    group = _group_size(transport.size)
    leader = transport.rank - transport.rank % group
    members = range(leader, leader + group)
    reduce_to_first(tensor, transport, members)
    if transport.rank == leader:
        ring(tensor, transport, range(0, transport.size, group))
    broadcast_from_first(tensor, transport, members)


def _cost(n: int, size: int) -> Cost:
    g = _group_size(size)
    leaders, depth = size // g, (g - 1).bit_length()
    between = 2 * n * (leaders - 1) / leaders
    way = n * depth + between
    link = max(n if g > 1 else 0, between)
    return Cost(2 * depth + 2 * (leaders - 1), link, way, 2 * way, 2 * n * (size - 1))


def _serial(size: int, processes: int) -> float:
    g = _group_size(processes)
    return 2 * size * ((g - 1).bit_length() + (processes // g - 1) / (processes // g))


ALGORITHM = Algorithm("hierarchical", run=_all_reduce, formula=_cost, serial=_serial)
