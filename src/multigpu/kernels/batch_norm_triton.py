"""Batch norm's kernels in Triton, over a matrix of rows (an image's pixels) and channels that lies
in memory row by row.

Two passes forward, two backward: each first pass adds up a program's share of the rows, and the
last program to finish with some channels puts the shares together, always in one order. Whose share
is last is counted in `arrivals`, which is 0 again when it has been found. EARLY: the second pass is
launched while the last programs of the first are at work, and waits for what they write.
"""

# mypy: disable-error-code="no-untyped-def"
# a kernel's arguments are pointers and numbers of the GPU, of which Python's types say nothing

from __future__ import annotations

import triton
import triton.language as tl

COUNTS = ("rows", "tiles", "shares")
"""Of which each shape of images has its own: one kernel serves all of them."""


@triton.jit
def normalised(apart, scale, bias, after, RELU: tl.constexpr, kind: tl.constexpr):
    """Normalise, given how far x is apart from the mean: rounded before it is compared, as the
    library does.
    """
    z = apart * scale + bias + after
    if RELU:
        z = tl.where(z < 0.0, 0.0, z)  # no number stays none
    return z.to(kind)


@triton.jit
def whose(channels, CHANNELS: tl.constexpr):
    """Return a program's block of channels, its share of the rows, its channels, and which of
    them there are: programs beside each other share rows.
    """
    blocks = tl.cdiv(channels, CHANNELS)
    program = tl.program_id(0)
    channel = program % blocks * CHANNELS + tl.arange(0, CHANNELS)
    return program % blocks, program // blocks, channel, channel < channels


@triton.jit
def vectors(weight, bias, mean, inverse, channel, inside):
    """Mean, inverse deviation, scale and shift of some channels, as rows."""
    m, i = tl.load(mean + channel, inside)[None, :], tl.load(inverse + channel, inside)[None, :]
    return (
        m,
        i,
        tl.load(weight + channel, inside)[None, :],
        tl.load(bias + channel, inside)[None, :],
    )


