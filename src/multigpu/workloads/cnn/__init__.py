"""Image classification: the convolutional networks of document 001."""

from multigpu.lazy import lazy
from multigpu.workloads.base import Workload
from multigpu.workloads.cnn.description import MODELS

WORKLOAD = Workload(
    name="cnn",
    unit="images",
    models=MODELS,
    inputs={
        "synthetic": lazy("multigpu.inputs.images:synthetic_images"),
        "synthetic_host": lazy("multigpu.inputs.images:HostImages"),
        "digits": lazy("multigpu.inputs.images:digits"),
        "digits_split": lazy("multigpu.inputs.images:digits_split"),
        "teacher": lazy("multigpu.inputs.images:teacher"),
        "teacher_small": lazy("multigpu.inputs.images:teacher"),
        "cifar10": lazy("multigpu.inputs.images:cifar10"),
        "image_folder": lazy("multigpu.inputs.images:image_folder"),
        "jpeg_folder": lazy("multigpu.inputs.encoded:jpeg_folder"),
    },
)
