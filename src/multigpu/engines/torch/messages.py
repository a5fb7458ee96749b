"""What gradients travel as after backward: in which messages, by which all-reduce, in which type."""

from dataclasses import dataclass

import torch
from torch import nn

from multigpu.collectives.spec import LIBRARY, messages, parse_spec
from multigpu.engines.torch.variables import flat_gradients
from multigpu.engines.torch.wire import Wire
from multigpu.run import Run

WIRE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Message:
    """A stretch of the flat gradient and the all-reduce that sums it."""

    stretch: slice
    algorithm: str


class Messages:
    """All gradients of one replica in one stretch of memory, ordered so that each message is a part of it: nothing is packed or unpacked.

    Args:
        whole: the algorithm that takes all gradients as one message where the Run has no `all_reduce_spec`.
    """

    def __init__(self, run: Run, parameters: list[nn.Parameter], wire: Wire, whole: str = LIBRARY) -> None:
        self.wire = wire
        self.type = WIRE_TYPES[run.wire_dtype] if run.wire_dtype else parameters[0].dtype
        sizes = [parameter.numel() for parameter in parameters]
        everything = [(whole, list(range(len(sizes))))]
        found = messages(parse_spec(run.all_reduce_spec), sizes, self.type.itemsize) if run.all_reduce_spec else everything
        ordered = [parameters[index] for _, members in found for index in members]
        self.flat = flat_gradients(ordered, parameters[0].device, parameters[0].dtype)
        self.messages: list[Message] = []
        start = 0
        for algorithm, members in found:
            end = start + sum(sizes[index] for index in members)
            self.messages.append(Message(slice(start, end), algorithm))
            start = end

    def merge(self) -> None:
        """Sum every message over the replicas, in place."""
        if self.wire.replicas == 1:
            return
        for message in self.messages:
            own = self.flat[message.stretch]
            travelling = own if self.type is own.dtype else own.to(self.type)
            if message.algorithm == LIBRARY:
                self.wire.all_reduce(travelling)
            else:
                self.wire.merge(travelling, message.algorithm)
            if travelling is not own:
                own.copy_(travelling)
