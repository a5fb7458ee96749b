"""Modules with values and batches with words, for the tests of workloads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from multigpu.spec.model import Model
from multigpu.workloads import import_part


def filled(
    model: Model, seed: int = 0, dtype: torch.dtype = torch.float64, layout: str | None = None
) -> nn.Module:
    """The module of a description, every variable drawn from its law and moved off its constant, so
    that biases matter.
    """
    layouts = [layout] if layout else []
    module = import_part(model.workload, "torch").build(model, *layouts).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for variable, parameter in zip(model.variables, module.parameters(), strict=True):
            value = torch.randn(variable.shape, generator=generator, dtype=torch.float64)
            scale = variable.init.scale if variable.init.law != "constant" else 0.1
            parameter.copy_(
                value * scale + (variable.init.scale if variable.init.law == "constant" else 0)
            )
    return module


def sentences(
    model: Model, source: Sequence[int], target: Sequence[int], seed: int = 0
) -> dict[str, Tensor]:
    """A batch of random words with these lengths, padded with random words too: nothing may depend
    on them.
    """
    generator = torch.Generator().manual_seed(seed)

    def words(lengths: Sequence[int], vocabulary: int) -> Tensor:
        return torch.randint(vocabulary, (len(lengths), max(lengths)), generator=generator)

    return {
        "source": words(source, model.config.source_vocabulary),
        "source_length": torch.tensor(source),
        "target_input": words(target, model.config.target_vocabulary),
        "target_output": words(target, model.config.target_vocabulary),
        "target_length": torch.tensor(target),
    }


def rated(model: Model, rows: int, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random texts with ratings from 1 to 5."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(
        model.config.vocabulary, (rows, 2 * model.config.length), generator=generator
    )
    return {"words": words, "ratings": torch.randint(1, 6, (rows,), generator=generator).double()}


def labelled(model: Model, rows: int, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random samples of a stack with random labels."""
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randn(rows, *model.config.row_shape, generator=generator, dtype=torch.float64)
    return {
        "samples": samples,
        "labels": torch.randint(model.config.classes, (rows,), generator=generator),
    }


def tokens(model: Model, rows: int, length: int = 9, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random tokens, each of which is to be told from those before it."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(model.config.vocabulary, (rows, length + 1), generator=generator)
    return {"tokens": drawn[:, :-1], "targets": drawn[:, 1:]}


def gradients(module: nn.Module, loss: Tensor) -> list[Tensor]:
    """Of every parameter, in order."""
    return list(torch.autograd.grad(loss, list(module.parameters())))
