"""A second program for the deciding figures: from raw files alone, with nothing of `multigpu`, so
that no fault of that can be shared.

Ratios of geometric means of rates, steps and trained scores, of one Run over another or of their
speedups, by the Records' own fields; and what Adagrad misses of rare features, beside other rules
that are each at their best rate.
"""

import gzip
import json
import math
import tarfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

DEFAULTS: dict[str, Any] = {
    "framework": "torch",
    "processes": "per_device",
    "scaling": "weak",
    "inputs": "synthetic",
    "precision": "fp32",
}
DEFAULTS |= {
    "execution": "eager",
    "devices": 1,
    "batching": "own",
    "shuffle": False,
    "warmup_steps": 10,
    "timed_steps": 30,
    "prefetch": 0,
}


def records(root: Path) -> dict[str, Mapping[str, Any]]:
    """The latest attempt of every key below a folder."""
    texts = [gzip.decompress(path.read_bytes()) for path in root.rglob("*.json.gz")]
    for path in root.rglob("records-*.tar.xz"):
        with tarfile.open(path) as tar:
            texts += [
                file.read() for member in tar.getmembers() if (file := tar.extractfile(member))
            ]
    every = sorted(map(json.loads, texts), key=lambda record: record.get("attempt", 0))
    return {record["key"]: record for record in every}


def field(record: Mapping[str, Any], name: str) -> Any:
    return record["run"].get(name, DEFAULTS.get(name))


def quantity(record: Mapping[str, Any], name: str) -> float:
    """A figure of a Run: words, images or reviews a second, or seconds a step, by the wall
    clock.
    """
    wall_s = record["measurement"]["wall_s"]
    return (
        record["measurement"]["units"] / wall_s
        if name == "units_per_s"
        else wall_s / field(record, "timed_steps")
    )


def fits(record: Mapping[str, Any], side: Mapping[str, Any]) -> bool:
    """Whether a Run is of a side: a value, or one of several, in each of its fields."""
    return all(
        field(record, name) in (value if isinstance(value, list | tuple) else [value])
        for name, value in side.items()
    )


def ratio(
    own: list[Mapping[str, Any]],
    name: str,
    over: list[dict[str, Any]],
    under: list[dict[str, Any]],
    per_device: bool,
    boots_alike: bool = False,
) -> float:
    """The product of the geometric means of the `over` sides by that of the `under` sides.

    boots_alike: each boot of a side counts as much, however many repeats it has.
    """
    logs = 0.0
    for sign, sides in ((1, over), (-1, under)):
        for side in sides:
            values: dict[str, list[float]] = {}
            for number, record in enumerate(own):
                if fits(record, side):
                    boot = boot_of(record) if boots_alike else str(number)
                    rate = quantity(record, name) / (field(record, "devices") if per_device else 1)
                    values.setdefault(boot, []).append(math.log(rate))
            logs += sign * fmean(map(fmean, values.values()))
    return math.exp(logs)


def boot_of(record: Mapping[str, Any]) -> str:
    """The boot that a Record names; one that is not named is its commit's."""
    return str(record.get("boot") or record["commit"])


def ratios_of_boots(
    own: list[Mapping[str, Any]],
    name: str,
    over: list[dict[str, Any]],
    under: list[dict[str, Any]],
    per_device: bool,
) -> list[float]:
    """`ratio` within each boot that has Records of all sides."""
    boots: dict[str, list[Mapping[str, Any]]] = {}
    for record in own:
        boots.setdefault(boot_of(record), []).append(record)
    return [
        ratio(inside, name, over, under, per_device)
        for inside in boots.values()
        if all(any(fits(record, side) for record in inside) for side in (*over, *under))
    ]


def missing(record: Mapping[str, Any]) -> tuple[float, float]:
    """Of the rarer half of a run's features: what is missing of their planted weights, squared, and
    their rates over the others'.
    """
    problem = record["experiment"]["problem"]
    half = record["experiment"]["problem"]["features"] // 2
    generator = np.random.default_rng((problem["seed"], 1))
    generator.random((problem["rows"], problem["features"]))
    weights = generator.standard_normal(problem["features"])
    with np.errstate(over="ignore"):  # of what diverged
        parts = (np.array(record["parameters"]) - weights) ** 2
    logs = [math.log(rate) for rate in record["rates"]]
    return sum(parts[half:]) / sum(weights[half:] ** 2), math.exp(
        (sum(logs[half:]) - sum(logs[:half])) / half
    )


def at_best(
    own: list[Mapping[str, Any]], rule: str, by_loss: bool
) -> dict[int, tuple[float, float]]:
    """By seed what a rule misses and its rates, at the one rate of its runs that is best on
    average.
    """
    found: dict[float, dict[int, tuple[float, float]]] = {}
    scores: dict[float, float] = {}
    for record in own:
        asked = record["experiment"]
        last = [point[3] for point in record["curve"][-(len(record["curve"]) // 4) :]]
        if asked["rule"] == rule:
            found.setdefault(asked["rate"], {})[asked["seed"]] = figures = missing(record)
            score = sum(last) / len(last) if by_loss else figures[0]
            scores[asked["rate"]] = scores.get(asked["rate"], 0.0) + (
                score if math.isfinite(score) else math.inf
            )
    return found[min(scores, key=lambda rate: scores[rate])]
