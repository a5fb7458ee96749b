"""Rules of a model that is parallel in itself: layers spread over devices, or each of them cut."""

from multigpu.spec.errors import Refused
from multigpu.spec.model import Model
from multigpu.spec.parallel import PARTITIONED, shard_sizes
from multigpu.spec.rules.case import Case

ACTIVATION_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2}
"""Of one element that parts of a model send each other, by precision: products' type."""


def model_parallel(case: Case) -> None:
    """Devices share copies of a model, all of them alike, under a placement that divides it."""
    run, parted = case.run, case.row.compute in PARTITIONED
    if run.model_parallel is not None and not parted:
        raise Refused(
            f"model_parallel {run.model_parallel} has no meaning for placement {run.placement!r},"
            " which gives every device the whole model: choose layer_split or tensor_split"
        )
    if parted and run.devices % (run.model_parallel or run.devices):
        raise Refused(
            f"model_parallel {run.model_parallel} does not divide {run.devices} devices into copies"
            " of a model"
        )


def pieces(case: Case) -> None:
    """Whoever keeps a piece of each variable cuts it along its first dimension."""
    if case.row.variables != "sharded" or not case.is_process_a_device or case.run.devices == 1:
        return
    whole = next((one.name for one in case.model.variables if not one.shape), None)
    if whole is not None:
        raise Refused(
            f"placement {case.run.placement!r} cuts each variable along its first dimension, and"
            f" {whole.removeprefix('model.')} has none: give it the shape (1,)"
        )


def micro_batches(case: Case) -> None:
    """Parts of a batch pass layers that are spread over devices."""
    run = case.run
    if run.micro_batches is None or case.row.compute == "sections":
        return
    raise Refused(
        f"micro_batches {run.micro_batches} has no meaning for placement {run.placement!r}: choose"
        " layer_split"
    )


def pipeline_schedule(case: Case) -> None:
    """A schedule is of stages with a process each, and of as many micro-batches as it needs."""
    run = case.run
    pipelined = case.row.compute == "sections" and case.is_process_a_device
    if not pipelined:
        if run.pipeline_schedule is None:
            return
        raise Refused(
            f"pipeline_schedule {run.pipeline_schedule!r} has no meaning for placement"
            f" {run.placement!r}: leave it out or choose 'pipeline'"
        )
    parts, degree = run.micro_batches or 1, case.dims.degree
    named = f"micro_batches {run.micro_batches}"
    if run.pipeline_schedule == "interleaved" and degree == 1:
        raise Refused("pipeline_schedule 'interleaved' is of several devices a copy: leave it out")
    if run.pipeline_schedule == "1f1b" and parts < degree:
        raise Refused(
            f"{named} is less than the {degree} stages that '1f1b' keeps busy: choose at least"
            f" {degree}"
        )
    if run.pipeline_schedule == "interleaved" and parts % degree:
        raise Refused(
            f"{named} is no multiple of the {degree} devices over which stages interleave: choose"
            f" {degree} or {2 * degree}"
        )
    sizes = set(shard_sizes(run, case.row))
    if any(size % parts for size in sizes):
        raise Refused(
            f"a pipeline's micro-batches are equal, and {named} does not divide"
            f" {min(size for size in sizes if size % parts)} rows: choose another batch_size"
        )
    _unchained(case)


def _unchained(case: Case) -> None:
    """Sections are a chain: each reads what the one before gives."""
    before: set[str] = set()
    once: set[str] = set()
    for section in case.model.graph.stages:
        if set(section.inputs) - before - once:
            raise Refused(
                f"a stage of a pipeline reads what the one before it gives, and section"
                f" {section.name!r} of {case.run.model!r} reads further ones: choose layer_split"
            )
        once |= {name for name, size in section.gives.items() if "once" in size}
        before = set(section.gives)


def partition(case: Case) -> None:
    """The model, its precision and its shards must be divisible as the placement divides them."""
    run = case.run
    if case.row.compute not in PARTITIONED:
        return
    if run.precision not in ACTIVATION_BYTES:
        raise Refused(
            f"precision {run.precision!r} is not kept between parts of a model: choose"
            f" {', '.join(ACTIVATION_BYTES)}"
        )
    parts = run.micro_batches or 1
    if case.smallest_shard < parts:
        raise Refused(
            f"a copy of the model gets {case.smallest_shard} rows, which cannot be cut into {parts}"
            " micro-batches: choose a larger batch_size"
        )
    if case.row.compute == "sections":
        _sections(case)
    else:
        _split(case)


def _sections(case: Case) -> None:
    run, degree = case.run, case.dims.degree
    count = len(case.model.graph.stages)
    if not count:
        raise Refused(
            f"placement {run.placement!r} needs a model that declares its sections, and"
            f" {run.model!r} does not"
        )
    over = "devices"
    if run.pipeline_schedule == "interleaved":
        degree, over = 2 * degree, "stages"
    if count < degree:
        raise Refused(
            f"{run.model!r} has {count} sections, which cannot be spread over {degree} {over}:"
            f" choose at most {count}"
        )
    if run.cross_entropy is not None and run.execution != "eager":
        raise Refused(f"cross_entropy {run.cross_entropy!r} of sections runs eagerly only")


def _split(case: Case) -> None:
    run, named = case.run, f"placement {case.run.placement!r}"
    if reason := uncuttable(case.model, case.dims.degree):
        raise Refused(f"{named}: {reason}")
    if run.cross_entropy == "fused":
        raise Refused(
            f"cross_entropy {run.cross_entropy!r} is of all logits, and {named} cuts them: leave it"
            " out"
        )
    if run.recurrence in ("fused", "persistent"):
        raise Refused(
            f"recurrence {run.recurrence!r} is one call for whole layers, and {named} cuts them:"
            " leave it out"
        )


def uncuttable(model: Model, devices: int) -> str | None:
    """Why the model's matrices cannot be cut over so many devices, or None if they can."""
    splitting = model.splitting
    if splitting is None:
        return f"{model.name!r} does not say how its matrices are cut"
    smallest = min(
        v.shape[splitting.axes[v.name]] for v in model.variables if v.name in splitting.axes
    )
    if smallest < devices:
        return (
            f"{model.name!r} has a matrix of {smallest} rows to cut, too few for {devices} devices:"
            f" choose at most {smallest}"
        )
    if splitting.equal is not None and splitting.equal % devices:
        return (
            f"{splitting.equal} {splitting.equal_of} of {model.name!r} cannot be cut into"
            f" {devices} equal parts"
        )
    return None
