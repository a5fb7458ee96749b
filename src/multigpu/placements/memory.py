"""Count what a placement keeps on one device between two steps, by its row."""

from collections import Counter
from dataclasses import astuple, dataclass

from multigpu.placements import find_placement
from multigpu.placements.partition import part_elements
from multigpu.placements.step_bytes import WIRE_BYTES, gradient_bytes, item_bytes
from multigpu.placements.traffic import BUCKET_MIB, assign, cut_elements, scattered_together
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


@dataclass(frozen=True)
class StepNeeds:
    """Bytes that a step needs of the fullest device, activations aside.

    held: beside activations all the time: variables, states, buffers, what is gathered for a while,
        and gradients that outlast a step. made: gradients that backward makes while it frees
        activations, and that are gone when the next forward pass begins. updating: what an update
        takes for a while beside both. building: the most before the first step.
    """

    held: int
    made: int = 0
    updating: int = 0
    building: int = 0

    @property
    def least(self) -> int:
        """Those of a step without activations."""
        return max(self.held + self.made + self.updating, self.building)

    def peak(self, activations: float) -> float:
        """Return the most bytes of a step whose activations, so many at their most, are freed as
        evenly as its gradients come.
        """
        return max(self.held + activations, self.least)


def needed(run: Run, model: Model) -> StepNeeds:
    """Return what a step needs of the fullest device; a ValueError for stages of a graph."""
    placement, item = find_placement(run.placement), item_bytes(run)
    every = [kept_on(run, model, rank) for rank in range(run.devices)]
    kept = max(every, key=lambda one: one.total)
    gradients, made = gradients_of_step(run, model, kept)
    held = kept.total - kept.gradients + gradients
    largest = max(map(sum, _buckets(run, model)))
    updating = _updating(run, model)
    if _is_copied(run):
        return StepNeeds(held + _on_wire(run, largest), made, updating)  # pieces that others send
    if placement.update == "sharded" and placement.variables == "replica" and placement.overlap:
        # gradients as they come, and two buckets on their way
        return StepNeeds(held + 3 * largest, made, updating)
    if placement.variables != "sharded" or run.devices == 1:
        return StepNeeds(held, made, updating)
    # gathered at a time: the layers of an image model, else each repeated block, and the rest
    parts: Counter[str] = Counter()
    for variable in model.variables:
        name = variable.name
        part = name.split(".")[0] if model.unit == "images" else block_of(name)
        parts[part] += item * cut_elements(
            placement, [variable], item, run.sharded_over or run.devices
        )
    rest = parts.pop("", 0)  # gathered around all blocks; its gradients leave when backward ends
    gathered = max(2 * rest, 4 * max(parts.values(), default=0))
    parts[""] = rest
    if not run.reshard:
        gathered = parts.total() + 2 * max(parts.values())
    building = parts.total() + every[0].weights
    return StepNeeds(held + gathered, made, max(updating, 4 * rest - gathered), building)


def gradients_of_step(run: Run, model: Model, kept: DeviceBytes) -> tuple[int, int]:
    """Return the bytes of gradients that are there beside all activations, and of those that
    backward makes while it frees these.
    """
    placement, own = find_placement(run.placement), kept.gradients
    if run.framework != "torch" or placement.compute in PARTITIONED:
        return own, 0
    each, whole = run.micro_sync == "each", sum(map(sum, _buckets(run, model)))
    earlier = whole if (run.micro_steps or 1) > 1 else 0  # what parts before the last add up to
    library = placement.reduction == "all_reduce" and placement.overlap
    if "captured" in run.execution and (library or _is_copied(run)):
        # what is packed stays beside what backward made, until the next step
        return _packed(run, model) + earlier, 0 if earlier and not each else whole
    if library:
        # its buckets are, at first, beside those in the order of backward; parts add up elsewhere
        return 2 * whole + (0 if each else earlier), 0
    if placement.variables == "sharded":
        # pieces that an update has read stay until the next; parts add up pieces, or all
        added_to_pieces = earlier > 0 and (each or run.devices == 1)
        return (2 * own, 0) if added_to_pieces else (own + earlier, own)
    if placement.copied_anew or not placement.reduces_gradients:
        return (own, 0) if earlier else (0, own)
    # one stretch; with parts beside what is not scattered yet, or beside what has been merged
    return own + (earlier if each != placement.overlap else 0), 0


def _updating(run: Run, model: Model) -> int:
    """Return what an update takes for a while; the library's fused kernels take nothing."""
    placement, buckets = find_placement(run.placement), [*map(sum, _buckets(run, model))]
    size = item_bytes(run) * sum(variable.elements for variable in model.variables)
    if placement.reduction == "average" and run.devices > 1:
        return size  # all variables, as they travel
    if run.precision != "bf16_params" or placement.variables != "replica":
        return 0
    # gradients as masters read them, of all variables or a bucket at a time
    in_turn = placement.overlap and "captured" in run.execution
    return size * max(buckets) // sum(buckets) if in_turn else size


def _is_copied(run: Run) -> bool:
    """Whether buckets are summed by copies, in memory that all devices reach."""
    return (run.bucket_send or "").startswith("copied") and run.devices > 1


def _on_wire(run: Run, size: int) -> int:
    """Return the bytes that so many of gradients are in the type in which they travel."""
    return size * WIRE_BYTES[run.wire_dtype] // gradient_bytes(run) if run.wire_dtype else size


def _packed(run: Run, model: Model) -> int:
    """Return the bytes of captured steps' buckets that are memory beside the gradients in them."""
    buckets = _buckets(run, model)
    whole = sum(map(sum, buckets))
    if _is_copied(run):  # all are summed there, in another type in memory of its own
        return whole + (_on_wire(run, whole) if run.wire_dtype else 0)
    if (run.bucket_send or "").startswith("grouped"):
        return 0
    return sum(sum(bucket) for bucket in buckets if len(bucket) > 1)


def _buckets(run: Run, model: Model) -> list[list[int]]:
    """Return the bytes of each gradient, bucket by bucket."""
    item = gradient_bytes(run)
    groups = scattered_together(model.variables, item, run.bucket_mib or BUCKET_MIB)
    return [[item * variable.elements for variable in group] for group in groups]
