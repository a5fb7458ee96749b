"""Lengths of sentences as document 000 met them in WMT14 English-German, as a law that needs no corpus.

The document counts 47.95 to 49.23 words a pair, source words + target words + 1 (its own tables: time x words/s / pairs).
The law: a target has t = 1 .. 100 words with probability proportional to t^1.5 exp(-t / 9.5); its source has any number of
words from t - t//4 to t + t//4 with equal probability. So a pair counts 48.37 words, and the six buckets of targets,
min(5, t // 10), hold 15.1, 31.5, 24.8, 14.7, 7.6 and 6.3 percent of the sentences.

That law is a choice with the document's mean and the shape that lengths of sentences usually have; the document does not
print its own.
"""

import numpy as np

from multigpu.inputs.plans import BUCKETS, bucket_of

LONGEST = 100
SHAPE, SCALE = 2.5, 9.5
SPREAD = 4
"""A source is up to 1/SPREAD shorter or longer than its target."""

BLOCKS, BLOCK = 3, 10
PERIOD = BLOCKS * BLOCK
"""Steps after which buckets repeat; 30, because Runs are timed over 30 or 100 steps after 10."""


def target_probabilities() -> np.ndarray:
    """Probability of a target of 1 .. 100 words, shape (100,)."""
    words = np.arange(1, LONGEST + 1)
    weights = words ** (SHAPE - 1) * np.exp(-words / SCALE)
    return weights / weights.sum()


def bucket_shares() -> np.ndarray:
    """Share of sentences in each bucket, shape (6,)."""
    buckets = bucket_of(np.arange(1, LONGEST + 1))
    return np.bincount(buckets, weights=target_probabilities(), minlength=BUCKETS)


def draw_buckets(rng: np.random.Generator) -> np.ndarray:
    """The bucket of each of PERIOD steps, shape (30,), for one shard.

    Each shard draws its own order. But the unit interval is cut into 30 strata, each drawn once, and each ten steps take one
    of every three neighbours: independent draws would give few buckets a step count that wanders by a tenth, and a
    comparison over 30 steps would compare luck.
    """
    third = rng.permuted(np.tile(np.arange(BLOCKS), (BLOCK, 1)), axis=1)  # which of three neighbours each block takes
    tens = np.stack([rng.permutation(BLOCK) for _ in range(BLOCKS)])  # the order of the ten in each block
    strata = BLOCKS * tens + third[tens, np.arange(BLOCKS)[:, None]]
    return np.searchsorted(np.cumsum(bucket_shares())[:-1], (strata.ravel() + 0.5) / PERIOD, side="right")


def _within(bucket: int | None) -> np.ndarray:
    """`target_probabilities` with 0 outside the bucket (None: as they are)."""
    law = target_probabilities()
    return law if bucket is None else np.where(bucket_of(np.arange(1, LONGEST + 1)) == bucket, law, 0)


def mean_words(bucket: int) -> int:
    """The mean length of the bucket's targets, and therefore of its sources, to the nearest whole word."""
    weights = _within(bucket)
    return round(float(weights @ np.arange(1, LONGEST + 1) / weights.sum()))


def draw_lengths(rng: np.random.Generator, bucket: int | None, sentences: int) -> tuple[np.ndarray, np.ndarray]:
    """Source and target words of `sentences` pairs of one bucket (None: of all), shape (sentences,) each, int64."""
    within = _within(bucket)
    cumulative = np.cumsum(within)
    target = np.searchsorted(cumulative / cumulative[-1], rng.random(sentences), side="right") + 1
    slack = target // SPREAD
    source = target - slack + np.floor(rng.random(sentences) * (2 * slack + 1)).astype(np.int64)
    return source, target.astype(np.int64)
