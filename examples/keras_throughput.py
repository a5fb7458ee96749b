"""A callback for Keras: the throughput of each batch of `model.fit`, warm-up left out and a short
last batch counted as what it holds, as document 001's scripts printed it. Copy this file beside
your script.
"""

import time
from collections.abc import Callable
from typing import Any

import keras

Clock = Callable[[], float]


class ThroughputCallback(keras.callbacks.Callback):
    """Samples a second of every training batch, and of all batches after the warm-up together.

    `batches` holds (samples, seconds, whether warm-up) of every batch; the time between epochs
    (validation, shuffling) is in none. Keras reads each batch's loss before it says that the batch
    has ended, so a device's work is in its batch's time; with `steps_per_execution` above 1 it says
    so once for several batches, which then share one entry.

    Args:
        batch_size: samples of a full batch, of all replicas together.
        samples: samples of an epoch, so that a short last batch counts what it holds; None if every
            batch is full.
        warmup_batches: the first batches of the whole training, which are kept but never enter
            `samples_per_s`.

    Raises:
        ValueError: a number is not positive, or an epoch has more batches than `samples` fill.
    """

    def __init__(
        self,
        batch_size: int,
        samples: int | None = None,
        warmup_batches: int = 10,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__()
        if batch_size < 1 or (samples is not None and samples < 1) or warmup_batches < 0:
            raise ValueError(
                f"batch_size {batch_size}, samples {samples} and warmup_batches {warmup_batches}"
                " must be positive"
            )
        self.batch_size = batch_size
        self.samples = samples
        self.warmup_batches = warmup_batches
        self.clock = clock
        self.batches: list[tuple[int, float, bool]] = []
        self._began, self._first = 0.0, 0

    @property
    def samples_per_s(self) -> float:
        """Samples over seconds of all batches after the warm-up; NaN before there is one."""
        counted = [(samples, seconds) for samples, seconds, warming in self.batches if not warming]
        if counted:
            return sum(n for n, _ in counted) / sum(s for _, s in counted)
        return float("nan")

    @property
    def batch_samples_per_s(self) -> list[float]:
        """The rate of each batch, warm-up included."""
        return [samples / seconds for samples, seconds, _ in self.batches]

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._began, self._first = self.clock(), batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """`batch` is the last of those that were executed together."""
        seconds = self.clock() - self._began
        start, end = self._first * self.batch_size, (batch + 1) * self.batch_size
        if self.samples is not None:
            end = min(end, self.samples)
        if end <= start:
            raise ValueError(
                f"batch {batch} begins after sample {start}: the epoch was said to have"
                f" {self.samples}"
            )
        self.batches.append((end - start, seconds, len(self.batches) < self.warmup_batches))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the throughput so far among the epoch's logs, so that Keras prints and keeps it."""
        if logs is not None:
            logs["samples_per_s"] = self.samples_per_s
