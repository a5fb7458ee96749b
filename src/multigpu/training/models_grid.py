"""Document 001's models on small images, trained alike: each on one GPU, and AlexNet on CPUs for what batch norm hides. No framework."""

from __future__ import annotations

from typing import Any

from multigpu.training.run import TrainingRun, build_training_run

EPOCHS = 6
BATCH = 128
IMAGES_PER_S = {
    "alexnet_cifar": 147_000,
    "resnet20": 60_000,
    "resnet32": 40_000,
    "resnet44": 30_000,
    "resnet56": 23_700,
    "densenet40_k12": 7_300,
    "resnet110": 12_200,
}
"""Captured steps in bf16 on an H200, rounded: to plan with. densenet100_k12 is left out: at 1,700 its six epochs take three minutes."""
FP32_SHARE = 0.56
"""Of that rate in fp32, as ResNet-20's trainings have it."""
STARTING_S = 6
"""To build, to capture and to score seven times."""


def on_one_gpu(images: int) -> list[tuple[TrainingRun, float]]:
    """Every model in bf16 and fp32 under ddp, whole steps as one CUDA graph, with the seconds that each is expected to take.

    Every model learns at its own rate, document 001's: 0.1, and 0.01 for AlexNet, which has no batch norm. Tried on 4,000 taught images,
    200 steps of 128: AlexNet stands still at 0.1, starts late at 0.05 and learns best at 0.01; DenseNet-40, in 60 steps at 0.1,
    learns from the first. In fp32 it is left out: it would take a fifth of the grid's time.
    """
    found = []
    for model, rate in IMAGES_PER_S.items():
        for precision in ("bf16", "fp32"):
            if (model, precision) == ("densenet40_k12", "fp32"):
                continue
            fields: dict[str, Any] = {"model": model, "precision": precision, "placement": "ddp", "execution": "captured"}
            training = _taught(images, **fields, epochs=EPOCHS)
            seconds = images * EPOCHS / (rate * (FP32_SHARE if precision == "fp32" else 1))
            found.append((training, round(seconds + STARTING_S, 1)))
    return found


def staged_pair(images: int) -> list[tuple[TrainingRun, float]]:
    """ResNet-20 with staged variables beside its twin, eager on one GPU, where the twin has no variable to fetch either."""
    return [
        (_taught(images, model="resnet20", precision="fp32", placement=placement, base_rate=0.1, epochs=3), 19.0)
        for placement in ("staged_gpu0", "ps_gpu0")
    ]


def _taught(images: int, **fields: Any) -> TrainingRun:
    """128 taught images a step on one GPU, scored after every epoch."""
    common: dict[str, Any] = {"workload": "cnn", "inputs": "teacher", "layout": "channels_last", "devices": 1, "batch_size": BATCH}
    return build_training_run(**common, **fields, evaluate_every=-(-images // BATCH))


ALEXNET: dict[str, Any] = {"workload": "cnn", "model": "alexnet_cifar", "device_type": "cpu", "inputs": "digits_split", "batch_size": 64}
ALEXNET |= {"scaling": "strong", "epochs": 2, "evaluate_every": 24}
"""64 of 1,500 digits a step, enlarged to 32 pixels, at the model's own rate of 0.01."""

SPREAD_OVER = (1, 4)
"""Numbers of CPU processes beside the two that compare placements."""


def spread() -> list[TrainingRun]:
    """AlexNet under ddp on other numbers of devices. Without batch norm, which sees each shard by itself, the mean gradient of a joined
    batch is the same however many devices share it: one curve, apart by rounding alone.
    """
    return [
        build_training_run(**ALEXNET, placement="ddp", devices=devices, precision=precision)
        for devices in SPREAD_OVER
        for precision in ("fp32", "fp64")
    ]
