"""Which Runs a comparison measures, in which order and of how many steps; and what cannot be asked
for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from multigpu.analysis.limits import bound_units_per_s
from multigpu.build import build_run
from multigpu.machine.machine import cores_here, gpu_count, this_machine
from multigpu.placements import find_placement, placements
from multigpu.runner.hosts.launching import MOST_CPU_PROCESSES
from multigpu.spec.run import Run
from multigpu.user_model.examining import Examined
from multigpu.user_model.result import kept_runs
from multigpu.workloads.own.description import Described, model_of
from multigpu.workloads.own.job import Job

FIRST = ("ddp", "mirrored_nccl", "independent", "replicated_allreduce", "exp4", "exp2", "ps_gpu0")
"""Measured in this order before all others: a budget may end after any of them."""

ALONE = {
    "torch": ("ddp", ("eager", "captured")),
    "tensorflow": ("replicated_allreduce", ("graph",)),
}
"""Of each framework, the placement in which one device trains alone, and the forms in which a step
is launched (the second on GPUs).
"""
STEPS = (5, 10, 20, 50, 100, 200, 500)  # so many may be timed at once
WINDOW_S = 2.0  # that the timed steps of a Run may take
OF_PASSES = 3  # a step with its update and its merge is taken for so many times its passes alone
# of its ceilings, what an untimed step on a GPU is taken to reach; and the shortest that it may be
OF_BOUND, DISPATCHED_S = 0.3, 0.002


def steps_for(
    job: Job | Examined,
    described: Described,
    folder: Path,
    device_type: str,
    devices: int,
    slice_s: float,
) -> int:
    """How many steps a Run times: those of the comparison in this folder, so that it goes on, or
    else what a slice of the budget allows.
    """
    if known := [
        run for run in kept_runs(folder, described.name) if run.device_type == device_type
    ]:
        return known[0].timed_steps
    expected_s = described.step_here_s * devices * OF_PASSES
    if device_type == "cuda":
        bound = bound_units_per_s(
            model_of(described, folder), this_machine().gpus[0], job.precision, 1, 1.0
        )
        expected_s = max(DISPATCHED_S, job.batch_size / (OF_BOUND * bound.units_per_s))
    return max(
        (count for count in STEPS if count * expected_s <= min(WINDOW_S, slice_s)), default=STEPS[0]
    )


def candidate_runs(
    job: Job | Examined,
    described: Described,
    folder: Path,
    names: Sequence[str] | Literal["all"],
    devices: int,
    device_type: str,
    a_repeat_s: float,
) -> tuple[list[Run], dict[str, str]]:
    """The Runs of one device and of these placements in their order, on GPUs some as one CUDA graph
    too; and why others cannot be.
    """
    every = [
        name
        for name, row in placements().items()
        if any(engine.framework == described.framework for engine in row.engines)
    ]
    for name in names if names != "all" else ():
        find_placement(name)
    # replicas that share nothing tell what sharing costs
    wanted = every if names == "all" else [*names, *({"independent"} - set(names))]
    wanted = sorted(wanted, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    steps = steps_for(job, described, folder, device_type, devices, a_repeat_s / (len(wanted) + 1))
    fixed = {
        "workload": "own",
        "model": described.name,
        "inputs": "own",
        "batch_size": job.batch_size,
        "precision": job.precision,
    }
    fixed |= {
        "device_type": device_type,
        "warmup_steps": 10,
        "timed_steps": steps,
        "framework": described.framework,
    }
    fixed |= {"processes": "one"} if described.framework == "tensorflow" else {}
    # processes share a computer's cores: one of them alone gets no more
    share = {"host_cores": max(1, cores_here() // devices)} if device_type == "cpu" else {}
    alone, forms = ALONE[described.framework]
    forms = forms if device_type == "cuda" else forms[:1]
    runs, refused = (
        [build_run(placement=alone, devices=1, execution=form, **share, **fixed) for form in forms],
        dict[str, str](),
    )
    for name in wanted if devices > 1 else ():
        if described.hooked and find_placement(name).variables == "sharded":
            hooked = described.hooked[0].removeprefix("model.")
            refused[name] = (
                f"placement {name!r} takes a piece of each parameter in its place, and the hook on"
                f" {hooked} would be lost: put it on the layer"
            )
            continue
        try:
            own = forms if name == alone else forms[:1]
            runs += [
                build_run(placement=name, devices=devices, execution=form, **fixed) for form in own
            ]
        except ValueError as error:
            refused[name] = str(error)
    if devices > 1 and not {run.placement for run in runs if run.devices > 1} & set(
        every if names == "all" else names
    ):
        raise ValueError(
            "; ".join(dict.fromkeys(refused.values()))
            or "no placement was named: choose placements='all' or names of some"
        )
    return runs, refused


def check_count(device_type: str, devices: int) -> None:
    """Refuse (ValueError) as many devices as this machine has not, before anything is looked at."""
    if device_type == "cpu" and devices > MOST_CPU_PROCESSES:
        raise ValueError(
            f"devices = {devices}: at most {MOST_CPU_PROCESSES} CPU processes are compared"
        )
    if device_type == "cuda" and devices > gpu_count():
        raise ValueError(
            f"devices = {devices}: this machine has {gpu_count()} GPUs; choose as many at most, or"
            " device_type 'cpu'"
        )
