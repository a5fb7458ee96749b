"""What a TrainingRun refuses, in one sentence; digests; fields on the command line; grids."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from multigpu.grids.planned import affordable, points
from multigpu.machine.machine import framework_version, this_machine
from multigpu.paths import TRAINING as TRAININGS
from multigpu.runner.point import known_here
from multigpu.spec.parse import parse_fields
from multigpu_study.training.command import main
from multigpu_study.training.grid import (
    GRIDS,
    PlannedTraining,
    joined_placements,
    placed,
    possible_here,
    restricted,
    told_apart,
)
from multigpu_study.training.record import TrainingRecord, TrainingStore
from multigpu_study.training.run import FIELDS, TrainingRun
from multigpu_study.training.schedule import Schedule, global_batch, schedule_of
from tests.factory import make_machine
from tests.refusals import cases_beside, refused
from tests.study.training.cases import training
from tests.study.training.planted import trained

LATER = {"alexnet_cifar": {"zero1", "zero2", "fsdp2", "data_parallel"}}
"""Placements that joined the study after a model was trained under all others, whose curve another
occasion's rounding would part.
"""


def compared(planned: list[PlannedTraining]) -> list[TrainingRun]:
    """What is trained to compare placements."""
    return [entry.run for entry in planned if "the same curve" in entry.settings.question]


REFUSED = [(json.loads(fields), why) for fields, why in cases_beside(__file__, "refused.csv")]


@pytest.mark.parametrize(
    ("fields", "sentence"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_refuses_what_cannot_work(fields, sentence):
    refused(re.escape(sentence), training, **fields)


def test_digest_leaves_out_defaults_and_tells_runs_apart():
    assert training().digest == training(adjust_to_devices=True, log_every=1).digest
    assert (
        len(
            {
                training().digest,
                training(seed=1).digest,
                training(steps=7).digest,
                training(base_rate=0.1).digest,
            }
        )
        == 4
    )
    assert TrainingRun.model_validate_json(
        training(epochs=2, steps=None).model_dump_json()
    ) == training(epochs=2, steps=None)


def test_fields_on_the_command_line():
    words = [
        "epochs=2",
        "base_rate=0.5",
        "adjust_to_devices=false",
        "shuffle=True",
        "data=a,b",
        "model=resnet_tiny",
    ]
    fields = {
        "epochs": 2,
        "base_rate": 0.5,
        "adjust_to_devices": False,
        "shuffle": True,
        "data": ("a", "b"),
        "model": "resnet_tiny",
    }
    assert parse_fields(words, FIELDS) == fields
    for text, sentence in (
        ("epochs=two", "an integer is needed"),
        ("base_rate=x", "a number is needed"),
        ("shuffle=perhaps", "true or false is needed"),
        ("what=1", "unknown field 'what'"),
    ):
        refused(sentence, parse_fields, [text], FIELDS)


def test_a_budget_is_for_what_would_be_trained(capsys, tmp_path):
    """Known is what this PyTorch has a Record of, unless it is to be trained again. Each costs 4
    s.
    """
    planned = possible_here("training_cpu")
    done, failed, upgraded, *rest = planned
    store = TrainingStore(tmp_path)
    here = framework_version("torch")
    machine = make_machine(0, this_machine().name)
    for entry, version, status in (
        (done, here, "ok"),
        (failed, here, "failed"),
        (upgraded, "0.1", "ok"),
    ):
        key = TrainingRecord.key_for(entry.run, 0, machine.name, version)
        store.write(
            trained().model_copy(
                update={"key": key, "training": entry.run, "machine": machine, "status": status}
            )
        )
    for retry, wanted in (([], [upgraded, *rest]), (["failed"], [failed, upgraded, *rest])):
        assert [
            point.training
            for point in affordable(planned, known_here(points(planned), store, retry), 1e6)
        ] == [one.run for one in wanted]
    for budget, retry, count in ((14, [], 3), (14, ["--retry", "failed"], 3), (1, [], 0)):
        words = f"--grid training_cpu --budget-s {budget} --dry-run --folder".split()
        assert main([*words, str(tmp_path), *retry]) == 0
        out = capsys.readouterr().out
        assert (
            out.startswith(f"{count} runs to train; at most about 0 minutes\n")
            and out.count("launch ") == count
        )
        assert (failed.run.label() in out) is bool(retry)


def test_fields_beside_a_grid_choose_its_runs(capsys):
    planned = possible_here("training_cpu")
    chosen = restricted(planned, {"devices": 1, "schedule": "luong10"})
    assert chosen == [
        one for one in planned if one.run.run.devices == 1 and one.run.schedule == "luong10"
    ]
    assert 0 < len(chosen) < len(planned) and restricted(planned, {}) == planned
    assert main(["--grid", "training_cpu", "devices=1", "schedule=luong10", "--dry-run"]) == 0
    assert f"{len(chosen)} runs to train" in capsys.readouterr().out
    refused(
        "no Run of the grid has devices=7: `--dry-run` lists them",
        restricted,
        planned,
        {"devices": 7},
    )


@pytest.mark.parametrize(("gpus", "devices"), [(0, 4), (1, 2), (2, 2), (3, 2), (4, 4), (8, 4)])
def test_a_machine_with_few_gpus_shares_global_batches_over_two(
    monkeypatch, gpus: int, devices: int
) -> None:
    """The global batch is the same, and so are the steps of an epoch."""
    monkeypatch.setattr("multigpu_study.training.grid.gpu_count", lambda: gpus)
    scaled = [
        entry.run for entry in GRIDS["training_headline"]() if entry.run.reference_batch == 128
    ]
    assert {one.run.devices for one in scaled} == {1, devices}
    assert {global_batch(one) for one in scaled} >= {128, 1024, 16384}
    for name in ("training_headline", "translation_gpu"):
        curves = [one.run for one in compared(GRIDS[name]()) if one.run.execution == "eager"]
        assert {run.devices for run in curves if run.placement != "ddp"} == {devices}


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids_train_nothing_twice_and_compare_every_placement(name):
    planned = possible_here(name)
    assert len({entry.run.digest for entry in planned}) == len(planned)
    assert all(entry.cost_s > 0 and entry.settings.question.endswith("?") for entry in planned)
    assert all(
        entry.run.run.processes == placed(entry.run.run.placement).get("processes", "per_device")
        for entry in planned
    )
    for inputs in {one.run.inputs for one in compared(planned)}:
        runs = [one.run for one in compared(planned) if one.run.inputs == inputs]
        known = joined_placements(unit="words" if runs[0].workload == "nmt" else "images")
        wanted = told_apart(known, runs[0].model) if runs[0].workload == "cnn" else known
        assert {run.placement for run in runs} >= {*wanted} - LATER.get(runs[0].model, set()), (
            "a joined placement is not trained"
        )


def test_every_committed_record_is_of_a_training_that_a_grid_asks_for(monkeypatch) -> None:
    """Without one of its placements, precisions, seeds or twins a grid would leave some to nobody.
    They were measured on up to two GPUs.
    """
    monkeypatch.setattr("multigpu_study.training.grid.gpu_count", lambda: 2)
    asked = {entry.run.digest for grid in GRIDS.values() for entry in grid()}
    assert not [
        record.training.label()
        for record in TrainingStore(TRAININGS)
        if record.training.digest not in asked
    ]


def test_scores_of_a_model_that_diverged_are_read_back(tmp_path: Path) -> None:
    store = TrainingStore(tmp_path)
    store.write(trained((1.0, math.inf), accuracies=(math.nan,)))
    (found,) = store
    assert found.measurement and math.isnan(found.measurement.evaluations[-1].scores["accuracy"])


def test_grids_fit_their_budgets():
    """A few minutes of one core; half an hour of 8 GPUs, start-up included, is the headline's
    bound.
    """
    for name, most_s in {
        "training_models": 340,
        "training_alexnet_cpu": 1300,
        "training_cpu": 450,
        "training_headline": 1300,
    }.items():
        assert sum(entry.cost_s for entry in GRIDS[name]()) < most_s, name


def test_luong10_over_ten_thousand_steps_and_a_warm_up_over_seven():
    """Constant for 5,000 steps, then halved at 5,000, 5,500 ... 9,500 (tensorflow/nmt: the first
    halving after 500 of them).
    """
    schedule = Schedule("luong10", 1.0, length=10_000)
    assert [schedule.rate(step) for step in (0, 4_999, 5_000, 5_499)] == [1.0] * 4
    assert (
        schedule.rate(5_500) == 0.5
        and schedule.rate(9_500) == 2**-9
        and schedule.rate(9_999) == 2**-9
    )
    assert schedule.rate(10_000) == schedule.rate(10**6) == 2**-10
    warmed = [Schedule("warmup", 0.8, 0.1, length=7).rate(step) for step in range(9)]
    assert warmed == pytest.approx([0.1 * step for step in range(1, 9)] + [0.8]) and warmed[7:] == [
        0.8,
        0.8,
    ]


@pytest.mark.parametrize("law", ["luong10", "warmup"])
def test_adjusted_schedules_are_one_function_of_samples(law):
    """What one device does at step s, N devices under weak scaling do at step s / N; strong
    scaling's batch is that of one device.
    """
    more = {
        "schedule": law,
        "schedule_steps": 40,
        "warmup_epochs": 2,
        "scaling": "weak",
        "batch_size": 50,
        "epochs": 3,
        "steps": None,
    }
    one = schedule_of(training(devices=1, **more), 30)
    for devices in (2, 3, 6):
        steps = range(30 // devices)
        many, unaware = (
            schedule_of(
                training(devices=devices, adjust_to_devices=adjusted, **more), 30 // devices
            )
            for adjusted in (True, False)
        )
        assert [many.rate(step) for step in steps] == pytest.approx(
            [one.rate(devices * step) for step in steps]
        )
        assert [unaware.rate(step) for step in range(10)] == pytest.approx(
            [one.rate(step) for step in range(10)]
        )
        strong = schedule_of(training(devices=devices, **more | {"scaling": "strong"}), 30)
        assert [strong.rate(step) for step in steps] == [one.rate(step) for step in steps]


def test_scaled_rate_of_a_run():
    run = training(
        batch_size=64,
        devices=2,
        scaling="weak",
        base_rate=0.02,
        rate_scaling="linear",
        reference_batch=16,
        schedule="warmup",
    )
    schedule = schedule_of(run, 12)
    assert (
        schedule.rate(0) == 0.02
        and schedule.rate(5 * 12) == pytest.approx(0.16)
        and schedule.rate(5 * 12 - 1) < 0.16
    )


@pytest.mark.parametrize("name", ["training", "training_headline"])
def test_claims_find_every_seed_in_the_grids_of_gpus(name: str) -> None:
    """C46: the reference, 8 and 128 times the batch, warmed up alike; C34: bf16 and fp32. Equal in
    all else, no seed twice.
    """
    warmed, plain = Counter(), Counter()
    for entry in GRIDS[name]():
        t = entry.run
        if t.epochs == 15 and t.reference_batch == 128 and t.run.execution == "captured":
            if (t.rate_scaling, t.schedule) == ("linear", "warmup"):
                warmed[global_batch(t) // 128, t.warmup_epochs] += 1
            elif (t.rate_scaling, t.schedule, global_batch(t)) == ("none", "constant", 128):
                plain[t.run.precision] += 1
    assert {key: count for key, count in warmed.items() if count > 1} == dict.fromkeys(
        [(1, 5), (8, 5), (128, 5)], 5
    )
    assert plain["fp32"] == plain["bf16"] == 5


@pytest.mark.parametrize("name", ["training", "training_headline", "translation_gpu"])
def test_every_job_on_several_gpus_has_the_run_that_its_efficiency_is_counted_from(
    name: str,
) -> None:
    """ddp on one GPU, one global batch and all else alike; of eager jobs too."""
    strong = [entry.run for entry in GRIDS[name]() if entry.run.run.scaling == "strong"]
    several = [one for one in strong if one.run.devices > 1]
    assert several
    for one in several:
        usual = {"devices": 1, "placement": "ddp", "processes": "per_device"}
        alone = one.model_copy(update={"run": one.run.model_copy(update=usual)})
        assert alone in strong, one.label()
