"""Where images come from: drawn on the device, in the host's memory, or decoded from JPEG files by more and more workers."""

from __future__ import annotations

from collections.abc import Sequence

from multigpu.grid.entries import FEWEST, Planned, ends_of, resnet50
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.measure.machine import framework_version
from multigpu.run import Run

WORKERS = (1, 2, 4, 8, 12, 16)
FED = 12
"""Workers of a replica for the question whether real input is as fast: of 16 cores a GPU, what training and copying leave free."""

STEPS_OF_A_WORKER = (6, 12)
"""Warm-up and timed steps for each worker. What workers have ready when the clock starts (one batch each at most, made while the first
steps chose algorithms) is then at most a twelfth of what is timed, and the second half of the timed steps, from which sustained rates are
taken, holds none of it unless workers are within 8% of what training asks."""

DECODE_S = 0.007
"""Seconds in which one core decodes, crops and scales one image; sets prices only."""

AHEAD: dict[str, object] = {"prefetch": 2, "staging": "own_stream"}
BEST = AHEAD | {"image_dtype": "uint8"}
"""Two batches ahead on a stream of their own; a byte a pixel crosses, and the GPU normalises."""


def steps_for(workers: int) -> dict[str, object]:
    """Warm-up and timed steps of a Run fed by so many workers."""
    warmup, timed = STEPS_OF_A_WORKER
    return {"warmup_steps": warmup * max(1, workers), "timed_steps": timed * max(1, workers)}


def fed(model: str, batch: int, devices: int, workers: int, **more: object) -> Run:
    """A model on JPEG files, bf16, DDP."""
    fields: dict[str, object] = {"workload": "cnn", "model": model, "placement": "ddp", "layout": "channels_last", "precision": "bf16"}
    fields |= {"inputs": "jpeg_folder", "input_workers": workers, "devices": devices, "batch_size": batch} | steps_for(workers)
    return Run(**(fields | more))  # type: ignore[arg-type]


def _price(run: Run, step_s: float) -> float:
    """Start of the workers, and steps that last as long as training or decoding does."""
    decode = DECODE_S * run.batch_size / max(1, run.input_workers or 1) if run.inputs == "jpeg_folder" else 0.0
    return round(4.0 + (run.warmup_steps + run.timed_steps) * max(step_s, decode), 1)


def inputs(devices: Sequence[int]) -> list[Planned]:
    """ResNet-50 at 64 images a GPU (about 4,000 images/s) and ResNet-152 at 32 (about a quarter of that), on one GPU and on the most.

    Headline: synthetic on the device, synthetic from the host, JPEG files by 12 workers a GPU, two batches ahead on a stream of their
    own (C13). Screening: 1 to 16 workers, of ResNet-152 on one GPU only, whose host has far more to spare; the same captured and traced;
    what prefetching, staging and the type that crosses give; tf.data.
    """
    first: list[Planned] = []
    rest: list[Planned] = []
    host: dict[str, object] = {"inputs": "synthetic_host", "input_workers": None, "warmup_steps": 10, "timed_steps": 30}
    device = host | {"inputs": "synthetic"}
    for count in ends_of(devices):
        for model, batch, step_s in (("resnet50_v1.5", 64, 0.017), ("resnet152_v1.5", 32, 0.035)):
            runs = [fed(model, batch, count, FED, **BEST), fed(model, batch, count, FED, **device)]
            runs.append(fed(model, batch, count, FED, **host, **BEST))
            first += [Planned(run, "headline", _price(run, step_s), FEWEST) for run in runs]
            if count == 1 or model == "resnet50_v1.5":
                swept = [fed(model, batch, count, workers, **BEST) for workers in WORKERS if workers != FED]
                rest += [Planned(run, "screening", _price(run, step_s)) for run in swept]
        ways: list[dict[str, object]] = [{"prefetch": 0}, {"prefetch": 1}, {"prefetch": 2}, {"prefetch": 1, "staging": "own_stream"}]
        graph: dict[str, object] = {"execution": "captured"}
        other = [fed("resnet152_v1.5", 32, count, FED, **way) for way in ways]
        other += [fed("resnet50_v1.5", 64, count, FED, **host, **way) for way in ways]
        other += [fed("resnet50_v1.5", 64, count, FED, **graph, **way) for way in (BEST, device, host | BEST)]
        traced: dict[str, object] = {"traced_steps": 3}
        other += [fed("resnet50_v1.5", 64, count, FED, **traced, **way) for way in (BEST, AHEAD, device, host | BEST, host | AHEAD)]
        other += [fed("resnet50_v1.5", 64, count, FED, **way) for way in (AHEAD, host | AHEAD)]
        rest += [Planned(run, "screening", _price(run, 0.03)) for run in other]
    return first + rest + _tensorflow(devices)


def _tensorflow(devices: Sequence[int]) -> list[Planned]:
    """tf.data with 16 parallel calls a GPU beside what stays on the device."""
    if framework_version("tensorflow") == "none":
        return []
    planned = []
    for count in ends_of(devices):
        form: dict[str, object] = {**TENSORFLOW, "precision": "bf16"}
        planned.append(Planned(resnet50("exp4", count, 64, **form), "screening", 14.0 + count))
        more: dict[str, object] = {"inputs": "jpeg_folder", "input_workers": 16, "prefetch": 2, "warmup_steps": 20, "timed_steps": 60}
        planned.append(Planned(resnet50("exp4", count, 64, **form, **more), "screening", 25.0 + 4 * count))
    return planned
