"""Staged variables beside the placements that differ from them in nothing else: what does one step of age do? Imports no framework."""

from __future__ import annotations

from typing import Any

from multigpu.training.joined import staged_twins
from multigpu.training.run import TrainingRun, build_training_run

RATES = {"resnet_small": (0.05, 0.4), "resnet20": (0.01, 0.1)}
"""A low one and a high one. The small network's: the digits' usual one, at which placements are compared, and eight times it; tried on one
device for six epochs, the twin learns at both, and at twice the higher too. ResNet-20's: document 001's own and a tenth of it."""

DIGITS: dict[str, Any] = {"workload": "cnn", "device_type": "cpu", "inputs": "digits_split", "devices": 2, "batch_size": 64}
DIGITS |= {"scaling": "strong", "evaluate_every": 24}
"""64 of 1,500 digits a step; other budgets than those of the runs that compare joined placements, which these are not to be mixed with."""


def small() -> list[TrainingRun]:
    """The small network, six epochs, three seeds: seed by seed, so that one seed is whole before the next begins."""
    return [training for seed in range(3) for training in _pairs("resnet_small", 6, seed)]


def cifar() -> list[TrainingRun]:
    """ResNet-20, twelve epochs, one seed. Tried at 0.05 and 0.4 for four epochs first: the loss tells there, but no score does, as running
    statistics lag behind twenty layers that move fast, and at 0.4 the twin had not begun to learn.
    """
    return _pairs("resnet20", 12, 0)


def _pairs(model: str, epochs: int, seed: int) -> list[TrainingRun]:
    """Each placement beside its twin at both rates.

    Expected before measuring: a gradient one update old acts as if there were more momentum. Along a direction of curvature c, momentum m
    and a rate r make what swings shrink by m + r c a step (squared length) where a fresh gradient makes it shrink by m, and it stays
    bounded only while r c < 1 - m, a tenth, where fresh gradients stand 2 (1 + m), nearly four. So at a low rate next to nothing is to be
    seen but a later start, and at a high one, at which the twin still learns, the staged run learns much later or not at all.
    """
    return [
        build_training_run(**DIGITS, model=model, epochs=epochs, seed=seed, base_rate=rate, placement=placement)
        for rate in RATES[model]
        for pair in staged_twins().items()
        for placement in pair
    ]
