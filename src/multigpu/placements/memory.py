"""Count what a placement keeps on one device between two steps, by its row."""

from collections import Counter
from dataclasses import astuple, dataclass

from multigpu.placements import find_placement
from multigpu.placements.partition import part_elements
from multigpu.placements.step_bytes import gradient_bytes, item_bytes
from multigpu.placements.traffic import assign, cut_elements, scattered_together
from multigpu.spec.model import Model, block_of, optimizer_of
from multigpu.spec.parallel import PARTITIONED
from multigpu.spec.run import Run


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes of one device, activations aside. slots: optimiser states. buffers: where what others
    send arrives, and what was sent last.
    """

    weights: int
    gradients: int
    slots: int
    buffers: int = 0

    @property
    def total(self) -> int:
        return sum(astuple(self))


def kept_on(run: Run, model: Model, rank: int = 0) -> DeviceBytes:
    """Count bytes kept on device `rank` in PyTorch; a ValueError for stages of a graph."""
    placement = find_placement(run.placement)
    variables = model.variables
    devices = run.sharded_over or run.devices
    rank = rank % devices if run.sharded_over else rank
    item, slots = item_bytes(run), optimizer_of(run, model).slots
    if placement.compute in PARTITIONED:
        size = item * part_elements(run, model, rank)
        return DeviceBytes(size, size, slots * size)
    if placement.compute != "replica":
        raise ValueError(
            f"placement {run.placement!r} puts stages of a model's graph on its devices, and no"
            " formula here says which: choose another"
        )
    if placement.variables == "sharded":
        piece = 0
        for variable in variables:
            rows = -(-variable.shape[0] // devices)
            piece += (
                item
                * variable.elements
                // variable.shape[0]
                * max(0, min(rows, variable.shape[0] - rank * rows))
            )
        # states alone are of the piece itself
        filled = item * cut_elements(placement, variables, item, devices) // devices
        return DeviceBytes(filled, filled, slots * piece)
    size = item * sum(variable.elements for variable in variables)
    if placement.update == "sharded":
        size = item * cut_elements(placement, variables, item, devices)
        # gradients that are scattered while backward runs are freed
        gradients = size // devices if placement.overlap else size
        return DeviceBytes(size, gradients, slots * size // devices)
    if placement.copied_anew:
        return DeviceBytes(size, size, slots * size) if rank == 0 else DeviceBytes(0, 0, 0)
    if placement.variables == "replica":
        own = size * gradient_bytes(run) // item  # of gradients, and of variables beside masters
        weights = size if own == size else size + own
        return DeviceBytes(
            weights, own, slots * size, (devices - 1) * own if placement.reduction == "copy" else 0
        )
    assigned = assign(placement, variables, devices)
    dense = item * sum(a.variable.elements for a in assigned if not a.by_row)
    own = item * sum(a.variable.elements for a in assigned if not a.by_row and a.update == rank)
    tables = item * sum(a.variable.elements for a in assigned if a.by_row and a.update == rank)
    # what is fetched ahead, and masters apart from what computes
    staged = dense + own if placement.staged else 0
    return DeviceBytes(
        dense + tables, dense + tables, slots * (own + tables), (devices - 1) * own + staged
    )


def most_kept(run: Run, model: Model) -> int:
    """Bytes of the fullest device, activations aside, with what is gathered for a while."""
    placement, item = find_placement(run.placement), item_bytes(run)
    kept = [kept_on(run, model, rank) for rank in range(run.devices)]
    most = max(one.total for one in kept)
    groups = scattered_together(model.variables, item)
    largest = item * max(sum(variable.elements for variable in group) for group in groups)
    if (run.bucket_send or "").startswith("copied") and run.devices > 1:
        return most + largest  # a bucket's pieces, as others send them
    if placement.update == "sharded" and placement.variables == "replica" and placement.overlap:
        return most + 3 * largest  # gradients as they come, and two buckets on their way
    if placement.variables != "sharded" or run.devices == 1:
        return most
    # gathered at a time: the layers of an image model, else each repeated block, and the rest
    parts: Counter[str] = Counter()
    for variable in model.variables:
        name = variable.name
        part = name.split(".")[0] if model.unit == "images" else block_of(name)
        parts[part] += item * cut_elements(
            placement, [variable], item, run.sharded_over or run.devices
        )
    held = 4 * max(parts.values())
    if not run.reshard:
        held = parts.total() + 2 * max(parts.values())
    return max(most + held, parts.total() + kept[0].weights)
