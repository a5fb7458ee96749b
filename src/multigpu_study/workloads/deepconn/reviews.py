"""Inputs of the two-tower workload: synthetic rows, and rows whose words tell their ratings. What
makes a Source here raises ValueError for files that were named, and too large a global batch.
"""

import numpy as np

from multigpu.inputs.batch import Batch, Source, batch_of_rows
from multigpu.inputs.files import fingerprint, no_files
from multigpu.inputs.plans import Epochs
from multigpu.inputs.sentences import SPECIAL
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.model import Model
from multigpu.spec.run import Run

TABLE = "word_embeddings"
"""The variable that both towers look words up in."""

LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same law comes to give other batches."""

PLANTED, HELD_OUT = 4_000, 400
"""Rows of planted ratings, and how many of them are never trained on."""

AS_KIND = 0.8
"""Of the words of a planted text, the share that is of its kind."""


def _vocabulary_size(model: Model) -> int:
    size = int(model.config.vocabulary)
    if size <= len(SPECIAL) + 1:
        raise ValueError(
            f"model {model.name!r} has a vocabulary of {size} entries: it needs more than"
            f" {len(SPECIAL) + 1}"
        )
    return size


class DrawnReviews(Source):
    """Words drawn evenly, texts full, ratings from 1 to 5; one batch a shard, in every step."""

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


class PlantedReviews(Epochs):
    """Rows drawn once from the Run's seed. Each of a row's two texts praises or blames: most of its
    words are from the first half of the vocabulary, or from the second. The rating is 1, and 2 more
    for each text that praises.
    """

    label = "planted reviews"

    def __init__(self, run: Run, model: Model) -> None:
        no_files(run)
        super().__init__(run, PLANTED - HELD_OUT, "rows")
        entries, length = _vocabulary_size(model), int(model.config.length)
        self._width = 2 * length
        self.capacity = {TABLE: max(self._sizes) * self._width}
        self.fingerprint = fingerprint(LAYOUT_VERSION, "planted", entries, self._width, run.seed)
        rng = np.random.default_rng([run.seed, PLANTED])
        praises = rng.integers(2, size=(PLANTED, 2)).astype(bool)
        as_kind = rng.random((PLANTED, 2, length)) < AS_KIND
        first_half = (as_kind == praises[:, :, None]).reshape(PLANTED, self._width)
        middle = (len(SPECIAL) + entries) // 2
        self._words = np.where(
            first_half,
            rng.integers(len(SPECIAL), middle, first_half.shape),
            rng.integers(middle, entries, first_half.shape),
        )
        self._ratings = (1 + 2 * praises.sum(axis=1)).astype(np.float32)

    def batch(self, step: int, rank: int) -> Batch:
        rows = HELD_OUT + self.items(step, rank)
        arrays = {"words": self._words[rows], "ratings": self._ratings[rows]}
        return batch_of_rows(rank, self._sizes, arrays, {TABLE: self._width})

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """All held-out rows: words (rows, 2 x length) int64 and ratings (rows,) float32."""
        return self._words[:HELD_OUT], self._ratings[:HELD_OUT]
