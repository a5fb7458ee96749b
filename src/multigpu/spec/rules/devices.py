"""Rules of devices, of what passes between them, and of how they are watched."""

import re

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case

SLICED = ("images", "samples", "tokens")
"""Units of models whose batches are arrays of equal rows, all of them on the device."""

LEAST_ENERGY_S = 10
"""Below it NVML's counter of energy, which moves every 20 to 100 ms, says too little."""


def global_batch(case: Case) -> None:
    """Every device gets a row of a global batch."""
    run = case.run
    if run.scaling != "strong" or run.batch_size >= run.devices:
        return
    raise Refused(
        f"a global batch of {run.batch_size} cannot be split over {run.devices} devices:"
        f" batch_size must be at least {run.devices}"
    )


def slicing(case: Case) -> None:
    """A global batch is sliced on the first device by what sends copies of the model from there."""
    run = case.run
    if run.slicing is None:
        return
    if not case.row.copied_anew:
        raise Refused(
            f"slicing {run.slicing!r} is nn.DataParallel's, and placement {run.placement!r} feeds"
            " each device by itself: leave it out or choose 'data_parallel'"
        )
    if case.model.unit not in SLICED:
        raise Refused(
            f"slicing {run.slicing!r} is of rows that are equally long, and {run.model!r} reads"
            f" {case.model.unit}: leave it out"
        )


def own_layers(case: Case) -> None:
    """Layers of this project's kernels know each other, and a copy's would compute with the first
    device's.
    """
    run = case.run
    if not case.row.copied_anew:
        return
    for name in ("batch_norm", "stem", "weight_casts"):
        value = getattr(run, name)
        if value is not None:
            raise Refused(
                f"{name} {value!r} joins layers to each other, which nn.DataParallel's copies"
                " would share with the first device: leave it out"
            )


def device_ids(case: Case) -> None:
    """A list of devices names each rank's own one."""
    run = case.run
    if run.device_ids is None:
        return
    if not re.fullmatch(r"\d+(,\d+)*", run.device_ids):
        raise Refused(
            f"device_ids {run.device_ids!r} is no list of devices: give numbers such as '0,3'"
        )
    ids = run.chosen_devices
    if len(set(ids)) != len(ids) or len(ids) != run.devices:
        raise Refused(
            f"device_ids {run.device_ids!r} must name {run.devices} different devices, as many"
            " as devices says"
        )
    if not case.is_process_a_device:
        raise Refused(
            f"device_ids {run.device_ids!r} needs framework 'torch' with processes 'per_device'"
        )


def nccl_settings(case: Case) -> None:
    """Settings of NCCL need an all-reduce of NCCL between GPUs."""
    run, row = case.run, case.row
    for name, value in (("peer_access", run.peer_access), ("nccl_ctas", run.nccl_ctas)):
        if value is None:
            continue
        if run.device_type == "cpu" or run.devices < 2:
            raise Refused(
                f"{name} {value!r} is about what passes between GPUs: choose device_type 'cuda' and"
                " at least 2 devices"
            )
        if not case.is_process_a_device or row.reduction != "all_reduce" or row.algorithm:
            raise Refused(
                f"{name} {value!r} is NCCL's setting and placement {run.placement!r} does not merge"
                " by NCCL's all-reduce in PyTorch with a process a device: choose ddp or"
                " replicated_allreduce"
            )


def energy(case: Case) -> None:
    """Energy is read from GPUs' counters, over a window that is long for them."""
    run = case.run
    if run.energy_window_s is None:
        return
    named = f"energy_window_s {run.energy_window_s}"
    if run.energy_window_s < LEAST_ENERGY_S:
        raise Refused(
            f"{named} is too short for NVML's counter of energy: at least {LEAST_ENERGY_S} s are"
            " needed"
        )
    if run.device_type == "cpu":
        raise Refused(f"{named} reads GPUs' counters: leave it out on device_type 'cpu'")
    if not case.is_process_a_device:
        raise Refused(f"{named} needs framework 'torch' with processes 'per_device'")


def trace_window(case: Case) -> None:
    """A window of traced steps follows the timed ones, and the step that warms a profiler up."""
    run = case.run
    if run.traced_from is None:
        return
    if not run.traced_steps:
        raise Refused(
            f"traced_from {run.traced_from} begins a window of traced steps: choose traced_steps, 1"
            " to 20"
        )
    first = run.warmup_steps + run.timed_steps + 1
    if run.traced_from >= first:
        return
    raise Refused(
        f"traced_from {run.traced_from} lies among steps that are timed or warm a profiler up:"
        f" choose at least {first}"
    )
