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

FUSED = {"batch_norm": "fused", "stem": "folded", "weight_casts": "grouped"}
"""Fields whose code takes variables out of their layer, and with which value it computes several layers at once."""

PERSISTENT_UNITS = 512
"""Hidden units of a cell that the persistent LSTM's kernels take on GPUs."""

LEAST_ENERGY_S = 10
"""Seconds below which NVML's counter of energy, which moves every 20 to 100 ms, says too little."""


def refuse(refused: object, sentence: str) -> None:
    """Raise the sentence where something is refused."""
    if refused:
        raise ValueError(sentence)


def check_conditions(run: Run, placement: Placement) -> None:
    """Refuse what cannot be had.

    Raises:
        ValueError: one sentence that names the field, its value and what is allowed.
    """
    _check_feeding(run)
    _check_devices(run, placement)
    _check_energy(run)
    _check_recurrence(run)
    refuse(
        run.batch_norm == "persistent" and (run.framework, run.device_type) != ("tensorflow", "cuda"),
        f"batch_norm {run.batch_norm!r} is cuDNN's kernel in TensorFlow: choose framework 'tensorflow' and device_type 'cuda'",
    )
    _check_layers(run, placement)


def _check_feeding(run: Run) -> None:
    fields = ("input_workers", "prefetch", "staging", "image_dtype")
    named = [name for name in fields if getattr(run, name) not in (None, 0)] + ["input_workers"] * (run.input_workers == 0)
    if not named:
        return
    said, inputs = f"{named[0]} {getattr(run, named[0])!r}", run.inputs
    refuse(run.description.unit != "images", f"{said} has no meaning for {run.description.unit}: leave it out")
    refuse(inputs in ON_DEVICE, f"{said} has no meaning for inputs {inputs!r}, which stay on the device: leave it out")
    staging, image = f"staging {run.staging!r}", f"image_dtype {run.image_dtype!r}"
    refuse(run.staging and not run.prefetch, f"{staging} copies batches ahead of their step: choose prefetch 1 or 2")
    refuse(run.staging and run.device_type == "cpu", f"{staging} is a stream of a GPU: leave it out on device_type 'cpu'")
    torch, one = run.framework == "torch", run.processes == "one"
    refuse(torch and one, f"{said} feeds one replica a process in 'torch': choose processes 'per_device'")
    refuse(run.image_dtype and inputs not in CROSSING, f"{image} has no meaning for inputs {inputs!r}: choose {' or '.join(CROSSING)}")
    refuse(run.image_dtype and not torch, f"{image} exists in 'torch' only: leave it out or choose framework 'torch'")
    piped = inputs == "jpeg_folder" and run.input_workers is not None
    refuse(not torch and not piped, f"{said} is tf.data's in 'tensorflow': choose inputs 'jpeg_folder' and input_workers")
    refuse(not torch and not one, f"{said} feeds all replicas from one process in 'tensorflow': choose processes 'one'")


def _check_devices(run: Run, placement: Placement) -> None:
    by_process = run.framework == "torch" and run.processes == "per_device"
    if run.device_ids is not None:
        said, numbers = f"device_ids {run.device_ids!r}", re.fullmatch(r"\d+(,\d+)*", run.device_ids)
        refuse(not numbers, f"{said} is no list of devices: give numbers such as '0,3'")
        different = len(set(run.chosen_devices)) == len(run.chosen_devices) == run.devices
        refuse(not different, f"{said} must name {run.devices} different devices, as many as devices says")
        refuse(not by_process, f"{said} needs framework 'torch' with processes 'per_device'")
    if run.peer_access == "off":
        refuse(
            run.device_type == "cpu" or run.devices < 2,
            "peer_access 'off' is about copies between GPUs: choose device_type 'cuda' and at least 2 devices",
        )
        refuse(
            not by_process or placement.merge != "all_reduce" or placement.algorithm,
            f"peer_access 'off' is NCCL's setting and placement {run.placement!r} does not merge by NCCL's all-reduce in PyTorch"
            " with a process a device: choose ddp or replicated_allreduce",
        )


def _check_energy(run: Run) -> None:
    if run.energy_window_s is None:
        return
    said, short = f"energy_window_s {run.energy_window_s}", run.energy_window_s < LEAST_ENERGY_S
    refuse(short, f"{said} is too short for NVML's counter of energy: at least {LEAST_ENERGY_S} s are needed")
    refuse(run.device_type == "cpu", f"{said} reads GPUs' counters: leave it out on device_type 'cpu'")
    by_process = run.framework == "torch" and run.processes == "per_device"
    refuse(not by_process, f"{said} needs framework 'torch' with processes 'per_device'")


def _check_recurrence(run: Run) -> None:
    model, said = run.description, f"recurrence {run.recurrence!r}"
    refuse(
        run.recurrence and model.unit == "samples" and model.config.kind != "recurrent",
        f"{said} has no meaning for model {run.model!r}, which has no LSTM: leave it out",
    )
    if run.recurrence != "persistent":
        return
    refuse(
        run.framework != "torch" or model.unit != "words",
        f"{said} exists for translation models in 'torch' only: choose fused or stepwise",
    )
    if run.device_type == "cuda":
        refuse(
            run.precision != "bf16",
            f"{said} computes in bf16 on GPUs, not in {run.precision}: choose precision 'bf16' or recurrence 'fused'",
        )
        refuse(
            model.config.units != PERSISTENT_UNITS,
            f"{said} holds the weights of {PERSISTENT_UNITS} units in registers, and model {run.model!r} has {model.config.units}:"
            " choose recurrence 'fused'",
        )


def _check_layers(run: Run, placement: Placement) -> None:
    """What is computed of several layers at once, or takes variables out of their layer."""
    for name, value in FUSED.items():
        if getattr(run, name) == value:
            said, layout = f"{name} {value!r}", run.layout or "channels_first"
            refuse(run.framework != "torch", f"{said} exists in 'torch' only: leave it out or choose framework 'torch'")
            refuse(layout != "channels_last", f"{said} takes channels last: choose layout 'channels_last', not {layout!r}")
            cut = f"placement {run.placement!r} cuts between layers: leave it out"
            refuse(placement.compute != "replica", f"{said} computes several layers at once, and {cut}")
    if placement.variables == "cut" and (named := [name for name in FUSED if getattr(run, name)]):
        gathers = f"placement {run.placement!r} gathers them layer by layer: leave it out"
        raise ValueError(f"{named[0]} {getattr(run, named[0])!r} reads variables of several layers at once, and {gathers}")
    refuse(
        run.stem and not run.description.config.foldable,
        f"stem {run.stem!r} is of a first convolution whose stride divides the image, which {run.model!r} does not have: leave it out",
    )
    refuse(
        run.weight_casts and (run.precision not in ("bf16", "fp16") or "compiled" in run.execution),
        f"weight_casts {run.weight_casts!r} is of steps in 16 bits that are not compiled: choose bf16 and eager or captured, not"
        f" {run.precision} and {run.execution}",
    )
