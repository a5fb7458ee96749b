"""A family of models with one kind of input, the `WORKLOAD` of its package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multigpu.spec.model import (
    LSTM_PASSES,
    Exchange,
    Init,
    Model,
    Optimizer,
    Section,
    Splitting,
    Unit,
    Variable,
)

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.spec.run import Run
    from multigpu.spec.stage_graph import Staged

__all__ = [
    "LSTM_PASSES",
    "Exchange",
    "Init",
    "Model",
    "Optimizer",
    "Section",
    "Splitting",
    "Unit",
    "Variable",
    "Workload",
]
"""Packages that add a workload import the words of its description from here."""


@dataclass(frozen=True)
class Workload:
    """A family of models with one kind of input; each framework's builder is `<framework>.py`.
    stages: for placements inside one model.
    checked: whether each Run first trains a few steps beside one process on the global batch
        (`checked` of its engine): no test does.
    """

    name: str
    unit: Unit
    models: Mapping[str, Model]
    inputs: Mapping[str, Callable[[Run, Model], Source]]
    stages: Staged | None = None
    frameworks: tuple[str, ...] = ("torch", "tensorflow")
    checked: bool = False
