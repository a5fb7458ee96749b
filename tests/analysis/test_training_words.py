"""What the page on training says first, and its figure of distances, from planted Records."""

from __future__ import annotations

from typing import Any

import pytest

from multigpu.analysis import training_page as page
from multigpu.analysis import training_words as words
from multigpu.analysis.figure_training import LEAST, MOST, figure_distance
from tests.analysis.test_training import LOSSES, STRONG, panel, shifted
from tests.training.planted import trained

GPUS: dict[str, Any] = {**STRONG, "gpus": 2, "inputs": "teacher_small"}


def on_gpus() -> list[Any]:
    """ddp in fp32 is the reference; Exp2 and Exp4 lie 1% and 1.2% away, replicas 20%."""
    far = {"exp2": 0.01, "exp4": 0.012, "independent": 0.2}
    return [trained(LOSSES, placement="ddp", **GPUS), *(trained(shifted(by), placement=name, **GPUS) for name, by in far.items())]


def test_models_on_gpus_lead_whatever_tells_more() -> None:
    """Replicas of the CPUs' job lie at 50,000 times its tolerance; those of the GPUs' at fewer: it leads all the same."""
    cpus = [trained(LOSSES, placement="ddp", precision="fp64", **STRONG), trained(shifted(1e-6), placement="ddp", **STRONG)]
    cpus += [trained(shifted(2e-6), placement="exp2", **STRONG), trained(shifted(0.15), placement="independent", **STRONG)]
    first = words.answer(page.see([*cpus, *on_gpus()])).html.split("<p>")[1]
    assert first.startswith("small ResNet on 4,000 images that a network labelled, 2 devices: all 2 joined runs")
    first = words.answer(page.see(cpus)).html.split("<p>")[1]
    assert "Independent replicas lie at 50,000 times the tolerance." in first, "one job has one figure"


def test_time_to_accuracy_is_an_answer_captured_steps_first() -> None:
    """20 steps of 0.5, 0.75 and 0.25 s in four epochs; the level, some 95% of the best accuracy, is reached after the second one."""
    after = (0.5, 0.9, 0.8, 0.9)
    records = [trained(LOSSES, after, placement=name, step_s=s, **GPUS) for name, s in (("ddp", 0.5), ("exp2", 0.75))]
    records += [trained(LOSSES, after, placement="ddp", step_s=0.25, execution="captured", **GPUS)]
    records += [trained(LOSSES, after, placement="ddp", step_s=0.6, **{**GPUS, "devices": 1})]
    records += [trained(LOSSES, after, placement="independent", step_s=0.1, **GPUS)]
    (said,) = [text for text in words.answer(page.see(records)).html.split("<p>") if text.startswith("Time to accuracy")]
    assert said.startswith(
        "Time to accuracy: small ResNet on 4,000 images that a network labelled reaches 85.0% on 2 GPUs captured in 2.5 s (ddp), eager in "
        "5.0 s (ddp) to 7.5 s (Exp2); on 1 GPU eager in 6.0 s (ddp). Each is one run; eager steps wander with their host."
    )
    assert "Time to accuracy" not in words.answer(page.see(panel(0.01))).html, "CPU processes share their cores"


def test_the_answer_tells_one_jobs_rules_for_the_rate_gpus_first() -> None:
    """The CPUs' job has its Records first; the table holds both."""
    rule: dict[str, Any] = {"reference_batch": 16, "base_rate": 0.02, "epochs": 6}
    records = []
    for job, small in (({}, 0.95), ({"gpus": 1, "inputs": "teacher_small"}, 0.85)):
        records += [trained(LOSSES, (small,), **rule, **job), trained(LOSSES, (0.5,), batch_size=128, **rule, **job)]
        for schedule, accuracy in (("warmup", 0.9), ("constant", 0.7)):
            records.append(trained(LOSSES, (accuracy,), batch_size=128, rate_scaling="linear", schedule=schedule, **rule, **job))
    (said,) = [text for text in words.answer(page.see(records)).html.split("<p>") if text.startswith("At 8 times the batch")]
    assert "the small batch itself 85.0%." in said


def test_distances_are_drawn_in_tolerances() -> None:
    """ddp's drift of 1% is a third of its tolerance; Exp2 lies at 2.5% of 3%, its fp64 run at 0; replicas at 50%."""
    picture = figure_distance(page.see(panel(0.025, replicas=0.5)).same)
    drawn = picture.data.set_index(["placement", "precision"])
    assert drawn["in_tolerances"]["ddp", "fp32"] == pytest.approx(1 / 3, rel=0.01)
    assert drawn["in_tolerances"]["exp2", "fp32"] == pytest.approx(2.5 / 3, rel=0.01)
    assert drawn["replicas_in"]["exp2", "fp32"] == pytest.approx(50 / 3, rel=0.02)
    assert {"distance", "tolerance", "replicas"} <= set(picture.data), "the CSV keeps what is divided"
    (ax, *_) = picture.axes
    marks = [float(line.get_xdata()[0]) for line in ax.lines]
    assert ax.get_xlim() == (LEAST, MOST) and 1.0 in marks and max(marks) == MOST, "replicas in fp64 stand at the edge"
    assert "arrows: beyond 30 tolerances" in picture.caption
