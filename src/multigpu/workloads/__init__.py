"""Workloads, discovered by folder: a package here that defines `WORKLOAD` is one, of the folder's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from multigpu.later import Later
from multigpu.workloads.base import Model, Workload

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run


def _found(folder: str) -> Workload:
    found: Workload = importlib.import_module(f"{__name__}.{folder}").WORKLOAD
    return found


@cache
def workloads() -> Mapping[str, Workload]:
    """Every workload by name; a package is imported when its workload is asked for, and a model described when it is."""
    return Later({info.name: partial(_found, info.name) for info in pkgutil.iter_modules(__path__) if info.ispkg})


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


def open_source(run: Run) -> Source:
    """The Run's input.

    Raises:
        ValueError: its files cannot be used.
        OSError: or cannot be read.
        ImportError: what reads them is not installed.
    """
    return workloads()[run.workload].inputs[run.inputs](run, run.description)
