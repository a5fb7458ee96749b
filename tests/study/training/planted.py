"""Planted TrainingRecords, so that analysis can be tested on numbers worked out by hand."""

from collections.abc import Sequence
from typing import Any

from multigpu.placements import find_placement
from multigpu.records.base import Status
from multigpu_study.training.build import build_training_run
from multigpu_study.training.record import Evaluation, TrainingMeasurement, TrainingRecord
from multigpu_study.training.schedule import base_rate_of, global_batch
from tests.factory import make_machine

ITEMS = 1500


def trained(
    losses: Sequence[float] = (2.0, 1.0, 0.5, 0.25),
    accuracies: Sequence[float] = (0.9,),
    step_s: float = 0.1,
    gpus: int = 0,
    status: Status = "ok",
    reason: str = "",
    energy_j: Sequence[float] = (),
    flags: Sequence[str] = (),
    **fields: Any,
) -> TrainingRecord:
    """A Record with these losses a step; accuracies are of evaluations after equal parts of the
    steps.
    """
    given: dict[str, Any] = {
        "workload": "cnn",
        "model": "resnet_small",
        "inputs": "digits_split",
        "placement": "ddp",
        "batch_size": 16,
    }
    given |= {"device_type": "cuda" if gpus else "cpu"} | fields
    steps = len(losses)
    if "epochs" not in given:
        given.setdefault("steps", steps)
    training = build_training_run(**given)
    machine, run, batch = make_machine(gpus), training.run, global_batch(training)
    ends = [
        (index + 1) * max(1, steps // max(1, len(accuracies))) for index in range(len(accuracies))
    ]
    scored = [
        Evaluation(
            step=end,
            samples=end * batch,
            seconds=end * step_s,
            scores={"accuracy": accuracy, "loss": 1 - accuracy + 0.01},
        )
        for end, accuracy in zip(ends, accuracies, strict=True)
    ]
    measurement = TrainingMeasurement(
        steps=steps,
        samples=steps * batch,
        units=steps * batch,
        steps_per_epoch=-(-ITEMS // batch),
        loss=list(losses),
        seconds=[step_s * (index + 1) for index in range(steps)],
        rate=[base_rate_of(training)] * steps,
        evaluations=scored,
        start_hashes=["a" * 64] * run.devices,
        end_hashes=["b" * 64] * run.devices,
        replicas_agree=True
        if find_placement(run.placement).semantics.facts.replicas_agree
        else None,
        parameter_change=0.5,
        evaluations_by_rank=[len(accuracies)] + [0] * (run.devices - 1),
        files_by_rank=[["log.jsonl"]] + [[]] * (run.devices - 1),
        **{"train_s": step_s * steps, "evaluation_s": 0.1, "checkpoint_s": 0.0},
        **{"startup_s": 3.0, "build_s": 0.5, "total_s": step_s * steps + 1, "host_threads": 1},
        peak_memory_gib=[0.5] * run.devices,
        energy_j=list(energy_j),
        flags=list(flags),
    )
    made = {
        "launch_id": "a.0",
        "measured_at": "2026-01-01T00:00:00+00:00",
        "commit": "0" * 40,
        "clean_tree": True,
    }
    told = {
        "repeat": 0,
        "status": status,
        "reason": reason,
        "machine": machine,
        "versions": {"torch": "2.13.0"},
        "input_label": "digits",
    }
    key = TrainingRecord.key_for(training, 0, machine.name, "2.13.0")
    return TrainingRecord(
        key=key,
        training=training,
        measurement=measurement if status == "ok" else None,
        **made,
        **told,
    )
