"""The grids of training: what is trained for which question, what matters most first, with its cost. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from multigpu.grid.entries import having
from multigpu.measure.machine import gpu_count
from multigpu.training.joined import joined_placements, placed, told_apart
from multigpu.training.run import TrainingRun, build_training_run


@dataclass(frozen=True)
class PlannedTraining:
    """One entry. question: what it is for. cost_s: seconds, start-up shared. repeats: with equal fields (seeds are fields)."""

    training: TrainingRun
    question: str
    cost_s: float
    repeats: int = 1
    launch: int = 0


CURVE, SCALING, ADJUSTING, BATCH, PRECISION = "same curve", "rate scaling", "schedule", "batch", "precision"
BATCHING, TRANSLATION = "batching", "translation"
SPREAD, MODELS, STALE = "number of devices", "models", "one step stale"
QUESTIONS = (CURVE, SCALING, ADJUSTING, BATCH, PRECISION, BATCHING, TRANSLATION, SPREAD, MODELS, STALE)

SEEDS, FEWER_SEEDS = range(5), range(3)


def once(planned: list[PlannedTraining]) -> list[PlannedTraining]:
    """Without later entries that train what an earlier one trains already, for another question."""
    return list({entry.training.digest: entry for entry in reversed(planned)}.values())[::-1]


# --- CPUs -----------------------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"workload": "cnn", "model": "resnet_small", "device_type": "cpu"}
DIGITS: dict[str, Any] = {**SMALL, "inputs": "digits_split"}
DIGITS_ITEMS = 1500
SMALL_BATCH = 16
BASE_RATE = 0.02
"""Of a joined batch of 16."""


def cpu() -> list[PlannedTraining]:
    """A small residual network on 1,500 digits (297 held out): every question, a few minutes of one core.

    Only questions about placements take two devices: for the others it is the joined batch that counts.
    """
    found = rate_scaling(DIGITS, DIGITS_ITEMS, SMALL_BATCH, 1, BASE_RATE, epochs=6, warmup_epochs=2, seeds=SEEDS, cost_s=4)
    curve = {**DIGITS, "devices": 2, "batch_size": 64, "scaling": "strong", "epochs": 4, "base_rate": 0.05, "evaluate_every": 24}
    for placement in joined_placements():
        found.append(PlannedTraining(build_training_run(**placed(placement), **curve), CURVE, 4))
    for placement in joined_placements():
        if placement == "independent":
            continue
        found.append(PlannedTraining(build_training_run(**placed(placement), precision="fp64", **curve), CURVE, 5))
    # 564 steps of one device are the six epochs of 94 steps that every entry is given
    for seed in range(2):
        decayed: dict[str, Any] = {**DIGITS, "placement": "ddp", "seed": seed, "batch_size": SMALL_BATCH, "epochs": 6}
        decayed |= {"base_rate": BASE_RATE, "schedule": "luong10", "schedule_steps": 564}
        found.append(PlannedTraining(build_training_run(**decayed, devices=1, evaluate_every=94), ADJUSTING, 4))
        for adjusted in (True, False):
            training = build_training_run(**decayed, devices=2, evaluate_every=47, adjust_to_devices=adjusted)
            found.append(PlannedTraining(training, ADJUSTING, 4))
    for batch in (16, 32, 64, 128, 256, 512, 1500):
        found.append(PlannedTraining(batch_point({**DIGITS, "devices": 1}, batch, DIGITS_ITEMS, 6, SMALL_BATCH, BASE_RATE, 2), BATCH, 4))
    taught = {**SMALL, "inputs": "teacher_small", "devices": 2, "batch_size": 64, "scaling": "strong", "epochs": 2, "base_rate": 0.05}
    return once(found + same_curves({**taught, "evaluate_every": 63}, 5))


def same_curves(common: dict[str, Any], cost_s: float) -> list[PlannedTraining]:
    """One job under every joined placement in fp32 and fp64, and as independent replicas, which show what the comparison can tell."""
    names = told_apart(joined_placements(), common["model"])
    fp32 = [build_training_run(**placed(name), **common) for name in names]
    fp64 = [build_training_run(**placed(name), precision="fp64", **common) for name in names if name != "independent"]
    return [PlannedTraining(training, CURVE, cost_s) for training in (*fp32, *fp64)]


def cifar_cpu() -> list[PlannedTraining]:
    """A model of CIFAR's, resnet20, on 1,500 digits enlarged to 32 pixels: one curve under every placement? Twelve minutes of two cores."""
    job: dict[str, Any] = {
        **DIGITS,
        "model": "resnet20",
        "devices": 2,
        "batch_size": 64,
        "scaling": "strong",
        "epochs": 2,
        "base_rate": 0.05,
    }
    return same_curves({**job, "evaluate_every": 24}, 30)


