"""Where each variable goes, and the bytes of one step, which every Record asserts."""

from collections.abc import Sequence
from dataclasses import dataclass

from multigpu.collectives import find_algorithm
from multigpu.placements.row import Home, Placement
from multigpu.spec.model import Variable
from multigpu.spec.stage_graph import HOST, ID_BYTES, direction

REPLICA = -2
"""The place of what has a copy on each device; a device's place is its index."""
SHARDED = -3
"""The place of what is cut into stretches, one a device."""

BOUNDARY = 16
"""Bytes at whose multiples variables of one stretch begin, as compiled code needs it."""

FIRST_BUCKET_MIB = 1.0
"""PyTorch's choice: a small first bucket starts the wire early."""

BUCKET_MIB = 25.0

KINDS = (
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
)
"""Kinds of traffic. Copies count the bytes that travel; collectives those that every replica hands
to them (of which a ring sends 2 (P-1)/P times an all_reduce's, P-1 times what each device brings to
an all_gather, (P-1)/P of what each brings to a reduce_scatter).
"""


@dataclass(frozen=True)
class Assigned:
    """A variable's places: where it lives, is looked up by row, and is updated."""

    variable: Variable
    home: int
    lookup: int
    update: int

    @property
    def by_row(self) -> bool:
        return self.variable.kind == "embedding" and self.lookup != REPLICA


def least_loaded(sizes: Sequence[int], devices: int) -> list[int]:
    """In order, each item to the device that holds the least (ties: the lowest index): TensorFlow's
    `GreedyLoadBalancingStrategy` (000).
    """
    load, chosen = [0] * devices, []
    for size in sizes:
        device = load.index(min(load))
        load[device] += size
        chosen.append(device)
    return chosen


def neighbours(sizes: Sequence[int], limit_mib: float, first_mib: float) -> list[list[int]]:
    """Put neighbours together, by index, until a group reaches the limit (the first its own), as
    DistributedDataParallel does; what is as large stands alone. sizes: in bytes.
    """
    groups: list[list[int]] = [[]]
    held, limit = 0.0, first_mib
    for index, size in enumerate(sizes):
        own = size / 2**20
        if own >= limit_mib and groups[-1]:
            groups.append([])
        groups[-1].append(index)
        held += own
        if held >= limit or own >= limit_mib:
            groups.append([])
            held, limit = 0.0, limit_mib
    return [group for group in groups if group]


