"""The bytes of one step of a Run: its placement's, changed by what the Run asks for."""

from collections.abc import Callable, Sequence
from math import prod

from multigpu.collectives.spec import LIBRARY, GradientRange, parse_spec, spec_bytes
from multigpu.placements import find_placement
from multigpu.placements.compression import compressed_bytes
from multigpu.placements.partition import partition_bytes
from multigpu.placements.resolve import shard_sizes
from multigpu.placements.row import Placement
from multigpu.placements.stage_split import SplitPlacement, places_in
from multigpu.placements.traffic import ID_BYTES, cut_elements, predicted_bytes
from multigpu.spec.model import Model
from multigpu.spec.parallel import PARTITIONED
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import StageGraph

WIRE_BYTES = {"bf16": 2, "fp16": 2}
COMPUTED_BYTES = {"fp64": 8, "bf16": 2, "fp16": 2}
"""Of one element of a prediction; 4 in other precisions."""


def item_bytes(run: Run) -> int:
    """Of one element of a variable, a gradient or an image."""
    return 8 if run.precision == "fp64" else 4


def gradient_bytes(run: Run) -> int:
    """Return those of one element of a gradient that replicas of all variables send."""
    return 2 if run.precision == "bf16_params" else item_bytes(run)


def sliced_bytes(run: Run, model: Model) -> int:
    """Return bytes of images out, predictions in and their gradients out, where sliced."""
    config = model.config
    image = config.channels * config.image_size**2 * item_bytes(run)
    prediction = config.classes * COMPUTED_BYTES.get(run.precision, 4)
    return sum(shard_sizes(run)[1:]) * (image + 2 * prediction)


ROW_BYTES: dict[str, Callable[[Run, Model], int]] = {
    "images": lambda run, model: (
        model.config.channels * model.config.image_size**2 * item_bytes(run) + ID_BYTES
    ),
    "samples": lambda run, model: prod(model.config.row_shape) * item_bytes(run) + ID_BYTES,
    "tokens": lambda run, model: 2 * (run.sequence_length or model.config.context) * ID_BYTES,
}
"""Unit of a model -> bytes of one row of a batch, what is to be told included."""


def step_bytes(
    run: Run,
    model: Model,
    lookups: Sequence[dict[str, int]],
    gradient_rows: Sequence[dict[str, int]] | None = None,
    graph: StageGraph | None = None,
) -> dict[str, int]:
    """Bytes one step of `run` (a cycle of `semantics.every` steps) moves; lookups and gradient_rows
    given, and bytes told, as `predicted_bytes` does.

    graph: the model's stages, for placements of stages only.
    """
    placement = find_placement(run.placement)
    if isinstance(placement, SplitPlacement):
        assert graph is not None
        places = places_in(graph, run, placement)
        return graph.moved(places, {"rows": run.batch_size}, item_bytes(run))
    moved = _moved(run, placement, model, lookups, gradient_rows)
    parts = run.micro_steps or 1
    merges = parts if run.micro_sync == "each" else 1
    uses = parts if placement.variables == "sharded" else 1
    if not run.reshard:  # gathered for forward, kept for backward
        moved |= {kind: count // 2 for kind, count in moved.items() if kind == "all_gather"}
    return {
        kind: count * (uses if kind == "all_gather" else merges) for kind, count in moved.items()
    }


def _moved(
    run: Run,
    placement: Placement,
    model: Model,
    lookups: Sequence[dict[str, int]],
    gradient_rows: Sequence[dict[str, int]] | None,
) -> dict[str, int]:
    variables = model.variables
    if placement.compute in PARTITIONED:
        return partition_bytes(run, model, lookups)
    compressed = compressed_bytes(run, variables, len(lookups), gradient_bytes(run))
    if compressed is not None:
        return compressed
    if run.all_reduce_spec or run.wire_dtype:
        item = WIRE_BYTES[run.wire_dtype] if run.wire_dtype else gradient_bytes(run)
        whole = (GradientRange(placement.algorithm or LIBRARY, None),)
        parts = parse_spec(run.all_reduce_spec) if run.all_reduce_spec else whole
        return spec_bytes(parts, [variable.elements for variable in variables], item, len(lookups))
    item = item_bytes(run) if placement.variables == "sharded" else gradient_bytes(run)
    if placement.update == "sharded" and run.bucket_send and len(lookups) > 1:
        size = sum(variable.elements for variable in variables) * item
        return {"all_gather": size, "reduce_scatter": len(lookups) * size}  # without gaps
    pieces = run.sharded_over or len(lookups)
    groups = len(lookups) // pieces
    moved = predicted_bytes(placement, variables, lookups[:pieces], item, gradient_rows)
    if groups > 1:  # each does all of it, and sums its stretches over the others
        moved = {kind: groups * count for kind, count in moved.items()}
        moved["all_reduce"] = groups * cut_elements(placement, variables, item, pieces) * item
    if placement.variables == "sharded" and run.precision == "bf16_params" and moved:
        moved["all_gather"] //= 2  # gathered in 16 bits; gradients are summed in 32
    if run.slicing and (rows := sum(shard_sizes(run)[1:])):
        extra = rows * ROW_BYTES[model.unit](run, model)
        moved["device_to_device"] = moved.get("device_to_device", 0) + extra
    if placement.loss == "gpu0" and (extra := sliced_bytes(run, model)):
        moved["device_to_device"] = moved.get("device_to_device", 0) + extra
    return moved
