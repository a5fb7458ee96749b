"""Why the mean of shards' gradients is not the global batch's, where it is not: found by cutting
one batch in halves, those that differ most in what a loss may leave out.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np

from multigpu.spec.errors import JobError

Gradients = dict[str, Any]
"""Arrays, or the library's tensors wherever they are, by variable; None: it has none."""

Step = Callable[[list[np.ndarray]], tuple[float, Gradients]]

ALIKE = 1e-6  # of the larger: gradients so near are one
MOST_ORDERS = 4

REFERENCE = (
    "placements are compared with one process that takes the shards one after the other, as they"
    " train"
)


OWN_SHARD = (
    "in every placement a device's samples meet those of its own shard alone, as negatives do (with"
    " micro-steps, of its own part)"
)
"""Of a loss that compares samples."""


class Gram(NamedTuple):
    """Products of the global batch's gradient J and the halves' A and B, over all parameters."""

    jj: float
    aa: float
    bb: float
    ab: float
    ja: float
    jb: float

    def apart(self, a: float, b: float) -> float:
        """How far J is from a A + b B, relative to J."""
        square = (
            self.jj
            + a * a * self.aa
            + b * b * self.bb
            + 2 * (a * b * self.ab - a * self.ja - b * self.jb)
        )
        whole = max(self.jj, self.aa, self.bb)
        return float((max(0.0, square) / whole) ** 0.5) if whole else 0.0

    def share(self) -> float:
        """The a for which a A + (1 - a) B is nearest to J."""
        difference = self.aa - 2 * self.ab + self.bb
        return (self.ja - self.jb - self.ab + self.bb) / difference if difference > 0 else 0.5


def inner(one: Any, other: Any) -> float:
    """The real part of an inner product, on the device that holds both."""
    if isinstance(one, np.ndarray):
        return float(np.vdot(one, other).real)
    return float(one.flatten().vdot(other.flatten()).real)


def gram(joined: Gradients, first: Gradients, second: Gradients) -> Gram:
    """All products; a gradient that is missing is zero."""

    def product(one: Gradients, other: Gradients) -> float:
        total = 0.0
        for name, gradient in one.items():
            if gradient is not None and (against := other[name]) is not None:
                total += inner(gradient, against)
        return total

    return Gram(
        product(joined, joined),
        product(first, first),
        product(second, second),
        product(first, second),
        product(joined, first),
        product(joined, second),
    )


def left_out(array: np.ndarray) -> np.ndarray | None:
    """Of each sample, how much of it may be left out of a loss: the value that stands most often in
    whole numbers (padding, a label that is ignored), zero in others, a length itself. None: alike.
    """
    flat = array.reshape(len(array), -1)
    if array.ndim == 1:
        counts = flat[:, 0] if array.dtype.kind in "iu" else None
    elif array.dtype.kind in "iub":
        values, times = np.unique(flat, return_counts=True)
        counts = (flat == values[times.argmax()]).sum(1)
    else:
        counts = (flat == 0).sum(1)
    return None if counts is None or counts.min() == counts.max() else counts


def orders(arrays: list[np.ndarray], rows: int) -> Iterator[list[np.ndarray]]:
    """Give the orders in which to cut so many samples into halves: as they come; every other one;
    and for each tensor with padding, those that are padded least before those padded most.

    Each is a list, of which the first that has a loss in both halves counts: where labels of a half
    are all ignored, a half with a single sample of the other kind is tried.
    """
    yield [first := np.arange(rows)]
    yield [np.concatenate([first[::2], first[1::2]])]
    met = 1
    for array in arrays:
        counts = left_out(array)
        if counts is None or met == MOST_ORDERS:
            continue
        met += 1
        order = np.argsort(counts, kind="stable")
        yield [
            np.concatenate([order[:least], order[least - rows :]])
            for least in (rows // 2, 1, rows - 1)
        ]


def halves(step: Step, arrays: list[np.ndarray]) -> tuple[Gram, list[float]]:
    """The products of gradients of a batch and of its halves, and the three losses."""
    middle = len(arrays[0]) // 2
    batches = [arrays, [array[:middle] for array in arrays], [array[middle:] for array in arrays]]
    tried = [step(batch) for batch in batches]
    joined, first, second = (gradients for _, gradients in tried)
    return gram(joined, first, second), [loss for loss, _ in tried]


def is_mean(found: Gram, losses: list[float], share: float = 0.5, alike: float = ALIKE) -> bool:
    """Whether the global batch's gradient and loss are the halves', weighed by their shares."""
    joined, first, second = losses
    apart = abs(joined - share * first - (1 - share) * second)
    return found.apart(share, 1 - share) <= alike and apart <= alike * max(map(abs, losses))


def told(found: Gram, losses: list[float], alike: float) -> str:
    """Say what two halves tell of a loss that is no mean over samples."""
    share = found.share()
    if found.apart(1, 1) <= alike:
        return (
            "the loss is a sum over samples and not their mean: devices' gradients are averaged, so"
            " several devices train with one device's step and not with the global batch's, here as"
            " in plain DistributedDataParallel; divide the loss by the samples, or multiply the"
            f" rate by the devices; {REFERENCE}"
        )
    if 0 <= share <= 1 and is_mean(found, losses, share, alike):
        return (
            "the loss is a mean over what samples have unequally much of, such as tokens or valid"
            f" positions (two halves of one batch count {share:.2f} and {1 - share:.2f}): devices'"
            " gradients are averaged alike, so a shard with few tokens counts as much as one with"
            " many, here as in plain DistributedDataParallel; multiply each device's loss by its"
            " tokens x devices / the tokens of all devices to train what one process on the global"
            f" batch does; {REFERENCE}"
        )
    return (
        "the mean of shards' gradients is not the global batch's: the loss, or a layer, looks at"
        " several samples together, as contrastive losses do, or is no mean over samples;"
        f" {OWN_SHARD}; {REFERENCE}"
    )


def unequal(
    step: Step, arrays: list[np.ndarray], rows: int, alike: float
) -> tuple[Gram, list[float]] | None:
    """Of the first batch whose halves do not make up the whole, what these gave; None: all do. The
    first ones must compute, else a JobError; others may have nothing to learn from.
    """
    for place, alternatives in enumerate(orders(arrays, rows)):
        for order in alternatives:
            with suppress(JobError) if place else nullcontext():
                found = halves(step, [array[order] for array in arrays])
                if not is_mean(*found, alike=alike):
                    return found
                break
    return None


def note_of(
    step: Step,
    arrays: list[np.ndarray],
    rows: int,
    without_norms: AbstractContextManager[bool],
    alike: float = ALIKE,
) -> str:
    """Why what is trained depends on how a batch is shared out; "" where it does not.

    Args:
        step: a batch's loss and gradients. arrays: a whole batch; rows: an even number of its
            samples, of which a batch to cut is made. alike: how far apart gradients of one
            computation may be, relative to the larger.
        without_norms: inside, batch norm uses what it has learned and not the batch; what it gives
            tells whether there is one.
    """
    found = unequal(step, arrays, rows, alike)
    if found is None:
        return ""
    with without_norms as is_there:
        if not is_there:
            return told(*found, alike)
        if (found := unequal(step, arrays, rows, alike)) is not None:
            return told(*found, alike)
    return (
        "batch norm takes its means from each device's own shard, here as in plain"
        f" DistributedDataParallel, so the global batch trains otherwise; {REFERENCE}"
    )
