"""Batch norm's backward kernels in Triton; see `batch_norm_triton`."""

# mypy: disable-error-code="no-untyped-def"
# a kernel's arguments are pointers and numbers of the GPU, of which Python's types say nothing

from __future__ import annotations

import triton
import triton.language as tl

from multigpu.kernels.batch_norm_triton import COUNTS, normalised, vectors, whose


@triton.jit
def incoming(
    dy,
    taps,
    start,
    row,
    place,
    channel,
    some,
    channels,
    height,
    width,
    high,
    wide,
    STRIDE: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    POOL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of a tile of outputs; of those that were pooled, the sum over all windows whose
    largest each is.
    """
    if POOL:
        pixel = start.to(tl.int32) + row
        r, c = pixel // width % height + TOP, pixel % width + LEFT
        image = pixel // (height * width) * high
        found = tl.zeros((ROWS, CHANNELS), tl.float32)
        for above in tl.static_range((DOWN + STRIDE - 1) // STRIDE):
            for before in tl.static_range((ACROSS + STRIDE - 1) // STRIDE):
                line, column = r // STRIDE - above, c // STRIDE - before
                down, across = r - line * STRIDE, c - column * STRIDE
                fits = (
                    (line >= 0)
                    & (line < high)
                    & (column >= 0)
                    & (column < wide)
                    & (down < DOWN)
                    & (across < ACROSS)
                )
                there = fits[:, None] & some
                window = ((image + line) * wide + column)[:, None] * channels + channel[None, :]
                tap = tl.load(taps + window, there, other=255).to(tl.int32)
                mine = there & (tap == (down * ACROSS + across)[:, None])
                found += tl.where(mine, tl.load(dy + window, there, other=0.0).to(tl.float32), 0.0)
        return found
    else:
        return tl.load(dy + start * channels + place, some, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=COUNTS)
def gradient_sums(
    dy,
    more,
    x,
    y,
    weight,
    bias,
    mean,
    inverse,
    taps,
    dz,
    partial,
    arrivals,
    dweight,
    dbias,
    rows,
    channels,
    tiles,
    shares,
    height,
    width,
    high,
    wide,
    STRIDE: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    RELU: tl.constexpr,
    AFTER: tl.constexpr,
    MORE: tl.constexpr,
    POOL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PART: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The gradients of weight and bias; in `dz`, where something was added (AFTER), the gradient of
    that sum.
    """
    block, share, channel, inside = whose(channels, CHANNELS)
    m, i, w, b = vectors(weight, bias, mean, inverse, channel, inside)
    row = tl.arange(0, ROWS)
    place = row[:, None] * channels + channel[None, :]
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    product = tl.zeros((ROWS, CHANNELS), tl.float32)
    first = share.to(tl.int64) * tiles * ROWS
    for tile in tl.range(tiles, num_stages=STAGES):
        start = first + tile * ROWS
        here = start * channels
        some = (row < rows - start)[:, None] & inside[None, :]
        value = tl.load(x + here + place, some, other=0.0).to(tl.float32)
        gradient = incoming(
            dy,
            taps,
            start,
            row,
            place,
            channel,
            some,
            channels,
            height,
            width,
            high,
            wide,
            STRIDE,
            TOP,
            LEFT,
            DOWN,
            ACROSS,
            POOL,
            ROWS,
            CHANNELS,
        )
        if MORE:
            gradient += tl.load(more + here + place, some, other=0.0).to(tl.float32)
        if RELU:
            if AFTER:
                out = tl.load(y + here + place, some, other=0.0).to(tl.float32)
            else:
                out = normalised(value - m, i * w, b, 0.0, False, x.dtype.element_ty).to(tl.float32)
            gradient = tl.where(out <= 0.0, 0.0, gradient)
        if AFTER:
            rounded = gradient.to(dz.dtype.element_ty)
            tl.store(dz + here + place, rounded, some)
            gradient = rounded.to(tl.float32)
        total += gradient
        product += gradient * (value - m)
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    own = partial + share * channels + channel
    tl.store(own, tl.sum(total, 0), inside)
    tl.store(
        own + shares * channels, tl.sum(product, 0) * tl.load(inverse + channel, inside), inside
    )
    tl.debug_barrier()
    if tl.atomic_add(arrivals + block, 1) == shares - 1:
        total_of = tl.zeros((PART, CHANNELS), tl.float32)
        product_of = tl.zeros((PART, CHANNELS), tl.float32)
        for part in range(tl.cdiv(shares, PART)):
            each = part * PART + tl.arange(0, PART)
            there = (each < shares)[:, None] & inside[None, :]
            all_of = partial + each[:, None] * channels + channel[None, :]
            total_of += tl.load(all_of, there, other=0.0, cache_modifier=".cg")
            product_of += tl.load(
                all_of + shares * channels, there, other=0.0, cache_modifier=".cg"
            )
        tl.store(dbias + channel, tl.sum(total_of, 0), inside)
        tl.store(dweight + channel, tl.sum(product_of, 0), inside)
        tl.store(arrivals + block, 0)


@triton.jit(do_not_specialize=COUNTS)
def gradients(
    dy,
    x,
    weight,
    bias,
    mean,
    inverse,
    taps,
    dweight,
    dbias,
    dx,
    rows,
    channels,
    tiles,
    height,
    width,
    high,
    wide,
    STRIDE: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
    RELU: tl.constexpr,
    POOL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Gradient of x from that of the outputs and its sums, last rows first; RELU: whether that
    gradient must be masked first.
    """
    _, share, channel, inside = whose(channels, CHANNELS)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    m, i, w, b = vectors(weight, bias, mean, inverse, channel, inside)
    total = tl.load(dbias + channel, inside)[None, :] / rows
    product = tl.load(dweight + channel, inside)[None, :] / rows
    first = (tl.cdiv(rows, tiles * ROWS) - 1 - share).to(tl.int64) * tiles * ROWS
    row = tl.arange(0, ROWS)
    place = row[:, None] * channels + channel[None, :]
    for tile in range(tiles):
        start = first + tile * ROWS
        here = start * channels
        some = (row < rows - start)[:, None] & inside[None, :]
        value = tl.load(x + here + place, some, other=0.0).to(tl.float32)
        gradient = incoming(
            dy,
            taps,
            start,
            row,
            place,
            channel,
            some,
            channels,
            height,
            width,
            high,
            wide,
            STRIDE,
            TOP,
            LEFT,
            DOWN,
            ACROSS,
            POOL,
            ROWS,
            CHANNELS,
        )
        if RELU:
            out = normalised(value - m, i * w, b, 0.0, False, x.dtype.element_ty).to(tl.float32)
            gradient = tl.where(out <= 0.0, 0.0, gradient)
        found = w * i * (gradient - total - (value - m) * i * product)
        tl.store(dx + here + place, found.to(dx.dtype.element_ty), some)
