"""A user's batch taken apart into named arrays, and put together again. Imports no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from multigpu.workloads.own.loading import JobError


def taken_apart(value: Any) -> tuple[Any, list[np.ndarray]]:
    """How the batch is built, as plain data, and its tensors in order, as arrays that share their memory where they can.

    Raises:
        JobError: it holds something else than tensors, arrays, tuples, lists and dicts of them.
    """
    arrays: list[np.ndarray] = []

    def visit(part: Any, where: str) -> Any:
        if isinstance(part, Mapping):
            return {"dict": {str(name): visit(one, f"{where}[{name!r}]") for name, one in part.items()}}
        if isinstance(part, Sequence) and not isinstance(part, str | bytes):
            return {"tuple": [visit(one, f"{where}[{index}]") for index, one in enumerate(part)]}
        if hasattr(part, "detach"):  # PyTorch's
            part = part.detach().cpu()
            part = part.float() if part.is_floating_point() and part.element_size() < 4 else part
        array = np.ascontiguousarray(part) if isinstance(part, np.ndarray | np.generic) else part
        array = np.asarray(array) if hasattr(array, "__array__") else None
        if array is None or array.dtype.kind not in "biuf":
            raise JobError(f"{where} is a {type(part).__name__} where a tensor is due: a batch is (inputs, target), of tensors or arrays")
        arrays.append(array)
        return len(arrays) - 1

    return visit(value, "batch"), arrays


def put_together(structure: Any, tensors: Mapping[str, Any]) -> Any:
    """The batch of which `taken_apart` gave the structure, from its tensors by number."""
    if isinstance(structure, int):
        return tensors[str(structure)]
    if "dict" in structure:
        return {name: put_together(part, tensors) for name, part in structure["dict"].items()}
    return tuple(put_together(part, tensors) for part in structure["tuple"])


def checked_rows(tensors: Sequence[np.ndarray], rows: int, who: str) -> None:
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
