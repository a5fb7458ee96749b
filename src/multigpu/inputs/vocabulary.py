"""Words and their numbers: a simple tokenisation and a limited vocabulary with document 000's three special entries."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain

UNK, SOS, EOS = 0, 1, 2
"""Numbers of the unknown word, of a sentence's start and of its end, as tensorflow-nmt and document 000 have them."""
SPECIAL = ("<unk>", "<s>", "</s>")

_WORD = re.compile(r"<unk>|\w+|[^\w\s]")


def words(sentence: str) -> list[str]:
    """The words of a sentence: runs of letters, digits and underscores; every other sign that is no space is a word by itself.

    Case is kept, and so is `<unk>` where a prepared corpus has it. "don't --stop" gives don ' t - - stop.
    """
    return _WORD.findall(sentence)


class Vocabulary:
    """Words and their numbers 0 .. len - 1; the first three are `<unk>`, `<s>` and `</s>`, whatever is not known is `<unk>`.

    entries: every word, its number being its place.
    fingerprint: sha256 over the entries.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        """Number `entries` from 0.

        Raises:
            ValueError: the first three are not the special ones, or a word comes twice.
        """
        self.entries = tuple(entries)
        if self.entries[:3] != SPECIAL:
            raise ValueError(f"a vocabulary begins with {', '.join(SPECIAL)}, not with {', '.join(self.entries[:3]) or 'nothing'}")
        self.numbers = {word: number for number, word in enumerate(self.entries)}
        if len(self.numbers) < len(self.entries):
            twice = next(word for word, count in Counter(self.entries).items() if count > 1)
            raise ValueError(f"a vocabulary lists each word once: {twice!r} comes again")
        self.fingerprint = hashlib.sha256("\n".join(self.entries).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.entries)

    def encode(self, sentence: str) -> list[int]:
        """The numbers of a sentence's words, without start or end."""
        get = self.numbers.get
        return [get(word, UNK) for word in words(sentence)]


def most_frequent(found: Iterable[str], limit: int) -> Vocabulary:
    """The `limit` - 3 most frequent words (ties in alphabetical order) behind the three special entries.

    Raises:
        ValueError: `limit` leaves no room for a word.
    """
    if limit <= len(SPECIAL):
        raise ValueError(f"a vocabulary of {limit} entries has no room for a word beside its {len(SPECIAL)} special ones")
    counts = Counter(found)
    ranked = sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))
    return Vocabulary((*SPECIAL, *ranked[: limit - len(SPECIAL)]))


def count_vocabulary(sentences: Iterable[str], limit: int) -> Vocabulary:
    """`most_frequent` of the words of these sentences."""
    return most_frequent(chain.from_iterable(map(words, sentences)), limit)
