"""Image classification: the convolutional networks of document 001."""

from multigpu.later import later
from multigpu.workloads.base import Workload
from multigpu.workloads.cnn.description import MODELS

WORKLOAD = Workload(
    name="cnn",
    unit="images",
    models=MODELS,
    inputs={
        "synthetic": later("multigpu.inputs.images:synthetic_images"),
        "synthetic_host": later("multigpu.inputs.images:HostImages"),
        "digits": later("multigpu.inputs.images:digits"),
        "digits_split": later("multigpu.inputs.images:digits_split"),
        "teacher": later("multigpu.inputs.images:teacher"),
        "teacher_small": later("multigpu.inputs.images:teacher"),
        "cifar10": later("multigpu.inputs.images:cifar10"),
        "image_folder": later("multigpu.inputs.images:image_folder"),
        "jpeg_folder": later("multigpu.inputs.encoded:jpeg_folder"),
    },
)
