"""Rules of kernels that stand in for the library's: fused batch norm, grouped casts, LSTMs."""

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case

PERSISTENT_UNITS = 512
"""Hidden units of a cell that the persistent LSTM's kernels take on GPUs."""

FUSED = (("batch_norm", "fused"), ("stem", "folded"), ("weight_casts", "grouped"))
"""Field and value of kernels that compute several layers at once."""


def recurrence(case: Case) -> None:
    """A recurrence needs an LSTM, and the persistent one a cell that fits its kernels."""
    run, model = case.run, case.model
    if run.recurrence and model.unit == "samples" and model.config.kind != "recurrent":
        raise Refused(
            f"recurrence {run.recurrence!r} has no meaning for model {run.model!r}, which has no"
            " LSTM: leave it out"
        )
    if run.recurrence != "persistent":
        return
    if run.framework != "torch" or model.unit != "words":
        raise Refused(
            "recurrence 'persistent' exists for translation models in 'torch' only: choose fused or"
            " stepwise"
        )
    if run.device_type == "cpu":
        return
    if run.precision != "bf16":
        raise Refused(
            f"recurrence 'persistent' computes in bf16 on GPUs, not in {run.precision}: choose"
            " precision 'bf16' or recurrence 'fused'"
        )
    units = model.config.units
    if units != PERSISTENT_UNITS:
        raise Refused(
            f"recurrence 'persistent' holds the weights of {PERSISTENT_UNITS} units in registers,"
            f" and model {run.model!r} has {units}: choose recurrence 'fused'"
        )


def persistent_batch_norm(case: Case) -> None:
    """Persistent batch norm is cuDNN's in TensorFlow on GPUs."""
    run = case.run
    if run.batch_norm != "persistent":
        return
    if (run.framework, run.device_type) == ("tensorflow", "cuda"):
        return
    raise Refused(
        "batch_norm 'persistent' is cuDNN's kernel in TensorFlow: choose framework 'tensorflow' and"
        " device_type 'cuda'"
    )


def fused_layers(case: Case) -> None:
    """Kernels over several layers need PyTorch, channels last, and the layers on one device."""
    for name, value in FUSED:
        given = getattr(case.run, name)
        if given == value:
            _check_fusable(case, f"{name} {value!r}")
        if given and case.row.variables == "sharded":
            raise Refused(
                f"{name} {given!r} reads variables of several layers at once, and placement"
                f" {case.run.placement!r} gathers them layer by layer: leave it out"
            )


def _check_fusable(case: Case, named: str) -> None:
    run = case.run
    if run.framework != "torch":
        raise Refused(f"{named} exists in 'torch' only: leave it out or choose framework 'torch'")
    if run.layout != "channels_last":
        raise Refused(
            f"{named} takes channels last: choose layout 'channels_last', not"
            f" {run.layout or 'channels_first'!r}"
        )
    if case.row.compute != "replica":
        raise Refused(
            f"{named} computes several layers at once, and placement {run.placement!r} cuts between"
            " layers: leave it out"
        )


def stem(case: Case) -> None:
    """A stem folds where its stride divides the image."""
    run = case.run
    if not run.stem or case.model.config.foldable:
        return
    raise Refused(
        f"stem {run.stem!r} is of a first convolution whose stride divides the image, which"
        f" {run.model!r} does not have: leave it out"
    )


def weight_casts(case: Case) -> None:
    """Weights are cast in steps in 16 bits that are not compiled."""
    run = case.run
    casts = run.precision in ("bf16", "fp16") and "compiled" not in run.execution
    if not run.weight_casts or casts:
        return
    raise Refused(
        f"weight_casts {run.weight_casts!r} is of steps in 16 bits that are not compiled: choose"
        f" bf16 and eager or captured, not {run.precision} and {run.execution}"
    )
