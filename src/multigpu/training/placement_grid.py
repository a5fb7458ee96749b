"""Translation under every joined placement: does it follow the same curve? Imports no framework."""

from __future__ import annotations

from typing import Any

from multigpu.training.joined import joined_placements
from multigpu.training.run import TrainingRun, build_training_run

SMALL: dict[str, Any] = {"workload": "nmt", "model": "nmt_short", "device_type": "cpu", "inputs": "pieces_short", "devices": 2}
SMALL |= {"batch_size": 64, "scaling": "strong", "shuffle": True}
GENTLE_RATE = 1e-3
"""000's own of its large model. At the small one's, three times as much, training multiplies rounding errors until curves in fp32 part
after some 80 steps, and in fp64 after some 130: both rates are trained, this one to compare placements."""

FULL: dict[str, Any] = {"workload": "nmt", "model": "nmt000_pieces", "inputs": "pieces", "batch_size": 128, "scaling": "strong"}
FULL |= {"shuffle": True, "precision": "fp32"}
FULL_EPOCHS = 2
"""Of 167 steps: with variables in host memory more of them cost minutes."""


def small(placement: str, precision: str = "fp32", rate: float | None = GENTLE_RATE) -> TrainingRun:
    """000's two stacks, one cell each, on short sentences in 1,500 pieces: 2 CPU processes share 64 sentences a step, 3 epochs of 54.

    rate: None: the model's own, 3e-3.
    """
    return build_training_run(**SMALL, placement=placement, precision=precision, base_rate=rate, epochs=3)


def comparing() -> set[str]:
    """Digests of the runs that compare placements, on however many GPUs: too short to translate anything."""
    return {full(name, devices).digest for name in joined_placements(unit="words") for devices in (1, 2, 4)}


def full(placement: str, devices: int) -> TrainingRun:
    """000's cells on the whole corpus in 8,000 pieces; the devices share 128 sentences a step. Translates once, at the end."""
    return build_training_run(**FULL, placement=placement, devices=devices, epochs=FULL_EPOCHS, evaluate_every=167 * FULL_EPOCHS)
