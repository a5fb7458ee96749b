"""Run a stack of LSTM cells in PyTorch, and pack sentences of unequal lengths for it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from multigpu.kernels.lstm import exact_type, lstm_layer
from multigpu.kernels.lstm_launch import library_instead
from multigpu.workloads.tensors import arithmetic_type, to_device

State = tuple[Tensor, Tensor]
"""Hidden and cell state of a stack, each (layers, B, units)."""


def dropped(x: Tensor, dropout: float) -> Tensor:
    """`x` with that share of its elements dropped; `x` itself where that is 0."""
    return functional.dropout(x, dropout) if dropout else x


@dataclass(frozen=True)
class Cells:
    """A stack of LSTM cells, lowest first. kernels: [2, 4 units, units] of each. biases: [4 units]
    of each.
    forget_bias: [4 units], the constant that TensorFlow adds at run time, as the library's second
        bias, which is no variable.
    dropout: share of the elements that every cell's input loses, at every position anew, the others
        scaled up (document 004).
    """

    kernels: list[Tensor]
    biases: list[Tensor]
    forget_bias: Tensor
    dropout: float = 0.0


def fused(
    x: Tensor, state: State, cells: Cells, batch_sizes: Tensor | None = None
) -> tuple[Tensor, State]:
    """All cells and all positions in one call of the library's LSTM (cuDNN on GPUs, oneDNN or ATen
    on CPUs).
    x: (T, B, units), or packed (words, units) with `batch_sizes`, (T,) int64 on the host: how many
        still run at each position. Gives the top cell's outputs, shaped as `x`, and the state after
        the last position of each sentence.
    """
    layers, units, dropout = len(cells.kernels), x.shape[-1], cells.dropout
    half = 4 * units * units
    kind = arithmetic_type(x)
    # cuDNN wants one stretch of memory, all matrices and then all biases: laid out so here, in one
    # copy, it takes the weights as they are. Given separate tensors it makes 4 copies a cell, and
    # autocast would make it compute in float16.
    biases = [b for bias in cells.biases for b in (bias, cells.forget_bias)]
    flat = torch.cat([kernel.flatten() for kernel in cells.kernels] + biases).to(kind)
    parts = flat.split([half] * (2 * layers) + [4 * units] * (2 * layers))
    weights: list[Tensor] = []
    for layer in range(layers):
        weights += [part.view(4 * units, units) for part in parts[2 * layer : 2 * layer + 2]]
        weights += parts[2 * layers + 2 * layer : 2 * layers + 2 * layer + 2]
    hidden, cell = (s.to(kind) for s in state)
    x = dropped(x, dropout)  # the library drops between its layers only
    with torch.autocast(x.device.type, enabled=False):
        if batch_sizes is None:
            y, hidden, cell = torch._VF.lstm(
                x.to(kind), (hidden, cell), weights, True, layers, dropout, True, False, False
            )
        else:
            y, hidden, cell = torch._VF.lstm(
                x.to(kind), batch_sizes, (hidden, cell), weights, True, layers, dropout, True, False
            )
    return y, (hidden, cell)


def stepwise(
    x: Tensor, state: State, cells: Cells, batch_sizes: Tensor | None = None
) -> tuple[Tensor, State]:
    """Compute `fused` as a loop over positions, document 000's "dynamic rnn"."""
    kind = arithmetic_type(x)
    with torch.autocast(x.device.type, enabled=False):
        # (2 units, 4 units)
        matrices = [torch.cat((kernel[0], kernel[1]), 1).to(kind).t() for kernel in cells.kernels]
        shifts = [(bias + cells.forget_bias).to(kind) for bias in cells.biases]
        hidden, cell = ([layer.to(kind) for layer in s.unbind(0)] for s in state)
        positions = (
            x.to(kind).unbind(0) if batch_sizes is None else x.to(kind).split(batch_sizes.tolist())
        )
        outputs = []
        for value in positions:
            running = len(value)  # packed sentences are sorted: those that have ended stand last
            for layer, (matrix, shift) in enumerate(zip(matrices, shifts, strict=True)):
                h, c = hidden[layer], cell[layer]
                gates = torch.addmm(
                    shift, torch.cat((dropped(value, cells.dropout), h[:running]), 1), matrix
                )
                i, f, g, o = gates.chunk(4, 1)
                new = torch.sigmoid(f) * c[:running] + torch.sigmoid(i) * torch.tanh(g)
                value = torch.sigmoid(o) * torch.tanh(new)
                hidden[layer] = value if running == len(h) else torch.cat((value, h[running:]))
                cell[layer] = new if running == len(c) else torch.cat((new, c[running:]))
            outputs.append(value)
        y = torch.stack(outputs) if batch_sizes is None else torch.cat(outputs)
        return y, (torch.stack(hidden), torch.stack(cell))


