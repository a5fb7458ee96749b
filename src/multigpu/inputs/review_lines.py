"""Reviews as Amazon's public sets ship them: JSON lines with reviewerID, asin, reviewText and overall."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multigpu.inputs.corpora import TextFile, check_text
from multigpu.inputs.files import file_digest

FIELDS = {"reviewerID": "a text", "asin": "a text", "reviewText": "a text", "overall": "a number"}
"""What every line has; other fields are not read."""

LARGEST = 1e38
"""No rating is that large; float32 ends there."""

_SPACES = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))
"""Signs that document 003 drops: all of ASCII's but the apostrophe."""


def review_words(text: str) -> list[str]:
    """The words of a review as document 003 has them: lower case, signs dropped, "don't" one word."""
    whole = text.encode(errors="replace").decode()  # JSON can name halves of characters, which no file can hold
    return whole.lower().translate(_SPACES).split()


@dataclass(frozen=True)
class Review:
    """What one user wrote about one item, and the rating given."""

    user: str
    item: str
    text: str
    rating: float


def _is_number(value: Any) -> bool:
    """Whether JSON's value is one that float32 can hold (true and false are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def parse_review(line: str, number: int, path: Path) -> Review:
    """The review in one line.

    Raises:
        ValueError: the line is no JSON object, or lacks a field or has it in a wrong type; the sentence names line and file.
    """
    where = f"line {number} of {path}"
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg.lower()} at character {error.pos + 1}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{where} cannot be read as JSON: it holds a number too long, or lists too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not a JSON object: a review needs {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if name not in found:
            raise ValueError(f"{where} has no {name}: a review needs {', '.join(FIELDS)}")
        value = found[name]
        if not (_is_number(value) if kind == "a number" else isinstance(value, str)):
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
        return file_digest(self.file.path)

    def __iter__(self) -> Iterator[Review]:
        for number, line in enumerate(self.file.sentences(), 1):
            yield parse_review(line, number, self.file.path)


def read_reviews(path: str | Path) -> ReviewFile:
    """The reviews in a file that `check_text` takes, plain or packed as Amazon ships them; lines are parsed when they are read."""
    return ReviewFile(check_text(path))
