"""Rules of how gradients are added up, sent and merged, and of averages of variables."""

from multigpu.collectives.spec import LIBRARY, parse_spec
from multigpu.spec.errors import Refused
from multigpu.spec.model import block_of
from multigpu.spec.rules.case import Case
from multigpu.spec.run import Run

LEAST_WARMUP = 5  # of compressed gradients: one step is counted, the next two are sent whole


def bucket_mib(case: Case) -> None:
    """Buckets end where the library's reducer merges during backward."""
    run, row = case.run, case.row
    merges = row.overlap and row.reduction == "all_reduce" and run.framework == "torch"
    if run.bucket_mib is None or merges:
        return
    raise Refused(
        f"bucket_mib {run.bucket_mib} has no meaning for placement {run.placement!r}: leave it out"
    )


def wire_dtype(case: Case) -> None:
    """Gradients take another type in PyTorch's all-reduce."""
    run, row = case.run, case.row
    if run.wire_dtype is None or (row.reduction == "all_reduce" and case.is_process_a_device):
        return
    raise Refused(
        f"wire_dtype {run.wire_dtype!r} is the type of gradients in PyTorch's all-reduce with a"
        f" process a device: leave it out with placement {run.placement!r} in {run.framework!r}"
        f" with processes {run.processes!r}"
    )


def buckets_in_a_graph(case: Case) -> None:
    """Buckets of our own are in one captured step of PyTorch."""
    run, row = case.run, case.row
    in_buckets = row.overlap and row.reduction == "all_reduce"
    whole_step = case.is_process_a_device and run.execution == "captured"
    captured = in_buckets and whole_step
    copied = (run.bucket_send or "").startswith("copied")
    divides = row.update == "sharded" and row.variables == "replica" and not row.overlap
    if copied and whole_step and divides:
        divided_by_copies(run)
        captured = run.bucket_update is None
    for field, value, does in (
        (
            "bucket_update",
            run.bucket_update,
            "moves the update of gradients that merge during backward into it",
        ),
        (
            "bucket_send",
            run.bucket_send,
            "leaves gradients that merge during backward where they are",
        ),
    ):
        if value is not None and not captured:
            raise Refused(
                f"{field} {value!r} {does}, in one captured step of 'torch': leave it out with"
                f" placement {run.placement!r} and execution {run.execution!r}, or choose 'ddp' and"
                " 'captured'"
            )
    of_nccl = {"peer_access": run.peer_access, "nccl_ctas": run.nccl_ctas}
    for name, setting in of_nccl.items():
        if setting is not None and copied:
            raise Refused(
                f"{name} {setting!r} is NCCL's, and bucket_send {run.bucket_send!r} sums by copies"
                " between devices: leave one of them out"
            )
    if run.bucket_update is not None and run.precision == "fp16":
        raise Refused(
            f"bucket_update {run.bucket_update!r} cannot wait for the last bucket to know of an"
            " overflow: choose a precision but 'fp16'"
        )


def divided_by_copies(run: Run) -> None:
    """A bucket whose update is divided is updated once a step, as soon as its sum is there."""
    if run.micro_sync == "each":
        raise Refused(
            "micro_sync 'each' sums buckets once for each part, and bucket_send"
            f" {run.bucket_send!r} under {run.placement!r} would update them each time: leave one"
            " of them out"
        )
    if run.workload == "own":
        raise Refused(
            f"bucket_send {run.bucket_send!r} under {run.placement!r} gives each bucket an"
            " optimizer, and a job brings one: leave bucket_send out"
        )


def compressed(case: Case) -> None:
    """Approximations of gradients are what the library's reducer exchanges while backward runs."""
    run, row = case.run, case.row
    given = {"powersgd_rank": run.powersgd_rank, "top_k": run.top_k}
    asked = {name: value for name, value in given.items() if value is not None}
    if not asked:
        return
    (name, value), *others = asked.items()
    what = f"{name} {value}"
    if others:
        raise Refused(
            f"{what} and top_k {run.top_k} are two ways to compress gradients: choose one"
        )
    in_reducer = row.overlap and row.reduction == "all_reduce" and case.is_process_a_device
    if not in_reducer or run.execution != "eager" or run.devices < 2:
        raise Refused(
            f"{what} compresses what replicas exchange in PyTorch's own reducer: choose placement"
            " 'ddp', execution 'eager', a process a device and at least 2 devices"
        )
    if run.precision in ("fp16", "bf16_params") or run.wire_dtype is not None:
        raise Refused(
            f"{what} keeps what it leaves out in the gradients' own 32 or 64 bits: choose a"
            " precision but 'fp16' and 'bf16_params', and no wire_dtype"
        )
    if run.micro_sync is not None:
        raise Refused(
            f"micro_sync {run.micro_sync!r} would compress the gradients of each part by itself,"
            f" and {what} is of a step's: leave one of them out"
        )
    if name == "powersgd_rank" and run.layout == "channels_last":
        raise Refused(
            f"{what} reads gradients as matrices, which those of layout 'channels_last' are not in"
            " memory: choose 'channels_first'"
        )
    if run.warmup_steps < LEAST_WARMUP:
        raise Refused(
            f"warmup_steps {run.warmup_steps} is too few for {what}, which first sends gradients as"
            f" they are: choose at least {LEAST_WARMUP}"
        )


