"""Reviews drawn from a law in which ratings can be read from the words: training on them must beat guessing the mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from multigpu.inputs.files import fingerprint
from multigpu.inputs.review_lines import Review

LAW_VERSION = 1
"""Enters the fingerprint: raise it when the same seed comes to give other reviews."""

PRAISE = ("good", "great", "superb", "lovely")
BLAME = ("bad", "dull", "awful", "broken")
GENRES = (("fights", "chases", "guns"), ("romance", "songs", "tears"))
FILLERS = tuple(f"word{index}" for index in range(24))


@dataclass(frozen=True)
class PlantedReviews:
    """`users` x `items` reviews, each user writing `each` of them, of `words` words.

    A rating is 3 + the user's leniency + the item's quality + 1 where the item is of the user's genre and - 1 where it is of the
    other one, plus noise of deviation 0.3, rounded and kept between 1 and 5. Of a review's words a quarter praise or blame, as the
    rating is high or low; a quarter name the user's own genre; a quarter the item's; the rest says nothing. So the reviews that a
    user wrote about other items tell leniency and genre, and those that others wrote about an item tell its quality and genre.
    """

    seed: int
    users: int = 400
    items: int = 100
    each: int = 10
    words: int = 12

    @property
    def label(self) -> str:
        return "planted reviews"

    @property
    def fingerprint(self) -> str:
        return fingerprint(LAW_VERSION, "planted", self.seed, self.users, self.items, self.each, self.words)

    def __iter__(self) -> Iterator[Review]:
        rng = np.random.default_rng([self.seed, self.users, self.items])
        leniency, quality = rng.uniform(-0.7, 0.7, self.users), rng.uniform(-0.7, 0.7, self.items)
        taste, genre = rng.integers(2, size=self.users), rng.integers(2, size=self.items)
        for user in range(self.users):
            for item in rng.permutation(self.items)[: self.each]:
                alike = 1 if taste[user] == genre[item] else -1
                plain = 3 + leniency[user] + quality[item] + alike + rng.normal(0, 0.3)
                rating = float(np.clip(np.rint(plain), 1, 5))
                kinds = rng.permutation(np.arange(self.words) % 4)
                spoken = [self._word(rng, kind, rating, int(taste[user]), int(genre[item])) for kind in kinds]
                yield Review(f"U{user}", f"I{item}", " ".join(spoken), rating)

    @staticmethod
    def _word(rng: np.random.Generator, kind: int, rating: float, taste: int, genre: int) -> str:
        """One word: of kind 0 of the rating, 1 of the user's genre ("my..."), 2 of the item's, 3 of nothing."""
        choices: tuple[str, ...] = FILLERS
        if kind == 0:
            choices = PRAISE if rng.random() < (rating - 1) / 4 else BLAME
        elif kind == 1:
            choices = tuple(f"my{word}" for word in GENRES[taste])
        elif kind == 2:
            choices = GENRES[genre]
        return choices[int(rng.integers(len(choices)))]
