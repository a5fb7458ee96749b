"""Inputs of translation that are read: the committed parallel corpus, and files of your own.
ValueErrors say which files cannot be used, what an input has not, and of too large batches.
"""

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from multigpu.inputs.batch import Batch
from multigpu.inputs.drawn_text import (
    LAYOUT_VERSION,
    LONGEST,
    batching_mark,
    fixed_width,
    refuse_fields,
    vocabulary_sizes,
)
from multigpu.inputs.files import ParallelText, fingerprint, named_files, read_parallel
from multigpu.inputs.plans import Epochs, bucket_of, plan_epoch
from multigpu.inputs.sentences import (
    Sentences,
    TextShape,
    capacity_of,
    count_vocabulary,
    text_batch,
)
from multigpu.paths import CORPUS
from multigpu.spec.model import Model
from multigpu.spec.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as numbers."""

    source: Sentences
    target: Sentences
    fingerprint: str


@lru_cache(maxsize=2)
def encode_corpus(
    text: ParallelText, source_limit: int, target_limit: int, longest: int = LONGEST
) -> EncodedCorpus:
    """Count vocabularies, and number every pair with words on both sides; once a process."""
    vocabularies = (
        count_vocabulary(text.source.sentences(), source_limit),
        count_vocabulary(text.target.sentences(), target_limit),
    )
    numbered = (
        [
            vocabulary.encode(sentence)
            for vocabulary, sentence in zip(vocabularies, pair, strict=True)
        ]
        for pair in zip(text.source.sentences(), text.target.sentences(), strict=True)
    )
    marks = (text.fingerprint, *(vocabulary.fingerprint for vocabulary in vocabularies))
    return collect_corpus(numbered, f"{text.source.path} and {text.target.path}", marks, longest)


def collect_corpus(
    numbered: Iterable[Sequence[list[int]]], name: str, marks: Sequence[str], longest: int = LONGEST
) -> EncodedCorpus:
    """Pairs with words on both sides (else a ValueError), cut. marks: of the fingerprint."""
    # of each side, as `Sentences`: never held as text
    collected = [(array("i"), array("q", [0])) for _ in range(2)]
    left_out = cut = 0
    for numbers in numbered:
        if not all(numbers):
            left_out += 1
            continue
        cut += sum(len(sentence) > longest for sentence in numbers)
        for (ids, starts), sentence in zip(collected, numbers, strict=True):
            ids.extend(sentence[:longest])
            starts.append(len(ids))
    source, target = (
        Sentences(np.array(ids, dtype=np.int32), np.array(starts, dtype=np.int64))
        for ids, starts in collected
    )
    if not len(source.lengths):
        raise ValueError(f"no line has words in both {name}")
    if left_out or cut:
        _log.warning(
            "%s: %d pairs with an empty side left out, %d sentences cut to %d words",
            name,
            left_out,
            cut,
            longest,
        )
    return EncodedCorpus(source, target, fingerprint(LAYOUT_VERSION, *marks, longest))


class CorpusText(Epochs):
    """A parallel corpus in its own order (000: shuffling off) or in one drawn for each epoch, by
    the plan of `plan_epoch`; it has no period. Under batching "shared" that plan is for one shard
    of the global batch's size; under "fixed" sentences come whatever their lengths.
    """

    def __init__(self, run: Run, label: str, corpus: EncodedCorpus) -> None:
        self.label = label
        self._corpus = corpus
        self._batching = run.batching
        self.in_order = not run.shuffle
        super().__init__(run, len(corpus.source.lengths), "sentences")
        marks = (*((f"shuffled by {run.seed}",) if run.shuffle else ()), *batching_mark(run))
        self.fingerprint = fingerprint(corpus.fingerprint, *marks) if marks else corpus.fingerprint
        self._width = fixed_width(run)
        self.shapes = lru_cache(maxsize=8)(self._count_shapes)
        # which pairs meet is another matter in every epoch: the longest of all may be in any shard
        if run.shuffle:
            longest = [
                np.full(max(self._sizes), side.lengths.max())
                for side in (corpus.source, corpus.target)
            ]
            self.capacity = capacity_of([TextShape.of(longest[0], longest[1], self._width)])
        else:
            self.capacity = capacity_of(
                shape for step in range(self.steps_per_epoch) for shape in self._count_shapes(step)
            )

    def plan(self, epoch: int) -> np.ndarray:
        order = np.arange(self.count)
        if not self.in_order:
            order = np.random.default_rng([self._seed, self.count, epoch]).permutation(order)
        buckets = bucket_of(self._corpus.target.lengths[order])
        if self._batching == "fixed":
            buckets = np.zeros_like(buckets)
        return order[
            plan_epoch(buckets, self._sizes if self._batching == "own" else [self._joined])
        ]

    def _count_shapes(self, step: int) -> tuple[TextShape, ...]:
        sides = (self._corpus.source.lengths, self._corpus.target.lengths)
        chosen = (self.items(step, rank) for rank in range(len(self._sizes)))
        return tuple(
            TextShape.of(sides[0][pairs], sides[1][pairs], self._width) for pairs in chosen
        )

    def batch(self, step: int, rank: int) -> Batch:
        shapes, pairs = self.shapes(step), self.items(step, rank)
        source, target = self._corpus.source, self._corpus.target
        lengths = np.stack([source.lengths[pairs], target.lengths[pairs]])
        shape = shapes[rank]
        read = source.padded(pairs, shape.source_width)
        written = target.padded(pairs, shape.target_width)
        return text_batch(rank, shapes, read, written, lengths)


def _corpus_source(run: Run, model: Model, files: Sequence[Path], label: str) -> CorpusText:
    corpus = encode_corpus(
        read_parallel(*files), *vocabulary_sizes(model), fixed_width(run) or LONGEST
    )
    try:
        return CorpusText(run, f"{label}, shuffled" if run.shuffle else label, corpus)
    except ValueError as error:
        raise ValueError(f"{files[0]} and {files[1]}: {error}") from None


def catalogs(run: Run, model: Model) -> CorpusText:
    """The committed English-German corpus (data/README.md); rare words are `<unk>`."""
    refuse_fields(run)
    files = (CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    return _corpus_source(run, model, files, "de-en catalogs")


def text_files(run: Run, model: Model) -> CorpusText:
    """Your own corpus in the source and the target file that `run.data` names, plain or .gz."""
    refuse_fields(run, data=True)
    files = named_files(run, "source", "target")
    return _corpus_source(run, model, files, f"text files {files[0].name}, {files[1].name}")
