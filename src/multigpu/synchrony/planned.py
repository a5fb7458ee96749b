"""An entry of a grid of experiments."""

from __future__ import annotations

from dataclasses import dataclass

from multigpu.synchrony.averaging_record import AveragingExperiment
from multigpu.synchrony.downpour import Downpour
from multigpu.synchrony.experiment import Experiment


@dataclass(frozen=True)
class Planned:
    """An experiment, the part of the study it belongs to, and the seconds it is expected to take."""

    part: str
    experiment: Experiment | AveragingExperiment | Downpour
    cost_s: float
