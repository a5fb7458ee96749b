"""Which embedding layers of a user's module only look rows up, by ids that stand in the batch."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

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
        if (
            tensor.dtype != torch.int64
            or tensor.untyped_storage().data_ptr() != ids.untyped_storage().data_ptr()
        ):
            continue
        tried = [Table(leaf=leaf, ids=count, padding=padding)]
        if tensor.ndim == 2:
            first = int(ids.storage_offset()) - int(tensor.storage_offset())
            if ids.ndim == 1:
                tried.append(Table(leaf=leaf, column=first, ids=1, padding=padding))
            else:
                last = first + int(ids.shape[1]) - int(tensor.shape[1])
                tried.append(
                    Table(leaf=leaf, stretch=(first, last or None), ids=count, padding=padding)
                )
        for table in tried:
            if (
                (table.column or 0) < tensor.shape[-1]
                and ids.shape == (own := ids_of(table, batch)).shape
                and torch.equal(own, ids)
            ):
                return table
    return None


@contextmanager
def watched_embeddings(module: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the rows that each embedding layer is asked for inside, by the name of its table."""
    asked: dict[str, list[Tensor]] = {}

    def note(name: str, layer: nn.Embedding, inputs: tuple[Tensor, ...]) -> None:
        asked.setdefault(f"model.{name}.weight", []).append(inputs[0])

    with ExitStack() as hooks:
        for name, part in module.named_modules():
            if isinstance(part, nn.Embedding):
                hooks.enter_context(part.register_forward_pre_hook(partial(note, name)))
        yield asked


def is_plain(layer: nn.Embedding) -> bool:
    """Whether the layer does what PyTorch's does, and nothing besides: no forward of its own, no
    hook, no parametrization, no rule that looks at more than the rows.
    """
    hooks = (
        layer._forward_hooks,
        layer._forward_pre_hooks,
        layer._backward_hooks,
        layer._backward_pre_hooks,
        layer.weight._backward_hooks,
        getattr(layer.weight, "_post_accumulate_grad_hooks", None),
    )
    return (
        type(layer).forward is nn.Embedding.forward
        and "forward" not in layer.__dict__
        and "weight" in layer._parameters
        and not any(hooks)
        and layer.max_norm is None
        and not layer.scale_grad_by_freq
        and layer.weight.requires_grad
    )


def table_of(
    module: nn.Module, name: str, asked: list[Tensor], batch: dict[str, Tensor]
) -> Table | None:
    """Where the batch has the rows that a table is asked for; None: nowhere, or its layer does more
    than look them up once.
    """
    layer = module.get_submodule(name.removeprefix("model.").removesuffix(".weight"))
    assert isinstance(layer, nn.Embedding)
    if len(asked) != 1 or not is_plain(layer) or not re.fullmatch(r"[\w.]{1,150}", name):
        return None
    return located(asked[0], batch, layer.padding_idx)


def random_states(device: torch.device) -> list[Tensor]:
    """Return the states of the generators that a forward pass on the device may draw from."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *own]
