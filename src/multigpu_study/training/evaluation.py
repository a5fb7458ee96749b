"""How a workload is scored on held-out data: the protocol of `scores/<workload>.py`, and the
model that is scored.

A workload that can be scored has a module `scores/<name>.py`, or one of another package an
`evaluate.py`, with one function:

    def scores(module: nn.Module, run: Run, source: Source, device: torch.device) -> dict[str,
        float]

It is called on one rank only, under `torch.inference_mode()` and the Run's autocast, before the
first step, every `evaluate_every` steps and after the last, and never takes part in a collective;
what is costly to prepare belongs into a cache of the module.

module: the workload's own (`engines.torch.trainer.build_module(run)`) in eval mode on `device`,
    holding the current weights and rank 0's running statistics, in the precision's type of
    variables; nothing that happens to it reaches training.
source: what this rank trains from; what it holds out (`held_out()`) has a form that its workload
    knows.
Returns scores by name, floats (not finite only where the model is not). Names that the analysis
knows: `loss` (mean over the held-out
    terms, less is better), `accuracy` (0 to 1), `bleu` (0 to 100). Others are kept and listed.
Raises ValueError, one sentence, where the Run's inputs hold nothing out; such a Run is then refused
before its first step.
"""

import importlib
from collections.abc import Mapping

import torch
from torch import Tensor

from multigpu.engines.torch.devices import Device
from multigpu.engines.torch.trainer import build_module
from multigpu.engines.torch.variables import materialise, memory_like
from multigpu.inputs.batch import Source
from multigpu.spec.run import Run
from multigpu.workloads import description_of
from multigpu_study.training.scores import module_of


class Scorer:
    """A copy of the model that is scored, on one replica; training never sees it."""

    def __init__(self, run: Run, source: Source, device: Device) -> None:
        self.scores = importlib.import_module(module_of(run.workload)).scores
        self.run, self.source, self.device = run, source, device
        # always plain: a captured or compiled form serves speed, and here would only add shapes
        self.module = build_module(run.model_copy(update={"execution": "eager"}))
        shapes = dict(self.module.named_parameters())
        memory = {
            v.name: memory_like(shapes[v.name], device.torch, device.dtype)
            for v in description_of(run).variables
        }
        self.parameters = materialise(self.module, memory, device.torch, device.dtype)
        self.module.eval()

    def score(
        self, values: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
    ) -> dict[str, float]:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(values[name])
            for name, buffer in self.module.named_buffers():
                buffer.copy_(buffers[name])
        with torch.inference_mode(), self.device.autocast():
            return {
                name: float(value)
                for name, value in self.scores(
                    self.module, self.run, self.source, self.device.torch
                ).items()
            }
