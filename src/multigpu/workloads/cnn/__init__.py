"""Image classification: the convolutional networks of document 001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multigpu.workloads.base import Model, Workload
from multigpu.workloads.cnn.description import MODELS

if TYPE_CHECKING:
    from multigpu.inputs.batch import Source
    from multigpu.run import Run

# Inputs are imported when one is made: a Run can then be checked without importing what reads images.


def _synthetic(run: Run, model: Model) -> Source:
    from multigpu.inputs.images import synthetic_images

    return synthetic_images(run, model)


def _digits(run: Run, model: Model) -> Source:
    from multigpu.inputs.images import digits

    return digits(run, model)


def _cifar10(run: Run, model: Model) -> Source:
    from multigpu.inputs.images import cifar10

    return cifar10(run, model)


def _image_folder(run: Run, model: Model) -> Source:
    from multigpu.inputs.images import image_folder

    return image_folder(run, model)


def _synthetic_host(run: Run, model: Model) -> Source:
    from multigpu.inputs.host_images import synthetic_host

    return synthetic_host(run, model)


def _jpeg_folder(run: Run, model: Model) -> Source:
    from multigpu.inputs.encoded import jpeg_folder

    return jpeg_folder(run, model)


def _digits_split(run: Run, model: Model) -> Source:
    from multigpu.inputs.held_out import digits_split

    return digits_split(run, model)


def _teacher(run: Run, model: Model) -> Source:
    from multigpu.inputs.held_out import teacher

    return teacher(run, model)


def _teacher_small(run: Run, model: Model) -> Source:
    from multigpu.inputs.held_out import teacher_small

    return teacher_small(run, model)


WORKLOAD = Workload(
    name="cnn",
    unit="images",
    models=MODELS,
    inputs={
        "synthetic": _synthetic,
        "synthetic_host": _synthetic_host,
        "digits": _digits,
        "digits_split": _digits_split,
        "teacher": _teacher,
        "teacher_small": _teacher_small,
        "cifar10": _cifar10,
        "image_folder": _image_folder,
        "jpeg_folder": _jpeg_folder,
    },
)
