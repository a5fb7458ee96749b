"""What a Run asks of a model that is parallel in itself, and what of it cannot be had. Imports no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.placements.partition import ACTIVATION_BYTES, uncuttable

if TYPE_CHECKING:
    from multigpu.placements.row import Placement
    from multigpu.run import Run

PARTITIONED = ("sections", "split")
"""Values of a row's `compute` under which the devices share copies of a model."""


def check_partition(run: Run, placement: Placement) -> None:
    """Refuse what cannot be had.

    Raises:
        ValueError: one sentence that names the field, its value and what is allowed.
    """
    if placement.compute not in PARTITIONED:
        if run.model_parallel is not None:
            raise ValueError(
                f"model_parallel {run.model_parallel} has no meaning for placement {run.placement!r}, which gives every device the whole"
                " model: choose layer_split or tensor_split"
            )
    elif run.devices % run.degree:
        raise ValueError(f"model_parallel {run.model_parallel} does not divide {run.devices} devices into copies of a model")
    if run.micro_batches is not None and placement.compute != "sections":
        raise ValueError(f"micro_batches {run.micro_batches} has no meaning for placement {run.placement!r}: choose layer_split")
    if placement.compute not in PARTITIONED:
        return
    if run.precision not in ACTIVATION_BYTES:
        raise ValueError(f"precision {run.precision!r} is not kept between parts of a model: choose {', '.join(ACTIVATION_BYTES)}")
    smallest, parts = min(run.shard_sizes), run.micro_batches or 1
    if smallest < parts:
        raise ValueError(
            f"a copy of the model gets {smallest} rows, which cannot be cut into {parts} micro-batches: choose a larger batch_size"
        )
    if placement.compute == "sections":
        _check_sections(run)
    else:
        _check_splitting(run)


def _check_sections(run: Run) -> None:
    sections = run.description.sections
    if not sections:
        raise ValueError(f"placement {run.placement!r} needs a model that declares its sections, and {run.model!r} does not")
    if len(sections) < run.degree:
        raise ValueError(
            f"{run.model!r} has {len(sections)} sections, which cannot be spread over {run.degree} devices: choose at most {len(sections)}"
        )
    if run.cross_entropy is not None and run.execution != "eager":
        raise ValueError(f"cross_entropy {run.cross_entropy!r} of sections runs eagerly only")


def _check_splitting(run: Run) -> None:
    if reason := uncuttable(run.description, run.degree):
        raise ValueError(f"placement {run.placement!r}: {reason}")
    if run.recurrence in ("fused", "persistent"):
        raise ValueError(
            f"recurrence {run.recurrence!r} is one call for whole layers, and placement {run.placement!r} cuts them: leave it out"
        )
