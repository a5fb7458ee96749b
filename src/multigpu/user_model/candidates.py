"""Which Runs a comparison measures, in which order and of how many steps; and what cannot be asked
for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from multigpu.analysis.limits import bound_units_per_s
from multigpu.build import build_run
from multigpu.machine.machine import cores_here, gpu_count, this_machine
from multigpu.placements import find_placement, placements
from multigpu.placements.row import Placement
from multigpu.runner.hosts.launching import MOST_CPU_PROCESSES
from multigpu.spec.run import Run
from multigpu.user_model.examining import Examined
from multigpu.user_model.kept import kept_runs
from multigpu.user_model.placed import ONE, USUAL
from multigpu.workloads.own.description import Described, model_of
from multigpu.workloads.own.job import Job

FIRST = ("ddp", "mirrored_nccl", "independent", "replicated_allreduce", "exp4", "exp2", "ps_gpu0")
"""Measured in this order before all others: a budget may end after any of them."""

ALONE = {"torch": "ddp", "tensorflow": "replicated_allreduce"}
"""Of each framework, the placement in which one device trains alone."""

PLAIN = {"torch": "eager", "tensorflow": "graph"}
"""Of each framework, the form in which every placement is tried."""

LEVERS = ("compiled", "captured", "recompute", "micro_steps", "precision")
"""Further things to try of a placement, by name. All but the last train the same."""

USUAL_LEVERS = {"cuda": ("compiled", "captured"), "cpu": ()}
"""Those that are tried where none is named: on CPUs compiling costs more than it saves."""

MANY_FORMS = ("ddp", "zero1", "fsdp2", "replicated_allreduce")
"""Placements that are tried in further forms where no lever is named; with levers all are."""

WARM_UP = {"cpu": 6, "cuda": 10}  # steps before those that are timed

PARTS = 2  # of a batch, where micro_steps is a lever
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
    known = [run for run in kept_runs(folder, described.name) if run.device_type == device_type]
    if known:
        return known[0].timed_steps
    expected_s = described.step_here_s * devices * OF_PASSES
    if device_type == "cuda":
        bound = bound_units_per_s(
            model_of(described, folder), this_machine().gpus[0], job.precision, 1, 1.0
        )
        expected_s = max(DISPATCHED_S, job.batch_size / (OF_BOUND * bound.units_per_s))
    if not expected_s:  # nothing was timed: a few steps do not take long, whatever they take
        return STEPS[0]
    return max(
        (count for count in STEPS if count * expected_s <= min(WINDOW_S, slice_s)), default=STEPS[0]
    )


def trains_the_same(placement: str) -> bool:
    """Whether a placement trains what one process on the global batch does."""
    return find_placement(placement).semantics.facts.is_equal_training


def reaches(row: Placement) -> bool:
    """Whether a job's own update can be done: one optimizer knows all that its device updates."""
    replicas = row.variables == "replica" and (
        row.update == "replica" or (row.update == "sharded" and not row.overlap)
    )
    return row.compute == "replica" and not row.staged and (replicas or row.name == "fsdp2")


def checked_levers(levers: Sequence[str] | str | None, device_type: str) -> tuple[str, ...]:
    """Return the levers meant (None: the usual ones); ValueError: one is none, or not to be had."""
    if levers is None:
        return USUAL_LEVERS[device_type]
    if levers == "all":
        here = LEVERS if device_type == "cuda" else tuple(n for n in LEVERS if n != "captured")
        return here[: here.index("precision")]
    named = tuple(levers.split(",")) if isinstance(levers, str) else tuple(levers)
    for name in named:
        if name not in LEVERS:
            raise ValueError(f"levers = {name!r}: choose 'all' or some of {', '.join(LEVERS)}")
    if "captured" in named and device_type == "cpu":
        raise ValueError(
            "levers = 'captured': a captured step is a CUDA graph, which CPUs do not have: leave it"
            " out"
        )
    return named


