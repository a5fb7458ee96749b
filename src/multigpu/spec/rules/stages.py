"""Rules of placements that put the stages of one model on devices."""

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case, Stages

PRECISIONS = ("fp64", "fp32", "tf32")
"""Those that are kept from stage to stage."""


def stages(case: Case) -> None:
    """One batch passes one model, whose stages stand on as many devices as the Run has."""
    run = case.run
    if case.stages is not None:
        _staged(case, case.stages)
    elif run.stage_devices is not None:
        raise Refused(
            f"stage_devices {run.stage_devices!r} has no meaning for placement {run.placement!r}:"
            " choose 'searched'"
        )


def _staged(case: Case, stages: Stages) -> None:
    run, named = case.run, f"placement {case.run.placement!r}"
    if stages.places is None:
        staged = ", ".join(stages.staged_workloads())
        advice = f"choose {staged}" if staged else "install a package that adds one with stages"
        raise Refused(
            f"{named} places a model's stages, and workload {run.workload!r} has none: {advice}"
        )
    if run.scaling != "strong":
        raise Refused(
            f"{named} gives one batch to one model on all devices: choose scaling 'strong'"
        )
    if run.precision not in PRECISIONS:
        raise Refused(
            f"precision {run.precision!r} is not kept from stage to stage: choose"
            f" {', '.join(PRECISIONS)} for {named}"
        )
    if run.devices > stages.at_most:
        raise Refused(f"{named} uses at most {stages.at_most} devices, not {run.devices}")
    if stages.by_digits != (run.stage_devices is not None):
        verb = "needs" if stages.by_digits else "takes no"
        raise Refused(f"{named} {verb} stage_devices, which is {run.stage_devices!r}")
    try:
        used = max(stages.places().values()) + 1
    except ValueError as error:
        raise Refused(str(error)) from None
    if used != run.devices:
        raise Refused(
            f"{named} puts stages on {used} device{'s'[: used > 1]}, not {run.devices}: choose"
            f" devices {used}"
        )
