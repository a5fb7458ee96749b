"""Inputs of the translation workload: synthetic sentences, document 000's lengths, and parallel corpora."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multigpu.inputs import lengths as law
from multigpu.inputs.batch import Batch
from multigpu.inputs.buckets import bucket_of, plan_batches
from multigpu.inputs.corpora import ParallelText, read_parallel
from multigpu.inputs.hashing import fingerprint
from multigpu.inputs.sentences import SentenceCollector, Sentences, TextShape, capacity_of, text_batch
from multigpu.inputs.vocabulary import EOS, SPECIAL, count_vocabulary
from multigpu.paths import CORPUS

if TYPE_CHECKING:
    from multigpu.run import Run
    from multigpu.workloads.base import Model

SYNTHETIC_WORDS = 100
"""Words a side where the Run names none: document 000's Exp5."""
LONGEST = 100
"""Words a side of a corpus; later ones are cut off, as tensorflow-nmt does after its 50th."""
LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same corpus or law comes to give other batches."""

_log = logging.getLogger(__name__)


def refuse_fields(run: Run, data: bool = False) -> None:
    """Refuse fields that this input does not read."""
    if run.sequence_length is not None and run.batching != "fixed":
        raise ValueError(
            f"sequence_length {run.sequence_length} is for inputs 'synthetic' and for batching 'fixed': {run.inputs!r} has lengths of "
            "its own, leave it out"
        )
    if run.data is not None and not data:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")


def fixed_width(run: Run) -> int | None:
    """Words to which both sides of every sentence are padded (and cut) under batching "fixed"; otherwise None."""
    return (run.sequence_length or LONGEST) if run.batching == "fixed" else None


def _batching_mark(run: Run) -> tuple[object, ...]:
    """What batching adds to a fingerprint: nothing for the document's own."""
    return () if run.batching == "own" else (f"batching {run.batching}", fixed_width(run))


def vocabulary_sizes(model: Model) -> tuple[int, int]:
    """Entries of source and target vocabulary, the special ones included."""
    sizes = (int(model.config.source_vocabulary), int(model.config.target_vocabulary))
    if min(sizes) <= len(SPECIAL):
        raise ValueError(f"model {model.name!r} has vocabularies of {sizes[0]} and {sizes[1]} entries: each needs more than {len(SPECIAL)}")
    return sizes


class DrawnText:
    """Sentences whose lengths a law gives and whose words are drawn evenly from all but the special entries.

    Each (seed, step within the period, rank) draws by itself, so any rank can draw any shard, and nothing is kept but the
    lengths of the last steps asked for. Under batching "shared" all ranks take the buckets that rank 0 draws, under "fixed"
    every sentence draws its own.

    words: of every sentence and side; None: drawn by the law of `multigpu.inputs.lengths`. means: every sentence has its bucket's
        mean length instead.
    """

    def __init__(self, run: Run, model: Model, label: str, period: int, words: int | None, means: bool = False) -> None:
        self.label, self.period = label, period
        self._sizes, self._seed, self._words, self._means = run.shard_sizes, run.seed, words, means
        self._width = fixed_width(run)
        self._vocabularies = vocabulary_sizes(model)
        deciding = [0 if run.batching == "shared" else rank for rank in range(len(self._sizes))]
        self._buckets = [law.draw_buckets(np.random.default_rng([run.seed, rank, 0])) for rank in deciding]
        self._lengths = lru_cache(maxsize=2 * len(self._sizes))(self._draw_lengths)
        self.capacity = capacity_of(shape for step in range(period) for shape in self.shapes(step))
        self.fingerprint = fingerprint(LAYOUT_VERSION, label, words, run.seed, *self._vocabularies, *_batching_mark(run))

    def _draw_lengths(self, step: int, rank: int) -> np.ndarray:
        """Source and target words of one shard, shape (2, sentences)."""
        sentences = self._sizes[rank]
        if self._words is not None:
            return np.full((2, sentences), self._words)
        bucket = None if self._width else int(self._buckets[rank][step])
        if self._means and bucket is not None:
            return np.full((2, sentences), law.mean_words(bucket))
        drawn = np.stack(law.draw_lengths(np.random.default_rng([self._seed, rank, 1, step]), bucket, sentences))
        return np.minimum(drawn, self._width) if self._width else drawn

    def shapes(self, step: int) -> tuple[TextShape, ...]:
        """What every rank's shard of a step counts."""
        step %= self.period
        sides = (self._lengths(step, rank) for rank in range(len(self._sizes)))
        return tuple(TextShape.of(source, target, self._width) for source, target in sides)

    def batch(self, step: int, rank: int) -> Batch:
        """The shard of `rank` in step `step`."""
        step %= self.period
        shapes = self.shapes(step)
        lengths, shape = self._lengths(step, rank), shapes[rank]
        rng = np.random.default_rng([self._seed, rank, 2, step])
        sides = []
        for side, (width, entries) in enumerate(zip((shape.source_width, shape.target_width), self._vocabularies, strict=True)):
            drawn = rng.integers(len(SPECIAL), entries, (shape.sentences, width))
            drawn[np.arange(width) >= lengths[side][:, None]] = EOS
            sides.append(drawn)
        return text_batch(rank, shapes, sides[0], sides[1], lengths)


