"""Words and their numbers, sentences of them, and what a batch of sentences counts."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np

from multigpu.inputs.batch import Batch

UNK, SOS, EOS = 0, 1, 2
"""Numbers of the unknown word and of a sentence's start and end, as tensorflow-nmt's."""
SPECIAL = ("<unk>", "<s>", "</s>")

_WORD = re.compile(r"<unk>|\w+|[^\w\s]")


def words(sentence: str) -> list[str]:
    """The words of a sentence: runs of letters, digits and underscores, `<unk>`, and every other
    sign. "don't --stop": don ' t - - stop.
    """
    return _WORD.findall(sentence)


class Vocabulary:
    """The special entries and other words, by number; whatever is not known is `<unk>`."""

    def __init__(self, others: Iterable[str]) -> None:
        self.entries = (*SPECIAL, *others)
        self.numbers = {word: number for number, word in enumerate(self.entries)}
        self.fingerprint = hashlib.sha256("\n".join(self.entries).encode()).hexdigest()

    def encode(self, sentence: str) -> list[int]:
        """The numbers of a sentence's words, without start or end."""
        get = self.numbers.get
        return [get(word, UNK) for word in words(sentence)]


def most_frequent(found: Iterable[str], limit: int) -> Vocabulary:
    """The `limit` - 3 most frequent words (ties in alphabetical order) behind the special entries;
    no room for a word is a ValueError.
    """
    if limit <= len(SPECIAL):
        raise ValueError(
            f"a vocabulary of {limit} entries has no room for a word beside its {len(SPECIAL)}"
            " special ones"
        )
    counts = Counter(found)
    ranked = sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))
    return Vocabulary(ranked[: limit - len(SPECIAL)])


def count_vocabulary(sentences: Iterable[str], limit: int) -> Vocabulary:
    """`most_frequent` of the words of these sentences."""
    return most_frequent(chain.from_iterable(map(words, sentences)), limit)


@dataclass(frozen=True)
class Sentences:
    """Sentences in one flat array, ids: (all words,), int32; starts: (sentences + 1,), int64, where
    each begins and the last ends.
    """

    ids: np.ndarray
    starts: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """Words of each sentence, shape (sentences,), int64."""
        return np.diff(self.starts)

    def padded(self, chosen: np.ndarray, width: int) -> np.ndarray:
        """The chosen sentences, each filled with EOS: (len(chosen), width), int64."""
        columns = np.arange(width)
        real = columns < self.lengths[chosen][:, None]
        found = np.full(real.shape, EOS, dtype=np.int64)
        found[real] = self.ids[(self.starts[chosen][:, None] + columns)[real]]
        return found


@dataclass(frozen=True)
class TextShape:
    """Counts of one shard of text. source_width, target_width: positions of every sentence, padding
    and the target's EOS included. source_words: without padding; target_terms: target words and one
    EOS a sentence, which is what the loss sums.
    """

    sentences: int
    source_width: int
    target_width: int
    source_words: int
    target_terms: int

    @classmethod
    def of(
        cls, source_words: np.ndarray, target_words: np.ndarray, width: int | None = None
    ) -> Self:
        """From words of sentences, (sentences,); padded to `width` words a side, or the longest."""
        return cls(
            sentences=len(source_words),
            source_width=width or int(source_words.max()),
            target_width=(width or int(target_words.max())) + 1,
            source_words=int(source_words.sum()),
            target_terms=int(target_words.sum()) + len(target_words),
        )

    @property
    def units(self) -> int:
        """Words as document 000 counts them: sum(source words) + sum(target words + 1)."""
        return self.source_words + self.target_terms

    @property
    def lookups(self) -> dict[str, int]:
        return {
            "source_embedding": self.sentences * self.source_width,
            "target_embedding": self.sentences * self.target_width,
        }


def text_batch(
    rank: int,
    shapes: tuple[TextShape, ...],
    source: np.ndarray,
    target: np.ndarray,
    lengths: np.ndarray,
) -> Batch:
    """The batch of one shard; shapes: of every shard of the step.
    source, target: (sentences, width), int64: words, one EOS (of a source: none), padding with EOS.
        lengths: (2, sentences), words of each.
    """
    start = np.full((len(target), 1), SOS, dtype=np.int64)
    lookups = tuple(shape.lookups for shape in shapes)
    return Batch(
        arrays={
            "source": source,
            "source_length": np.array(lengths[0], dtype=np.int64),
            "target_input": np.concatenate([start, target[:, :-1]], axis=1),
            "target_output": target,
            "target_length": np.array(lengths[1], dtype=np.int64) + 1,
        },
        rank=rank,
        units=shapes[rank].units,
        padded_units=sum(lookups[rank].values()),
        loss_terms=tuple(shape.target_terms for shape in shapes),
        lookups=lookups,
    )


def capacity_of(shapes: Iterable[TextShape]) -> dict[str, int]:
    """Embedding variable -> the most rows that any of these shards looks up."""
    every = [shape.lookups for shape in shapes]
    return {name: max(lookups[name] for lookups in every) for name in every[0]}
