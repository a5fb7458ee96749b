"""Inputs of the translation workload that are drawn: synthetic sentences, of one length or of document 000's lengths.

Whatever makes a Source here raises ValueError, one sentence, where the Run names files, or asks for what the input has not.
"""

from functools import lru_cache

import numpy as np

from multigpu.inputs import lengths as law
from multigpu.inputs.batch import Batch, Source
from multigpu.inputs.files import fingerprint, no_files
from multigpu.inputs.sentences import EOS, SPECIAL, TextShape, capacity_of, text_batch
from multigpu.run import Run
from multigpu.workloads.base import Model

SYNTHETIC_WORDS = 100
"""Words a side where the Run names none: document 000's Exp5."""
LONGEST = 100
"""Words a side of a corpus; later ones are cut off, as tensorflow-nmt does after its 50th."""
LAYOUT_VERSION = 1
"""Enters every fingerprint: raise it when the same corpus or law comes to give other batches."""


def refuse_fields(run: Run, data: bool = False) -> None:
    """Refuse fields that this input does not read."""
    if run.sequence_length is not None and run.batching != "fixed":
        raise ValueError(
            f"sequence_length {run.sequence_length} is for inputs 'synthetic' and for batching 'fixed': {run.inputs!r} has lengths of "
            "its own, leave it out"
        )
    if not data:
        no_files(run)


def fixed_width(run: Run) -> int | None:
    """Words to which both sides of every sentence are padded (and cut) under batching "fixed"; otherwise None."""
    return (run.sequence_length or LONGEST) if run.batching == "fixed" else None


def batching_mark(run: Run) -> tuple[object, ...]:
    """What batching adds to a fingerprint: nothing for the document's own."""
    return () if run.batching == "own" else (f"batching {run.batching}", fixed_width(run))


def vocabulary_sizes(model: Model) -> tuple[int, int]:
    """Entries of source and target vocabulary, the special ones included."""
    sizes = (int(model.config.source_vocabulary), int(model.config.target_vocabulary))
    if min(sizes) <= len(SPECIAL):
        raise ValueError(f"model {model.name!r} has vocabularies of {sizes[0]} and {sizes[1]} entries: each needs more than {len(SPECIAL)}")
    return sizes


class DrawnText(Source):
    """Sentences whose lengths a law gives and whose words are drawn evenly from all but the special entries.

    Each (seed, step within the period, rank) draws by itself, so any rank can draw any shard, and nothing is kept but the
    lengths of the last steps asked for. Under batching "shared" all ranks take the buckets that rank 0 draws, under "fixed"
    every sentence draws its own.

    words: of every sentence and side; None: drawn by the law of `multigpu.inputs.lengths`. means: every sentence has its bucket's
        mean length instead.
    """

    period: int

    def __init__(self, run: Run, model: Model, label: str, period: int, words: int | None, means: bool = False) -> None:
        self.label, self.period = label, period
        self._sizes, self._seed, self._words, self._means = run.shard_sizes, run.seed, words, means
        self._width = fixed_width(run)
        self._vocabularies = vocabulary_sizes(model)
        deciding = [0 if run.batching == "shared" else rank for rank in range(len(self._sizes))]
        self._buckets = [law.draw_buckets(np.random.default_rng([run.seed, rank, 0])) for rank in deciding]
        self._lengths = lru_cache(maxsize=2 * len(self._sizes))(self._draw_lengths)
        self.capacity = capacity_of(shape for step in range(period) for shape in self.shapes(step))
        self.fingerprint = fingerprint(LAYOUT_VERSION, label, words, run.seed, *self._vocabularies, *batching_mark(run))

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
    """Every sentence exactly `run.sequence_length` words on both sides (default 100); one batch a shard, the same in every step."""
    no_files(run)
    return DrawnText(run, model, "synthetic", 1, run.sequence_length or SYNTHETIC_WORDS)


def lengths_000(run: Run, model: Model) -> DrawnText:
    """Lengths by the law of `multigpu.inputs.lengths`; each shard draws its own bucket in each step (or all share one, or there
    is none, as `run.batching` says); 30 steps, then again.

    48.37 words a pair by the law; the six buckets hold 15.1, 31.5, 24.8, 14.7, 7.6 and 6.3 percent of the sentences, and in
    30 steps of a shard 5, 9, 7, 5, 2 and 2 batches.
    """
    refuse_fields(run)
    return DrawnText(run, model, "synthetic lengths of 000", law.PERIOD, None)


def bucket_means_000(run: Run, model: Model) -> DrawnText:
    """As `lengths_000`, but all sentences of a bucket have its mean length, so nothing is padded and there are six shapes of shards.

    A captured step needs a graph for each shape of step: six where replicas share the bucket, and one for every combination of
    the replicas' buckets where each draws its own.
    """
    refuse_fields(run)
    if run.batching == "fixed":
        raise ValueError(f"batching 'fixed' has no buckets, and inputs {run.inputs!r} are made of their means: choose own or shared")
    return DrawnText(run, model, "bucket means of 000", law.PERIOD, None, means=True)
