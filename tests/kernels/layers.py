"""A layer's arguments and what it must compute, one sentence and one position after another."""

import torch
from torch import Tensor

NAMES = ("y", "h", "c", "dx", "dh0", "dc0", "dkernel", "dbias")
"""What `results` returns, in its order."""


def arguments(positions: int, batch: int, units: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x, h0, c0, kernel, bias, more_bias; variables and cells in float32 where `dtype` has 16 bits."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.float32 if dtype == torch.bfloat16 else dtype

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = [normal(2, 4 * units, units) * units**-0.5, normal(4 * units), torch.ones(4 * units)]
    return [
        normal(positions, batch, units).to(dtype),
        normal(batch, units).to(dtype),
        *(w.to(exact) for w in (normal(batch, units), *weights)),
    ]


def incoming(positions: int, batch: int, units: int) -> list[Tensor]:
    """Gradients of y, h and c, in float64."""
    generator = torch.Generator().manual_seed(99)
    shapes = (positions, batch, units), (batch, units), (batch, units)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def written_out(values: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """y, h and c of a layer in which a sentence stops at its end; all in the arguments' own type."""
    x, h, c, kernel, bias, more_bias = values
    outputs = []
    for t, value in enumerate(x):
        i, f, g, o = (value @ kernel[0].t() + h @ kernel[1].t() + bias + more_bias).chunk(4, 1)
        new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        new_h = torch.sigmoid(o) * torch.tanh(new_c)
        running = torch.ones(len(h), 1, dtype=torch.bool, device=h.device) if lengths is None else (t < lengths)[:, None]
        h, c = torch.where(running, new_h, h), torch.where(running, new_c, c)
        outputs.append(torch.where(running, new_h, torch.zeros_like(h)))
    return torch.stack(outputs), h, c


def results(layer, values: list[Tensor], lengths: Tensor | None, gradients: list[Tensor]) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The layer's three results and the gradients of its first five arguments."""
    leaves = [value.detach().requires_grad_() for value in values]
    found = layer(leaves, lengths)
    given = [gradient.to(one) for gradient, one in zip(gradients, found, strict=True)]
    return [one.detach() for one in (*found, *torch.autograd.grad(found, leaves[:5], given))]


def reference(values: list[Tensor], lengths: Tensor | None, gradients: list[Tensor]) -> list[Tensor]:
    """`results` of the layer written out in float64."""
    return results(written_out, [value.double() for value in values], lengths, gradients)


def distance(mine: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over the norm of `theirs`."""
    return float((mine.double() - theirs.double()).norm() / theirs.double().norm())
