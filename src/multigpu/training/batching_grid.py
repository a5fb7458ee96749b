"""Document 000's open question: does it cost convergence when all replicas of a step share one bucket? Imports no framework."""

from __future__ import annotations

from typing import Any

from multigpu.training.run import TrainingRun, build_training_run

MODES = ("own", "shared", "fixed")
REPLICAS = 4

SMALL: dict[str, Any] = {"workload": "nmt", "model": "nmt_short", "device_type": "cpu", "placement": "ddp", "shuffle": True}
FULL: dict[str, Any] = {"workload": "nmt", "model": "nmt000_pieces", "placement": "ddp", "shuffle": True, "precision": "bf16"}


def preset(seed: int = 0) -> TrainingRun:
    """What one CPU process trains in minutes to translations better than a copy of the source: 20 epochs of `pieces_short`.

    The rate is constant for half of them and then halved ten times: held-out sentences gain from small last steps.
    """
    run = {**SMALL, "devices": 1, "batch_size": 32, "inputs": "pieces_short", "seed": seed}
    return build_training_run(**run, epochs=20, schedule="luong10", schedule_steps=2140, evaluate_every=535, log_every=5)


def small(seeds: range = range(3)) -> list[TrainingRun]:
    """Every mode and seed on 4 CPU processes, 8 sentences each: 6 epochs of one package's sentences of up to 30 pieces a side.

    "fixed" pads to 30 pieces; the words that are trained on are the same in every mode.
    """
    run = {**SMALL, "devices": REPLICAS, "batch_size": 8, "inputs": "pieces_package"}
    return [_in_mode(run, mode, seed, 30, epochs=6, evaluate_every=500, log_every=10) for seed in seeds for mode in MODES]


def full_preset(seed: int = 0) -> TrainingRun:
    """000's cells on the whole corpus, to see them translate: one GPU, 128 sentences a step, 20 epochs, the rate as in `preset`."""
    run = {**FULL, "devices": 1, "batch_size": 128, "inputs": "pieces", "seed": seed}
    return build_training_run(**run, epochs=20, schedule="luong10", schedule_steps=3340, evaluate_every=835, log_every=10)


def full(seeds: range = range(3), devices: int = REPLICAS) -> list[TrainingRun]:
    """000's cells on the whole corpus in 8,000 pieces, 128 sentences a step of all GPUs: 10 epochs, every mode and seed."""
    run = {**FULL, "devices": devices, "batch_size": 128 // devices, "inputs": "pieces"}
    return [_in_mode(run, mode, seed, 100, epochs=10, evaluate_every=835, log_every=10) for seed in seeds for mode in MODES]


def _in_mode(run: dict[str, Any], mode: str, seed: int, width: int, **training: Any) -> TrainingRun:
    fields = {**run, "batching": mode, "seed": seed} | ({"sequence_length": width} if mode == "fixed" else {})
    return build_training_run(**fields, **training)
