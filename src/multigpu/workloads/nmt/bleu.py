"""BLEU as sacrebleu counts it, and the two answers that need no training: the floors that a trained model has to beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of a corpus, 0 to 100: sacrebleu's defaults (its tokeniser 13a, exponential smoothing, case kept), one reference each.

    Raises:
        ValueError: there is nothing to score, or the numbers of both differ.
    """
    import sacrebleu

    if not references or len(translations) != len(references):
        raise ValueError(f"BLEU compares as many translations as references, at least one: {len(translations)} and {len(references)}")
    return float(sacrebleu.corpus_bleu(list(translations), [list(references)]).score)


def floors(sources: Sequence[str], references: Sequence[str], training_targets: Sequence[str]) -> dict[str, float]:
    """BLEU of answers that no model gives.

    "copy": every source as its own translation (names, formats and signs are right at once). "most_frequent": the most frequent
    training target, always (of equals the first).

    Raises:
        ValueError: as `corpus_bleu`, or there is no training target.
    """
    if not training_targets:
        raise ValueError("the most frequent translation needs at least one training target")
    most = Counter(training_targets).most_common(1)[0][0]
    return {"copy": corpus_bleu(sources, references), "most_frequent": corpus_bleu([most] * len(references), references)}
