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
