"""Compute how long a placement's gradient reduction takes on P devices when links carry what was
measured or assumed: formulas, nothing fitted.

S: bytes that a replica hands in. P devices, nodes of g, m = P/g of them. L: bytes/s that a device's
    link carries one way inside a node, W: between nodes, a device; a node's links to others carry g
    W together. H: bytes/s of a device's link to its host.

| merge | inside a node | between nodes |
|---|---|---|
| all-reduce, hierarchical | 2 (g-1)/g S/L | 2 (m-1)/m S/(g W): each device joins a g-th with its
like on other nodes | | copies to all | (g-1) S/L | (P-g) S/W |
| one home, or several | 2 (g-1) S_max/L | 2 (P-g) S_max/W, S_max: what the fullest home holds; all
of S with one | | the host | (P-1) S_h/H | (P-g) S_h/(g W), S_h: to and from the host |

Messages that follow each other add their latency: 2(g-1) inside a node and 2(m-1) between nodes.
Nothing overlaps between kinds of link. Inside a node g is P.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from multigpu.placements.row import Placement
from multigpu.placements.traffic import HOST, REPLICA, SHARDED, assign, least_loaded
from multigpu.spec.model import Variable


@dataclass(frozen=True)
class Links:
    """Rates in bytes/s one way of one device, latencies in s a message, `node`: devices of one."""

    inside_bytes_per_s: float
    host_bytes_per_s: float = float("inf")
    inside_latency_s: float = 0.0
    node: int = 8
    between_bytes_per_s: float = float("inf")
    between_latency_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.inside_bytes_per_s, self.host_bytes_per_s, self.between_bytes_per_s) <= 0:
            raise ValueError("links must carry something: every rate is above 0 bytes/s")
        if self.node < 1 or min(self.inside_latency_s, self.between_latency_s) < 0:
            raise ValueError(
                f"a node has at least 1 device and no latency is negative, not {self.node} devices"
            )


class NoFormula(ValueError):
    """No formula says what a placement moves; the sentence says why."""


@dataclass(frozen=True)
class Demand:
    """Bytes that one replica's step moves, whatever the number of devices. reduced: handed to an
    all-reduce. copied: sent to every other replica. host: to and from the host. pulled, pushed:
    of each variable, from and to where it lives. elements: by which they are spread; none: all
    live on the first. overlaps: merging begins in backward.
    """

    reduced: float = 0.0
    copied: float = 0.0
    host: float = 0.0
    pulled: tuple[float, ...] = ()
    pushed: tuple[float, ...] = ()
    elements: tuple[int, ...] = ()
    overlaps: bool = False


def demand_of(
    placement: Placement, variables: Sequence[Variable], rows: float = 0.0, item_bytes: int = 4
) -> Demand:
    """The Demand of a placement's row; rows: that a replica looks up in each embedding table.
    NoFormula: nothing here says what it moves.
    """
    if placement.travels == "activations" or not placement.semantics.facts.is_reproducible:
        if placement.travels == "activations":
            why = "its parts are cut from one model"
        else:
            why = "its replicas do not wait for each other"
        raise NoFormula(
            f"{placement.name}: {why}, so its step does not follow from what is reduced"
        )
    if placement.reduction == "halves" or placement.algorithm not in (
        None,
        "ring",
        "central_server",
    ):
        raise NoFormula(
            f"{placement.name}: no formula for how its reduction grows with the number of devices"
        )
    reduced = copied = host = 0.0
    pulled, pushed = [], []
    for assigned in assign(placement, variables, 1):
        size = float(assigned.variable.elements * item_bytes)
        down = up = 0.0
        if assigned.home in (REPLICA, SHARDED):
            at_one = placement.reduction == "gpu0" or placement.algorithm == "central_server"
            # an all-reduce is a reduce-scatter and one all-gather
            gathered_twice = 1.5 if assigned.home == SHARDED else 1.0
            reduced += (
                gathered_twice * size
                if placement.reduction in ("all_reduce", "reduce_scatter") and not at_one
                else 0
            )
            reduced += size / placement.semantics.every if placement.reduction == "average" else 0
            copied += size if placement.reduction == "copy" else 0
            down = up = size if at_one else 0.0
        else:
            count = rows * assigned.variable.shape[1] * item_bytes if assigned.by_row else size
            source = assigned.lookup if assigned.by_row else assigned.home
            host += count * ((source == HOST) + (assigned.update == HOST))
            down, up = (0.0 if place == HOST else count for place in (source, assigned.update))
        pulled.append(down)
        pushed.append(up)
    spread = "balanced" in (placement.variables, placement.embeddings, placement.update)
    elements = tuple(variable.elements for variable in variables) if spread else ()
    return Demand(reduced, copied, host, tuple(pulled), tuple(pushed), elements, placement.overlap)


def fullest(demand: Demand, devices: int) -> tuple[float, float]:
    """Return the bytes that every replica fetches from, and sends to, the device that holds most of
    what travels.
    """
    if not demand.elements:
        return sum(demand.pulled), sum(demand.pushed)
    homes = least_loaded(demand.elements, devices)
    pulled, pushed = [0.0] * devices, [0.0] * devices
    for home, down, up in zip(homes, demand.pulled, demand.pushed, strict=True):
        pulled[home] += down
        pushed[home] += up
    return max(pulled), max(pushed)


def reduction_seconds(demand: Demand, devices: int, links: Links) -> tuple[float, float]:
    """(seconds over links inside a node, seconds over links between nodes) of one step's merge; see
    the module.
    """
    p, g = devices, min(devices, links.node)
    nodes = -(-p // g)
    others, device, network = p - g, links.inside_bytes_per_s, links.between_bytes_per_s
    inside = between = 0.0
    if demand.reduced and p > 1:
        inside += 2 * (g - 1) / g * demand.reduced / device + 2 * (g - 1) * links.inside_latency_s
        between += (
            2 * (nodes - 1) / nodes * demand.reduced / (g * network)
            + 2 * (nodes - 1) * links.between_latency_s
        )
    inside += (g - 1) * demand.copied / device
    between += others * demand.copied / network
    home = sum(fullest(demand, p)) if demand.pulled else 0.0
    inside += (g - 1) * home / device
    between += others * home / network
    inside += (p - 1) * demand.host / links.host_bytes_per_s
    between += others * demand.host / (g * network)
    return inside, between
