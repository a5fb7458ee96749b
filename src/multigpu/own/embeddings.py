"""Which rows of its embeddings a user's model asks for, and where in the batch their ids stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from multigpu.workloads.own.description import Table
from multigpu.workloads.own.torch import ids_of


def located(ids: Tensor, batch: dict[str, Tensor], padding: int | None) -> Table | None:
    """Where in the batch these ids stand, by memory and by value; None: nowhere."""
    if ids.dtype != torch.int64 or not ids.numel():
        return None
    count = ids.numel() // len(ids)
    for leaf, tensor in batch.items():
        if tensor.dtype != torch.int64 or tensor.untyped_storage().data_ptr() != ids.untyped_storage().data_ptr():
            continue
        tried = [Table(leaf=leaf, ids=count, padding=padding)]
        if tensor.ndim == 2:
            first = int(ids.storage_offset()) - int(tensor.storage_offset())
            if ids.ndim == 1:
                tried.append(Table(leaf=leaf, column=first, ids=1, padding=padding))
            else:
                last = first + int(ids.shape[1]) - int(tensor.shape[1])
                tried.append(Table(leaf=leaf, stretch=(first, last or None), ids=count, padding=padding))
        for table in tried:
            if (table.column or 0) < tensor.shape[-1] and ids.shape == (own := ids_of(table, batch)).shape and torch.equal(own, ids):
                return table
    return None


@contextmanager
def watched_embeddings(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """What each embedding layer is asked for inside, by the name of its table."""
    asked: dict[str, list[Tensor]] = {}

    def noting(name: str) -> Callable[..., None]:
        return lambda layer, inputs: asked.setdefault(f"model.{name}.weight", []).append(inputs[0])

    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Embedding)]
    hooks = [part.register_forward_pre_hook(noting(name)) for name, part in layers]
    try:
        yield asked
    finally:
        for hook in hooks:
            hook.remove()
