"""A training step as PyTorch runs it: forward, backward, merged gradients, update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from multigpu.user_model.wrap.batches import (
    call,
    cut,
    loss_in,
    pair_of,
    put_together,
    rows_of,
    scalar,
    take_apart,
)
from multigpu.user_model.wrap.optimizers import Update
from multigpu.user_model.wrap.placed import Placed

Loss = Callable[[Any, Any], Tensor]


class Step:
    """One step on batches that are on the device.

    Each rank's loss is the mean over its samples; gradients and the loss returned are those of the
    mean over the samples of all ranks, however many each has.
    """

    def __init__(self, placed: Placed, loss: Loss | None, update: Update) -> None:
        self.placed = placed
        self.group = placed.group
        self.settings = placed.settings
        self.loss = loss
        self.update = update

    def run(self, batch: Any) -> Tensor:
        """Train on a batch; the mean loss over all ranks' samples, on the device."""
        parts = cut(batch, self.settings.micro_steps)
        weights = self.weights(parts)
        self.update.forget_gradients()
        losses = []
        for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
            with self.placed.merged(number == len(parts) - 1):
                share = self.share(self.placed.forward, part, weight)
                share.backward()
            losses.append(share.detach())
        self.update.apply()
        return self.mean(losses)

    def evaluate(self, batch: Any) -> Tensor:
        """The mean loss over all ranks' samples, without training."""
        module = self.placed.module
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                (weight,) = self.weights([batch])
                return self.mean([self.share(module, batch, weight)])
        finally:
            for part, mode in modes:
                part.training = mode

    def weights(self, parts: list[Any]) -> list[Tensor | float]:
        """Return each part's factor, so that the mean over ranks is the mean over all samples."""
        counts = [self.count(part) for part in parts]
        if self.group.size == 1 and not any(isinstance(each, Tensor) for each in counts):
            total = sum(counts)
            return [each / total for each in counts]
        device = self.group.device
        held = torch.stack(
            [
                each.to(device, torch.float64)
                if isinstance(each, Tensor)
                else torch.full((), float(each), dtype=torch.float64, device=device)
                for each in counts
            ]
        )
        total = self.group.sum(held.sum())
        return list((held * (self.group.size / total)).unbind())

    def count(self, part: Any) -> Any:
        """How many terms a part's loss is the mean of: its samples, or what `count` says. A target
        counts them where inputs lie otherwise (packed, or as offsets).
        """
        if self.settings.count is None:
            ordered = part if self.loss is None else pair_of(part)[::-1]
            return rows_of(take_apart(ordered)[1])
        count = self.settings.count(part)
        if isinstance(count, Tensor):
            return count.detach().reshape(())
        return count

    def share(self, module: nn.Module, part: Any, weight: Tensor | float) -> Tensor:
        """A part's loss, as a share of the joined mean (times the number of ranks)."""
        settings = self.settings
        kind = self.group.device.type
        low = settings.precision in ("bf16", "bf16_params")
        sharded = self.placed.placement == "fsdp2"
        cast = low and not sharded and settings.precision == "bf16"
        if settings.precision == "bf16_params" and not sharded:
            part = in_bf16(part)
        with torch.autocast(kind, torch.bfloat16, enabled=cast):
            if self.loss is None:
                loss = loss_in(call(module, part))
            else:
                inputs, target = pair_of(part)
                output = call(module, inputs)
        if self.loss is not None:
            with torch.autocast(kind, torch.bfloat16, enabled=low):
                loss = scalar(self.loss(output, target))
        if loss.dtype in (torch.bfloat16, torch.float16):
            loss = loss.float()
        return loss * (weight.to(loss.dtype) if isinstance(weight, Tensor) else weight)

    def mean(self, losses: list[Tensor]) -> Tensor:
        """The joined mean of the parts' shares."""
        total = losses[0].clone() if len(losses) == 1 else torch.stack(losses).sum(0)
        return self.group.sum(total) / self.group.size


def in_bf16(part: Any) -> Any:
    """A batch whose fp32 tensors are bf16, as the parameters are that meet them."""
    structure, tensors = take_apart(part)
    cast = [each.bfloat16() if each.dtype == torch.float32 else each for each in tensors]
    return put_together(structure, cast)


@contextmanager
def on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Work inside in a stream, after what the current one was given, and before what it is given
    later; as it is where there is none.
    """
    if stream is None:
        yield
        return
    outer = torch.cuda.current_stream(stream.device)
    stream.wait_stream(outer)
    with torch.cuda.stream(stream):
        yield
    outer.wait_stream(stream)


class Randomness:
    """The device's generator, seeded for each step and rank where a seed was given."""

    def __init__(self, device: torch.device, rank: int, seed: int | None) -> None:
        self.rank = rank
        self.seed = seed
        self.device = device

    @property
    def generator(self) -> torch.Generator:
        """The default generator of the device."""
        if self.device.type == "cuda":
            return torch.cuda.default_generators[self.device.index]
        return torch.default_generator

    @contextmanager
    def of_step(self, number: int) -> Iterator[None]:
        """Draw inside from a generator of this step and rank, and outside as before."""
        if self.seed is None:
            yield
            return
        outside = self.generator.get_state()
        mixed = (self.seed * 1_000_003 + number) * 65_537 + self.rank
        self.generator.manual_seed(mixed % 2**63)
        try:
            yield
        finally:
            self.generator.set_state(outside)
