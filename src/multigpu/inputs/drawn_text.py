"""Inputs of the translation workload that are drawn: synthetic sentences, of one length or of
document 000's lengths.

Whatever makes a Source here raises ValueError, one sentence, where the Run names files, or asks for
what the input has not.

Document 000 met sentences of WMT14 English-German: 47.95 to 49.23 words a pair, source words +
target words + 1 (its own tables: time x words/s / pairs). The law here, which needs no corpus: a
target has t = 1 .. 100 words with probability proportional to t^1.5 exp(-t / 9.5); its source has
any number of words from t - t//4 to t + t//4 with equal probability. So a pair counts 48.37 words,
and the six buckets of targets, min(5, t // 10), hold 15.1, 31.5, 24.8, 14.7, 7.6 and 6.3 percent of
the sentences. That law is a choice with the document's mean and the shape that lengths of sentences
usually have; the document does not print its own.
"""

from functools import lru_cache

import numpy as np

from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.files import fingerprint, no_files
from multigpu.inputs.plans import BUCKETS, bucket_of
from multigpu.inputs.sentences import EOS, SPECIAL, TextShape, capacity_of, text_batch
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run

SYNTHETIC_WORDS = 100
"""Words a side where the Run names none: document 000's Exp5."""
LONGEST = 100
"""Words a side of a corpus and of the law; later ones of a corpus are cut off."""
LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same corpus or law comes to give other batches."""
SHAPE, SCALE = 2.5, 9.5
SPREAD = 4
"""A source is up to 1/SPREAD shorter or longer than its target."""
BLOCKS, BLOCK = 3, 10
PERIOD = BLOCKS * BLOCK
"""Steps after which buckets repeat; 30, because Runs are timed over 30 or 100 steps after 10."""

WORDS = np.arange(1, LONGEST + 1)


def target_probabilities(bucket: int | None = None) -> np.ndarray:
    """Probability of a target of 1 .. 100 words, shape (100,); 0 outside the bucket, if any."""
    weights = WORDS ** (SHAPE - 1) * np.exp(-WORDS / SCALE)
    law = weights / weights.sum()
    return law if bucket is None else np.where(bucket_of(WORDS) == bucket, law, 0)


def bucket_shares() -> np.ndarray:
    """Share of sentences in each bucket, shape (6,)."""
    return np.bincount(bucket_of(WORDS), weights=target_probabilities(), minlength=BUCKETS)


def draw_buckets(rng: np.random.Generator) -> np.ndarray:
    """The bucket of each of PERIOD steps, shape (30,), in a shard's own order: one of each of 30
    strata, of three neighbours in ten steps. Counts of independent draws would wander by a tenth,
    and a comparison over 30 steps would compare luck.
    """
    # which of three neighbours each block takes
    third = rng.permuted(np.tile(np.arange(BLOCKS), (BLOCK, 1)), axis=1)
    # the order of the ten in each block
    tens = np.stack([rng.permutation(BLOCK) for _ in range(BLOCKS)])
    strata = BLOCKS * tens + third[tens, np.arange(BLOCKS)[:, None]]
    return np.searchsorted(
        np.cumsum(bucket_shares())[:-1], (strata.ravel() + 0.5) / PERIOD, side="right"
    )


def mean_words(bucket: int) -> int:
    """The mean length of the bucket's targets (and sources), to the nearest whole word."""
    weights = target_probabilities(bucket)
    return round(float(weights @ WORDS / weights.sum()))


def draw_lengths(rng: np.random.Generator, bucket: int | None, sentences: int) -> np.ndarray:
    """Source and target words of pairs of one bucket (None: all), (2, sentences), int64."""
    cumulative = np.cumsum(target_probabilities(bucket))
    target = np.searchsorted(cumulative / cumulative[-1], rng.random(sentences), side="right") + 1
    slack = target // SPREAD
    source = target - slack + np.floor(rng.random(sentences) * (2 * slack + 1)).astype(np.int64)
    return np.stack([source, target])


def refuse_fields(run: Run, data: bool = False) -> None:
    """Refuse fields that this input does not read."""
    if run.sequence_length is not None and run.batching != "fixed":
        what = (
            f"sequence_length {run.sequence_length} is for inputs 'synthetic' and for batching"
            " 'fixed'"
        )
        raise ValueError(f"{what}: {run.inputs!r} has lengths of its own, leave it out")
    if not data:
        no_files(run)


def fixed_width(run: Run) -> int | None:
    """Words to which both sides are padded and cut under batching "fixed"; otherwise None."""
    return (run.sequence_length or LONGEST) if run.batching == "fixed" else None


