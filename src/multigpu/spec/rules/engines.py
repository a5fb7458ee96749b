"""Rules of frameworks, shapes of processes and forms of execution: what in the engines prevents a
placement from running so.
"""

from typing import Literal, NamedTuple

from multigpu.spec.errors import Refused
from multigpu.spec.row import Row
from multigpu.spec.rules.case import Case

FORMS = {"torch": ("compiled", "captured", "compiled_captured"), "tensorflow": ("graph", "xla")}
"""Forms of execution that one framework alone has."""

NOT_BUILT = "no engine is built for it"
"""Said where nothing better is known, of a placement whose row says nothing else."""

HOST_IN_THE_MIDDLE = (
    "the host gathers rows, reduces or updates in the middle of every step, and a graph of device"
    " work cannot wait for it"
)
ONE_POOL = (
    "a CUDA graph records one device and takes its memory from that device's pool, while one thread"
    " works on all devices"
)
ONE_PROGRAM = (
    "torch.compile makes a program for one device, and one process holds a module a device, of"
    " which its engine compiles none"
)
IN_LAYERS = (
    "its collectives stand inside the layers and count their bytes on the host, which torch.compile"
    " refuses to trace"
)
NOT_RECORDED = (
    "neither its update nor the collectives of the groups that it makes are built to be recorded in"
    " a graph"
)


class Refusal(NamedTuple):
    """field: which part of the request cannot be had. why: what prevents it. allowed: what can be
    had instead. said: the sentence.
    """

    field: Literal["framework", "processes", "execution"]
    why: str
    allowed: tuple[str, ...]
    said: str


def refusal(placement: Row, framework: str, processes: str, execution: str) -> Refusal | None:
    """Why this placement cannot run so, or None if it can: the first of framework, shape and form
    that no engine has.
    """
    name = f"placement {placement.name!r} does not"
    engines = [engine for engine in placement.engines if engine.framework == framework]
    if not engines:
        allowed = placement.frameworks
        why = f"it exists in {', '.join(allowed)}"
        return Refusal("framework", why, allowed, f"{name} exist in {framework!r}: {why}")
    shaped = [engine for engine in engines if engine.processes == processes]
    if not shaped:
        allowed = tuple(dict.fromkeys(engine.processes for engine in engines))
        why = why_not_shaped(placement, framework, processes)
        said = (
            f"{name} run in {framework!r} with processes {processes!r}: {why}; it runs with"
            f" {', '.join(allowed)}"
        )
        return Refusal("processes", why, allowed, said)
    allowed = tuple(dict.fromkeys(form for engine in shaped for form in engine.executions))
    if execution in allowed:
        return None
    why = why_not_executed(placement, framework, processes, execution)
    said = (
        f"{name} run {execution!r} in {framework!r} with processes {processes!r}: {why}; it runs"
        f" {', '.join(allowed)}"
    )
    return Refusal("execution", why, allowed, said)


def why_not_shaped(placement: Row, framework: str, processes: str) -> str:
    """Say what prevents one process for all devices ("one"), or a process a device, in a framework
    that has the other shape.
    """
    one = {
        "its strategy is one over processes": framework == "tensorflow",
        "gradients travel while backward runs, in a process for each replica": placement.overlap,
        "each replica's own process updates its stretch of all variables": (
            placement.reduction == "reduce_scatter"
        ),
        "each replica's own process trains by itself between averages": (
            placement.reduction == "average"
        ),
        "its schedule is one of processes, each of which has a stage": (
            placement.compute == "sections"
        ),
        "its all-reduce is written out in sends and receives between processes": (
            placement.algorithm is not None
        ),
        "one thread would wait in the first device's part of a layer for devices that it has yet to"
        " reach": placement.compute == "split",
        "each replica's own process fetches ahead while its device computes": placement.staged,
    }
    per_device = {
        "nn.DataParallel is one process, whose threads work for all devices": (
            placement.copied_anew
        ),
        "the loss is one over all replicas' predictions, in the process that works on all of"
        " them": placement.loss == "gpu0",
        "one process passes a batch through the parts of the model": (
            placement.compute in ("stage", "sections")
        ),
        "one process dispatches to all devices; placements over processes are multi_worker and"
        " parameter_server_async": framework == "tensorflow",
    }
    reasons = one if processes == "one" else per_device
    return next((why for why, holds in reasons.items() if holds), NOT_BUILT)


def why_not_executed(placement: Row, framework: str, processes: str, execution: str) -> str:
    """Say what prevents a form of execution in a framework and shape that the placement has
    otherwise.
    """
    for other, forms in FORMS.items():
        if execution in forms and framework != other:
            return f"it is a form of execution of {'PyTorch' if other == 'torch' else 'TensorFlow'}"
    if execution in placement.refusals:
        return placement.refusals[execution]
    if "captured" in execution and placement.uses_host:
        return HOST_IN_THE_MIDDLE
    if placement.compute == "split":
        return NOT_RECORDED if execution == "captured" else IN_LAYERS
    if processes == "one" and execution in FORMS["torch"]:
        return ONE_PROGRAM if execution == "compiled" else ONE_POOL
    return NOT_BUILT


def captured(case: Case) -> None:
    """A CUDA graph is of GPUs, and warm-up steps come before it."""
    run = case.run
    if "captured" not in run.execution:
        return
    if run.device_type == "cpu":
        raise Refused(
            f"execution {run.execution!r} is a CUDA graph and exists on GPUs only: choose eager on"
            " device_type 'cpu'"
        )
    if run.warmup_steps < 4:
        raise Refused(
            f"warmup_steps {run.warmup_steps} is too few to capture a step: at least 4 are needed"
        )


def engine(case: Case) -> None:
    """An engine must carry the placement out in this framework, shape and form."""
    run = case.run
    if refused := refusal(case.row, run.framework, run.processes, run.execution):
        raise Refused(refused.said)
