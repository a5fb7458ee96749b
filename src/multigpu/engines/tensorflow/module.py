"""Build a workload's model in TensorFlow as a Run wants it."""

from typing import Literal

from multigpu.engines.tensorflow.devices import Devices
from multigpu.spec.run import Run
from multigpu.workloads import description_of, import_part
from multigpu.workloads.tensorflow_module import Form, StepModule


def form_of(run: Run, devices: Devices, even: bool) -> Form:
    """The form that this Run asks for."""
    recurrence: Literal["fused", "stepwise"] = (
        "stepwise" if run.recurrence == "stepwise" else "fused"
    )
    types = devices.dtype, devices.compute
    return Form(devices.cuda, *types, even, run.execution == "xla", run.layout, recurrence)


def build_module(run: Run, form: Form) -> StepModule:
    """The Run's model; `Unsupported` where TensorFlow cannot compute it in this form here."""
    return import_part(run.workload, "tensorflow").build(description_of(run), form)
