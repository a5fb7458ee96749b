"""Inputs of the translation workload that are read: the committed parallel corpus, and files of your own.

Whatever makes a Source here raises ValueError, one sentence, where `run.data` names other files than it reads, a file cannot be used, the
Run asks for what the input has not, or its joined batch is larger than the corpus.
"""

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.corpora import ParallelText, read_parallel
from multigpu.inputs.drawn_text import LAYOUT_VERSION, LONGEST, batching_mark, fixed_width, refuse_fields, vocabulary_sizes
from multigpu.inputs.files import fingerprint, named_files
from multigpu.inputs.plans import bucket_of, plan_batches
from multigpu.inputs.sentences import Sentences, TextShape, capacity_of, count_vocabulary, text_batch
from multigpu.paths import CORPUS
from multigpu.run import Run
from multigpu.workloads.base import Model

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as numbers, and what was done to it: pairs with an empty side left out, sentences cut to LONGEST words."""

    source: Sentences
    target: Sentences
    fingerprint: str
    left_out: int
    cut: int


@lru_cache(maxsize=2)
def encode_corpus(text: ParallelText, source_limit: int, target_limit: int, longest: int = LONGEST) -> EncodedCorpus:
    """Count vocabularies of at most so many entries, and number every pair that has words on both sides, cut to `longest`; once for all
    Runs of a process.

    Memory: 4 bytes a word and 8 a sentence.
    """
    vocabularies = count_vocabulary(text.source.sentences(), source_limit), count_vocabulary(text.target.sentences(), target_limit)
    numbered = (
        [vocabulary.encode(sentence) for vocabulary, sentence in zip(vocabularies, pair, strict=True)]
        for pair in zip(text.source.sentences(), text.target.sentences(), strict=True)
    )
    marks = (text.fingerprint, *(vocabulary.fingerprint for vocabulary in vocabularies))
    return collect_corpus(numbered, f"{text.source.path} and {text.target.path}", marks, longest)


def collect_corpus(numbered: Iterable[Sequence[list[int]]], name: str, marks: Sequence[str], longest: int = LONGEST) -> EncodedCorpus:
    """The pairs that have words on both sides, cut to `longest` words.

    Args:
        numbered: numbers of the words of each source and its target.
        name: of the corpus, for messages.
        marks: what determines the corpus, for its fingerprint.

    Raises:
        ValueError: no pair has words on both sides.
    """
    collected = [(array("i"), array("q", [0])) for _ in range(2)]  # of each side, as `Sentences`: never held as text
    left_out = cut = 0
    for numbers in numbered:
        if not all(numbers):
            left_out += 1
            continue
        cut += sum(len(sentence) > longest for sentence in numbers)
        for (ids, starts), sentence in zip(collected, numbers, strict=True):
            ids.extend(sentence[:longest])
            starts.append(len(ids))
    source, target = (Sentences(np.array(ids, dtype=np.int32), np.array(starts, dtype=np.int64)) for ids, starts in collected)
    if not len(source.lengths):
        raise ValueError(f"no line has words in both {name}")
    if left_out or cut:
        _log.warning("%s: %d pairs with an empty side left out, %d sentences cut to %d words", name, left_out, cut, longest)
    return EncodedCorpus(source, target, fingerprint(LAYOUT_VERSION, *marks, longest), left_out, cut)


class CorpusText(Source):
    """A parallel corpus in the order it has (000: shuffling off) or in one drawn for each epoch, by the plan of `plan_batches`.

    Without shuffling every epoch has the same plan. Batches come from memory each step as they would in training, so there is no period.
    left_out: pairs with an empty side; cut: sentences cut to LONGEST words (or to the width of batching "fixed").
    """

    count: int
    steps_per_epoch: int

    def __init__(self, run: Run, label: str, corpus: EncodedCorpus) -> None:
        self.label, self._corpus = label, corpus
        self.left_out, self.cut, self.count = corpus.left_out, corpus.cut, len(corpus.source.lengths)
        marks = (*((f"shuffled by {run.seed}",) if run.shuffle else ()), *batching_mark(run))
        self.fingerprint = fingerprint(corpus.fingerprint, *marks) if marks else corpus.fingerprint
        self._width = fixed_width(run)
        self._sizes, self._batching = run.shard_sizes, run.batching
        self._seed = run.seed if run.shuffle else None
        self._bounds = np.cumsum([0, *run.shard_sizes])
        self._plan = lru_cache(maxsize=2)(self._plan_epoch)
        self.steps_per_epoch = len(self._plan(0))
        self.shapes = lru_cache(maxsize=8)(self._count_shapes)
        if run.shuffle:  # which pairs meet is another matter in every epoch: the longest of all may be in any shard
            longest = [np.full(max(self._sizes), side.lengths.max()) for side in (corpus.source, corpus.target)]
            self.capacity = capacity_of([TextShape.of(longest[0], longest[1], self._width)])
        else:
            self.capacity = capacity_of(shape for step in range(self.steps_per_epoch) for shape in self._count_shapes(step))

    def _plan_epoch(self, epoch: int) -> np.ndarray:
        """Which pairs each step of an epoch takes, shape (steps, joined batch)."""
        order = (
            np.arange(self.count) if self._seed is None else np.random.default_rng([self._seed, self.count, epoch]).permutation(self.count)
        )
        return order[plan_batches(bucket_of(self._corpus.target.lengths[order]), self._sizes, self._batching)]

    def items(self, step: int, rank: int) -> np.ndarray:
        return self._chosen(step, rank).astype(np.int64)

    def _chosen(self, step: int, rank: int) -> np.ndarray:
        """Which pairs a shard takes, shape (sentences,)."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return self._plan(0 if self._seed is None else epoch)[within, self._bounds[rank] : self._bounds[rank + 1]]

    def _count_shapes(self, step: int) -> tuple[TextShape, ...]:
        """What every rank's shard of a step counts."""
        sides = (self._corpus.source.lengths, self._corpus.target.lengths)
        chosen = (self._chosen(step, rank) for rank in range(len(self._bounds) - 1))
        return tuple(TextShape.of(sides[0][pairs], sides[1][pairs], self._width) for pairs in chosen)

    def batch(self, step: int, rank: int) -> Batch:
        shapes, pairs = self.shapes(step), self._chosen(step, rank)
        source, target = self._corpus.source, self._corpus.target
        lengths = np.stack([source.lengths[pairs], target.lengths[pairs]])
        shape = shapes[rank]
        return text_batch(rank, shapes, source.padded(pairs, shape.source_width), target.padded(pairs, shape.target_width), lengths)


def _corpus_source(run: Run, model: Model, files: Sequence[Path], label: str) -> CorpusText:
    corpus = encode_corpus(read_parallel(*files), *vocabulary_sizes(model), fixed_width(run) or LONGEST)
    return CorpusText(run, f"{label}, shuffled" if run.shuffle else label, corpus)


def catalogs(run: Run, model: Model) -> CorpusText:
    """The committed English-German corpus (data/README.md); words rarer than the model's vocabularies hold are `<unk>`."""
    refuse_fields(run)
    files = (CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    return _corpus_source(run, model, files, "de-en catalogs")


def text_files(run: Run, model: Model) -> CorpusText:
    """Your own corpus: `run.data` names the source file and the target file, plain or .gz; vocabularies are counted in them."""
    refuse_fields(run, data=True)
    files = named_files(run, "source", "target")
    return _corpus_source(run, model, files, f"text files {files[0].name}, {files[1].name}")
