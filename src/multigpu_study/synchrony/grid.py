"""The study's experiments by part. A part is a file of `grids/synchrony/`, written as
`multigpu.grids` explains; its points have fields of an Experiment (of another kind in the files
that `KINDS` names), and a few that stand for a formula (`build`). Times are in units of the law's
mean (1 s) except those of real runs and of the empirical law.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from multigpu.grids.expand import Kind, expand
from multigpu.grids.planned import Planned, each_once
from multigpu.spec.schema import refusal
from multigpu_study.grids import FOLDER
from multigpu_study.synchrony.averaging import AveragingExperiment
from multigpu_study.synchrony.downpour import Downpour
from multigpu_study.synchrony.experiment import (
    ExperimentBase,
    ProblemDescription,
    ProtocolExperiment,
)
from multigpu_study.synchrony.protocol import BATCHES, CANCELS, PROTOCOLS

EXPERIMENTS = FOLDER / "synchrony"
PROBLEM: TypeAdapter[Any] = TypeAdapter(ProblemDescription)
FORMULAS = ("work", "all_gradients", "all_time_s", "epochs", "straggler_s", "own_data")


def _batches_of(protocol: str, workers: int, gradients: int | None) -> int:
    """About how many batches one update takes: K, or P where it cancels the others."""
    if protocol not in CANCELS:
        return gradients or 1
    return workers + (gradients or 1) if protocol in BATCHES else workers


def build(kind: type[ExperimentBase], **fields: Any) -> ExperimentBase:
    """The experiment that a file's fields describe, and the `FORMULAS` among them.

    work: about how many batches the updates are to take. all_gradients: how many, over all updates.
        all_time_s: shared out among replicas.
    epochs: updates as often as all rows take. straggler_s: added to every batch of the last worker.
    own_data: each seed has draws of its own, and data where these are generated.
    gradients: "half" of the workers' number; of no meaning to protocols that have no K.
    rate: may name what it is `a_worker`, and in `epochs` how long it warms up.
    """
    work, all_gradients, all_time_s, epochs, straggler_s, own_data = (
        fields.pop(name, None) for name in FORMULAS
    )
    protocol, workers = fields.get("protocol"), fields.get("workers", 1)
    if protocol in ("sync", "async"):
        fields.pop("gradients", None)
    elif fields.get("gradients") == "half":
        fields["gradients"] = workers // 2
    if own_data:
        fields["problem"] = fields["problem"] | {"seed": fields["seed"]}
    k = fields.get("gradients")
    if work:
        fields["updates"] = min(6000, max(40, work // _batches_of(str(protocol), workers, k)))
    if all_gradients:
        fields["updates"] = all_gradients // (k or workers)
    if all_time_s:
        fields["time_s"] = all_time_s / fields["replicas"]
    if straggler_s:
        fields["delays_s"] = [0.0] * (workers - 1) + [straggler_s]
    if epochs:
        rule = dict(fields["rate"])
        problem = PROBLEM.validate_json(json.dumps(fields["problem"]))
        an_epoch = problem.rows / (problem.batch_size * workers)
        fields["updates"] = round(epochs * an_epoch)
        if "a_worker" in rule:
            rule["rate"] = rule.pop("a_worker") * workers
        if "epochs" in rule:
            rule["updates"] = max(1, round(rule.pop("epochs") * an_epoch))
        fields["rate"] = rule
    try:
        return kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise ValueError(refusal(error)) from None


def _timed_s(e: Any) -> float:
    return (
        0.03
        + 1e-5 * (e.updates or 0) * _batches_of(e.protocol, e.workers, e.gradients)
        + 1e-4 * e.workers
    )


KINDS: dict[str, type[ExperimentBase]] = {
    "averaging": AveragingExperiment,
    "downpour": Downpour,
    "rare_features": Downpour,
}
PARTS = (
    *("runtime", "staleness", "twins", "averaging", "real", "rates", "speedup", "curves", "memory"),
    *("large_batch", "downpour", "translation"),
)
"""The study of one core, in the order in which it is run."""
APART = ("batches", "speedup_seeds", "rare_features", "gpus", "gpus_injected", "devices_cpu", "ray")
"""What that leaves out: what four claims alone ask, real runs on devices, and over Ray."""


def read_grid(name: str) -> list[Planned[ExperimentBase]]:
    """The entries of a file of `grids/synchrony/`, each experiment where it first stands."""
    own = KINDS.get(name, ProtocolExperiment)
    kind = Kind(
        fields={**own.model_fields, **{formula: FieldInfo(default=None) for formula in FORMULAS}},
        build=partial(build, own),
        lists={
            "protocol": {"every": lambda _: PROTOCOLS},
            "seed": {"many": lambda _: range(5, 200)},
        },
        costs={"timed": _timed_s},
    )
    return each_once(expand(EXPERIMENTS / f"{name}.yaml", kind))


def study() -> list[Planned[ExperimentBase]]:
    """The parts of the study of one core, in the order in which they are run."""
    return [planned for part in PARTS for planned in read_grid(part)]


GRIDS: dict[str, Callable[[], list[Planned[ExperimentBase]]]] = {
    "study": study,
    **{part: partial(read_grid, part) for part in (*PARTS, *APART)},
}
