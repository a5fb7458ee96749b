"""What a Run asks of its input, of single devices and of the machine, and what of it cannot be had. Imports no framework."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multigpu.placements.row import Placement
    from multigpu.run import Run

ON_DEVICE = ("synthetic", "lengths_000", "planted_reviews")
"""Inputs that devices keep or that are drawn from a law: nothing is fed while a model trains."""

CROSSING = ("synthetic_host", "jpeg_folder")
"""Inputs whose images may cross to the device as bytes."""

LENT = ("batch_norm", "stem", "weight_casts")
"""Fields whose code takes variables out of their layer."""

PERSISTENT_UNITS = 512
"""Hidden units of a cell that the persistent LSTM's kernels take on GPUs."""

LEAST_ENERGY_S = 10
"""Seconds below which NVML's counter of energy, which moves every 20 to 100 ms, says too little."""


def check_conditions(run: Run, placement: Placement) -> None:
    """Refuse (ValueError) what cannot be had, in one sentence that names the field, its value and what is allowed."""
    _check_feeding(run)
    _check_devices(run, placement)
    _check_energy(run)
    _check_recurrence(run)
    if run.batch_norm == "persistent" and (run.framework, run.device_type) != ("tensorflow", "cuda"):
        raise ValueError(
            f"batch_norm {run.batch_norm!r} is cuDNN's kernel in TensorFlow: choose framework 'tensorflow' and device_type 'cuda'"
        )
    for name, value in (("batch_norm", "fused"), ("stem", "folded"), ("weight_casts", "grouped")):
        if getattr(run, name) == value:
            _check_fused(run, placement, f"{name} {value!r}")
    if placement.variables == "cut" and (named := [name for name in LENT if getattr(run, name)]):
        raise ValueError(
            f"{named[0]} {getattr(run, named[0])!r} reads variables of several layers at once, and placement {run.placement!r} gathers them"
            " layer by layer: leave it out"
        )
    if run.stem and not run.description.config.foldable:
        raise ValueError(
            f"stem {run.stem!r} is of a first convolution whose stride divides the image, which {run.model!r} does not have: leave it out"
        )
    if run.weight_casts and (run.precision not in ("bf16", "fp16") or "compiled" in run.execution):
        raise ValueError(
            f"weight_casts {run.weight_casts!r} is of steps in 16 bits that are not compiled: choose bf16 and eager or captured, not"
            f" {run.precision} and {run.execution}"
        )


def _check_feeding(run: Run) -> None:
    fields = ("input_workers", "prefetch", "staging", "image_dtype")
    named = {name: getattr(run, name) for name in fields if getattr(run, name) not in (None, 0)}
    if run.input_workers == 0:
        named["input_workers"] = 0
    if not named:
        return
    name, value = next(iter(named.items()))
    if run.description.unit != "images":
        raise ValueError(f"{name} {value!r} has no meaning for {run.description.unit}: leave it out")
    if run.inputs in ON_DEVICE:
        raise ValueError(f"{name} {value!r} has no meaning for inputs {run.inputs!r}, which stay on the device: leave it out")
    if run.staging and not run.prefetch:
        raise ValueError(f"staging {run.staging!r} copies batches ahead of their step: choose prefetch 1 or 2")
    if run.staging and run.device_type == "cpu":
        raise ValueError(f"staging {run.staging!r} is a stream of a GPU: leave it out on device_type 'cpu'")
    if run.processes == "one" and run.framework == "torch":
        raise ValueError(f"{name} {value!r} feeds one replica a process in 'torch': choose processes 'per_device'")
    if run.image_dtype and run.inputs not in CROSSING:
        raise ValueError(f"image_dtype {run.image_dtype!r} has no meaning for inputs {run.inputs!r}: choose {' or '.join(CROSSING)}")
    if run.image_dtype and run.framework != "torch":
        raise ValueError(f"image_dtype {run.image_dtype!r} exists in 'torch' only: leave it out or choose framework 'torch'")
    if run.framework == "tensorflow":
        if run.inputs != "jpeg_folder" or run.input_workers is None:
            raise ValueError(f"{name} {value!r} is tf.data's in 'tensorflow': choose inputs 'jpeg_folder' and input_workers")
        if run.processes != "one":
            raise ValueError(f"{name} {value!r} feeds all replicas from one process in 'tensorflow': choose processes 'one'")


