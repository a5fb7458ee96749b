"""Workloads: packages here that define `WORKLOAD`, by folder, and those that others add."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from multigpu.lazy import LazyMapping
from multigpu.plugins import PluginRegistry
from multigpu.spec import model
from multigpu.spec.model import Model, Optimizer
from multigpu.spec.run import Run
from multigpu.workloads.base import Workload

FOLDERS = [info.name for info in pkgutil.iter_modules(__path__) if info.ispkg]


def _built(workload: Workload, package: str) -> Workload:
    """The workload itself; a ValueError or an ImportError where its builders are missing."""
    for framework in workload.frameworks:
        if find_spec(f"{package}.{framework}") is None:
            raise ValueError(
                f"it is built in {', '.join(workload.frameworks)}, and {package} has no module"
                f" {framework!r}"
            )
    return workload


ADDED = PluginRegistry("workloads", Workload, FOLDERS, _built)
FOREIGN = ADDED.foreign
"""Names of those that no part of this repository adds."""


@cache
def workloads() -> Mapping[str, Workload]:
    """Every workload by name; packages are imported, and models described, when asked for."""
    makers: dict[str, Callable[[], Workload]] = {
        folder: partial(pkgutil.resolve_name, f"{__name__}.{folder}:WORKLOAD") for folder in FOLDERS
    }
    makers |= {name: partial(ADDED.__getitem__, name) for name in ADDED.of_the_study}
    return LazyMapping(dict(sorted(makers.items())), ADDED)


def part_of(workload: str, part: str) -> str:
    """The full name of the module `part` ("torch", "evaluate") of a workload's package."""
    if workload in FOLDERS:
        return f"{__name__}.{workload}.{part}"
    return f"{ADDED.module(workload)}.{part}"


def import_part(workload: str, part: str) -> Any:
    """Import that module."""
    return importlib.import_module(part_of(workload, part))


def find_workload(name: str) -> Workload:
    """The workload called `name`; a ValueError where it is unknown or cannot be used."""
    if name not in workloads():
        raise ValueError(
            f"unknown workload {name!r}: choose one of {', '.join(workloads())}, or install the"
            " package that adds it"
        )
    return workloads()[name]


def find_model(workload: str, model: str) -> Model:
    """The description of `model`; a ValueError where it, or its workload, is unknown."""
    models = find_workload(workload).models
    if model not in models:
        raise ValueError(
            f"unknown model {model!r} of workload {workload!r}: choose one of {', '.join(models)}"
        )
    return models[model]


def description_of(run: Run) -> Model:
    """The Run's model, over sequences of its length; a ValueError as `find_model`."""
    return find_model(run.workload, run.model).at(run.sequence_length)


def optimizer_of(run: Run) -> Optimizer:
    """The Run's update rule: a plain one by name, or the workload's own."""
    return model.optimizer_of(run, description_of(run))
