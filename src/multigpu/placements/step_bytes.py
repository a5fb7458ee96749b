"""The bytes of one step of a Run: its placement's, with what the Run itself says of how gradients,
inputs and predictions travel.
"""

from collections.abc import Sequence

from multigpu.collectives.spec import LIBRARY, Part, parse_spec, spec_bytes
from multigpu.placements import find_placement
from multigpu.placements.checks import PARTITIONED
from multigpu.placements.partition import partition_bytes
from multigpu.placements.traffic import predicted_bytes
from multigpu.run import Run
from multigpu.stages.check import predicted_moves

WIRE_BYTES = {"bf16": 2, "fp16": 2}
COMPUTED_BYTES = {"fp64": 8, "bf16": 2, "fp16": 2}
"""Of one element of a prediction; 4 in other precisions."""


def item_bytes(run: Run) -> int:
    """Of one element of a variable, a gradient or an image."""
    return 8 if run.precision == "fp64" else 4


def sliced_bytes(run: Run) -> int:
    """What slicing a joined batch on the first device moves: images out, predictions in and their
    gradients out, of all others.
    """
    config = run.description.config
    image = config.channels * config.image_size**2 * item_bytes(run)
    prediction = config.classes * COMPUTED_BYTES.get(run.precision, 4)
    return sum(run.shard_sizes[1:]) * (image + 2 * prediction)


def step_bytes(
    run: Run,
    lookups: Sequence[dict[str, int]],
    gradient_rows: Sequence[dict[str, int]] | None = None,
) -> dict[str, int]:
    """Bytes one step of `run` (a cycle of `semantics.every` steps) moves; given and told as
    `predicted_bytes` does.
    """
    moved = _moved(run, lookups, gradient_rows)
    parts = run.micro_steps or 1
    merges, uses = (
        parts if run.micro_sync == "each" else 1,
        parts if find_placement(run.placement).variables == "cut" else 1,
    )
    return {
        kind: count * (uses if kind == "all_gather" else merges) for kind, count in moved.items()
    }


def _moved(
    run: Run, lookups: Sequence[dict[str, int]], gradient_rows: Sequence[dict[str, int]] | None
) -> dict[str, int]:
    placement, variables = find_placement(run.placement), run.description.variables
    if placement.compute in PARTITIONED:
        return partition_bytes(run, lookups)
    if placement.compute == "stage":
        return predicted_moves(run)
    if run.all_reduce_spec or run.wire_dtype:
        item = WIRE_BYTES[run.wire_dtype] if run.wire_dtype else item_bytes(run)
        whole = (Part(placement.algorithm or LIBRARY, None),)
        parts = parse_spec(run.all_reduce_spec) if run.all_reduce_spec else whole
        return spec_bytes(parts, [variable.elements for variable in variables], item, len(lookups))
    moved = predicted_bytes(placement, variables, lookups, item_bytes(run), gradient_rows)
    if placement.loss == "gpu0" and (extra := sliced_bytes(run)):
        moved["device_to_device"] = moved.get("device_to_device", 0) + extra
    return moved
