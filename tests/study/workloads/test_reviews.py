import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multigpu.inputs.sentences import SPECIAL, UNK
from multigpu_study.workloads.deepconn.review_lines import (
    PlantedReviews,
    Review,
    read_reviews,
    review_words,
)
from multigpu_study.workloads.deepconn.reviews import (
    PADDING,
    DrawnReviews,
    StoredReviews,
    encode_reviews,
    planted_reviews,
    review_file,
)
from tests.multigpu.inputs.stand_ins import make_run
from tests.refusals import refused

TABLE = "word_embeddings"


def make_model(vocabulary: int = 100, length: int = 6) -> Any:
    return SimpleNamespace(name="m", config=SimpleNamespace(vocabulary=vocabulary, length=length))


def line(user: str, item: str, text: str, rating: float = 4.0, **more: Any) -> str:
    return json.dumps(
        {"reviewerID": user, "asin": item, "reviewText": text, "overall": rating, **more}
    )


def write(folder: Path, *lines: str) -> Path:
    path = folder / "reviews.json"
    path.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    return path


def read(path: Path, length: int = 6, batch: int = 1, vocabulary: int = 100) -> StoredReviews:
    return review_file(
        make_run([batch], "reviews", data=(str(path),)), make_model(vocabulary, length)
    )


def texts_of(source: StoredReviews, length: int) -> dict[float, tuple[list[int], list[int]]]:
    """Of every row, by its rating (which the tests make unique), the ids of the user's and of the
    item's text.
    """
    found = {}
    pairs = [source.batch(step, 0).arrays for step in range(source.steps_per_epoch)]
    for words, ratings in [(a["words"], a["ratings"]) for a in pairs] + [source.held_out()]:
        for text, rating in zip(words, ratings, strict=True):  # type: ignore[arg-type]
            found[float(rating)] = (text[:length].tolist(), text[length:].tolist())
    return found


def test_words_are_lower_case_and_keep_only_the_apostrophe() -> None:
    assert review_words("Don't STOP -- it's (really) good!!1\n") == [
        "don't",
        "stop",
        "it's",
        "really",
        "good",
        "1",
    ]
    assert review_words("half \ud83d a smile") == ["half", "a", "smile"]


