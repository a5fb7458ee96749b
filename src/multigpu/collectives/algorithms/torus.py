"""2-D torus: processes form a grid of r rows and c columns; reduce-scatter along rows, all-reduce
along columns, all-gather along rows.

The grid is the most nearly square one with c >= r (4: 2 x 2, 6: 2 x 3, 8: 2 x 4). A prime P is one
row: a ring. Source: document 002; H. Mikami et al., "Massively Distributed SGD" (2018).

For N bytes and P = r c a link in a row carries 2N(c-1)/c, one in a column 2N(r-1)/P. A process
sends 2N(P-1)/P, as on a ring, by fewer messages that follow each other. Each part's sum is made by
one process and copied.
"""

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport, grid_of
from multigpu.collectives.algorithms.ring import all_gather, reduce_scatter, ring


def _all_reduce(tensor: Tensor, transport: Transport) -> None:
    _, columns = grid_of(transport.size)
    row, column = divmod(transport.rank, columns)
    along_row = range(row * columns, (row + 1) * columns)
    parts = tensor.tensor_split(columns)
    held = reduce_scatter(parts, transport, along_row)
    ring(parts[held], transport, range(column, transport.size, columns))
    all_gather(parts, transport, along_row)


def _cost(n: int, size: int) -> Cost:
    rows, columns = grid_of(size)
    in_row, in_column = 2 * n * (columns - 1) / columns, 2 * n * (rows - 1) / size
    way = in_row + in_column
    return Cost(
        2 * (columns - 1) + 2 * (rows - 1), max(in_row, in_column), way, 2 * way, 2 * n * (size - 1)
    )


ALGORITHM = Algorithm("torus", run=_all_reduce, formula=_cost)