def alexnet_cpu() -> list[PlannedTraining]:
    """AlexNet for CIFAR on real digits under every placement, as `cifar_cpu`, and, as it has no batch norm, on other numbers of devices.
    Sixteen minutes of two cores, which fp64 takes most of.
    """
    from multigpu.training import models_grid

    others = [PlannedTraining(training, SPREAD, 38) for training in models_grid.spread()]
    return [*same_curves({**models_grid.ALEXNET, "devices": 2}, 36), *others]


def staged_cpu() -> list[PlannedTraining]:
    """Variables one step old on real digits, at a low rate and a high one: the small network in three seeds, two minutes of two cores,
    and ResNet-20, eight.
    """
    from multigpu.training import staged_grid

    small, cifar = staged_grid.small(), staged_grid.cifar()
    return [PlannedTraining(training, STALE, 5) for training in small] + [PlannedTraining(training, STALE, 60) for training in cifar]


def rate_scaling(
    common: dict[str, Any],
    items: int,
    batch: int,
    devices: int,
    base: float,
    epochs: int,
    warmup_epochs: int,
    seeds: range,
    cost_s: float,
    others: range | None = None,
) -> list[PlannedTraining]:
    """Eight times the batch: with the rate of the small one, with eight times the rate, and with that after a warm-up.

    The small batch is one device's; the joined one is spread over `devices`. others: seeds of the two rules that no claim compares (C32:
    the warm-up with the small batch); None: all.
    """
    found = []
    large = 8 * batch // devices
    for seed in seeds:
        same = {**common, "placement": "ddp", "seed": seed, "epochs": epochs, "base_rate": base, "reference_batch": batch}
        small = build_training_run(**same, devices=1, batch_size=batch, evaluate_every=-(-items // batch))
        found.append(PlannedTraining(small, SCALING, cost_s))
        for scaling, schedule in (("linear", "warmup"), ("linear", "constant"), ("none", "constant")):
            if schedule == "constant" and others is not None and seed not in others:
                continue
            more = {"warmup_epochs": warmup_epochs} if schedule == "warmup" else {}
            training = build_training_run(
                **same,
                devices=devices,
                batch_size=large,
                rate_scaling=scaling,
                schedule=schedule,
                evaluate_every=-(-items // (8 * batch)),
                **more,
            )
            found.append(PlannedTraining(training, SCALING, cost_s))
    return found


def batch_point(
    common: dict[str, Any], joined: int, items: int, epochs: int, reference: int, base: float, warmup_epochs: int, seed: int = 0
) -> TrainingRun:
    """One joined batch under 002's linear scaling with a warm-up, scored after every epoch."""
    per_epoch = -(-items // joined)
    shared = joined // int(common["devices"])
    return build_training_run(
        **common,
        placement="ddp",
        seed=seed,
        batch_size=shared,
        epochs=epochs,
        base_rate=base,
        reference_batch=reference,
        rate_scaling="linear",
        schedule="warmup",
        warmup_epochs=warmup_epochs,
        evaluate_every=per_epoch,
    )


# --- GPUs -----------------------------------------------------------------------------------------------------------------------

TAUGHT: dict[str, Any] = {"workload": "cnn", "model": "resnet20", "inputs": "teacher", "layout": "channels_last"}
IMAGES = 50_000
DECIDING = (128, 1024, 16384)
"""Joined batches that every seed trains: the reference, 8 and 128 times as much (claim C46)."""


def joined_over() -> int:
    """GPUs that share a joined batch where the batch is the question, or the placement: four, or two on a machine without so many."""
    return 2 if 0 < gpu_count() < 4 else 4


def steps_per_epoch(joined: int) -> int:
    """Of the planted teacher's 50,000 images."""
    return -(-IMAGES // joined)


POINTS = 300


def thinned(entry: PlannedTraining) -> PlannedTraining:
    """With some POINTS points to its curve, whatever its steps: a Record of every step of 15 epochs would be a hundred kilobytes."""
    training = entry.training
    steps = training.budget(steps_per_epoch(training.joined_batch))
    return replace(entry, training=training.model_copy(update={"log_every": max(1, steps // POINTS)}))


def gpu() -> list[PlannedTraining]:
    """resnet20 on 50,000 taught images of CIFAR's size; 1, 2, 4 and 8 GPUs. Start-up, 25 s a number of devices, comes on top."""
    found: list[PlannedTraining] = []
    # the same joined batch everywhere, so that every placement and every number of GPUs has 391 steps an epoch
    strong: dict[str, Any] = {**TAUGHT, "batch_size": 128, "scaling": "strong", "epochs": 6, "base_rate": 0.1}
    strong["evaluate_every"] = steps_per_epoch(128)
    for devices in (4, 8, 2, 1):
        captured = build_training_run(placement="ddp", devices=devices, execution="captured", **strong)
        found.append(PlannedTraining(captured, CURVE, 15))
        for placement in told_apart(joined_placements(), TAUGHT["model"]):
            if devices > 1 or placement == "ddp":
                training = build_training_run(**placed(placement), devices=devices, **strong)
                # one thread that launches for all devices: estimated, not measured yet
                cost_s = 22 * max(1.0, devices / 2) if training.run.processes == "one" else 22
                found.append(PlannedTraining(training, CURVE, cost_s))
    weak: dict[str, Any] = {**TAUGHT, "execution": "captured"}
    # on fewer GPUs than 8, which more machines have: it is the joined batch that counts
    found += rate_scaling(weak, IMAGES, 128, joined_over(), 0.1, epochs=15, warmup_epochs=5, seeds=SEEDS, cost_s=15, others=FEWER_SEEDS)
    for seed in SEEDS:
        for precision in ("fp32", "tf32", "bf16"):
            kept: dict[str, Any] = {**weak, "placement": "ddp", "devices": 1, "batch_size": 128, "seed": seed, "precision": precision}
            # in fp32 the small batch of the rules for the rate, trained once
            kept |= {"epochs": 15, "base_rate": 0.1, "reference_batch": 128, "evaluate_every": steps_per_epoch(128)}
            found.append(PlannedTraining(build_training_run(**kept), PRECISION, 20))
    for seed in range(3):
        decayed: dict[str, Any] = {**weak, "placement": "ddp", "seed": seed, "batch_size": 128, "epochs": 15, "base_rate": 0.1}
        decayed |= {"schedule": "luong10", "schedule_steps": 15 * steps_per_epoch(128)}
        for devices in (1, 4, 8):
            for adjusted in (True, False) if devices > 1 else (True,):
                every = 3 * steps_per_epoch(128 * devices)
                training = build_training_run(**decayed, devices=devices, evaluate_every=every, adjust_to_devices=adjusted)
                found.append(PlannedTraining(training, ADJUSTING, 15))
    for seed in SEEDS:
        for joined in (128, 512, 1024, 2048, 4096, 8192, 16384):
            if seed == 0 or joined in DECIDING:
                training = batch_point({**weak, "devices": joined_over()}, joined, IMAGES, 15, 128, 0.1, warmup_epochs=5, seed=seed)
                found.append(PlannedTraining(training, BATCH, 15))
    return once([thinned(entry) for entry in found])


def small_gpu() -> list[PlannedTraining]:
    """The headline of `gpu`: what claims need (rules for the rate, precisions and batches, every seed), one run of all else, every
    placement on as many GPUs as share a batch (`joined_over`), and on one `ddp`, whose step their efficiency is counted from.
    """
    claimed = (SCALING, PRECISION, BATCH)
    kept = [e for e in gpu() if e.training.run.seed == 0 or (e.question in claimed and e.training.run.precision != "tf32")]
    return [
        e for e in kept if e.question != CURVE or e.training.run.execution == "captured" or e.training.run.devices in (1, joined_over())
    ]


MORE_SEEDS = range(5, 15)


def claims_gpu() -> list[PlannedTraining]:
    """resnet20 on one GPU at ten more seeds, a seed after another: in bf16 and fp32 (C34), and at eight times the batch with the rate
    scaled and warmed up (C32). About 40 s a seed.
    """
    found = []
    for seed in MORE_SEEDS:
        weak: dict[str, Any] = {**TAUGHT, "execution": "captured", "devices": 1}
        for precision in ("fp32", "bf16"):
            kept: dict[str, Any] = {**weak, "placement": "ddp", "batch_size": 128, "seed": seed, "precision": precision, "epochs": 15}
            kept |= {"base_rate": 0.1, "reference_batch": 128, "evaluate_every": steps_per_epoch(128)}
            found.append(PlannedTraining(build_training_run(**kept), PRECISION, 24 if precision == "fp32" else 14))
        found.append(PlannedTraining(batch_point(weak, 1024, IMAGES, 15, 128, 0.1, warmup_epochs=5, seed=seed), BATCH, 11))
    return [thinned(entry) for entry in found]


def models_gpu() -> list[PlannedTraining]:
    """Document 001's models on small images on one GPU, the cheapest and most telling first, and what staged variables do there. About
    six minutes, starting included.
    """
    from multigpu.training import models_grid

    planned = [PlannedTraining(training, MODELS, cost_s) for training, cost_s in models_grid.on_one_gpu(IMAGES)]
    pair = [PlannedTraining(training, STALE, cost_s) for training, cost_s in models_grid.staged_pair(IMAGES)]
    return [thinned(entry) for entry in (*planned[:4], *pair, *planned[4:])]


def batching_cpu() -> list[PlannedTraining]:
    """Translation on the committed corpus: the preset of one process, then every mode of batching on 4, about 16 minutes of two cores."""
    from multigpu.training import batching_grid

    modes = [PlannedTraining(training, BATCHING, 90) for training in batching_grid.small()]
    return [PlannedTraining(batching_grid.preset(), TRANSLATION, 180), *modes]


def batching_gpu() -> list[PlannedTraining]:
    """000's cells on the whole corpus in pieces: 20 epochs on one GPU, to see them translate; then every mode of batching on 4 or 2
    (`joined_over`). About 12 minutes, a seed of all modes in 3.
    """
    from multigpu.training import batching_grid

    modes = [PlannedTraining(training, BATCHING, 65) for training in batching_grid.full(devices=joined_over())]
    return [PlannedTraining(batching_grid.full_preset(), TRANSLATION, 130), *modes]


def translation_cpu() -> list[PlannedTraining]:
    """Document 000's kind of model under every joined placement, in fp32, and in fp64 to know what rounding does: at a rate at which
    curves can be compared, about 5 minutes of two cores, and at the model's own, as many.
    """
    from multigpu.training.placement_grid import GENTLE_RATE, small

    found = []
    for rate in (GENTLE_RATE, None):
        for precision, cost_s in (("fp32", 11), ("fp64", 17)):
            names = [name for name in joined_placements(unit="words") if precision == "fp32" or name != "independent"]
            found += [PlannedTraining(small(name, precision, rate), CURVE, cost_s) for name in names]
    return found


def translation_gpu() -> list[PlannedTraining]:
    """000's cells on the whole corpus in pieces under every joined placement on 4 GPUs or 2 (`joined_over`), ddp on one with it: about 3
    minutes.
    """
    from multigpu.training.placement_grid import full

    found = [PlannedTraining(full(name, joined_over()), CURVE, 12) for name in joined_placements(unit="words")]
    return [*found, PlannedTraining(full("ddp", 1), CURVE, 12)]


GRIDS: dict[str, Callable[[], list[PlannedTraining]]] = {
    "training_cpu": cpu,
    "training_cifar_cpu": cifar_cpu,
    "training_alexnet_cpu": alexnet_cpu,
    "training_staged_cpu": staged_cpu,
    "training": gpu,
    "training_headline": small_gpu,
    "training_models": models_gpu,
    "training_claims": claims_gpu,
    "batching_cpu": batching_cpu,
    "batching_gpu": batching_gpu,
    "translation_cpu": translation_cpu,
    "translation_gpu": translation_gpu,
}


def default_grid() -> str:
    """The grid that fits this machine."""
    return "training" if gpu_count() else "training_cpu"


def restricted(planned: list[PlannedTraining], fields: Mapping[str, object]) -> list[PlannedTraining]:
    """The entries that have these values in the fields of their TrainingRun or its Run.

    Raises:
        ValueError: none has.
    """

    def value(entry: PlannedTraining, name: str) -> object:
        return getattr(entry.training if name in TrainingRun.model_fields else entry.training.run, name)

    return having(planned, fields, value)


def find_grid(name: str) -> list[PlannedTraining]:
    """The entries of a grid, those that need more GPUs than are here left out.

    Raises:
        ValueError: no such grid; the sentence names those that exist.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown grid {name!r}: choose one of {', '.join(GRIDS)}")
    here = gpu_count()
    planned = GRIDS[name]()
    return [entry for entry in planned if entry.training.run.device_type == "cpu" or not here or entry.training.run.devices <= here]