def laid_out(elements: Sequence[int], item_bytes: int, devices: int) -> tuple[list[int], int]:
    """Where each of variables laid end to end begins, at multiples of 16 bytes, and how long all
    are, filled up to be cut, in elements.
    """
    step = max(1, BOUNDARY // item_bytes)
    starts, end = [], 0
    for count in elements:
        starts.append(end)
        end += -(-count // step) * step
    return starts, -(-end // (step * devices)) * step * devices


def cut_elements(
    placement: Placement, variables: Sequence[Variable], item_bytes: int, devices: int
) -> int:
    """Elements of all variables, filled up to be cut over the devices as the placement does."""
    if placement.variables == "sharded":
        return sum(
            v.elements // v.shape[0] * -(-v.shape[0] // devices) * devices for v in variables
        )
    groups = scattered_together(variables, item_bytes) if placement.overlap else [[*variables]]
    return sum(laid_out([v.elements for v in group], item_bytes, devices)[1] for group in groups)


def scattered_together(
    variables: Sequence[Variable], item_bytes: int, limit_mib: float = BUCKET_MIB
) -> list[list[Variable]]:
    """The variables whose gradients travel in one message, last ones first."""
    made = variables[::-1]
    sizes = [variable.elements * item_bytes for variable in made]
    groups = neighbours(sizes, limit_mib, min(FIRST_BUCKET_MIB, limit_mib))
    return [[made[index] for index in group] for group in groups]


def assign(placement: Placement, variables: Sequence[Variable], devices: int) -> list[Assigned]:
    """Every variable with its places under `placement` on `devices` devices, in the order given."""
    greedy = least_loaded([v.elements for v in variables], devices)

    def place(home: Home, index: int) -> int:
        return {
            "replica": REPLICA,
            "host": HOST,
            "gpu0": 0,
            "balanced": greedy[index],
            "sharded": SHARDED,
        }[home]

    assigned = []
    for index, variable in enumerate(variables):
        embedding = variable.kind == "embedding"
        home = place(placement.embeddings if embedding else placement.variables, index)
        lookup = place(placement.lookup, index) if embedding else REPLICA
        assigned.append(Assigned(variable, home, lookup, place(placement.update, index)))
    return assigned


def merged_bytes(
    placement: Placement,
    elements: int,
    item_bytes: int,
    replicas: int,
    sparse: Sequence[int] | None,
) -> tuple[str, int]:
    """Return how a variable that replicas have copies of is merged, and the bytes that this moves.

    sparse: of each replica's gradient rows with their ids; None: the whole gradient travels.
    """
    size, others = elements * item_bytes, replicas - 1
    if sparse is not None and placement.reduces_gradients:
        return "device_to_device", others * sum(sparse)
    if placement.algorithm is not None:
        algorithm = find_algorithm(placement.algorithm)
        return "device_to_device", algorithm.moved_bytes(elements, item_bytes, replicas)
    if placement.reduction in ("all_reduce", "average") and others:
        return "all_reduce", replicas * size
    if placement.reduction == "copy":
        return "device_to_device", replicas * others * size
    # all but one send once and receive once, on whichever way
    if placement.reduction in ("gpu0", "halves"):
        return "device_to_device", 2 * others * size
    return "device_to_device", 0


def predicted_bytes(
    placement: Placement,
    variables: Sequence[Variable],
    lookups: Sequence[dict[str, int]],
    item_bytes: int = 4,
    gradient_rows: Sequence[dict[str, int]] | None = None,
) -> dict[str, int]:
    """Bytes one step (where variables are averaged, one cycle of steps) moves over all replicas, by
    kind; 0 is left out.

    lookups: of each replica, embedding variable -> rows it looks up in this step (padding
        included). gradient_rows: likewise distinct rows, where embedding gradients are sparse:
        these travel, each with its id. None: one row a look-up, or the whole table.

    Dense variable of S bytes at one place, P replicas: down P S from the host, (P-1) S from a
    device (its own copy is not copied); gradients the same way back. An embedding looked up at
    home: rows instead of S, and ids to the device that gathers rows or adds up their gradients.
    Copies whose gradients are summed on one device: (P-1) S there and (P-1) S back, by halves too;
    scattered sums: all of it (`cut_elements`) once from each replica, and each one's stretch of the
    new values, or of cut variables twice; by an algorithm written out, what its formula says. An
    update elsewhere than at home also brings the table there and the new value back.
    """
    replicas = len(lookups)
    moved = dict.fromkeys(KINDS, 0)
    if placement.reduction == "reduce_scatter":
        size = cut_elements(placement, variables, item_bytes, replicas) * item_bytes
        uses = 2 if placement.variables == "sharded" else 1
        return (
            {"all_gather": uses * size, "reduce_scatter": replicas * size} if replicas > 1 else {}
        )

    def copy(source: int, target: int, count: int) -> None:
        if source != target:
            moved[direction(source, target)] += count

    for a in assign(placement, variables, replicas):
        size = a.variable.elements * item_bytes
        sparse = None
        if gradient_rows is not None and a.variable.kind == "embedding":
            sparse = [
                rows[a.variable.name] * (a.variable.shape[1] * item_bytes + ID_BYTES)
                for rows in gradient_rows
            ]
        if a.home == REPLICA:
            kind, count = merged_bytes(placement, a.variable.elements, item_bytes, replicas, sparse)
            moved[kind] += count
            continue
        for replica in range(replicas):
            if a.by_row:
                count = lookups[replica].get(a.variable.name, 0)
                rows = count * a.variable.shape[1] * item_bytes
                readers = {a.lookup} if sparse is not None else {a.lookup, a.update}
                for reader in readers - {HOST}:  # the host reads ids from the batch
                    copy(replica, reader, count * ID_BYTES)
                copy(a.lookup, replica, rows)
                copy(replica, a.update, rows if sparse is None else sparse[replica])
            else:
                copy(a.home, replica, size)
                copy(replica, a.update, size if sparse is None else sparse[replica])
        if a.update != a.home:
            if a.by_row:
                copy(a.home, a.update, size)
            copy(a.update, a.home, size)
    return {kind: count for kind, count in moved.items() if count}
