"""Inputs of the transformers: sequences of tokens, each to be told the next one.

Whatever makes a Source here raises ValueError, one sentence, where the Run names files or asks for
what the input has not.
"""

from collections.abc import Sequence

import numpy as np

from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.files import fingerprint, no_files
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run

LAW_VERSION = 1
"""Enters every fingerprint: raise it when the same seed or corpus comes to give other batches."""


def length_of(run: Run, model: Model) -> int:
    """Tokens of every sequence: as many as the model can read where the Run names none."""
    return run.sequence_length or int(model.config.context)


def token_batch(rank: int, sizes: Sequence[int], drawn: np.ndarray) -> Batch:
    """A shard of sequences (rows, T + 1): the first T are read, the last T are to be told; each
    token is a unit and a term of the loss.
    """
    length = drawn.shape[1] - 1
    return Batch(
        arrays={
            "tokens": np.ascontiguousarray(drawn[:, :-1]),
            "targets": np.ascontiguousarray(drawn[:, 1:]),
        },
        rank=rank,
        units=sizes[rank] * length,
        padded_units=sizes[rank] * length,
        loss_terms=tuple(size * length for size in sizes),
        lookups=tuple({} for _ in sizes),
    )


class DrawnTokens(Source):
    """Tokens drawn evenly from the whole vocabulary by (seed, rank); one batch a shard, the same in
    every step.
    """

    label = "synthetic"
    period = 1

    def __init__(self, run: Run, model: Model) -> None:
        no_files(run)
        self._sizes, self._seed = shard_sizes(run), run.seed
        self._length, self._entries = length_of(run, model), int(model.config.vocabulary)
        self.fingerprint = fingerprint(LAW_VERSION, "tokens", self._length, self._entries, run.seed)

    def batch(self, step: int, rank: int) -> Batch:
        rng = np.random.default_rng([self._seed, rank])
        shape = (self._sizes[rank], self._length + 1)
        return token_batch(rank, self._sizes, rng.integers(self._entries, size=shape))


def synthetic_tokens(run: Run, model: Model) -> DrawnTokens:
    """Random tokens, `run.sequence_length` in each sequence (default: the model's context)."""
    return DrawnTokens(run, model)