def persistent(
    x: Tensor,
    state: State,
    cells: Cells,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
    beside: int = 1,
    side: torch.cuda.Stream | None = None,
) -> tuple[Tensor, State]:
    """Compute `fused` by one persistent kernel a cell (`multigpu.kernels`), or by the library where
    that kernel cannot run.

    It reads the variables as they are, float32 under autocast, and gives their gradients in that
    type. Of (T, B, units) it also takes
    lengths: (B,) int32 beside x, where not all sentences end at T; outputs behind are 0.
    beside: how many such stacks run at once, this one counted. side: a stream for the gradients of
        the kernels in backward.
    """
    if library_instead(x.device) is not None:
        assert lengths is None, "the library plans with lengths on the host"
        return fused(x, state, cells, batch_sizes)
    kind = arithmetic_type(x)
    exact = exact_type(kind)
    with torch.autocast(x.device.type, enabled=False):
        value, places = x.to(kind), None
        if batch_sizes is not None:
            # (T, B): sentences are sorted
            running = torch.arange(int(batch_sizes[0])) < batch_sizes[:, None]
            counts = to_device(
                torch.cat((running.flatten().nonzero()[:, 0], running.sum(0))), x.device
            )
            places, lengths = counts[: len(x)], counts[len(x) :].int()
            value = (
                value.new_zeros(running.numel(), x.shape[1])
                .index_copy(0, places, value)
                .view(*running.shape, x.shape[1])
            )
        hidden, cell = [], []
        for h, c, kernel, bias in zip(*state, cells.kernels, cells.biases, strict=True):
            shifts = bias.to(exact), cells.forget_bias.to(exact)
            states = h.to(kind), c.to(exact)
            taken = dropped(value, cells.dropout)
            value, h, c = lstm_layer(
                taken, *states, kernel.to(exact), shifts, lengths, beside, side
            )
            hidden.append(h)
            cell.append(c.to(kind))
        y = value if places is None else value.flatten(0, 1).index_select(0, places)
        return y, (torch.stack(hidden), torch.stack(cell))


@dataclass(frozen=True)
class Packing:
    """Where each word of a ragged batch stands once sentences are sorted by length and padding is
    left out; on the device but batch_sizes.
    forwards, backwards: (words,) positions t x B + b in (T, B), from each sentence's first or last
        word. unsort: (B,) undoes the sorting.
    """

    forwards: Tensor
    backwards: Tensor
    unsort: Tensor
    batch_sizes: Tensor


def pack(lengths: Tensor, device: torch.device) -> Packing:
    """The packing, on `device`, of sentences of these lengths, (B,) int64 >= 1 on the host."""
    batch = len(lengths)
    order = lengths.argsort(descending=True, stable=True)
    left = lengths[order]  # (B,)
    step = torch.arange(int(left[0]), device="cpu")[:, None]  # (T, 1)
    running = step < left  # (T, B)
    forwards = (step * batch + order)[running]
    backwards = ((left - 1 - step) * batch + order)[running]
    words = len(forwards)
    # one copy instead of three
    places = to_device(torch.cat((forwards, backwards, order.argsort())), device)
    return Packing(places[:words], places[words : 2 * words], places[2 * words :], running.sum(1))