def _check_devices(run: Run, placement: Placement) -> None:
    if run.device_ids is not None:
        if not re.fullmatch(r"\d+(,\d+)*", run.device_ids):
            raise ValueError(f"device_ids {run.device_ids!r} is no list of devices: give numbers such as '0,3'")
        ids = run.chosen_devices
        if len(set(ids)) != len(ids) or len(ids) != run.devices:
            raise ValueError(f"device_ids {run.device_ids!r} must name {run.devices} different devices, as many as devices says")
        if run.framework != "torch" or run.processes != "per_device":
            raise ValueError(f"device_ids {run.device_ids!r} needs framework 'torch' with processes 'per_device'")
    for name, value in (("peer_access", run.peer_access), ("nccl_ctas", run.nccl_ctas)):
        if value is None:
            continue
        if run.device_type == "cpu" or run.devices < 2:
            raise ValueError(f"{name} {value!r} is about what passes between GPUs: choose device_type 'cuda' and at least 2 devices")
        if run.framework != "torch" or run.processes != "per_device" or placement.merge != "all_reduce" or placement.algorithm:
            raise ValueError(
                f"{name} {value!r} is NCCL's setting and placement {run.placement!r} does not merge by NCCL's all-reduce in PyTorch"
                " with a process a device: choose ddp or replicated_allreduce"
            )


def _check_recurrence(run: Run) -> None:
    model = run.description
    if run.recurrence and model.unit == "samples" and model.config.kind != "recurrent":
        raise ValueError(f"recurrence {run.recurrence!r} has no meaning for model {run.model!r}, which has no LSTM: leave it out")
    if run.recurrence != "persistent":
        return
    if run.framework != "torch" or model.unit != "words":
        raise ValueError("recurrence 'persistent' exists for translation models in 'torch' only: choose fused or stepwise")
    if run.device_type == "cpu":
        return
    if run.precision != "bf16":
        raise ValueError(
            f"recurrence 'persistent' computes in bf16 on GPUs, not in {run.precision}: choose precision 'bf16' or recurrence 'fused'"
        )
    if model.config.units != PERSISTENT_UNITS:
        raise ValueError(
            f"recurrence 'persistent' holds the weights of {PERSISTENT_UNITS} units in registers, and model {run.model!r} has"
            f" {model.config.units}: choose recurrence 'fused'"
        )


def _check_fused(run: Run, placement: Placement, named: str) -> None:
    if run.framework != "torch":
        raise ValueError(f"{named} exists in 'torch' only: leave it out or choose framework 'torch'")
    if run.layout != "channels_last":
        raise ValueError(f"{named} takes channels last: choose layout 'channels_last', not {run.layout or 'channels_first'!r}")
    if placement.compute != "replica":
        raise ValueError(f"{named} computes several layers at once, and placement {run.placement!r} cuts between layers: leave it out")


def _check_energy(run: Run) -> None:
    if run.energy_window_s is None:
        return
    if run.energy_window_s < LEAST_ENERGY_S:
        raise ValueError(
            f"energy_window_s {run.energy_window_s} is too short for NVML's counter of energy: at least {LEAST_ENERGY_S} s are needed"
        )
    if run.device_type == "cpu":
        raise ValueError(f"energy_window_s {run.energy_window_s} reads GPUs' counters: leave it out on device_type 'cpu'")
    if run.framework != "torch" or run.processes != "per_device":
        raise ValueError(f"energy_window_s {run.energy_window_s} needs framework 'torch' with processes 'per_device'")
