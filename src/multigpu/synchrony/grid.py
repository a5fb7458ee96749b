"""The study's experiments by part, each with the seconds that it takes one core: about ten minutes for all.

Parts are files of `grids/synchrony/`, written as `grid/from_yaml.py` explains; their points have fields of an Experiment, and a few that
stand for a formula (`_build`). What is no Experiment, or follows from a data set's rows, is a function of `grid_training`. Times are in
units of the law's mean (1 s) except those of real runs and of the empirical law.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from multigpu.grid.expand import FOLDER, Kind, expand
from multigpu.refusal import refusal
from multigpu.synchrony.experiment import Experiment
from multigpu.synchrony.grid_training import averaging, downpour, large_batch
from multigpu.synchrony.planned import Planned
from multigpu.synchrony.protocol import BATCHES, CANCELS, PROTOCOLS

EXPERIMENTS = FOLDER / "synchrony"
WITHOUT_K = ("sync", "async")
MOST_UPDATES, FEWEST_UPDATES = 6000, 40


def _batches_of(protocol: str, workers: int, gradients: int | None) -> int:
    """About how many batches one update takes: K, or P where it cancels the others."""
    if protocol not in CANCELS:
        return gradients or 1
    return workers + (gradients or 1) if protocol in BATCHES else workers


def _build(
    work: int | None = None, all_gradients: int | None = None, straggler_s: float = 0.0, own_data: bool = False, **fields: Any
) -> Experiment:
    """work: about how many batches the updates are to take. all_gradients: how many, over all updates. straggler_s: added to every batch of
    the last worker. own_data: each seed has draws of its own, and data where these are generated. gradients: "half" of the workers' number;
    of no meaning to protocols that have no K.
    """
    protocol, workers = fields["protocol"], fields["workers"]
    if protocol in WITHOUT_K:
        fields.pop("gradients", None)
    elif fields.get("gradients") == "half":
        fields["gradients"] = workers // 2
    if own_data:
        fields["problem"] = fields["problem"] | {"seed": fields["seed"]}
    k = fields.get("gradients")
    if work:
        fields["updates"] = min(MOST_UPDATES, max(FEWEST_UPDATES, work // _batches_of(protocol, workers, k)))
    if all_gradients:
        fields["updates"] = all_gradients // (k or workers)
    if straggler_s:
        fields["delays_s"] = [0.0] * (workers - 1) + [straggler_s]
    try:
        return Experiment.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise ValueError(refusal(error)) from None


def _timed_s(experiment: Experiment) -> float:
    """Of an experiment without gradients: every worker draws a block of times, however few it uses."""
    e, updates = experiment, experiment.updates or 0
    return 0.03 + 1e-5 * updates * _batches_of(e.protocol, e.workers, e.gradients) + 1e-4 * e.workers


KIND = Kind(
    fields={**Experiment.model_fields, **{name: FieldInfo(default=None) for name in ("work", "all_gradients", "straggler_s", "own_data")}},
    build=_build,
    lists={"protocol": {"every": lambda _: PROTOCOLS}, "seed": {"many": lambda _: range(5, 200)}},
    costs={"timed": _timed_s},
)


def read_grid(name: str) -> Iterable[Planned]:
    """The entries of a file of `grids/synchrony/`, each experiment where it first stands."""
    points = {point.built.digest + point.built.clock: point for point in reversed(list(expand(EXPERIMENTS / f"{name}.yaml", KIND)))}
    return [Planned(name, point.built, point.cost_s) for point in reversed(points.values())]


def _files(*names: str) -> dict[str, Callable[[], Iterable[Planned]]]:
    return {name: partial(read_grid, name) for name in names}


PARTS: dict[str, Callable[[], Iterable[Planned]]] = {
    **_files("runtime", "staleness", "twins"),
    "averaging": averaging,
    **_files("real", "rates", "speedup", "curves", "memory"),
    "large_batch": large_batch,
    "downpour": downpour,
    **_files("translation"),
}
"""The study of one core, in the order in which it is run."""
APART = _files("batches", "speedup_seeds", "gpus", "gpus_injected", "devices_cpu", "ray")
"""What the study of one core leaves out: what three claims alone ask, real runs of a model on devices, and over Ray actors (an extra)."""
GRIDS = ("study", *PARTS, *APART)
"""Names of grids: the whole study, one part of it, or one of those apart."""


def find_grid(name: str) -> list[Planned]:
    """The experiments of a grid, in the order in which they are run.

    Raises:
        ValueError: no such grid.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown grid {name!r}: choose one of {', '.join(GRIDS)}")
    known = PARTS | APART
    return [planned for part in (PARTS if name == "study" else (name,)) for planned in known[part]()]
