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


WORKLOAD = Workload(
    name="cnn",
    unit="images",
    models=MODELS,
    inputs={"synthetic": _synthetic, "digits": _digits, "cifar10": _cifar10, "image_folder": _image_folder},
)