def synthetic_text(run: Run, model: Model) -> DrawnText:
    """Every sentence exactly `run.sequence_length` words on both sides (default 100); one batch a shard, the same in every step.

    Raises:
        ValueError: the Run names files.
    """
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")
    return DrawnText(run, model, "synthetic", 1, run.sequence_length or SYNTHETIC_WORDS)


def lengths_000(run: Run, model: Model) -> DrawnText:
    """Lengths by the law of `multigpu.inputs.lengths`; each shard draws its own bucket in each step (or all share one, or there
    is none, as `run.batching` says); 30 steps, then again.

    48.37 words a pair by the law; the six buckets hold 15.1, 31.5, 24.8, 14.7, 7.6 and 6.3 percent of the sentences, and in
    30 steps of a shard 5, 9, 7, 5, 2 and 2 batches.

    Raises:
        ValueError: the Run names files, or a sequence length without batching "fixed".
    """
    refuse_fields(run)
    return DrawnText(run, model, "synthetic lengths of 000", law.PERIOD, None)


def bucket_means_000(run: Run, model: Model) -> DrawnText:
    """As `lengths_000`, but all sentences of a bucket have its mean length, so nothing is padded and there are six shapes of shards.

    A captured step needs a graph for each shape of step: six where replicas share the bucket, and one for every combination of
    the replicas' buckets where each draws its own.

    Raises:
        ValueError: the Run names files or a sequence length, or batching is "fixed", which knows no buckets.
    """
    refuse_fields(run)
    if run.batching == "fixed":
        raise ValueError(f"batching 'fixed' has no buckets, and inputs {run.inputs!r} are made of their means: choose own or shared")
    return DrawnText(run, model, "bucket means of 000", law.PERIOD, None, means=True)


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as numbers, and what was done to it: pairs with an empty side left out, sentences cut to LONGEST words."""

    source: Sentences
    target: Sentences
    fingerprint: str
    left_out: int
    cut: int


def encode_corpus(text: ParallelText, source_limit: int, target_limit: int, longest: int = LONGEST) -> EncodedCorpus:
    """Count vocabularies of at most so many entries, and number every pair that has words on both sides, cut to `longest`.

    Memory: 4 bytes a word and 8 a sentence.

    Raises:
        ValueError: no pair has words on both sides.
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
    collected = SentenceCollector(), SentenceCollector()
    left_out = cut = 0
    for numbers in numbered:
        if not all(numbers):
            left_out += 1
            continue
        cut += sum(len(sentence) > longest for sentence in numbers)
        for side, sentence in zip(collected, numbers, strict=True):
            side.add(sentence[:longest])
    source, target = (side.sentences() for side in collected)
    if not len(source.lengths):
        raise ValueError(f"no line has words in both {name}")
    if left_out or cut:
        _log.warning("%s: %d pairs with an empty side left out, %d sentences cut to %d words", name, left_out, cut, longest)
    return EncodedCorpus(source, target, fingerprint(LAYOUT_VERSION, *marks, longest), left_out, cut)


@lru_cache(maxsize=2)
def _encode_once(text: ParallelText, content: str, source_limit: int, target_limit: int, longest: int) -> EncodedCorpus:
    """`encode_corpus`, once for all Runs of a process; `content` is the text's fingerprint, so a changed file is read again."""
    return encode_corpus(text, source_limit, target_limit, longest)


