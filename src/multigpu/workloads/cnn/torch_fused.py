"""Batch norm in one piece with a sum, ReLU and pooling (`multigpu.kernels.batch_norm`)."""

import torch
from torch import Tensor, nn

from multigpu.kernels.batch_norm import SecondUse, batch_moments, batch_norm, library_instead
from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn.torch_layers import Norm, Residual


class Absorbed(nn.Identity):
    """In the place of a layer that a batch norm before it computes."""


class FusedNorm(Norm):
    """A batch norm and what `fuse` has it absorb; in evaluation, and where the kernels cannot run,
    the library's operations one by one.
    relu, pool: those that follow. twice: whether the result is used twice, so that both gradients
        meet in the kernel: a pair then.
    """

    arrivals: Tensor
    relu = twice = False
    numbers: tuple[int, ...] = ()

    def __init__(self, norm: Norm) -> None:
        super().__init__(
            norm.num_features, norm.eps, norm.momentum or 0.0, "weight" in norm._parameters
        )
        self.register_buffer(
            "arrivals", torch.zeros(norm.num_features, dtype=torch.int32), persistent=False
        )
        self.pool: nn.Module | None = None

    def forward(  # type: ignore[override]
        self, x: Tensor, after: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """after: is added before the ReLU."""
        if not self.training or library_instead(x.device):
            return self._one_by_one(x, after)
        after = None if after is None else after.to(x.dtype)
        mean, inverse = batch_moments(
            x.detach(), self.running_mean, self.running_var, self.arrivals, self.momentum, self.eps
        )
        twice = self.twice and not torch.compiler.is_compiling()
        moments = mean, inverse, self.arrivals
        what_follows = self.relu, self.numbers, twice
        y, _, second = batch_norm(x, self.weight, self.bias, after, *moments, *what_follows)
        return (y, SecondUse.apply(y.detach(), second)) if twice else y

    def _one_by_one(self, x: Tensor, after: Tensor | None) -> Tensor:
        y = super().forward(x)
        y = y if after is None else y.add_(after)
        y = y.relu_() if self.relu else y
        return y if self.pool is None else self.pool(y)


class FusedResidual(Residual):
    """branch(x) + shortcut(x), added by the branch's last norm; x may be a pair for both."""

    def __init__(self, residual: Residual) -> None:
        super().__init__(residual.branch, residual.shortcut if residual.projected else None, False)

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        y, again = x if isinstance(x, tuple) else (x, x)
        *first, norm = self.branch.children()
        for layer in first:
            y = layer(y)
        return norm(y, self.shortcut(again) if self.projected else again)


def fuse(stack: nn.Sequential, network: net.Network, shape: net.Shape) -> None:
    """Have each batch norm of the network in `stack` compute what follows it too."""
    walk = list(net.steps(network, shape))
    for place, (name, layer, size) in enumerate(walk):
        part, rest = getattr(stack, name), walk[place + 1 :]
        if isinstance(layer, L.Concat):
            for branch, module in zip(layer.branches, part.children(), strict=True):
                fuse(module, branch, size)
        if isinstance(layer, L.Residual):
            fuse(part.branch, layer.branch, size)
            if part.projected:
                fuse(part.shortcut, layer.shortcut, size)
        if isinstance(layer, L.BatchNorm):
            norm = FusedNorm(part)
            setattr(stack, name, norm)
        elif ends_in_norm(layer):
            setattr(stack, name, FusedResidual(part))
            *_, norm = part.branch.children()
        else:
            continue
        if rest and isinstance(rest[0][1], L.Relu):
            norm.relu = True
            setattr(stack, rest.pop(0)[0], Absorbed())
        pooled, pool, before = rest[0] if rest else ("", None, ())
        if isinstance(pool, L.MaxPool) and isinstance(layer, L.BatchNorm):
            norm.pool = getattr(stack, pooled)
            top, _, left, _ = pool.pads_for(before)
            norm.numbers = (*pool.sides, pool.stride, top, left, *pool.positions(before))
            setattr(stack, pooled, Absorbed())
        norm.twice = bool(rest) and ends_in_norm(layer) and ends_in_norm(rest[0][1])


def ends_in_norm(layer: net.Layer) -> bool:
    """Whether it is a residual block to whose last batch norm the shortcut is added."""
    return isinstance(layer, L.Residual) and isinstance(layer.branch[-1], L.BatchNorm)