def variants(
    levers: Sequence[str], framework: str, device_type: str, precision: str
) -> list[dict[str, Any]]:
    """Return the fields of a Run that levers change, beside those of the plain form: the forms in
    which a step is launched, and in plain and compiled form each further change by itself.
    """
    if framework == "tensorflow":
        return [{"execution": "xla"}] if "compiled" in levers else []
    forms = [form for form in ("compiled", "captured") if form in levers]
    plain: list[dict[str, Any]] = [{"execution": form} for form in ["eager", *forms[:1]]]
    plain = [form for form in plain if form["execution"] != "captured"]
    if len(forms) == 2:
        forms.append("compiled_captured")
    changes: list[dict[str, Any]] = []
    if "recompute" in levers:
        changes.append({"recompute": True})
    if "micro_steps" in levers:
        changes.append({"micro_steps": PARTS})
    if "precision" in levers:
        others = ("tf32", "bf16") if device_type == "cuda" else ("bf16",)
        changes += [{"precision": other} for other in others if other != precision]
    return [
        *({"execution": form} for form in forms),
        *(form | change for change in changes for form in plain),
    ]


def candidate_runs(
    job: Job | Examined,
    described: Described,
    folder: Path,
    names: Sequence[str] | Literal["all"],
    devices: int,
    device_type: str,
    a_repeat_s: float,
    levers: Sequence[str] | Literal["all"] | None = None,
) -> tuple[list[Run], dict[str, str]]:
    """The Runs of one device and of these placements in their order, each first in its plain form
    and then in those that levers add and rules allow; and why placements cannot be had.
    """
    framework = described.framework
    every = [
        name
        for name, row in placements().items()
        if any(engine.framework == framework for engine in row.engines)
    ]
    check_named(names, levers, device_type)
    pulled = checked_levers(levers, device_type)
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
        "execution": PLAIN[framework],
        "device_type": device_type,
        "warmup_steps": WARM_UP[device_type],
        "timed_steps": steps,
        "framework": framework,
    }
    fixed |= {"micro_steps": described.micro_steps} if described.micro_steps > 1 else {}
    fixed |= {"processes": "one"} if framework == "tensorflow" else {}
    # processes share a computer's cores: one of them alone gets no more
    share = {"host_cores": max(1, cores_here() // devices)} if device_type == "cpu" else {}
    alone = fixed | share | {"placement": ALONE[framework], "devices": 1}
    ways, refused = {"": alone}, dict[str, str]()
    for name in wanted if devices > 1 else ():
        if described.own_update and not reaches(find_placement(name)):
            refused[name] = (
                f"{', '.join(described.own_update)} of the job: {name} does not update whole"
                " replicas, nor pieces, by one optimizer a device"
            )
            continue
        if why := described.unfit.get(name) or described.unfit.get(device_type):
            refused[name] = why
            continue
        if described.hooked and find_placement(name).variables == "sharded":
            hooked = described.hooked[0].removeprefix("model.")
            refused[name] = (
                f"placement {name!r} takes a piece of each parameter in its place, and the hook on"
                f" {hooked} would be lost: put it on the layer"
            )
            continue
        try:
            ways[name] = fixed | {"placement": name, "devices": devices}
            build_run(**ways[name])
        except ValueError as error:
            refused[name] = str(error)
            del ways[name]
    if devices > 1 and not set(ways) & set(every if names == "all" else names):
        raise ValueError(
            "; ".join(dict.fromkeys(refused.values()))
            or "no placement was named: choose placements='all' or names of some"
        )
    runs = [build_run(**own) for own in ways.values()]
    for change in variants(pulled, framework, device_type, job.precision):
        for name, own in ways.items():
            if name and (levers is None or not trains_the_same(name)) and name not in MANY_FORMS:
                continue
            try:
                runs.append(build_run(**{**own, **change}))
            except ValueError as error:
                if levers is not None:  # who named none is not told of each that rules exclude
                    refused[changed(name, change)] = str(error)
    return runs, refused


def changed(name: str, change: Mapping[str, Any]) -> str:
    """Return what a placement ("": one device) with these fields is called in a comparison."""
    words = {
        "execution": str(change.get("execution", "")).replace("_", " and "),
        "recompute": "recomputed",
        "micro_steps": f"{change.get('micro_steps')} micro-steps",
        "precision": str(change.get("precision")),
    }
    told = [words[key] for key in words if key in change and words[key] not in USUAL]
    return ", ".join([name or ONE, *told])


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


def check_named(
    placements: Sequence[str] | Literal["all"],
    levers: Sequence[str] | Literal["all"] | None,
    device_type: str,
) -> None:
    """Refuse (ValueError) a placement that is unknown, and a lever that is none or not to be had
    here.
    """
    for name in placements if placements != "all" else ():
        find_placement(name)
    checked_levers(levers, device_type)
