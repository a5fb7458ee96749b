"""Planted SynchronyRecords and AveragingRecords: figures chosen by hand."""

from typing import Any

from multigpu_study.synchrony.averaging import AveragingExperiment, AveragingRecord, Score
from multigpu_study.synchrony.experiment import ProtocolExperiment
from multigpu_study.synchrony.problems import DigitsProblem
from multigpu_study.synchrony.record import (
    Histogram,
    SynchronyRecord,
    make_record,
    record_fields,
    summarise,
)
from multigpu_study.synchrony.server import CurvePoint
from multigpu_study.synchrony.simulate import simulate
from tests.study.synchrony.cases import EXPONENTIAL, timed

NOISE = (1.0, 1.004, 0.996, 1.003, 0.997)  # by seed, a factor on every figure


def record(
    protocol: str,
    workers: int,
    gradients: int | None = None,
    *,
    update_time_s: float = 1.0,
    staleness: float = 0.0,
    losses: tuple[float, ...] = (),
    errors: tuple[float, ...] = (),
    noise: float = 1.0,
    seed: int = 0,
    **fields: Any,
) -> SynchronyRecord:
    """A Record of an experiment (exponential times, 100 updates unless fields say otherwise) with
    these figures.
    losses, errors: the curve, evenly over the budget; losses belong to a problem, with errors if it
        has classes.
    """
    fields = {"law": EXPONENTIAL, "clock": "virtual", **fields}
    if "time_s" not in fields:
        fields.setdefault("updates", 100)
    experiment = ProtocolExperiment(
        protocol=protocol, workers=workers, gradients=gradients, seed=seed, **fields
    )
    updates = experiment.updates or 100
    applied = updates * experiment.gradients_per_update
    end_s = experiment.time_s or updates * update_time_s
    steps = max(len(losses) - 1, 1)
    curve = [
        CurvePoint(
            end_s * i / steps,
            updates * i // steps,
            applied * i // steps,
            loss * noise,
            errors[i] * noise if errors else None,
        )
        for i, loss in enumerate(losses)
    ]
    time_s = update_time_s * noise
    figures = {
        **{
            "end_s": end_s,
            "updates": updates,
            "measured_updates": updates,
            "gradients": applied,
            "curve": curve,
        },
        **{"update_time_s": time_s, "block_times_s": [0.99 * time_s, 1.01 * time_s] * 10},
        "staleness": Histogram(mean=staleness * noise, width=1, counts=[1, 2, 1]),
    }
    result = summarise(simulate(timed("sync", updates=1))).model_copy(update=figures)
    return make_record(experiment, None).model_copy(update={"status": "ok", "result": result})


def records(
    protocol: str, workers: int, gradients: int | None = None, **figures: Any
) -> list[SynchronyRecord]:
    """The same with five seeds, each a little off."""
    return [
        record(protocol, workers, gradients, seed=seed, noise=noise, **figures)
        for seed, noise in enumerate(NOISE)
    ]


def averaged(
    loss: float, joint: float, *, hidden: tuple[int, ...] = (64,), same_start: bool = False
) -> list[AveragingRecord]:
    """Five AveragingRecords of digits with these losses of the average and the joint model; errors
    are a tenth of them.
    """
    made = []
    for seed, noise in enumerate(NOISE):
        fields = {"workers": 4, "steps": 10, "rate": 0.3, "same_start": same_start, "seed": seed}
        experiment = AveragingExperiment(problem=DigitsProblem(hidden=hidden, shards=4), **fields)
        scores = {
            "averaged": Score(loss * noise, loss * noise / 10),
            "joint": Score(joint, joint / 10),
        }
        made.append(AveragingRecord(initial=[], apart=[], **scores, **record_fields(experiment)))
    return made
