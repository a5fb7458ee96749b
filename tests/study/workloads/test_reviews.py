"""Rows of the two towers: what a planted rating follows, and what is refused."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multigpu.inputs.sentences import SPECIAL
from multigpu_study.workloads.deepconn.reviews import HELD_OUT, DrawnReviews, PlantedReviews
from tests.multigpu.inputs.stand_ins import make_run
from tests.refusals import refused


def make_model(vocabulary: int = 43, length: int = 40) -> Any:
    return SimpleNamespace(name="m", config=SimpleNamespace(vocabulary=vocabulary, length=length))


def test_a_planted_rating_follows_the_words_of_both_texts() -> None:
    """By hand: 40 words of 40 entries, four fifths from the half that praises, or from the other.
    A text of which most words are from the first half praises.
    """
    source = PlantedReviews(make_run([8], "planted_reviews"), make_model())
    words, ratings = source.held_out()
    assert words.shape == (HELD_OUT, 80) and words.min() == len(SPECIAL) and words.max() == 42
    praising = (words < len(SPECIAL) + 20).reshape(HELD_OUT, 2, 40).mean(axis=2)
    assert set(ratings) == {1, 3, 5} and ratings.var() > 1
    assert np.array_equal(ratings, 1 + 2 * (praising > 0.5).sum(axis=1))
    assert abs(np.where(praising > 0.5, praising, 1 - praising).mean() - 0.8) < 0.01


def test_a_planted_row_is_trained_on_or_held_out() -> None:
    source = PlantedReviews(make_run([8], "planted_reviews"), make_model())
    held = {row.tobytes() for row in source.held_out()[0]}
    read = set[bytes]()
    for step in range(source.steps_per_epoch):
        words = source.batch(step, 0).arrays["words"]
        assert isinstance(words, np.ndarray)
        read |= {row.tobytes() for row in words}
    assert len(read) == source.count == 3600 and read.isdisjoint(held) and len(held) == HELD_OUT


@pytest.mark.parametrize("make", [DrawnReviews, PlantedReviews])
def test_what_cannot_be_had_is_refused(make: Any) -> None:
    with_files = make_run([1], "synthetic", data=("a",))
    refused("reads no files: leave out data, which names a", make, with_files, make_model())
    few = "vocabulary of 4 entries: it needs more than 4"
    refused(few, make, make_run([1], "synthetic"), make_model(vocabulary=4))
