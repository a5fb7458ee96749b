"""A replica's gradients as messages: one all-reduce, or the ranges of sizes that a Run names."""

import torch
from torch import nn

from multigpu.collectives.spec import LIBRARY, messages, parse_spec
from multigpu.engines.torch.variables import flat_gradients
from multigpu.engines.torch.wire import Wire
from multigpu.spec.run import Run

WIRE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Messages:
    """All gradients of a replica in one stretch, of which each message is a part."""

    def __init__(self, run: Run, parameters: list[nn.Parameter], wire: Wire, whole: str) -> None:
        self.wire = wire
        self.type = WIRE_TYPES[run.wire_dtype] if run.wire_dtype else parameters[0].dtype
        sizes = [parameter.numel() for parameter in parameters]
        everything = [(whole, list(range(len(sizes))))]
        if run.all_reduce_spec:
            found = messages(parse_spec(run.all_reduce_spec), sizes, self.type.itemsize)
        else:
            found = everything
        ordered = [parameters[index] for _, members in found for index in members]
        self.flat = flat_gradients(ordered, parameters[0].device, parameters[0].dtype)
        stretches = self.flat.split(
            [sum(sizes[index] for index in members) for _, members in found]
        )
        self.messages = [
            (stretch, algorithm) for stretch, (algorithm, _) in zip(stretches, found, strict=True)
        ]

    def reduce(self) -> None:
        """Sum every message over the replicas, in place."""
        if self.wire.replicas == 1:
            return
        for own, algorithm in self.messages:
            travelling = own if self.type is own.dtype else own.to(self.type)
            if algorithm == LIBRARY:
                self.wire.all_reduce(travelling)
            else:
                self.wire.reduce(travelling, algorithm)
            if travelling is not own:
                own.copy_(travelling)
