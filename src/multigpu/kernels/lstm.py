"""An LSTM layer as PyTorch operators: `torch.ops.multigpu.lstm` and its backward pass, written out
for CPUs, as persistent kernels (`lstm.cu`) on GPUs that have thread block clusters of 16. Shapes: T
positions, B sentences, n units; gates interleaved by unit, i g f o: (T, B, 4 n). The exact type is
float32 where `x` has 16 bits, and `x`'s own where it has more.
"""

from typing import Any

import torch
from torch import Tensor

from multigpu.kernels import lstm_launch

UNITS = 512  # what the GPU's kernels hold in registers

ENDED = 32768.0  # far enough out that a sigmoid of it is exactly 1, of its negative exactly 0


def exact_type(dtype: torch.dtype) -> torch.dtype:
    """The type of cells and of variables beside arithmetic in `dtype`."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def interleave(weight: Tensor) -> Tensor:
    """Rows in the order i f g o, (4 n, ...), to those of one unit together, i g f o."""
    n = len(weight) // 4
    return weight.reshape(2, 2, n, -1).permute(2, 1, 0, 3).reshape(weight.shape)


def by_gate(weight: Tensor) -> Tensor:
    """Undo `interleave` (a view where it can be)."""
    n = len(weight) // 4
    return weight.reshape(n, 2, 2, -1).permute(2, 1, 0, 3).reshape(weight.shape)


def check_arguments(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    kernel: Tensor,
    biases: tuple[Tensor, Tensor],
    lengths: Tensor | None,
) -> None:
    """Raises ValueError where shapes or types do not fit."""
    if x.dim() != 3 or not len(x) or not x.shape[1]:
        raise ValueError(
            f"x is {tuple(x.shape)}: the LSTM takes (positions, sentences, units), none of them 0"
        )
    batch, n = x.shape[1:]
    exact = exact_type(x.dtype)
    wanted = {
        "h0": (h0, (batch, n), x.dtype),
        "c0": (c0, (batch, n), exact),
        "kernel": (kernel, (2, 4 * n, n), exact),
    }
    wanted |= {
        name: (bias, (4 * n,), exact)
        for name, bias in zip(("bias", "more_bias"), biases, strict=True)
    }
    if lengths is not None:
        wanted["lengths"] = lengths, (batch,), torch.int32
    for name, (tensor, shape, dtype) in wanted.items():
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)}: it must be {dtype} {shape} beside"
                f" x {tuple(x.shape)}"
            )
    if x.is_cuda and (n != UNITS or x.dtype != torch.bfloat16):
        raise ValueError(
            f"the persistent LSTM on GPUs has {UNITS} units and computes in bfloat16, not {n} in"
            f" {x.dtype}"
        )


@torch.library.custom_op("multigpu::lstm", mutates_args=())
def lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    kernel: Tensor,
    bias: Tensor,
    more_bias: Tensor,
    lengths: Tensor | None,
    beside: int,
    products: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One layer over all positions.

    x: (T, B, n). h0, c0: (B, n), the second in the exact type, as the next three are.
    kernel: (2, 4 n, n), of inputs and of outputs, gates in the order i f g o. bias, more_bias: (4
        n,), added up.
    lengths: (B,) int32 on x's device, each from 1 to T: where each sentence ends; None: all at T.
    beside: how many such layers run at once on other streams, this one counted: they share the GPU.
    products: (T, B, 4 n), never read: takes the gradient of the gates' products in place of
        `kernel`, which then gets none (`lstm_layer`).

    Returns y (T, B, n), zeros behind a sentence's end; h and c (B, n) at each sentence's end; and
    what the backward pass needs: gates (T, B, 4 n), cells (T + 1, B, n), packed (2, 4 n, n).
    """
    check_arguments(x, h0, c0, kernel, (bias, more_bias), lengths)
    with torch.autocast(x.device.type, enabled=False):
        # kernels read memory as it lies
        x, h0, c0, kernel, bias, more_bias = (
            value.contiguous() for value in (x, h0, c0, kernel, bias, more_bias)
        )
        run = lstm_launch.forward if x.is_cuda else _forward
        lengths = None if lengths is None else lengths.contiguous()
        y, c, gates, cells, packed = run(x, h0, c0, kernel, bias, more_bias, lengths, beside)
        return y, _last(y, lengths), c, gates, cells, packed


