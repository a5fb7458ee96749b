"""Rules of devices, of what passes between them, and of how they are watched."""

import re

from multigpu.spec.rules.case import Case

LEAST_ENERGY_S = 10
"""Below it NVML's counter of energy, which moves every 20 to 100 ms, says too little."""


def global_batch(case: Case) -> str | None:
    """Every device gets a row of a global batch."""
    run = case.run
    if run.scaling != "strong" or run.batch_size >= run.devices:
        return None
    return (
        f"a global batch of {run.batch_size} cannot be split over {run.devices} devices:"
        f" batch_size must be at least {run.devices}"
    )


def device_ids(case: Case) -> str | None:
    """A list of devices names each rank's own one."""
    run = case.run
    if run.device_ids is None:
        return None
    if not re.fullmatch(r"\d+(,\d+)*", run.device_ids):
        return f"device_ids {run.device_ids!r} is no list of devices: give numbers such as '0,3'"
    ids = run.chosen_devices
    if len(set(ids)) != len(ids) or len(ids) != run.devices:
        return (
            f"device_ids {run.device_ids!r} must name {run.devices} different devices, as many"
            " as devices says"
        )
    if not case.is_process_a_device:
        return f"device_ids {run.device_ids!r} needs framework 'torch' with processes 'per_device'"
    return None


def nccl_settings(case: Case) -> str | None:
    """Settings of NCCL need an all-reduce of NCCL between GPUs."""
    run, row = case.run, case.row
    for name, value in (("peer_access", run.peer_access), ("nccl_ctas", run.nccl_ctas)):
        if value is None:
            continue
        if run.device_type == "cpu" or run.devices < 2:
            return (
                f"{name} {value!r} is about what passes between GPUs: choose device_type 'cuda' and"
                " at least 2 devices"
            )
        if not case.is_process_a_device or row.reduction != "all_reduce" or row.algorithm:
            return (
                f"{name} {value!r} is NCCL's setting and placement {run.placement!r} does not merge"
                " by NCCL's all-reduce in PyTorch with a process a device: choose ddp or"
                " replicated_allreduce"
            )
    return None


def energy(case: Case) -> str | None:
    """Energy is read from GPUs' counters, over a window that is long for them."""
    run = case.run
    if run.energy_window_s is None:
        return None
    named = f"energy_window_s {run.energy_window_s}"
    if run.energy_window_s < LEAST_ENERGY_S:
        return (
            f"{named} is too short for NVML's counter of energy: at least {LEAST_ENERGY_S} s are"
            " needed"
        )
    if run.device_type == "cpu":
        return f"{named} reads GPUs' counters: leave it out on device_type 'cpu'"
    if not case.is_process_a_device:
        return f"{named} needs framework 'torch' with processes 'per_device'"
    return None


def trace_window(case: Case) -> str | None:
    """A window of traced steps follows the timed ones, and the step that warms a profiler up."""
    run = case.run
    if run.traced_from is None:
        return None
    if not run.traced_steps:
        return (
            f"traced_from {run.traced_from} begins a window of traced steps: choose traced_steps, 1"
            " to 20"
        )
    first = run.warmup_steps + run.timed_steps + 1
    if run.traced_from >= first:
        return None
    return (
        f"traced_from {run.traced_from} lies among steps that are timed or warm a profiler up:"
        f" choose at least {first}"
    )
