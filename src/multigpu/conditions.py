"""What a Run asks of its input, of single devices and of the machine, and what of it cannot be had.
Imports no framework.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multigpu.placements.row import Placement
    from multigpu.run import Run

# inputs kept on devices or drawn from a law: nothing is fed meanwhile
ON_DEVICE = (
    "synthetic",
    "lengths_000",
    "planted_reviews",
)
CROSSING = ("synthetic_host", "jpeg_folder")  # inputs whose images may cross to the device as bytes
PERSISTENT_UNITS = 512  # hidden units of a cell that the persistent LSTM's kernels take on GPUs
LEAST_ENERGY_S = (
    10  # below it NVML's counter of energy, which moves every 20 to 100 ms, says too little
)


def check_conditions(run: Run, placement: Placement) -> None:
    """Refuse (ValueError) what cannot be had, in one sentence that names the field, its value and
    what is allowed.
    """
    torch_processes = run.framework == "torch" and run.processes == "per_device"
    _check_feeding(run)
    _check_devices(run, placement, torch_processes)
    _check_recurrence(run)
    if run.energy_window_s is not None:
        named = f"energy_window_s {run.energy_window_s}"
        if run.energy_window_s < LEAST_ENERGY_S:
            raise ValueError(
                f"{named} is too short for NVML's counter of energy: at least {LEAST_ENERGY_S} s"
                " are needed"
            )
        if run.device_type == "cpu":
            raise ValueError(f"{named} reads GPUs' counters: leave it out on device_type 'cpu'")
        if not torch_processes:
            raise ValueError(f"{named} needs framework 'torch' with processes 'per_device'")
    if run.batch_norm == "persistent" and (run.framework, run.device_type) != (
        "tensorflow",
        "cuda",
    ):
        raise ValueError(
            "batch_norm 'persistent' is cuDNN's kernel in TensorFlow: choose framework 'tensorflow'"
            " and device_type 'cuda'"
        )
    for name, value in (("batch_norm", "fused"), ("stem", "folded"), ("weight_casts", "grouped")):
        if getattr(run, name) == value:
            _check_fused(run, placement, f"{name} {value!r}")
        if placement.variables == "cut" and (asked := getattr(run, name)):
            raise ValueError(
                f"{name} {asked!r} reads variables of several layers at once, and placement"
                f" {run.placement!r} gathers them layer by layer: leave it out"
            )
    if run.stem and not run.description.config.foldable:
        needs = "is of a first convolution whose stride divides the image"
        raise ValueError(
            f"stem {run.stem!r} {needs}, which {run.model!r} does not have: leave it out"
        )
    if run.weight_casts and (run.precision not in ("bf16", "fp16") or "compiled" in run.execution):
        choose = f"choose bf16 and eager or captured, not {run.precision} and {run.execution}"
        raise ValueError(
            f"weight_casts {run.weight_casts!r} is of steps in 16 bits that are not compiled:"
            f" {choose}"
        )


def _check_feeding(run: Run) -> None:
    fields = {
        "input_workers": run.input_workers,
        "prefetch": run.prefetch or None,
        "staging": run.staging,
        "image_dtype": run.image_dtype,
    }
    name, value = next(
        ((name, value) for name, value in fields.items() if value is not None), ("", None)
    )
    if not name:
        return
    if run.description.unit != "images":
        raise ValueError(
            f"{name} {value!r} has no meaning for {run.description.unit}: leave it out"
        )
    if run.inputs in ON_DEVICE:
        raise ValueError(
            f"{name} {value!r} has no meaning for inputs {run.inputs!r}, which stay on the device:"
            " leave it out"
        )
    if run.staging and not run.prefetch:
        raise ValueError(
            f"staging {run.staging!r} copies batches ahead of their step: choose prefetch 1 or 2"
        )
    if run.staging and run.device_type == "cpu":
        raise ValueError(
            f"staging {run.staging!r} is a stream of a GPU: leave it out on device_type 'cpu'"
        )
    if run.processes == "one" and run.framework == "torch":
        raise ValueError(
            f"{name} {value!r} feeds one replica a process in 'torch': choose processes"
            " 'per_device'"
        )
    if run.image_dtype and run.inputs not in CROSSING:
        raise ValueError(
            f"image_dtype {run.image_dtype!r} has no meaning for inputs {run.inputs!r}: choose"
            f" {' or '.join(CROSSING)}"
        )
    if run.image_dtype and run.framework != "torch":
        raise ValueError(
            f"image_dtype {run.image_dtype!r} exists in 'torch' only: leave it out or choose"
            " framework 'torch'"
        )
    if run.framework == "tensorflow":
        if run.inputs != "jpeg_folder" or run.input_workers is None:
            raise ValueError(
                f"{name} {value!r} is tf.data's in 'tensorflow': choose inputs 'jpeg_folder' and"
                " input_workers"
            )
        if run.processes != "one":
            raise ValueError(
                f"{name} {value!r} feeds all replicas from one process in 'tensorflow': choose"
                " processes 'one'"
            )


def _check_devices(run: Run, placement: Placement, torch_processes: bool) -> None:
    if run.device_ids is not None:
        if not re.fullmatch(r"\d+(,\d+)*", run.device_ids):
            raise ValueError(
                f"device_ids {run.device_ids!r} is no list of devices: give numbers such as '0,3'"
            )
        ids = run.chosen_devices
        if len(set(ids)) != len(ids) or len(ids) != run.devices:
            raise ValueError(
                f"device_ids {run.device_ids!r} must name {run.devices} different devices, as many"
                " as devices says"
            )
        if not torch_processes:
            raise ValueError(
                f"device_ids {run.device_ids!r} needs framework 'torch' with processes 'per_device'"
            )
    for name, value in (("peer_access", run.peer_access), ("nccl_ctas", run.nccl_ctas)):
        if value is None:
            continue
        if run.device_type == "cpu" or run.devices < 2:
            raise ValueError(
                f"{name} {value!r} is about what passes between GPUs: choose device_type 'cuda' and"
                " at least 2 devices"
            )
        if not torch_processes or placement.merge != "all_reduce" or placement.algorithm:
            without = (
                f"placement {run.placement!r} does not merge by NCCL's all-reduce in PyTorch with a"
                " process a device"
            )
            raise ValueError(
                f"{name} {value!r} is NCCL's setting and {without}: choose ddp or"
                " replicated_allreduce"
            )


def _check_recurrence(run: Run) -> None:
    model = run.description
    if run.recurrence and model.unit == "samples" and model.config.kind != "recurrent":
        raise ValueError(
            f"recurrence {run.recurrence!r} has no meaning for model {run.model!r}, which has no"
            " LSTM: leave it out"
        )
    if run.recurrence != "persistent":
        return
    if run.framework != "torch" or model.unit != "words":
        raise ValueError(
            "recurrence 'persistent' exists for translation models in 'torch' only: choose fused or"
            " stepwise"
        )
    if run.device_type == "cpu":
        return
    named = "recurrence 'persistent'"
    if run.precision != "bf16":
        raise ValueError(
            f"{named} computes in bf16 on GPUs, not in {run.precision}: choose precision 'bf16' or"
            " recurrence 'fused'"
        )
    if (units := model.config.units) != PERSISTENT_UNITS:
        had = f"{PERSISTENT_UNITS} units in registers, and model {run.model!r} has {units}"
        raise ValueError(f"{named} holds the weights of {had}: choose recurrence 'fused'")


def _check_fused(run: Run, placement: Placement, named: str) -> None:
    if run.framework != "torch":
        raise ValueError(
            f"{named} exists in 'torch' only: leave it out or choose framework 'torch'"
        )
    if run.layout != "channels_last":
        raise ValueError(
            f"{named} takes channels last: choose layout 'channels_last', not"
            f" {run.layout or 'channels_first'!r}"
        )
    if placement.compute != "replica":
        raise ValueError(
            f"{named} computes several layers at once, and placement {run.placement!r} cuts between"
            " layers: leave it out"
        )
