"""Hold the results of one setting, of one framework, of a claim; results are computed once, and
kept until anything changes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from multigpu import paths
from multigpu.lazy import lazy
from multigpu.records.cache import cached_on_disk
from multigpu.spec.schema import Data
from multigpu_study.claims.core import Claim, Verdict


class Setting(Data):
    """One interval: a contrast in one setting, with the Records it was computed from.
    fields: what tells it from other settings of its contrast. enough: whether it has the repeats
        and launches to decide.
    holding, failing: how likely data like these are if it does not hold, and if it does not fail
        (one-sided p-values; None: not enough).
    ceiling: the best that it could be. by_median: the estimate by median steps. noisy: whether the
        two clocks differ by too much.
    """

    framework: str
    contrast: str
    fields: dict[str, str | int | float | bool | None]
    devices: int
    estimate: float
    low: float | None
    high: float | None
    n: int
    launches: int
    enough: bool
    verdict: Verdict
    record_keys: tuple[str, ...]
    holding: float | None = None
    failing: float | None = None
    ceiling: float | None = None
    by_median: float | None = None
    noisy: bool = False


def models_of(fields: Iterable[Mapping[str, object]]) -> set[str]:
    """The models that settings of these fields compare; "None" of what has none."""
    return {model for own in fields for model in str(own.get("model")).split(" / ")}


class Answer(Data):
    """A verdict, figure, why, scope. decidable: settings with enough repeats; leaning: of most."""

    verdict: Verdict
    figure: str = ""
    why: str = ""
    scope: str = ""
    record_keys: tuple[str, ...] = ()
    decidable: int = Field(default=0, exclude=True)
    leaning: Verdict = Field(default="inconclusive", exclude=True)


class ClaimResult(Answer):
    """The outcome of a Claim by the Records: overall, by framework, and every interval behind it.
    looks: settings that may decide. needed: repeats that would. measured_at: when the Records of
        its verdict were measured, in UTC.
    """

    claim: Claim
    by_framework: dict[str, Answer] = {}
    settings: tuple[Setting, ...] = ()
    looks: int = 0
    needed: str = ""
    measured_at: tuple[str, ...] = Field(default=(), exclude=True)


def to_json(results: Sequence[ClaimResult]) -> str:
    """All results, their claims and predicates included, as a JSON list."""
    items = [
        result.model_dump(mode="json") | {"predicate_digest": result.claim.digest or None}
        for result in results
    ]
    return json.dumps(items, indent=1, ensure_ascii=False, allow_nan=False)


def study_results(
    runs: Path = paths.RUNS,
    hosts: Path = paths.HOSTS,
    synchrony: Path = paths.SYNCHRONY,
    training: Path = paths.TRAINING,
) -> list[ClaimResult]:
    """Return the result of every claim by the Records of these folders."""
    folders = [runs, hosts, synchrony, training]
    return cached_on_disk(
        "claims", folders, lambda: lazy("multigpu_study.claims.verdicts:results_of")(*folders)
    )
