"""Rules of precisions and of a loss's scale."""

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case


def device_precision(case: Case) -> None:
    """TF32 is of GPUs, and double precision of tests on CPUs."""
    run = case.run
    if run.device_type == "cpu" and run.precision == "tf32":
        raise Refused(
            "precision 'tf32' exists on GPUs only: choose fp64, fp32 or bf16 on device_type 'cpu'"
        )
    if run.device_type == "cuda" and run.precision == "fp64":
        raise Refused(
            "precision 'fp64' serves tests on CPUs only: choose fp32, tf32, bf16 or fp16 on"
            " device_type 'cuda'"
        )


def bf16_params(case: Case) -> None:
    """Masters stand beside variables where each replica updates its own, or in pieces."""
    run, row = case.run, case.row
    if run.precision != "bf16_params":
        return
    named = f"precision {run.precision!r}"
    if case.model.unit != "tokens" or not case.is_process_a_device:
        raise Refused(
            f"{named} exists for transformers in 'torch' with a process a device: choose 'bf16'"
            " elsewhere"
        )
    replicas = {row.variables, row.update} == {"replica"} and row.reduction != "average"
    if replicas or row.variables == "sharded":
        return
    raise Refused(
        f"{named} keeps float32 masters beside each replica's variables, or in the pieces of cut"
        f" ones, and placement {run.placement!r} does neither: choose 'ddp' or 'fsdp2', or"
        " precision 'bf16'"
    )


def half_precision(case: Case) -> None:
    """Float16 scales its loss, and leaves out a step when any replica overflows."""
    run, row = case.run, case.row
    if run.precision != "fp16":
        if run.loss_scale is None:
            return
        raise Refused(
            f"loss_scale {run.loss_scale} has no meaning for precision {run.precision!r}: leave it"
            " out or choose 'fp16'"
        )
    if case.model.unit != "images" or not case.is_process_a_device:
        raise Refused(
            "precision 'fp16' exists for image models in 'torch' with a process a device: choose"
            " bf16 elsewhere"
        )
    if {row.variables, row.update} != {"replica"}:
        raise Refused(
            "precision 'fp16' leaves out a step when any gradient overflows, which every replica"
            " must see: choose a placement with variables and update on every replica, not"
            f" {run.placement!r}, or precision 'bf16'"
        )
