"""Rules of what a workload is built in, and of fields that mean something for some models only."""

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case
from multigpu.spec.run import Run

ONLY_FOR: dict[str, tuple[str, ...]] = {
    "sequence_length": ("words", "tokens"),
    **dict.fromkeys(("layout", "batch_norm", "stem", "weight_casts"), ("images",)),
    "recurrence": ("words", "samples"),
    "embedding_gradients": ("words", "reviews"),
    "cross_entropy": ("words", "tokens"),
    "feed": ("reviews",),
    "batching": ("words",),
    "shuffle": ("words", "tokens"),
}
"""Field -> the units of the models for which it means something."""

ONE_FRAMEWORK = (
    ("embedding_gradients", "sparse", "tensorflow"),
    ("cross_entropy", "fused", "torch"),
)
"""Field, its value, and the framework that has it."""


def framework(case: Case) -> None:
    """The workload must be built in the framework."""
    run = case.run
    if run.framework in case.frameworks:
        return
    raise Refused(
        f"workload {run.workload!r} is not built in {run.framework!r}: choose"
        f" {', '.join(case.frameworks)}"
    )


def meaning(case: Case) -> None:
    """A field must mean something for what the model reads."""
    unit = case.model.unit
    for name, units in ONLY_FOR.items():
        value = getattr(case.run, name)
        if unit not in units and value != Run.model_fields[name].default:
            raise Refused(f"{name} {value!r} has no meaning for {unit}: leave it out")


def context(case: Case) -> None:
    """A sequence fits into what the model can read."""
    length, longest = case.run.sequence_length, case.model.context
    if length is None or longest is None or length <= longest:
        return
    raise Refused(
        f"sequence_length {length} is longer than what {case.run.model!r} can read: choose at most"
        f" {longest:,}"
    )


def one_framework(case: Case) -> None:
    """Some values exist in one framework."""
    for name, value, only in ONE_FRAMEWORK:
        if getattr(case.run, name) == value and case.run.framework != only:
            raise Refused(
                f"{name} {value!r} exists in {only!r} only: leave it out or choose framework"
                f" {only!r}"
            )
