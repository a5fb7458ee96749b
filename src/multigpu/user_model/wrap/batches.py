"""Batches of any structure: taken apart into tensors, cut into micro-batches, given to a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Leaf:
    """A tensor's place in a structure: its number, shape and type."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Constant:
    """A value that is no tensor and is part of a batch's structure."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


Structure = Any
"""Nested ("list" | "tuple" | "dict", ...) of `Leaf` and `Constant`; two are equal where a captured
step that read the first can read the second."""


def take_apart(batch: Any) -> tuple[Structure, list[Tensor]]:
    """Take a batch apart: its structure, and its tensors in order."""
    tensors: list[Tensor] = []

    def visit(value: Any) -> Structure:
        if isinstance(value, Tensor):
            tensors.append(value)
            return Leaf(len(tensors) - 1, tuple(value.shape), value.dtype)
        if isinstance(value, Mapping):
            return ("dict", tuple((key, visit(part)) for key, part in value.items()))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ("named", type(value), tuple(visit(part) for part in value))
        if isinstance(value, list | tuple):
            return (type(value).__name__, tuple(visit(part) for part in value))
        return Constant(value)

    return visit(batch), tensors


def put_together(structure: Structure, tensors: list[Tensor]) -> Any:
    """Put a batch together again: dicts for mappings, lists, tuples and named tuples as given."""
    if isinstance(structure, Leaf):
        return tensors[structure.number]
    if isinstance(structure, Constant):
        return structure.value
    if structure[0] == "dict":
        return {key: put_together(part, tensors) for key, part in structure[1]}
    parts = [put_together(part, tensors) for part in structure[-1]]
    if structure[0] == "named":
        return structure[1](*parts)
    return parts if structure[0] == "list" else tuple(parts)


def move(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on the device."""
    structure, tensors = take_apart(batch)
    return put_together(structure, [each.to(device, non_blocking=True) for each in tensors])


def rows_of(tensors: list[Tensor]) -> int:
    """Samples in a batch: the first axis of its first tensor that has one.

    Raises a ValueError where there is none, or none is in it.
    """
    for tensor in tensors:
        if tensor.dim():
            if not tensor.shape[0]:
                raise ValueError(
                    f"the batch has no sample (a tensor of shape {tuple(tensor.shape)}): leave"
                    " empty batches out on all ranks"
                )
            return tensor.shape[0]
    raise ValueError(
        "the batch has no tensor with a first axis of samples: give tensors, or lists, tuples or"
        " dicts of them"
    )


def cut(batch: Any, parts: int) -> list[Any]:
    """Cut a batch along its first axis into micro-batches, as equal as can be.

    Tensors whose first axis is not the samples' go whole into each. Raises a ValueError where the
    batch has fewer samples than parts.
    """
    structure, tensors = take_apart(batch)
    rows = rows_of(tensors)
    if parts == 1:
        return [batch]
    if rows < parts:
        raise ValueError(
            f"micro_steps={parts}, and the batch has {rows} samples: give a batch of at least"
            f" {parts}, or fewer micro_steps"
        )
    pieces = []
    for tensor in tensors:
        divided = tensor.dim() > 0 and tensor.shape[0] == rows
        pieces.append(tensor.tensor_split(parts) if divided else (tensor,) * parts)
    return [put_together(structure, [piece[number] for piece in pieces]) for number in range(parts)]


def call(module: nn.Module, inputs: Any) -> Any:
    """Call a module as its inputs say: a dict names arguments, a list or tuple lists them."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    if isinstance(inputs, list | tuple):
        return module(*inputs)
    return module(inputs)


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Inputs and target of a batch for a loss function; else a ValueError."""
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    what = f"a {type(batch).__name__}"
    if isinstance(batch, list | tuple):
        what += f" of {len(batch)}"
    raise ValueError(
        f"the batch is {what}, and with a loss function it must be a pair (inputs, target): give a"
        " pair, or loss=None where the model returns its loss"
    )


def loss_in(output: Any) -> Tensor:
    """The loss that a model returned: a scalar, or what is named `loss`; else a ValueError."""
    value = output
    if isinstance(output, Mapping):
        value = output.get("loss")
    elif not isinstance(output, Tensor) and hasattr(output, "loss"):
        value = output.loss
    if not isinstance(value, Tensor):
        raise ValueError(
            f"loss=None, and the model returned a {type(output).__name__} without a loss: give a"
            " loss function of (output, target), or give the model what it needs for its loss"
            " (labels, say)"
        )
    return scalar(value)


def scalar(value: Any) -> Tensor:
    """The loss as a tensor without axes; else a ValueError."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"the loss has shape {shape}, not one number: let it be the mean over the samples"
        )
    return value.reshape(())
