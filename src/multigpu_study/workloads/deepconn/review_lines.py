"""Reviews one after another: JSON lines as Amazon's public sets ship them, or drawn from a law in
which words tell the ratings.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from multigpu.inputs.files import TextFile, check_text, fingerprint

FIELDS = {"reviewerID": "a text", "asin": "a text", "reviewText": "a text", "overall": "a number"}
"""What every line has; other fields are not read."""
_SPACES = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))
"""Signs that document 003 drops: all of ASCII's but the apostrophe."""


def review_words(text: str) -> list[str]:
    """The words of a review as document 003 has them: lower case, signs dropped, "don't" one
    word.
    """
    whole = text.encode(
        errors="replace"
    ).decode()  # JSON can name halves of characters, which no file can hold
    return whole.lower().translate(_SPACES).split()


@dataclass(frozen=True)
class Review:
    """One user's text about one item, and the rating given."""

    user: str
    item: str
    text: str
    rating: float


def parse_review(line: str, number: int, path: Path) -> Review:
    """The review in one line. What is no JSON object with `FIELDS` is a ValueError, one sentence
    that names line and file.
    """
    where = f"line {number} of {path}"
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where} is not JSON: {error.msg.lower()} at character {error.pos + 1}"
        ) from None
    except (ValueError, RecursionError):
        raise ValueError(
            f"{where} cannot be read as JSON: it holds a number too long, or lists too deep"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not a JSON object: a review needs {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if name not in found:
            raise ValueError(f"{where} has no {name}: a review needs {', '.join(FIELDS)}")
        value = found[name]
        # where float32 ends
        number_here = (
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e38
        )
        if not (number_here if kind == "a number" else isinstance(value, str)):
            raise ValueError(f"{where} has {name} {str(value)[:40]!r}: it must be {kind}")
    return Review(found["reviewerID"], found["asin"], found["reviewText"], float(found["overall"]))


@dataclass(frozen=True)
class ReviewFile:
    """A file of review lines, read anew each time it is gone through."""

    file: TextFile

    @property
    def label(self) -> str:
        return f"reviews {self.file.path.name}"

    @property
    def fingerprint(self) -> str:
        return self.file.digest

    def __iter__(self) -> Iterator[Review]:
        for number, line in enumerate(self.file.sentences(), 1):
            yield parse_review(line, number, self.file.path)


def read_reviews(path: str | Path) -> ReviewFile:
    """The reviews in a file that `check_text` takes; lines are parsed when they are read."""
    return ReviewFile(check_text(path))


LAW_VERSION = 1
"""Enters the fingerprint: raise it when the same seed comes to give other reviews."""
PRAISE = ("good", "great", "superb", "lovely")
BLAME = ("bad", "dull", "awful", "broken")
GENRES = (("fights", "chases", "guns"), ("romance", "songs", "tears"))
FILLERS = tuple(f"word{index}" for index in range(24))


@dataclass(frozen=True)
class PlantedReviews:
    """`users` x `items` reviews, each user writing `each` of them, of `words` words.
    A rating is 3 + the user's leniency + the item's quality + 1 where the item is of the user's
    genre and - 1 where not, plus noise of deviation 0.3, rounded and kept between 1 and 5. Of a
    review's words a quarter praise or blame, as the rating is high or low; a quarter name the
    user's genre; a quarter the item's; the rest says nothing. So what a user wrote about other
    items tells leniency and genre, and what others wrote about an item its quality and genre.
    """

    label: ClassVar[str] = "planted reviews"
    seed: int
    users: int = 400
    items: int = 100
    each: int = 10
    words: int = 12

    @property
    def fingerprint(self) -> str:
        return fingerprint(
            LAW_VERSION, "planted", self.seed, self.users, self.items, self.each, self.words
        )

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
                spoken = [
                    self._word(rng, kind, rating, int(taste[user]), int(genre[item]))
                    for kind in kinds
                ]
                yield Review(f"U{user}", f"I{item}", " ".join(spoken), rating)

    @staticmethod
    def _word(rng: np.random.Generator, kind: int, rating: float, taste: int, genre: int) -> str:
        """One word: of kind 0 of the rating, 1 of the user's genre ("my..."), 2 of the item's, 3 of
        nothing.
        """
        choices: tuple[str, ...] = FILLERS
        if kind == 0:
            choices = PRAISE if rng.random() < (rating - 1) / 4 else BLAME
        elif kind == 1:
            choices = tuple(f"my{word}" for word in GENRES[taste])
        elif kind == 2:
            choices = GENRES[genre]
        return choices[int(rng.integers(len(choices)))]
