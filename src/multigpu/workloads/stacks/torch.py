"""Stacks of one kind of layer in PyTorch: whole, by section, or one device's part."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.placements.partition import part_shape
from multigpu.spec.model import Model
from multigpu.workloads.stacks.description import WINDOW, StackConfig
from multigpu.workloads.tensors import arithmetic_type


class Parts:
    """How a part of a stack meets the others, in the order of `index`; this is the only one."""

    index, count = 0, 1

    def spread(self, x: Tensor) -> Tensor:
        """A value that every part reads whole: its gradient is the sum over parts."""
        return x

    def total(self, x: Tensor) -> Tensor:
        """The sum of all parts' values, on every device."""
        return x

    def gather(self, x: Tensor) -> Tensor:
        """All parts' rows (axis 0), on every device; gradients of its own add up over parts."""
        return x

    def cross_entropy(self, logits: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Summed cross entropy of logits whose classes (axis 1) are cut over parts."""
        return F.cross_entropy(
            logits.float() if logits.dtype == torch.bfloat16 else logits, labels, reduction="sum"
        )


def build(model: Model, recurrence: str | None = None) -> nn.Module:
    """The whole stack, its parameters uninitialised. recurrence: "fused" (None: the library's LSTM)
    or "stepwise", the loop of parts.
    """
    return Stack(model, Parts(), recurrence != "stepwise")


def build_part(model: Model, parts: Parts) -> nn.Module:
    """One device's part of every layer; recurrent parts meet at each position of a loop."""
    return Stack(model, parts, fused=False)


class Stack(nn.Module):
    """Summed cross entropies over a shard's rows; parameters are (parts of) the variables."""

    head_kernel: Tensor
    head_bias: Tensor

    def __init__(self, model: Model, parts: Parts, fused: bool) -> None:
        super().__init__()
        assert model.splitting
        self.config: StackConfig = model.config
        self.parts, self.fused = parts, fused
        for variable in model.variables:
            shape = part_shape(
                variable, model.splitting.axes.get(variable.name), parts.count, parts.index
            )
            self.register_parameter(variable.name, nn.Parameter(torch.empty(shape)))
        self.compiled: Callable[[int, Tensor], Tensor] | None = None

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def compile_parts(self) -> None:
        """Compile every layer and the head, each by itself, but no recurrent body."""
        if self.config.kind != "recurrent":
            self.compiled = torch.compile(self.affine_layer, dynamic=False)

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """Of samples (B, *row_shape), floating-point, and labels (B,) int64; rows are ignored."""
        x = self.enter(batch["samples"])
        for index in range(self.config.layers):
            x = self.layer(index, x)
        return self.loss(x, batch["labels"])

    def layer(self, index: int, x: Tensor) -> Tensor:
        """One layer, as the next one reads it."""
        if self.compiled is not None:
            return self.compiled(index, x)
        recurrent = self.config.kind == "recurrent"
        return self.recurrent_layer(index, x) if recurrent else self.affine_layer(index, x)

    def enter(self, samples: Tensor) -> Tensor:
        """Samples as the first layer reads them; sequences become (T, features, B)."""
        return samples.permute(1, 2, 0) if self.config.kind == "recurrent" else samples

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.config.kind == "convolution":
            x = x.flatten(2).mean(2)  # (B, C)
        if self.config.kind == "recurrent":
            x = x[-1].t()  # (B, units); gathered before, which joins its gradient
        else:
            x = self.parts.spread(x)
        logits = F.linear(x, self.head_kernel, self.head_bias)
        return self.parts.cross_entropy(logits, labels, self.config.classes)

    def affine_layer(self, index: int, x: Tensor) -> Tensor:
        """A dense layer or a convolution, cut by outputs and by inputs in turn."""
        kernel, bias = (
            getattr(self, f"{self.config.kind}_{index}_{name}") for name in ("kernel", "bias")
        )
        by_outputs, dense = index % 2 == 0, self.config.kind == "dense"
        x = self.parts.spread(x) if by_outputs else x
        product = F.linear(x, kernel) if dense else F.conv2d(x, kernel, padding=WINDOW // 2)
        product = product if by_outputs else self.parts.total(product)
        product = product + (bias if dense else bias[:, None, None]).to(product.dtype)
        return (
            torch.sigmoid(product) if self.config.activation == "sigmoid" else torch.relu(product)
        )

    def recurrent_layer(self, index: int, x: Tensor) -> Tensor:
        """An LSTM from a zero state, (T, features, B) -> (T, width, B)."""
        weights = [
            getattr(self, f"recurrent_{index}_{name}") for name in ("input", "hidden", "bias")
        ]
        kind = arithmetic_type(x)
        with torch.autocast(x.device.type, enabled=False):
            # (4 units, features), (4 units, width), (4 units,)
            into, hidden, bias = (weight.flatten(0, 1).to(kind) for weight in weights)
            if self.fused:
                return fused_lstm(x.to(kind), into, hidden, bias)
            return stepwise_lstm(x.to(kind), into, hidden, bias, self.parts)


def fused_lstm(x: Tensor, into: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
    """The library's LSTM, units before rows: x (T, features, B); a second bias of zero."""
    start = x.new_zeros(1, x.shape[2], hidden.shape[1])  # (1, B, units)
    weights = [into, hidden, bias, torch.zeros_like(bias)]
    y, _, _ = torch._VF.lstm(
        x.transpose(1, 2).contiguous(), (start, start), weights, True, 1, 0.0, True, False, False
    )
    return y.transpose(1, 2)


def stepwise_lstm(x: Tensor, into: Tensor, hidden: Tensor, bias: Tensor, parts: Parts) -> Tensor:
    """A loop over (T, features, B); each part computes its own units and gathers the state."""
    ahead = torch.matmul(into, x) + bias[:, None]  # (T, 4 units, B)
    state: Tensor | None = None  # (width, B)
    cell: Tensor | None = None  # (units, B)
    outputs = []
    for gates in ahead.unbind(0):
        if state is not None:
            gates = torch.addmm(gates, hidden, state)
        i, f, g, o = gates.chunk(4, 0)
        new = torch.sigmoid(i) * torch.tanh(g)
        cell = new if cell is None else torch.sigmoid(f) * cell + new
        state = parts.gather(torch.sigmoid(o) * torch.tanh(cell))
        outputs.append(state)
    return torch.stack(outputs)


Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Section -> its function, from arrays and earlier tensors to what it gives."""
    assert isinstance(module, Stack)
    stack, kind = module, module.config.kind

    def layer(index: int, values: Values) -> Values:
        x = values[f"{kind}_{index - 1}"] if index else stack.enter(values["samples"])
        return {f"{kind}_{index}": stack.layer(index, x)}

    found: dict[str, Callable[[Values], Values]] = {
        f"{kind}_{index}": partial(layer, index) for index in range(stack.config.layers)
    }
    return found | {
        "head": lambda values: {"loss": stack.loss(values[[*found][-1]], values["labels"])}
    }