class CorpusText:
    """A parallel corpus in the order it has (000: shuffling off) or in one drawn for each epoch, by the plan of `plan_batches`.

    Without shuffling every epoch has the same plan. Batches come from memory each step as they would in training, so there is no period.
    left_out: pairs with an empty side; cut: sentences cut to LONGEST words (or to the width of batching "fixed").
    """

    period = None

    def __init__(self, run: Run, label: str, corpus: EncodedCorpus) -> None:
        self.label, self._corpus = label, corpus
        self.left_out, self.cut = corpus.left_out, corpus.cut
        marks = (*((f"shuffled by {run.seed}",) if run.shuffle else ()), *_batching_mark(run))
        self.fingerprint = fingerprint(corpus.fingerprint, *marks) if marks else corpus.fingerprint
        self._width = fixed_width(run)
        self._sizes, self._batching = run.shard_sizes, run.batching
        self._seed = run.seed if run.shuffle else None
        self._bounds = np.cumsum([0, *run.shard_sizes])
        self._plan = lru_cache(maxsize=2)(self._plan_epoch)
        self.steps_per_epoch = len(self._plan(0))
        """Steps after which every pair has been seen."""
        self.shapes = lru_cache(maxsize=8)(self._count_shapes)
        if run.shuffle:  # which pairs meet is another matter in every epoch: the longest of all may be in any shard
            longest = [np.full(max(self._sizes), side.lengths.max()) for side in (corpus.source, corpus.target)]
            self.capacity = capacity_of([TextShape.of(longest[0], longest[1], self._width)])
        else:
            self.capacity = capacity_of(shape for step in range(self.steps_per_epoch) for shape in self._count_shapes(step))

    @property
    def count(self) -> int:
        """Pairs of the corpus."""
        return len(self._corpus.source.lengths)

    def _plan_epoch(self, epoch: int) -> np.ndarray:
        """Which pairs each step of an epoch takes, shape (steps, joined batch)."""
        order = (
            np.arange(self.count) if self._seed is None else np.random.default_rng([self._seed, self.count, epoch]).permutation(self.count)
        )
        return order[plan_batches(bucket_of(self._corpus.target.lengths[order]), self._sizes, self._batching)]

    def items(self, step: int, rank: int) -> np.ndarray:
        """Numbers of the pairs in `batch(step, rank)`, shape (sentences,), int64."""
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
        """The shard of `rank` in step `step`."""
        shapes, pairs = self.shapes(step), self._chosen(step, rank)
        source, target = self._corpus.source, self._corpus.target
        lengths = np.stack([source.lengths[pairs], target.lengths[pairs]])
        shape = shapes[rank]
        return text_batch(rank, shapes, source.padded(pairs, shape.source_width), target.padded(pairs, shape.target_width), lengths)


def _corpus_source(run: Run, model: Model, files: Sequence[Path], label: str) -> CorpusText:
    text = read_parallel(*files)
    corpus = _encode_once(text, text.fingerprint, *vocabulary_sizes(model), fixed_width(run) or LONGEST)
    return CorpusText(run, f"{label}, shuffled" if run.shuffle else label, corpus)


def catalogs(run: Run, model: Model) -> CorpusText:
    """The committed English-German corpus (data/README.md); words rarer than the model's vocabularies hold are `<unk>`.

    Raises:
        ValueError: the Run names files, or a sequence length without batching "fixed", or its joined batch is larger than the corpus.
    """
    refuse_fields(run)
    files = (CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    return _corpus_source(run, model, files, "de-en catalogs")


def text_files(run: Run, model: Model) -> CorpusText:
    """Your own corpus: `run.data` names the source file and the target file, plain or .gz; vocabularies are counted in them.

    Raises:
        ValueError: `run.data` does not name two files, a file cannot be used (the sentence says why), the Run names a
            sequence length without batching "fixed", or its joined batch is larger than the corpus.
    """
    refuse_fields(run, data=True)
    if run.data is None or len(run.data) != 2:
        raise ValueError(f"inputs {run.inputs!r} needs data to name two files, source and target: it names {len(run.data or ())}")
    files = [Path(path) for path in run.data]
    return _corpus_source(run, model, files, f"text files {files[0].name}, {files[1].name}")