def batching_mark(run: Run) -> tuple[object, ...]:
    """Return the part of a fingerprint that stands for batching: nothing for the document's own."""
    return () if run.batching == "own" else (f"batching {run.batching}", fixed_width(run))


def vocabulary_sizes(model: Model) -> tuple[int, int]:
    """Entries of source and target vocabulary, the special ones included."""
    sizes = (int(model.config.source_vocabulary), int(model.config.target_vocabulary))
    if min(sizes) <= len(SPECIAL):
        raise ValueError(
            f"model {model.name!r} has vocabularies of {sizes[0]} and {sizes[1]} entries: each"
            f" needs more than {len(SPECIAL)}"
        )
    return sizes


class DrawnText(Source):
    """Sentences whose lengths a law gives and whose words are drawn evenly from all but the special
    entries, by (seed, step, rank) alone. Under batching "shared" all ranks take the buckets that
    rank 0 draws, under "fixed" every sentence draws its own.
    words: of every sentence and side; None: drawn by the law. means: every sentence has its
        bucket's mean length instead.
    """

    period: int

    def __init__(
        self,
        run: Run,
        model: Model,
        label: str,
        period: int,
        words: int | None,
        means: bool = False,
    ) -> None:
        self.label, self.period = label, period
        self._sizes, self._seed, self._words, self._means = shard_sizes(run), run.seed, words, means
        self._width = fixed_width(run)
        self._vocabularies = vocabulary_sizes(model)
        deciding = [0 if run.batching == "shared" else rank for rank in range(len(self._sizes))]
        self._buckets = [
            draw_buckets(np.random.default_rng([run.seed, rank, 0])) for rank in deciding
        ]
        self._lengths = lru_cache(maxsize=2 * len(self._sizes))(self._draw_lengths)
        self.capacity = capacity_of(shape for step in range(period) for shape in self.shapes(step))
        self.fingerprint = fingerprint(
            LAYOUT_VERSION, label, words, run.seed, *self._vocabularies, *batching_mark(run)
        )

    def _draw_lengths(self, step: int, rank: int) -> np.ndarray:
        sentences = self._sizes[rank]
        if self._words is not None:
            return np.full((2, sentences), self._words)
        bucket = None if self._width else int(self._buckets[rank][step])
        if self._means and bucket is not None:
            return np.full((2, sentences), mean_words(bucket))
        drawn = draw_lengths(np.random.default_rng([self._seed, rank, 1, step]), bucket, sentences)
        return np.minimum(drawn, self._width) if self._width else drawn

    def shapes(self, step: int) -> tuple[TextShape, ...]:
        every = (self._lengths(step % self.period, rank) for rank in range(len(self._sizes)))
        return tuple(TextShape.of(source, target, self._width) for source, target in every)

    def batch(self, step: int, rank: int) -> Batch:
        step %= self.period
        shapes = self.shapes(step)
        lengths, shape = self._lengths(step, rank), shapes[rank]
        rng = np.random.default_rng([self._seed, rank, 2, step])
        sides = []
        for words, width, entries in zip(
            lengths, (shape.source_width, shape.target_width), self._vocabularies, strict=True
        ):
            drawn = rng.integers(len(SPECIAL), entries, (shape.sentences, width))
            drawn[np.arange(width) >= words[:, None]] = EOS
            sides.append(drawn)
        return text_batch(rank, shapes, sides[0], sides[1], lengths)


def synthetic_text(run: Run, model: Model) -> DrawnText:
    """Sentences of `run.sequence_length` words (default 100); one batch a shard."""
    no_files(run)
    return DrawnText(run, model, "synthetic", 1, run.sequence_length or SYNTHETIC_WORDS)


def lengths_000(run: Run, model: Model) -> DrawnText:
    """Lengths by the law; 30 steps, then again, of a shard 5, 9, 7, 5, 2 and 2 of the six buckets
    (`run.batching`: who draws them).
    """
    refuse_fields(run)
    return DrawnText(run, model, "synthetic lengths of 000", PERIOD, None)


def bucket_means_000(run: Run, model: Model) -> DrawnText:
    """As `lengths_000`, but all sentences of a bucket have its mean length: nothing is padded, and
    there are six shapes of shards.
    """
    refuse_fields(run)
    if run.batching == "fixed":
        raise ValueError(
            f"batching 'fixed' has no buckets, and inputs {run.inputs!r} are made of their means:"
            " choose own or shared"
        )
    return DrawnText(run, model, "bucket means of 000", PERIOD, None, means=True)