def test_a_text_is_what_others_rows_say_and_never_the_rows_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Against a plain loop over all reviews, with texts that are cut off, and users and items whom
    nobody else tells of.
    """
    rng = np.random.default_rng(0)
    reviews, ratings = [], iter(np.arange(1, 100) / 8)
    for user in range(9):
        for item in rng.permutation(7)[: rng.integers(1, 6)]:
            words = " ".join(f"w{n}" for n in rng.integers(0, 30, rng.integers(0, 5)))
            reviews.append(Review(f"U{user}", f"I{item}", words, float(next(ratings))))
    reviews.append(Review("alone", "nowhere", "w1 w2", float(next(ratings))))
    source = read(write(tmp_path, *(line(r.user, r.item, r.text, r.rating) for r in reviews)))
    encoded = encode_reviews(read_reviews(tmp_path / "reviews.json"), 100)
    training = set(encoded.training.tolist())
    assert training.isdisjoint(encoded.held_out.tolist()) and len(training) + len(
        encoded.held_out
    ) == len(reviews)
    assert len(encoded.held_out) == round(len(reviews) / 10)

    def told(own: int, side: str) -> list[str]:
        others = [
            n
            for n in sorted(training - {own})
            if getattr(reviews[n], side) == getattr(reviews[own], side)
        ]
        return [word for n in others for word in reviews[n].text.split()]

    counts: dict[str, int] = {}
    for row in training:
        for word in reviews[row].text.split():
            counts[word] = counts.get(word, 0) + 1
    numbers = {
        word: n
        for n, word in enumerate(
            sorted(counts, key=lambda word: (-counts[word], word)), len(SPECIAL)
        )
    }
    found = texts_of(source, 6)
    for row, review in enumerate(reviews):
        for side, text in zip(("user", "item"), found[review.rating], strict=True):
            expected = [numbers[word] for word in told(row, side)][:6]
            assert text == expected + [PADDING] * (6 - len(expected)), (row, side)
    assert found[reviews[-1].rating] == ([PADDING] * 6, [PADDING] * 6)
    silent = [row for row in training if not told(row, "user") or not told(row, "item")]
    assert (
        f"{len(silent)} training rows whose user or item nobody else tells of" in caplog.text
        and silent
    )


def test_a_vocabulary_ends_at_its_limit_and_the_rest_is_unknown(tmp_path: Path) -> None:
    path = write(
        tmp_path, *(line(f"U{n}", f"I{n % 3}", f"often often rare{n}", n / 4) for n in range(20))
    )
    words: Any = read(path, vocabulary=4).batch(0, 0).arrays["words"]
    assert set(words.ravel().tolist()) == {len(SPECIAL), UNK} and words[0, 6:].tolist() == [
        3,
        3,
        UNK,
        3,
        3,
        UNK,
    ]
    refused("vocabulary of 3 entries: it needs more than 3", read, path, vocabulary=3)


def test_a_later_review_of_one_item_by_one_user_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = read(write(tmp_path, *(line("U", f"I{n % 5}", f"w{n}", n / 2) for n in range(10))))
    assert "5 later reviews" in caplog.text and sorted(texts_of(source, 6)) == [0, 0.5, 1, 1.5, 2]


GOOD = line("U", "I", "fine")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            "{'reviewerID': 1}",
            (
                "line 2 of {} is not JSON: expecting property name enclosed in double quotes at"
                " character 2"
            ),
        ),
        ("", "line 2 of {} is not JSON: expecting value at character 1"),
        (
            "[1, 2]",
            (
                "line 2 of {} is not a JSON object: a review needs reviewerID, asin, reviewText,"
                " overall"
            ),
        ),
        (
            "[" * 100_000,
            "line 2 of {} cannot be read as JSON: it holds a number too long, or lists too deep",
        ),
        (
            '{"reviewerID": "U", "asin": "I", "overall": 3}',
            "line 2 of {} has no reviewText: a review needs",
        ),
        (line("U", "I", "x").replace('"I"', "7"), "line 2 of {} has asin '7': it must be a text"),
        (
            line("U", "I", "x").replace("4.0", '"4"'),
            "line 2 of {} has overall '4': it must be a number",
        ),
        (
            line("U", "I", "x").replace("4.0", "true"),
            "line 2 of {} has overall 'True': it must be a number",
        ),
        (line("U", "I", "x", float("nan")), "line 2 of {} has overall 'nan': it must be a number"),
        (
            line("U", "I", "x").replace("4.0", "1" + "0" * 400),
            "line 2 of {} has overall '1000000000000000000000000000000000000000'",
        ),
    ],
    ids=[
        "no JSON",
        "blank",
        "no object",
        "too deep",
        "no field",
        "no text",
        "a text",
        "a truth",
        "no number",
        "too large",
    ],
)
def test_a_bad_line_is_refused_by_its_number(bad: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, bad, GOOD)
    assert refused(".", read, path).startswith(said.format(path))


def test_files_that_cannot_be_trained_on_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    refused(r"empty\.json is empty", read, tmp_path / "empty.json")
    refused("does not exist", read, tmp_path / "none.json")
    refused(r"reviews\.json has 1 rows: at least 2 are needed", read, write(tmp_path, GOOD))
    path = write(tmp_path, *(line(f"U{n}", "I", "x") for n in range(10)))
    refused(
        "a global batch of 10 rows needs at least as many: the data set has 9", read, path, batch=10
    )
    for data in (None, ("a", "b")):
        refused(
            "needs data to name one file of reviews",
            review_file,
            make_run([1], "reviews", data=data),
            make_model(),
        )
    for make in (DrawnReviews, planted_reviews):
        refused(
            "reads no files: leave out data, which names a",
            make,
            make_run([1], "synthetic", data=("a",)),
            make_model(),
        )


def test_planted_reviews_are_those_of_a_file_that_holds_them(tmp_path: Path) -> None:
    planted = PlantedReviews(3, users=12, items=6, each=4)
    path = write(
        tmp_path, *(line(r.user, r.item, r.text, r.rating, summary="not read") for r in planted)
    )
    assert list(read_reviews(path)) == list(planted)
    packed = tmp_path / "reviews.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert (
        list(read_reviews(packed)) == list(planted)
        and read_reviews(packed).fingerprint == read_reviews(path).fingerprint
    )
    ours, theirs = encode_reviews(planted, 40), encode_reviews(read_reviews(path), 40)
    assert np.array_equal(ours.user.ids, theirs.user.ids) and np.array_equal(
        ours.training, theirs.training
    )
    assert ours.fingerprint != theirs.fingerprint
    ratings = [r.rating for r in PlantedReviews(0)]
    assert len(ratings) == 4000 and set(ratings) == {1, 2, 3, 4, 5} and np.var(ratings) > 1
