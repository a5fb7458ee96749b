"""Frames of TrainingRecords and what is said of them, on planted Records worked out by hand."""

from __future__ import annotations

import math

import pytest

from multigpu.analysis import training_page as page
from multigpu.analysis import training_rates as rates
from multigpu.analysis.figure_training import figure_curves, figure_distance
from multigpu.analysis.figure_training_rates import figure_batch, figure_rules, figure_schedule, schedule_points
from multigpu.analysis.training import ALLOWED, curve_distance, curves_frame, reach_frame, same_curve_table, training_frame
from tests.training.planted import trained

LOSSES = [2.0 - 0.05 * step for step in range(20)]
STRONG = {"devices": 2, "batch_size": 64, "scaling": "strong", "base_rate": 0.05, "epochs": 4}


def shifted(by: float) -> list[float]:
    """The curve, its second half `by` times itself higher."""
    return [*LOSSES[:10], *(loss * (1 + by) for loss in LOSSES[10:])]


def panel(other: float, other64: float = 0.0):
    """ddp in fp64 is the truth, ddp in fp32 lies 1% from it, exp2 as asked, independent replicas 50%."""
    return [
        trained(LOSSES, placement="ddp", precision="fp64", **STRONG),
        trained(shifted(0.01), placement="ddp", **STRONG),
        trained(shifted(other), placement="exp2", **STRONG),
        trained(shifted(other64), placement="exp2", precision="fp64", **STRONG),
        trained(shifted(0.5), placement="independent", **STRONG),
    ]


def same_of(records) -> dict[tuple[str, str], bool | None]:
    """Placement and precision -> whether its curve is the same."""
    table = same_curve_table(training_frame(records), curves_frame(records))
    assert table["drift"].to_list() == pytest.approx([0.01] * 5) and ALLOWED == 3
    return {(row["placement"], row["precision"]): row["same"] for _, row in table.iterrows()}


def test_a_row_by_hand():
    row = training_frame([trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.7), step_s=0.5, gpus=2, devices=2, energy_j=(30.0, 50.0))]).iloc[0]
    assert (row["joined_batch"], row["steps"], row["train_s"], row["step_time_s"], row["units_per_s"]) == (32, 20, 10.0, 0.5, 64.0)
    assert row["last_loss"] == pytest.approx((LOSSES[18] + LOSSES[19]) / 2)
    assert (row["accuracy"], row["best_accuracy"], row["energy_j"]) == (0.7, 0.9, 80.0)


def test_distance_is_of_windows_and_relative():
    assert curve_distance(shifted(0.1), LOSSES) == pytest.approx(0.1)
    wobbling = [loss + (0.3 if step % 2 else -0.3) for step, loss in enumerate(LOSSES)]
    assert curve_distance(wobbling, LOSSES) == pytest.approx(0, abs=1e-12)
    assert curve_distance(LOSSES[:5], LOSSES) == math.inf


def test_the_tolerance_comes_from_the_drift_of_fp32():
    assert same_of(panel(0.029))["exp2", "fp32"] is True
    assert same_of(panel(0.031))["exp2", "fp32"] is False


def test_fp64_is_held_to_what_rounding_can_do_there():
    """2^-29 of 3% is 5.6e-11."""
    assert same_of(panel(0.01, 5e-11))["exp2", "fp64"] is True
    assert same_of(panel(0.01, 1e-6))["exp2", "fp64"] is False


def test_independent_replicas_need_not():
    assert same_of(panel(0.01))["independent", "fp32"] is None


def test_time_to_accuracy_is_the_first_time():
    records = [trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.95), step_s=0.5)]
    found = reach_frame(records, [0.85, 0.95, 0.99])
    assert found["steps"].to_list()[:2] == [10, 20] and math.isnan(found["steps"].iloc[2])
    assert found["seconds"].to_list()[:2] == [5.0, 10.0] and found["samples"].to_list()[:2] == [160, 320]


def test_power_and_efficiency_come_from_records_alone():
    strong = {**STRONG, "execution": "captured"}
    with_gpus = [
        trained(LOSSES, gpus=2, step_s=1.0, energy_j=(8000.0,), **{**strong, "devices": 1}),
        trained(LOSSES, gpus=2, step_s=0.625, energy_j=(6000.0, 6500.0), **strong),
    ]
    html = page.system_table(page.see(with_gpus)).html
    assert "0.80" in html and "20%" in html and "1,000" in html and "12.5" in html, "T1 / (N TN) = 1 / (2 x 0.625); 12.5 kJ in 12.5 s"
    html = page.system_table(page.see([trained(LOSSES, **STRONG)])).html
    assert "Not measured: Efficiency; Overhead; Power, W; Energy, kJ; Cost." in html and "Not compared: Time to it, s." in html


def test_every_part_speaks_with_and_without_records():
    rule = {"reference_batch": 16, "base_rate": 0.02, "epochs": 6}
    records = [*panel(0.01)]
    for seed in range(2):
        records += [trained(LOSSES, (0.95,), seed=seed, **rule), trained(LOSSES, (0.5,), seed=seed, **rule | {"batch_size": 128})]
        for schedule, accuracy in (("warmup", 0.9), ("constant", 0.7)):
            records.append(trained(LOSSES, (accuracy,), seed=seed, batch_size=128, rate_scaling="linear", schedule=schedule, **rule))
    for batch in (16, 32, 64):
        records.append(trained(LOSSES, (0.6, 0.9), batch_size=batch, rate_scaling="linear", schedule="warmup", **rule))
    for devices, adjusted in ((1, True), (2, True), (2, False)):
        records.append(trained(LOSSES, devices=devices, schedule="luong10", schedule_steps=20, adjust_to_devices=adjusted, epochs=6))
    # decays for its own sake: nothing to compare with
    records.append(trained(LOSSES, inputs="teacher_small", schedule="luong10", schedule_steps=20, epochs=20))
    records.append(trained(status="failed", reason="replicas hold different weights", placement="replicated_ring", devices=2))
    seen, empty = page.see(records), page.see([])
    text = page.answer(seen).html
    assert "Every one of the joined runs compared (2 placements)" in text and "reaches <strong>" not in text
    assert "90.0% after a warm-up and 70.0% without one, an unscaled rate 50.0%; the small batch itself 95.0%" in text
    assert "No Record supports an answer yet" in page.answer(empty).html
    assert "different weights" in page.failures_table(seen).html
    for one in (seen, empty):
        for table in (page.curve_table, page.duties_table, page.claims_table, rates.rules_table, rates.schedule_table, rates.batch_table):
            assert table(one).html
        for figure in (
            figure_curves(one.same, one.curves),
            figure_distance(one.same),
            figure_rules(one.frame, one.scores),
            figure_schedule(one.frame, one.curves),
            figure_batch(one.frame, one.reach),
        ):
            assert figure.alt
    assert set(figure_schedule(seen.frame, seen.curves).data["devices"]) == {1, 2} and len(schedule_points(seen.frame)) == 3
    assert "reaches more: 90.0% against 50.0% unscaled" in figure_rules(seen.frame, seen.scores).finding
