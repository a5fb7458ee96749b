"""Frames of TrainingRecords on planted ones, worked out by hand."""

import math

import pytest

from multigpu_study.analysis.training import reach_frame, training_frame
from tests.study.training.planted import trained

LOSSES = [2.0 - 0.05 * step for step in range(20)]


def test_a_row_and_the_time_to_an_accuracy_by_hand():
    row = training_frame(
        [
            trained(
                LOSSES,
                accuracies=(0.5, 0.9, 0.8, 0.7),
                step_s=0.5,
                gpus=2,
                devices=2,
                energy_j=(30.0, 50.0),
            )
        ]
    ).iloc[0]
    assert (
        row["global_batch"],
        row["steps"],
        row["train_s"],
        row["step_time_s"],
        row["units_per_s"],
    ) == (32, 20, 10.0, 0.5, 64.0)
    assert (row["last_loss"], row["accuracy"]) == (
        pytest.approx((LOSSES[18] + LOSSES[19]) / 2),
        0.7,
    )
    found = reach_frame(
        [trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.95), step_s=0.5)], [0.85, 0.95, 0.99]
    )
    assert found[["steps", "seconds", "samples"]].to_numpy()[:2].tolist() == [
        [10, 5.0, 160],
        [20, 10.0, 320],
    ]
    assert math.isnan(found["steps"].iloc[2])
