"""Inputs of the transformers: sequences of tokens, of which each is to be told from those before
it.

Whatever makes a Source here raises ValueError, one sentence, where the Run names files or asks for
what the input has not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.files import ParallelText, fingerprint, no_files
from multigpu.inputs.pieces import (
    PIECES,
    SELECTIONS,
    Pieces,
    catalog_rows,
    committed_corpus,
    split_catalogs,
)
from multigpu.inputs.plans import Epochs, filled_up
from multigpu.inputs.sentences import EOS
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run

LAW_VERSION = 1
"""Enters every fingerprint: raise it when the same seed or corpus comes to give other batches."""


def length_of(run: Run, model: Model) -> int:
    """Return the tokens of every sequence: as many as the model can read where none are named."""
    return run.sequence_length or int(model.config.context)


def token_batch(rank: int, sizes: Sequence[int], drawn: np.ndarray) -> Batch:
    """Make a shard of sequences (rows, T + 1), int64: the first T are read, the last T are to be
    told; each of these is a unit and a term of the loss.
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
    """Tokens drawn evenly from the whole vocabulary by (seed, rank); one batch a shard."""

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


@dataclass(frozen=True)
class TokenStream:
    """The committed corpus as one row of pieces: each pair's English, an end, its German, an end.
    training, held_out: (tokens,) int32, of the catalogs that train and of the others.
    """

    training: np.ndarray
    held_out: np.ndarray
    fingerprint: str


@lru_cache(maxsize=4)
def read_stream(text: ParallelText, content: str, entries: int, package: str | None) -> TokenStream:
    """Read the corpus in at most `entries` shared pieces, once a process. content: its files'."""
    sources, targets = list(text.source.sentences()), list(text.target.sentences())
    kept, left, catalogs = split_catalogs(catalog_rows(), sources, targets, package)
    pieces = Pieces([side[line] for line in kept for side in (sources, targets)], entries)

    def joined(lines: Sequence[int]) -> np.ndarray:
        sentences = (side[line] for line in lines for side in (sources, targets))
        numbers = [number for each in sentences for number in (*pieces.encode(each), EOS)]
        return np.array(numbers, dtype=np.int32)

    return TokenStream(
        training=joined(kept),
        held_out=joined(left),
        fingerprint=fingerprint(
            LAW_VERSION, content, pieces.fingerprint, f"held out {', '.join(catalogs)}"
        ),
    )


def windows(stream: np.ndarray, length: int) -> np.ndarray:
    """Cut (count, length + 1) tokens, each beginning with the last one before."""
    return np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]


class StreamTokens(Epochs):
    """Stretches of one row of tokens, in its own order or in one drawn for each epoch."""

    def __init__(self, run: Run, label: str, stream: TokenStream, length: int) -> None:
        if min(len(stream.training), len(stream.held_out)) <= length:
            raise ValueError(
                f"sequence_length {length} is longer than what {run.inputs!r} holds, where"
                f" {len(stream.held_out)} tokens are held out: choose a shorter one"
            )
        self.label = label + (", shuffled" if run.shuffle else "")
        self.in_order = not run.shuffle
        self._windows = windows(stream.training, length)
        self._held_out = windows(stream.held_out, length)
        super().__init__(run, len(self._windows), "sequences")
        order = (f"shuffled by {run.seed}",) if run.shuffle else ()
        self.fingerprint = fingerprint(stream.fingerprint, length, *order)

    def plan(self, epoch: int) -> np.ndarray:
        if self.in_order:
            return filled_up(np.arange(self.count), self._joined)
        return super().plan(epoch)

    def batch(self, step: int, rank: int) -> Batch:
        drawn = self._windows[self.items(step, rank)].astype(np.int64)
        return token_batch(rank, self._sizes, drawn)

    def held_out(self) -> np.ndarray:
        """Return the sequences that training never sees, (count, T + 1), int32."""
        return self._held_out


def pieces(run: Run, model: Model) -> StreamTokens:
    """Read the committed corpus without its held-out catalogs, English and German by turns, in as
    many pieces as the model has entries, at most 8,000. `run.inputs` names whose catalogs.
    """
    no_files(run)
    text, content = committed_corpus()
    package = SELECTIONS[run.inputs].package
    stream = read_stream(text, content, min(PIECES, int(model.config.vocabulary)), package)
    kept = f" of {package}" if package else ""
    return StreamTokens(run, f"en and de catalogs in pieces{kept}", stream, length_of(run, model))
