"""Cases of fused batch norm, and the same computed in float64 by operations of the library."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from multigpu.kernels.batch_norm import SecondUse, batch_moments, batch_norm

MOMENTUM, EPSILON = 0.1, 1e-5
POOL = (3, 3, 2, 0, 0)
"""A window of 3 x 3 and a stride of 2, pads at the end alone, as ResNet-50's first pooling."""


@dataclass(frozen=True)
class Case:
    """after: something is added; twice: the result is used twice; pool: it is pooled."""

    shape: tuple[int, int, int, int]
    after: bool = False
    twice: bool = False
    pool: bool = False
    relu: bool = True

    @property
    def numbers(self) -> list[int]:
        return [*POOL, self.shape[2] // 2, self.shape[3] // 2] if self.pool else []


CASES = (
    Case((1, 3, 5, 7)),
    Case((2, 1, 3, 3), relu=False),
    Case((1, 33, 4, 4), after=True),
    Case((3, 70, 6, 5), after=True, twice=True),
    Case((2, 16, 11, 9), pool=True),
    Case((1, 130, 8, 8), pool=True, twice=True),
    Case((2, 200, 2, 1), after=True, twice=True),
)


@dataclass
class Inputs:
    """Of one case: x, what is added, scale, shift, and how the gradients of the two uses of the result weigh."""

    x: Tensor
    after: Tensor
    weight: Tensor
    bias: Tensor
    first: Tensor
    second: Tensor

    def leaves(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """x, what is added, scale and shift, which collect gradients."""
        return [value.to(dtype, copy=True).requires_grad_() for value in (self.x, self.after, self.weight, self.bias)]


def inputs(case: Case, dtype: torch.dtype, device: str = "cpu", seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def image(values: Tensor) -> Tensor:
        return values.to(device, dtype).contiguous(memory_format=torch.channels_last)

    batch, channels = case.shape[:2]
    exact = torch.promote_types(dtype, torch.float32)
    result = (batch, channels, *case.numbers[5:]) if case.pool else case.shape
    x = image(normal(*case.shape) * 2 + 3 * normal(1, channels, 1, 1))
    vectors = (normal(channels).abs() + 0.5).to(device, exact), normal(channels).to(device, exact)
    return Inputs(x, image(normal(*case.shape)), *vectors, image(normal(*result)), image(normal(*result)))


def fused(case: Case, given: Inputs) -> dict[str, Tensor]:
    """Results and gradients by the operators."""
    x, after, weight, bias = leaves = given.leaves()
    running = torch.zeros_like(given.weight), torch.ones_like(given.weight)
    arrivals = torch.zeros(case.shape[1], dtype=torch.int32, device=given.x.device)
    mean, inverse = batch_moments(x.detach(), *running, arrivals, MOMENTUM, EPSILON)
    added = after if case.after else None
    y, _, second = batch_norm(x, weight, bias, added, mean, inverse, arrivals, case.relu, case.numbers, case.twice)
    loss = (y * given.first).sum()
    if case.twice:
        loss = loss + (SecondUse.apply(y.detach(), second) * given.second).sum()
    found = told(y, running, leaves, loss)
    assert (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()) or not arrivals.any()
    return found


def written_out(case: Case, given: Inputs) -> dict[str, Tensor]:
    """The same in float64, by the library's operations."""
    x, after, weight, bias = leaves = given.leaves(torch.float64)
    running = torch.zeros_like(weight).detach(), torch.ones_like(weight).detach()
    y = F.batch_norm(x, *running, weight, bias, True, MOMENTUM, EPSILON)
    y = y + after if case.after else y
    y = y.relu() if case.relu else y
    if case.pool:
        y = y + (y.to(given.x.dtype).double() - y).detach()  # which is the largest is asked of what is written
        high, wide = case.numbers[5:]
        pads = (0, (wide - 1) * 2 + 3 - case.shape[3], 0, (high - 1) * 2 + 3 - case.shape[2])
        y = F.max_pool2d(F.pad(y, pads, value=-torch.inf), 3, 2)
    weights = given.first.double() + (given.second.double() if case.twice else 0)
    return told(y, running, leaves, (y * weights).sum())


def told(y: Tensor, running: tuple[Tensor, Tensor], leaves: list[Tensor], loss: Tensor) -> dict[str, Tensor]:
    loss.backward()
    named = zip(("x", "after", "weight", "bias"), leaves, strict=True)
    gradients = {f"gradient of {name}": value.grad for name, value in named if value.grad is not None}
    return {"y": y.detach(), "running mean": running[0], "running variance": running[1], **gradients}


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30))
