"""A user's batch taken apart into named tensors, and put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multigpu.workloads.own.loading import JobError


def taken_apart(value: Any) -> tuple[Any, list[Tensor]]:
    """How the batch is built, as plain data, and its tensors in order (on the CPU, what numpy knows).

    Raises:
        JobError: it holds something else than tensors, arrays, tuples, lists and dicts of them.
    """
    tensors: list[Tensor] = []

    def visit(part: Any, where: str) -> Any:
        if isinstance(part, Mapping):
            return {"dict": {str(name): visit(one, f"{where}[{name!r}]") for name, one in part.items()}}
        if isinstance(part, Sequence) and not isinstance(part, str | bytes):
            return {"tuple": [visit(one, f"{where}[{index}]") for index, one in enumerate(part)]}
        if isinstance(part, np.ndarray | np.generic):
            part = torch.from_numpy(np.ascontiguousarray(part))
        if not isinstance(part, Tensor):
            raise JobError(f"{where} is a {type(part).__name__} where a tensor is due: a batch is (inputs, target), of tensors or arrays")
        part = part.detach().cpu()
        tensors.append(part.float() if part.dtype in (torch.bfloat16, torch.float16) else part)
        return len(tensors) - 1

    return visit(value, "batch"), tensors


def put_together(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The batch of which `taken_apart` gave the structure, from its tensors by number."""
    if isinstance(structure, int):
        return tensors[str(structure)]
    if "dict" in structure:
        return {name: put_together(part, tensors) for name, part in structure["dict"].items()}
    return tuple(put_together(part, tensors) for part in structure["tuple"])


def checked_rows(tensors: Sequence[Tensor], rows: int, who: str) -> None:
    """Refuse a batch of another size than asked for.

    Raises:
        JobError: a tensor's first axis has another length.
    """
    for index, tensor in enumerate(tensors):
        if not tensor.ndim or tensor.shape[0] != rows:
            raise JobError(
                f"{who} was asked for {rows} samples, and its tensor {index} has the shape {list(tensor.shape)}:"
                f" the first axis of every tensor counts the samples, so it must be {rows}"
            )
