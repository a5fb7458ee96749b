"""Inputs of the two-tower workload: synthetic rows, review lines by path, and reviews with planted
ratings. What makes a Source here raises ValueError for other files than it reads, unusable ones,
and too large a global batch.
"""

import logging
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Self

import numpy as np

from multigpu.inputs.batch import Batch, Source, batch_of_rows
from multigpu.inputs.files import fingerprint, named_files, no_files
from multigpu.inputs.plans import Epochs
from multigpu.inputs.sentences import SPECIAL, UNK, most_frequent
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run
from multigpu_study.workloads.deepconn.review_lines import (
    PlantedReviews,
    ReviewFile,
    read_reviews,
    review_words,
)

TABLE = "word_embeddings"
"""The variable that both towers look words up in."""


Reviews = ReviewFile | PlantedReviews
"""Reviews that can be gone through several times, always in one order."""

PADDING = UNK
"""Texts are filled up with the unknown word, as document 003 does."""
HELD_OUT = 0.1
"""Share of the rows never trained on, whose reviews stand in no text: single ones as in the paper,
not 003's rows of 0.5% of the users.
"""
LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same reviews or law come to give other batches."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Texts:
    """One tower's text of every row: what its owner (a user or an item) is told of in training,
    this row's own review left out.
    ids: (all words,) int32, owner by owner. starts, lengths: (rows,) where the owner's words begin,
        how many there are but for the row's.
    own_at, own: (rows,) after how many of them the row's own review begins, and its words (0 if
        held out).
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    own_at: np.ndarray
    own: np.ndarray

    @classmethod
    def grouped(cls, owners: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> Self:
        """From each row's owner (rows,), the words of its review (rows,), 0 of what is held out,
        and all these words in order.
        """
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(lengths[order])
        begins = np.empty_like(lengths)
        begins[order] = ends - lengths[order]  # of each review, once they stand owner by owner
        words = np.bincount(owners, weights=lengths).astype(np.int64)
        first = (np.cumsum(words) - words)[owners]
        sources = np.repeat((np.cumsum(lengths) - lengths)[order], lengths[order])
        within = np.arange(len(ids)) - np.repeat(ends - lengths[order], lengths[order])
        return cls(ids[sources + within], first, words[owners] - lengths, begins - first, lengths)

    def padded(self, chosen: np.ndarray, width: int) -> np.ndarray:
        """The first `width` words of the chosen rows' texts, filled up with PADDING: (len(chosen),
        width), int64.
        """
        columns = np.arange(width)
        real = columns < self.lengths[chosen][:, None]
        skipped = np.where(columns >= self.own_at[chosen][:, None], self.own[chosen][:, None], 0)
        found = np.full(real.shape, PADDING, dtype=np.int64)
        found[real] = self.ids[(self.starts[chosen][:, None] + columns + skipped)[real]]
        return found


@dataclass(frozen=True)
class EncodedReviews:
    """Reviews as numbers. training, held_out: rows (their places in the file); ratings: (rows,)
    float32.
    """

    user: Texts
    item: Texts
    ratings: np.ndarray
    training: np.ndarray
    held_out: np.ndarray
    fingerprint: str


@lru_cache(maxsize=2)
def encode_reviews(reviews: Reviews, limit: int) -> EncodedReviews:
    """Rows split by their number alone, a vocabulary counted in the training rows' reviews, these
    grouped by user and item; once.
    """
    rows: dict[tuple[int, int], float] = {}  # (user, item) -> rating
    texts: list[list[str]] = []
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    repeated = 0
    for review in reviews:
        user, item = (
            known.setdefault(name, len(known))
            for known, name in zip(numbers, (review.user, review.item), strict=True)
        )
        if (user, item) in rows:
            repeated += 1
            continue
        rows[user, item] = review.rating
        texts.append(review_words(review.text))
    if len(rows) < 2:
        raise ValueError(
            f"{reviews.label} has {len(rows)} rows: at least 2 are needed, one to train on and one"
            " to hold out"
        )
    shuffled = np.random.default_rng([len(rows), LAYOUT_VERSION]).permutation(len(rows))
    held = max(1, round(HELD_OUT * len(rows)))
    held_out, training = np.sort(shuffled[:held]), np.sort(shuffled[held:])
    for row in held_out:
        texts[row] = []
    vocabulary = most_frequent(chain.from_iterable(texts), limit)
    ids = np.array(
        [vocabulary.numbers.get(word, UNK) for text in texts for word in text], dtype=np.int32
    )
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    users, items = (
        Texts.grouped(np.array(owners), lengths, ids) for owners in zip(*rows, strict=True)
    )
    # no word tells of their user, or of their item
    silent = int(((users.lengths[training] == 0) | (items.lengths[training] == 0)).sum())
    if repeated or silent:
        said = (
            "%s: %d later reviews of one item by one user left out, %d training rows whose user or"
            " item nobody else tells of"
        )
        _log.warning(said, reviews.label, repeated, silent)
    mark = fingerprint(LAYOUT_VERSION, reviews.fingerprint, vocabulary.fingerprint, HELD_OUT)
    ratings = np.array(list(rows.values()), dtype=np.float32)
    return EncodedReviews(users, items, ratings, training, held_out, mark)


def _vocabulary_size(model: Model) -> int:
    size = int(model.config.vocabulary)
    if size <= len(SPECIAL):
        raise ValueError(
            f"model {model.name!r} has a vocabulary of {size} entries: it needs more than"
            f" {len(SPECIAL)}"
        )
    return size


class DrawnReviews(Source):
    """Words drawn evenly from all but the special entries, every text full, ratings from 1 to 5;
    one batch a shard, in every step.
    """

    label = "synthetic"
    period = 1

    def __init__(self, run: Run, model: Model) -> None:
        no_files(run)
        self._sizes, self._seed = shard_sizes(run), run.seed
        self._entries, self._width = _vocabulary_size(model), 2 * int(model.config.length)
        self.capacity = {TABLE: max(self._sizes) * self._width}
        self.fingerprint = fingerprint(LAYOUT_VERSION, "even", self._entries, self._width, run.seed)

    def batch(self, step: int, rank: int) -> Batch:
        rng, count = np.random.default_rng([self._seed, rank]), self._sizes[rank]
        words = rng.integers(len(SPECIAL), self._entries, (count, self._width))
        ratings = rng.integers(1, 6, count).astype(np.float32)
        return batch_of_rows(
            rank, self._sizes, {"words": words, "ratings": ratings}, {TABLE: self._width}
        )


class StoredReviews(Epochs):
    """A Source over the training rows of encoded reviews."""

    def __init__(self, run: Run, model: Model, reviews: Reviews) -> None:
        self._rows = encode_reviews(reviews, _vocabulary_size(model))
        super().__init__(run, len(self._rows.training), "rows")
        self.label, self.fingerprint, self._length = (
            reviews.label,
            self._rows.fingerprint,
            int(model.config.length),
        )
        self.capacity = {TABLE: max(self._sizes) * 2 * self._length}

    def _arrays(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        texts = [side.padded(rows, self._length) for side in (self._rows.user, self._rows.item)]
        return np.concatenate(texts, axis=1), self._rows.ratings[rows]

    def batch(self, step: int, rank: int) -> Batch:
        words, ratings = self._arrays(self._rows.training[self.items(step, rank)])
        return batch_of_rows(
            rank, self._sizes, {"words": words, "ratings": ratings}, {TABLE: words.shape[1]}
        )

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """All held-out rows: words (rows, 2 x length) int64 and ratings (rows,) float32."""
        return self._arrays(self._rows.held_out)


def review_file(run: Run, model: Model) -> StoredReviews:
    """Your own reviews: `run.data` names one file of JSON lines with reviewerID, asin, reviewText
    and overall.
    """
    return StoredReviews(run, model, read_reviews(*named_files(run, "file of reviews")))


def planted_reviews(run: Run, model: Model) -> StoredReviews:
    """4,000 reviews whose words tell the ratings, drawn from the Run's seed."""
    no_files(run)
    return StoredReviews(run, model, PlantedReviews(run.seed))
