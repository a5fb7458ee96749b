"""Workloads, discovered by folder: a package here that defines `WORKLOAD` is one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from multigpu.workloads.base import Model, Workload


@cache
def workloads() -> dict[str, Workload]:
    """Every workload by name."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if info.ispkg:
            workload = importlib.import_module(f"{__name__}.{info.name}").WORKLOAD
            found[workload.name] = workload
    return found


def find_model(workload: str, model: str) -> Model:
    """The description of `model`.

    Raises:
        ValueError: the workload or the model is unknown; the sentence names the known ones.
    """
    if workload not in workloads():
        raise ValueError(f"unknown workload {workload!r}: choose one of {', '.join(workloads())}")
    models = workloads()[workload].models
    if model not in models:
        raise ValueError(f"unknown model {model!r} of workload {workload!r}: choose one of {', '.join(models)}")
    return models[model]