@lstm.register_fake
def _(
    x: Tensor, h0: Tensor, c0: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    positions, batch, n = x.shape
    y = x.new_empty(x.shape)
    gates = x.new_empty(positions, batch, 4 * n)
    cells = x.new_empty(positions + 1, batch, n)
    return y, x.new_empty(batch, n), c0.new_empty(batch, n), gates, cells, x.new_empty(2, 4 * n, n)


@torch.library.custom_op("multigpu::lstm_backward", mutates_args=())
def lstm_backward(
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
    gates: Tensor,
    cells: Tensor,
    packed: Tensor,
    lengths: Tensor | None,
    beside: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of `lstm` for its first three results': of the products (T, B, 4 n), x, h0, and, in
    the exact type, c0 and bias.
    """
    with torch.autocast(gates.device.type, enabled=False):
        dy, dh, dc = dy.to(gates.dtype).contiguous(), dh.to(dc.dtype).contiguous(), dc.contiguous()
        if lengths is not None:  # a sentence's last state is its output at its end
            ends, rows = lengths.long() - 1, torch.arange(len(lengths), device=dy.device)
            dy = dy.clone()
            dy[ends, rows] += dh.to(dy.dtype)
            dh = torch.zeros_like(dh)
        run = lstm_launch.backward if dy.is_cuda else _backward
        dproducts, dh0, dc0, dbias = run(dy, dh, dc, gates, cells, packed, beside)
        dx = (dproducts.flatten(0, 1) @ packed[0]).view_as(dy)
        return dproducts, dx, dh0.to(dy.dtype), dc0, by_gate(dbias)


@lstm_backward.register_fake
def _(
    dy: Tensor, dh: Tensor, dc: Tensor, gates: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, n = dh.shape
    exact = dc.new_empty(batch, n), dc.new_empty(4 * n)
    return (
        gates.new_empty(gates.shape),
        gates.new_empty(dy.shape),
        gates.new_empty(batch, n),
        *exact,
    )


@torch.library.custom_op("multigpu::lstm_kernel_gradient", mutates_args=())
def lstm_kernel_gradient(dproducts: Tensor, x: Tensor, h0: Tensor, y: Tensor) -> Tensor:
    """The gradient of `lstm`'s kernel, (2, 4 n, n) in the exact type, from that of its products."""
    positions, batch, n = x.shape
    with torch.autocast(x.device.type, enabled=False):
        flat = dproducts.view(positions * batch, 4 * n).t()
        before = torch.cat((h0[None], y[:-1]))  # what each position's products took
        found = x.new_empty(2, 4 * n, n, dtype=exact_type(x.dtype))
        for half, values in zip(found, (x, before), strict=True):
            half.view(2, 2, n, n).copy_(
                _product(flat, values.reshape(positions * batch, n))
                .view(n, 2, 2, n)
                .permute(2, 1, 0, 3)
            )
        return found


@lstm_kernel_gradient.register_fake
def _(dproducts: Tensor, x: Tensor, h0: Tensor, y: Tensor) -> Tensor:
    n = x.shape[2]
    return x.new_empty(2, 4 * n, n, dtype=exact_type(x.dtype))


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, h0, c0, _, _, _, lengths, beside, products = inputs
    y, _, _, *kept = output
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, h0, y, *kept, lengths)
    ctx.beside, ctx.exact, ctx.apart = beside, c0.dtype, products is not None


def _differentiate(ctx, dy, dh, dc, *_):  # type: ignore[no-untyped-def]
    x, h0, y, gates, cells, packed, lengths = ctx.saved_tensors
    dy = torch.zeros_like(y) if dy is None else dy
    dh = h0.new_zeros(h0.shape, dtype=ctx.exact) if dh is None else dh
    dc = h0.new_zeros(h0.shape, dtype=ctx.exact) if dc is None else dc
    dproducts, dx, dh0, dc0, dbias = lstm_backward(
        dy, dh, dc, gates, cells, packed, lengths, ctx.beside
    )
    dkernel = lstm_kernel_gradient(dproducts, x, h0, y) if ctx.needs_input_grad[3] else None
    more = dbias.clone() if ctx.needs_input_grad[5] else None
    return dx, dh0, dc0, dkernel, dbias, more, None, None, dproducts if ctx.apart else None


lstm.register_autograd(_differentiate, setup_context=_setup)


def stand_in(lender: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of this shape that is never read: the lender's first number, over and over."""
    return lender.as_strided(shape, (0,) * len(shape))


class KernelApart(torch.autograd.Function):
    """Makes `products` of a kernel: nothing forward; its gradient backward, on its stream."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, uses: list[Tensor], shape: torch.Size) -> Tensor:
        """uses: holds a tensor of the result's type, whose memory is lent to it, and x, h0 and y
        once the layer has run. shape: x's.
        """
        ctx.uses = uses
        return stand_in(uses[0], (*shape[:2], kernel.shape[1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # memory that this stream works on is not to be given away meanwhile
        for use in (*gradients, *ctx.uses):
            use.record_stream(torch.cuda.current_stream(use.device))
        return lstm_kernel_gradient(gradients[0].contiguous(), *ctx.uses), None, None


def lstm_layer(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    kernel: Tensor,
    biases: tuple[Tensor, Tensor],
    lengths: Tensor | None,
    beside: int,
    side: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, h and c of `lstm`. side: a stream for the kernel's gradient; None: in its turn."""
    if side is None or not kernel.requires_grad:
        y, h, c, *_ = lstm(x, h0, c0, kernel, *biases, lengths, beside)
        return y, h, c
    uses = [x.detach()]
    with torch.cuda.stream(side):
        products = KernelApart.apply(kernel, uses, x.shape)
    y, h, c, *_ = lstm(x, h0, c0, kernel.detach(), *biases, lengths, beside, products)
    uses += [h0.detach(), y.detach()]
    return y, h, c


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` with sums left in the exact type."""
    exact = exact_type(a.dtype)
    return torch.mm(a, b, out_dtype=exact) if a.is_cuda else (a @ b).to(exact)


def _last(y: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return y[-1].clone()
    return y[lengths.long() - 1, torch.arange(len(lengths), device=y.device)]


def _forward(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    kernel: Tensor,
    bias: Tensor,
    more_bias: Tensor,
    lengths: Tensor | None,
    beside: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    positions, batch, n = x.shape
    packed = torch.stack([interleave(half) for half in kernel]).to(x.dtype)
    products = (x @ packed[0].t() + interleave(bias + more_bias).to(x.dtype)).view(
        positions, batch, n, 4
    )
    if lengths is not None:
        ended = torch.arange(positions, device=x.device)[:, None] >= lengths
        products = torch.where(
            ended[..., None, None], products.new_tensor([-ENDED, 0.0, ENDED, -ENDED]), products
        )
    h, c = h0, c0
    gates, cells, outputs = [], [c], []
    for product in products:
        i, g, f, o = (product + (h @ packed[1].t()).view(batch, n, 4)).unbind(-1)
        i, g, f, o = torch.sigmoid(i), torch.tanh(g), torch.sigmoid(f), torch.sigmoid(o)
        c = f * c + i * g
        h = (o * torch.tanh(c)).to(x.dtype)
        gates.append(torch.stack((i, g, f, o), -1).flatten(1))
        cells.append(c)
        outputs.append(h)
    all_gates, all_cells = (torch.stack(each).to(x.dtype) for each in (gates, cells))
    return torch.stack(outputs), c.clone(), all_gates, all_cells, packed


def _backward(
    dy: Tensor, dh: Tensor, dc: Tensor, gates: Tensor, cells: Tensor, packed: Tensor, beside: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the products, (T, B, 4 n), first state and interleaved bias, written out."""
    batch, n = dh.shape
    dgates = []
    for t in reversed(range(len(gates))):
        i, g, f, o = gates[t].view(batch, n, 4).unbind(-1)
        squashed = torch.tanh(cells[t + 1])
        dh = dh + dy[t]
        dc = dc + dh * o * (1 - squashed**2)
        parts = (
            dc * g * i * (1 - i),
            dc * i * (1 - g**2),
            dc * cells[t] * f * (1 - f),
            dh * squashed * o * (1 - o),
        )
        dgates.append(torch.stack(parts, -1).flatten(1).to(gates.dtype))
        dc, dh = dc * f, (dgates[-1] @ packed[1]).to(dc.dtype)
    found = torch.stack(dgates[::-1])
    return found, dh, dc.clone(), found.to(dc.dtype).sum((0, 1))
