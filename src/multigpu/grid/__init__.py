"""The study's design: what is measured, in which tier, and what it may cost.

Tiers: *headline* points have at least five repeats over two launches (eight over five where steps wander; single GPUs and one pair,
which no claim compares, three over three); *screening* points n = 1 and are marked so wherever they are shown; everything else a Run
can describe is *not planned*. Within a grid what matters most comes first, so that a budget that ends early leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from multigpu.grid.batching import batching, batching_captured, batching_small, batching_tensorflow
from multigpu.grid.causes import causes, causes_small
from multigpu.grid.claims_again import claims_one_gpu, claims_shuffling, claims_tensorflow
from multigpu.grid.cnn_study import cnn_formats, cnn_formats_captured, cnn_ladders, cnn_pairs, cnn_small, cnn_updates
from multigpu.grid.cnns import cnn_batches, cnn_captured, cnn_compiled, cnn_models, cnn_strong
from multigpu.grid.entries import EXPERIMENTS, OTHER_PLACEMENTS, SPINE_PLACEMENTS, Planned, affordable, cost_s, having, pace, points
from multigpu.grid.family import family, family_small
from multigpu.grid.from_yaml import grid
from multigpu.grid.hardware import hardware, hardware_small, memory_speed
from multigpu.grid.inputs import inputs
from multigpu.grid.inside_model import (
    inside_model,
    inside_model_crossing,
    inside_model_host,
    inside_model_small,
    inside_model_traces,
)
from multigpu.grid.interference import interference, interference_small
from multigpu.grid.overlap import sent_unpacked, small_last, updates_in_backward
from multigpu.grid.parallelism import parallelism, parallelism_small
from multigpu.grid.phases import phases, phases_small
from multigpu.grid.placement_table import placement_table
from multigpu.grid.pytorch import (
    captured,
    placements_repeated,
    traces,
)
from multigpu.grid.small import cpu_study
from multigpu.grid.tensorflow import (
    tensorflow_anomaly,
    tensorflow_cnn,
    tensorflow_distribute,
    tensorflow_forms,
    tensorflow_layers,
    tensorflow_models,
    tensorflow_traces,
)
from multigpu.measure.machine import gpu_count, this_machine

__all__ = [
    "EXPERIMENTS",
    "GRIDS",
    "OTHER_PLACEMENTS",
    "SPINE_PLACEMENTS",
    "Planned",
    "affordable",
    "cost_s",
    "default_grid",
    "device_counts",
    "devices_here",
    "every_grid",
    "find_grid",
    "pace",
    "points",
    "restricted",
]

GRIDS: dict[str, Callable[[Sequence[int]], list[Planned]]] = {
    "cpu_study": cpu_study,
    "gpu_study": lambda devices: [replace(entry, tier="screening") for entry in grid("headline", devices)],
    "headline": partial(grid, "headline"),
    "documents_precision": partial(grid, "documents_precision"),
    "documents_tf32": partial(grid, "documents_tf32"),
    "placements_screening": partial(grid, "placements_screening"),
    "placements_repeated": placements_repeated,
    "placement_table": placement_table,
    "claims_one_gpu": claims_one_gpu,
    "claims_shuffling": claims_shuffling,
    "claims_tensorflow": claims_tensorflow,
    "captured": captured,
    "updates_in_backward": updates_in_backward,
    "sent_unpacked": sent_unpacked,
    "small_last": small_last,
    "compiled": partial(grid, "compiled"),
    "persistent": partial(grid, "persistent"),
    "fused_batch_norm": partial(grid, "fused_batch_norm"),
    "dispatch": partial(grid, "dispatch"),
    "traces": traces,
    "phases": phases,
    "phases_small": phases_small,
    "parallelism": parallelism,
    "parallelism_small": parallelism_small,
    "batching": batching,
    "batching_small": batching_small,
    "shuffling": partial(grid, "shuffling"),
    "batching_captured": batching_captured,
    "batching_tensorflow": batching_tensorflow,
    "causes": causes,
    "causes_small": causes_small,
    "cnn_models": cnn_models,
    "cnn_captured": cnn_captured,
    "cnn_compiled": cnn_compiled,
    "cnn_strong": cnn_strong,
    "cnn_batches": cnn_batches,
    "cnn_pairs": cnn_pairs,
    "cnn_updates": cnn_updates,
    "cnn_formats": cnn_formats,
    "cnn_formats_captured": cnn_formats_captured,
    "cnn_ladders": cnn_ladders,
    "cnn_small": cnn_small,
    "deepconn": partial(grid, "deepconn"),
    "document_004": partial(grid, "document_004"),
    "document_004_small": partial(grid, "document_004_small"),
    "inside_model": inside_model,
    "inside_model_traces": inside_model_traces,
    "inside_model_host": inside_model_host,
    "inside_model_crossing": inside_model_crossing,
    "inside_model_small": inside_model_small,
    "tensorflow_nmt": partial(grid, "tensorflow_nmt"),
    "tensorflow_anomaly": tensorflow_anomaly,
    "tensorflow_forms": tensorflow_forms,
    "tensorflow_traces": tensorflow_traces,
    "tensorflow_cnn": tensorflow_cnn,
    "tensorflow_models": tensorflow_models,
    "tensorflow_layers": tensorflow_layers,
    "tensorflow_distribute": tensorflow_distribute,
    "inputs": inputs,
    "inputs_small": partial(grid, "inputs_small"),
    "family": family,
    "family_small": family_small,
    "equal_batches": partial(grid, "equal_batches"),
    "hardware": hardware,
    "hardware_small": hardware_small,
    "memory_speed": memory_speed,
    "same_gpus": partial(grid, "same_gpus"),
    "interference": interference,
    "interference_small": interference_small,
}
"""By name, a function of the device counts to measure; those that need no condition are files in `grids/`."""


def every_grid() -> str:
    """The names of all grids but those for any computer (`*_small`, the study of CPUs) and of the checks of how it is measured."""
    return ",".join(name for name in GRIDS if not name.endswith("_small") and name not in ("cpu_study", "interference", "same_gpus"))


def device_counts(available: int) -> list[int]:
    """1, 2, 4, 8 ... up to what there is."""
    return [count for count in (1, 2, 4, 8) if count <= available]


def default_grid() -> str:
    """The grid that the study measures on this machine."""
    return "gpu_study" if gpu_count() else "cpu_study"


def devices_here() -> list[int]:
    """Device counts that this machine can measure: 1, 2, 4, 8 up to its GPUs; without any, up to two CPU processes."""
    return device_counts(gpu_count() or min(2, this_machine().cores))


def find_grid(name: str, devices: Sequence[int]) -> list[Planned]:
    """The grid called `name` at these device counts, or several, their names joined by commas: one after the other, a Run that several
    declare where it first stands, and repeated if any of them repeats it. Their launches are then shared.

    Raises:
        ValueError: no such grid; the sentence names the known ones.
    """
    found: dict[tuple[str, int], Planned] = {}
    for one in name.split(","):
        if one.strip() not in GRIDS:
            raise ValueError(f"unknown grid {one.strip()!r}: choose one of {', '.join(GRIDS)}, or several joined by commas")
        for entry in GRIDS[one.strip()](devices):
            at = (entry.run.digest, entry.first_repeat)
            known = found.get(at)
            if known is None or len(known.points()) < len(entry.points()):
                found[at] = entry
    return list(found.values())


def restricted(planned: Sequence[Planned], fields: Mapping[str, object]) -> list[Planned]:
    """The entries whose Runs have these values.

    Raises:
        ValueError: none has.
    """
    return having(planned, fields, lambda entry, name: getattr(entry.run, name))