def all_reduce_spec(case: Case) -> None:
    """A spec divides one all-reduce after backward; what is written out runs eagerly."""
    run, row = case.run, case.row
    if run.all_reduce_spec is None:
        return
    divides = row.reduction == "all_reduce" and not row.overlap and row.algorithm is None
    if not divides or not case.is_process_a_device:
        raise Refused(
            f"all_reduce_spec {run.all_reduce_spec!r} divides one all-reduce after backward, in"
            f" 'torch' with a process a device: leave it out with placement {run.placement!r}, or"
            " choose 'replicated_allreduce'"
        )
    try:
        parts = parse_spec(run.all_reduce_spec)
    except ValueError as error:
        raise Refused(str(error)) from None
    written_out = [part.algorithm for part in parts if part.algorithm != LIBRARY]
    if written_out and run.execution != "eager":
        raise Refused(
            f"all_reduce_spec names {written_out[0]!r}, which runs kernel by kernel only: choose"
            " execution 'eager'"
        )


def micro_steps(case: Case) -> None:
    """Gradients are added up on replicas of the whole model, each part of at least one row."""
    run, row = case.run, case.row
    if run.micro_steps is None:
        if run.micro_sync is None:
            return
        raise Refused(
            f"micro_sync {run.micro_sync!r} has no meaning without micro_steps: leave it out, or"
            " say into how many"
        )
    if not case.is_process_a_device or row.compute != "replica":
        raise Refused(
            f"micro_steps {run.micro_steps} adds up gradients on replicas of the whole model, in"
            f" 'torch' with a process a device: leave it out with placement {run.placement!r} in"
            f" {run.framework!r} with processes {run.processes!r}"
        )
    if case.smallest_shard < run.micro_steps:
        raise Refused(
            f"a replica gets {case.smallest_shard} rows, which cannot be cut into micro_steps"
            f" {run.micro_steps}: choose a larger batch_size"
        )


def micro_sync(case: Case) -> None:
    """Gradients of each part merge where replicas merge gradients, and are updated once."""
    run, row = case.run, case.row
    if run.micro_sync is None:
        return
    if row.update not in ("replica", "sharded") or not row.reduces_gradients:
        if row.variables == "replica":
            why = "merges none"
        else:
            why = "has them pushed to one home, once a step"
        raise Refused(
            f"micro_sync {run.micro_sync!r} merges gradients of replicas after each part of a"
            f" shard, and placement {run.placement!r} {why}: leave it out"
        )
    if run.bucket_update is not None:
        raise Refused(
            f"micro_sync {run.micro_sync!r} brings each bucket back once for each part, and"
            f" bucket_update {run.bucket_update!r} would update it each time: leave one of them out"
        )


def recompute(case: Case) -> None:
    """Repeated blocks compute twice on replicas of the whole model, and count nothing twice."""
    run, named = case.run, case.run.model
    if not run.recompute:
        return
    if not case.is_process_a_device or case.row.compute != "replica":
        raise Refused(
            f"recompute {run.recompute} is of replicas of the whole model, in 'torch' with a"
            f" process a device: leave it out with placement {run.placement!r} in"
            f" {run.framework!r} with processes {run.processes!r}"
        )
    if case.model.unit == "images":
        raise Refused(
            f"recompute {run.recompute} computes blocks twice, and batch norm of {named!r} would"
            " count each batch twice: leave it out"
        )
    if not any(block_of(variable.name) for variable in case.model.variables):
        raise Refused(
            f"recompute {run.recompute} is of repeated blocks, and {named!r} has none: leave it out"
        )


def reshard(case: Case) -> None:
    """Only what is gathered can be kept or freed."""
    run = case.run
    if run.reshard or case.row.variables == "sharded":
        return
    raise Refused(
        f"reshard {run.reshard} keeps gathered variables until backward, and placement"
        f" {run.placement!r} gathers none: leave it out or choose 'fsdp2'"
    )


def sharded_over(case: Case) -> None:
    """Variables are cut over all devices, or over as many as divide them into equal groups."""
    run = case.run
    if run.sharded_over is None:
        return
    if case.row.variables != "sharded":
        raise Refused(
            f"sharded_over {run.sharded_over} has no meaning for placement {run.placement!r}, which"
            " cuts no variables: leave it out or choose 'fsdp2'"
        )
    if run.devices % run.sharded_over:
        raise Refused(
            f"sharded_over {run.sharded_over} does not divide {run.devices} devices into groups"
            " that hold a copy each: choose a divisor"
        )


def local_steps(case: Case) -> None:
    """Rates are of whole cycles between two averages of variables."""
    run, row = case.run, case.row
    if run.local_steps is not None and row.reduction != "average":
        raise Refused(
            f"local_steps {run.local_steps} has no meaning for placement {run.placement!r}: leave"
            " it out or choose 'local_sgd'"
        )
    every = run.local_steps or row.semantics.every
    if run.timed_steps % every:
        raise Refused(
            f"timed_steps {run.timed_steps} is no multiple of the {every} steps after which"
            f" placement {run.placement!r} averages: a rate is of whole cycles, so choose"
            f" timed_steps {-(-run.timed_steps // every) * every} or local_steps that divide it"
        )
    if run.warmup_steps < every:
        raise Refused(
            f"warmup_steps {run.warmup_steps} holds no whole cycle of {every} steps, whose bytes"
            f" are counted: choose at least {every}"
        )


def gathered_predictions(case: Case) -> None:
    """A loss on the first device is over one prediction an image."""
    run = case.run
    if case.row.loss != "gpu0" or case.model.unit == "images":
        return
    raise Refused(
        f"placement {run.placement!r} gathers one prediction an image, and {run.model!r} has none:"
        " choose an image model"
    )