@triton.jit(do_not_specialize=COUNTS)
def moments(
    x,
    means,
    squares,
    arrivals,
    running_mean,
    running_var,
    mean_out,
    inverse_out,
    rows,
    channels,
    tiles,
    shares,
    momentum,
    epsilon,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PART: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Each channel's mean and inverse deviation, and the running statistics moved towards them.

    A share is a mean and a sum of squares around it; its numbers are taken relative to its first
    one, and means relative to the first share's, so that nothing cancels.
    """
    block, share, channel, inside = whose(channels, CHANNELS)
    first = share.to(tl.int64) * tiles * ROWS
    count = tl.minimum(rows - first, tiles * ROWS).to(tl.int32)
    x += first * channels
    shift = tl.load(x + channel, inside, other=0.0).to(tl.float32)
    row = tl.arange(0, ROWS)
    place = row[:, None] * channels + channel[None, :]
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    square = tl.zeros((ROWS, CHANNELS), tl.float32)
    for tile in tl.range(tl.cdiv(count, ROWS), num_stages=STAGES):
        some = (row < count - tile * ROWS)[:, None] & inside[None, :]
        value = tl.load(x + tile * ROWS * channels + place, some, other=0.0).to(tl.float32)
        value = tl.where(some, value - shift[None, :], 0.0)
        total += value
        square += value * value
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    off = tl.sum(total, 0)
    tl.store(means + share * channels + channel, shift + off / count, inside)
    tl.store(squares + share * channels + channel, tl.sum(square, 0) - off * off / count, inside)
    tl.debug_barrier()  # all threads have written before one of them counts
    if tl.atomic_add(arrivals + block, 1) == shares - 1:
        near = tl.load(means + channel, inside, other=0.0, cache_modifier=".cg")
        apart = tl.zeros((PART, CHANNELS), tl.float32)
        spread = tl.zeros((PART, CHANNELS), tl.float32)
        for part in range(tl.cdiv(shares, PART)):
            each = part * PART + tl.arange(0, PART)
            there = (each < shares)[:, None] & inside[None, :]
            all_of = each[:, None] * channels + channel[None, :]
            counts = tl.minimum(rows - each * tiles * ROWS, tiles * ROWS).to(tl.float32)[:, None]
            distance = (
                tl.load(means + all_of, there, other=0.0, cache_modifier=".cg") - near[None, :]
            )
            inner = tl.load(squares + all_of, there, other=0.0, cache_modifier=".cg")
            apart += tl.where(there, counts * distance, 0.0)
            spread += tl.where(there, inner + counts * distance * distance, 0.0)
        distance = tl.sum(apart, 0) / rows
        mean = near + distance
        variance = tl.sum(spread, 0) / rows - distance * distance
        variance = tl.where(variance < 0.0, 0.0, variance)
        tl.store(mean_out + channel, mean, inside)
        tl.store(inverse_out + channel, 1.0 / tl.sqrt(variance + epsilon), inside)
        old_mean = tl.load(running_mean + channel, inside)
        old_var = tl.load(running_var + channel, inside)
        tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), inside)
        tl.store(
            running_var + channel,
            old_var + momentum * (variance * rows / (rows - 1.0) - old_var),
            inside,
        )
        tl.store(arrivals + block, 0)


@triton.jit(do_not_specialize=COUNTS)
def normalise(
    x,
    after,
    weight,
    bias,
    mean,
    inverse,
    y,
    rows,
    channels,
    tiles,
    RELU: tl.constexpr,
    AFTER: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Result from x, last rows first: those are still in the cache."""
    _, share, channel, inside = whose(channels, CHANNELS)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    m, i, w, b = vectors(weight, bias, mean, inverse, channel, inside)
    first = (tl.cdiv(rows, tiles * ROWS) - 1 - share).to(tl.int64) * tiles * ROWS
    row = tl.arange(0, ROWS)
    place = row[:, None] * channels + channel[None, :]
    for tile in range(tiles):
        start = first + tile * ROWS
        here = start * channels
        some = (row < rows - start)[:, None] & inside[None, :]
        more = 0.0
        if AFTER:
            more = tl.load(after + here + place, some, other=0.0).to(tl.float32)
        value = tl.load(x + here + place, some, other=0.0).to(tl.float32)
        tl.store(
            y + here + place, normalised(value - m, i * w, b, more, RELU, y.dtype.element_ty), some
        )


@triton.jit
def normalise_pool(
    x,
    weight,
    bias,
    mean,
    inverse,
    y,
    taps,
    outputs,
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
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The largest of each window of what `normalise` would write, and in `taps` which of the
    window's places that is (the first).
    """
    _, share, channel, inside = whose(channels, CHANNELS)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    m, i, w, b = vectors(weight, bias, mean, inverse, channel, inside)
    output = (tl.cdiv(outputs, ROWS) - 1 - share) * ROWS + tl.arange(0, ROWS)
    column = output % wide * STRIDE - LEFT
    line = output // wide % high * STRIDE - TOP
    image = output // (wide * high) * height
    best = tl.full((ROWS, CHANNELS), float("-inf"), tl.float32)
    tap = tl.zeros((ROWS, CHANNELS), tl.int32)
    for down in tl.static_range(DOWN):
        for across in tl.static_range(ACROSS):
            r, c = line + down, column + across
            some = ((output < outputs) & (r >= 0) & (r < height) & (c >= 0) & (c < width))[
                :, None
            ] & inside[None, :]
            place = ((image + r) * width + c)[:, None] * channels + channel[None, :]
            value = tl.load(x + place, some, other=0.0).to(tl.float32)
            value = normalised(value - m, i * w, b, 0.0, RELU, y.dtype.element_ty).to(tl.float32)
            better = some & ((value > best) | (value != value))
            best = tl.where(better, value, best)
            tap = tl.where(better, down * ACROSS + across, tap)
    some = (output < outputs)[:, None] & inside[None, :]
    place = output[:, None] * channels + channel[None, :]
    tl.store(y + place, best.to(y.dtype.element_ty), some)
    tl.store(taps + place, tap.to(tl.uint8), some)
