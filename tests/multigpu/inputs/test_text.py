"""Text: which sentences share a step (a corpus's own buckets, a shared bucket, or one width),
document 000's lengths, and all counts.
"""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.inputs import drawn_text as law
from multigpu.inputs.batch import Batch
from multigpu.inputs.drawn_text import bucket_means_000, lengths_000, synthetic_text
from multigpu.inputs.plans import bucket_of, plan_epoch
from multigpu.inputs.sentences import EOS, SOS
from multigpu.inputs.text import catalogs, text_files
from multigpu.paths import REPOSITORY
from tests.multigpu.inputs.stand_ins import (
    corpus_files,
    make_run,
    make_text_model,
    same,
    shard_lists,
)
from tests.refusals import refused

SIZES = shard_lists()
MODEL = make_text_model()


def test_buckets_are_those_of_document_000():
    words = np.array([0, 1, 9, 10, 19, 20, 39, 40, 49, 50, 51, 1000])
    assert bucket_of(words).tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 5]


@pytest.mark.parametrize(
    ("buckets", "sizes", "plan"),
    [
        # sentences of buckets 0 and 1 take turns, so two shards of two fill up in turn
        ([0, 1, 0, 1, 1, 0, 0, 1], [2, 2], [[0, 2, 1, 3], [5, 6, 4, 7]]),
        # two of bucket 1 wait while rank 0 needs three; rank 1 needs two and takes them at once
        ([1, 1, 2, 2, 2, 0, 0, 0], [3, 2], [[2, 3, 4, 0, 1], [5, 6, 7, 2, 3]]),
        # the last step is filled up from the beginning
        ([0, 0, 0, 0, 0], [2, 1], [[0, 1, 2], [3, 4, 0]]),
    ],
)
def test_plans_by_hand(buckets: list[int], sizes: list[int], plan: list[list[int]]):
    assert plan_epoch(np.array(buckets), sizes).tolist() == plan


def test_the_law_has_the_mean_and_the_shares_that_docstring_and_readme_state():
    # a source's mean is its target's length
    words_a_pair = 2 * law.target_probabilities() @ law.WORDS + 1
    assert words_a_pair == pytest.approx(48.37, abs=0.005)
    shares = [f"{100 * share:.1f}" for share in law.bucket_shares()]
    assert ", ".join(shares[:-1]) + f" and {shares[-1]} percent" in " ".join(
        str(law.__doc__).split()
    )
    readme = (REPOSITORY / "data" / "README.md").read_text(encoding="utf-8")
    assert (
        "| share of sentences, the law | " + " | ".join(f"{share}%" for share in shares) + " |"
        in readme
    )
    counts = np.bincount(law.draw_buckets(np.random.default_rng(0)))
    assert (
        "| batches in every 30 steps of a shard | " + " | ".join(map(str, counts)) + " |" in readme
    )


def test_thirty_steps_hold_the_shares_and_ten_nearly_do():
    """Of one of every three neighbouring strata only the two at a bucket's ends can be off by
    one.
    """
    every = [law.draw_buckets(np.random.default_rng(seed)) for seed in range(20)]
    assert all(np.bincount(drawn, minlength=6).tolist() == [5, 9, 7, 5, 2, 2] for drawn in every)
    tens = [np.bincount(ten, minlength=6) for drawn in every for ten in drawn.reshape(3, 10)]
    assert (abs(np.array(tens) - 10 * law.bucket_shares()) < 2).all() and len(
        {tuple(drawn) for drawn in every}
    ) == 20


@pytest.mark.parametrize("inputs", [lengths_000, catalogs])
def test_shared_shares_and_own_does_not(inputs: Any):
    ranks, steps = 6, range(30)
    sources = [
        inputs(make_run([16] * ranks, "x", batching=batching), MODEL)
        for batching in ("shared", "own")
    ]
    every = [
        [[source.batch(step, rank) for rank in range(ranks)] for step in steps]
        for source in sources
    ]
    shared, own = (
        [
            [set(bucket_of(batch.arrays["target_length"] - 1).tolist()) for batch in step]
            for step in batches
        ]
        for batches in every
    )
    assert all(len(set.union(*step)) == 1 for step in shared)
    assert (
        all(len(part) == 1 for step in own for part in step)
        and sum(len(set.union(*step)) > 1 for step in own) > 25
    )
    assert sources[0].fingerprint != sources[1].fingerprint
    # the same words a step on average: the modes draw from one law, or share out one corpus
    if sources[0].period:
        counts = [sum(batch.units for step in batches for batch in step) for batches in every]
        assert counts[0] == pytest.approx(counts[1], rel=0.02)


def test_the_documents_own_batches_are_those_of_the_committed_records():
    run = make_run([4, 4, 3], "x", seed=3)
    assert [inputs(run, MODEL).fingerprint[:16] for inputs in (lengths_000, catalogs)] == [
        "14a3c0cfc531d4d2",
        "41e6c63f562aa4cc",
    ]
    assert lengths_000(run, MODEL).capacity == {"source_embedding": 360, "target_embedding": 332}


@settings(max_examples=5)
@given(SIZES, st.integers(0, 1000))
def test_fixed_pads_every_step_to_one_width_and_counts_words_unpadded(sizes: list[int], seed: int):
    source, short = (
        lengths_000(make_run(sizes, "x", seed, sequence_length=words, batching="fixed"), MODEL)
        for words in (None, 20)
    )
    for step, (rank, sentences) in product(range(3), enumerate(sizes)):
        for each, width in ((source, 100), (short, 20)):
            batch = each.batch(step, rank)
            lengths = batch.arrays["source_length"], batch.arrays["target_length"]
            assert batch.arrays["source"].shape == (sentences, width)
            assert (
                batch.arrays["target_output"].shape
                == batch.arrays["target_input"].shape
                == (sentences, width + 1)
            )
            assert (
                batch.units == lengths[0].sum() + lengths[1].sum()
                and batch.loss_terms[rank] == lengths[1].sum()
            )
            assert batch.padded_units == sentences * (2 * width + 1)
            assert lengths[0].max() <= width and lengths[1].max() <= width + 1
        drawn = source.batch(step, rank).arrays["source_length"]
        assert np.array_equal(
            short.batch(step, rank).arrays["source_length"], np.minimum(drawn, 20)
        )
    assert source.capacity == {
        "source_embedding": max(sizes) * 100,
        "target_embedding": max(sizes) * 101,
    }


def test_fixed_cuts_a_corpus_to_its_width(tmp_path: Any):
    lengths = [(3, 4), (9, 2), (2, 12), (5, 5)]
    source = text_files(
        make_run(
            [2, 2],
            "text_files",
            data=corpus_files(tmp_path, lengths),
            sequence_length=5,
            batching="fixed",
        ),
        MODEL,
    )
    batches = [source.batch(0, rank) for rank in range(2)]
    assert [batch.arrays["source_length"].tolist() for batch in batches] == [[3, 5], [2, 5]]
    assert [(batch.arrays["target_length"] - 1).tolist() for batch in batches] == [[4, 2], [5, 5]]
    assert {batch.arrays["target_output"].shape for batch in batches} == {(2, 6)}
    assert source.items(0, 1).tolist() == [2, 3] and source.count == 4


def test_bucket_means_need_one_shape_a_bucket_where_the_bucket_is_shared():
    def shapes(sizes: list[int], batching: str) -> list[Any]:
        source = bucket_means_000(make_run(sizes, "bucket_means_000", batching=batching), MODEL)
        return [source.shapes(step) for step in range(30)]

    shared = set(shapes([16] * 4, "shared"))
    own = set(shapes([16] * 4, "own"))
    alone = shapes([16], "own")
    assert len(shared) == 6 and len(own) > 8 and len({step[0].units for step in shared}) == 6
    assert all(
        each.units == each.sentences * (each.source_width + each.target_width)
        for step in shared
        for each in step
    )
    assert sum(step[0].units for step in alone) / (30 * 16) == pytest.approx(48.37, abs=1)


def test_shuffling_changes_the_order_in_every_epoch_and_not_the_sentences(tmp_path: Any):
    files = corpus_files(tmp_path, [(3, 3)] * 40)
    plain, shuffled, other = (
        text_files(make_run([5], "text_files", data=files, seed=seed, shuffle=shuffle), MODEL)
        for seed, shuffle in ((0, False), (0, True), (1, True))
    )
    in_order, first, second = (
        [item for step in range(begin, begin + 8) for item in source.items(step, 0).tolist()]
        for source, begin in ((plain, 8), (shuffled, 0), (shuffled, 8))
    )
    assert in_order == list(range(40)) and Counter(first) == Counter(second) == Counter(in_order)
    assert in_order != first != second and shuffled.label == f"{plain.label}, shuffled"
    assert len({plain.fingerprint, shuffled.fingerprint, other.fingerprint}) == 3
    assert (
        plain.fingerprint
        == text_files(make_run([7], "text_files", data=files, seed=1), MODEL).fingerprint
    )


def recount(batch: Batch) -> dict[str, Any]:
    """Every count of a batch from its arrays; asserts the arrays' own rules on the way."""
    a = {name: np.asarray(array) for name, array in batch.arrays.items()}
    assert all(
        array.dtype == np.int64 and array.flags.writeable and array.flags.c_contiguous
        for array in a.values()
    )
    for side, lengths in (
        ("source", a["source_length"]),
        ("target_output", a["target_length"] - 1),
    ):
        assert (
            lengths.min() >= 1
            and ((a[side] == EOS) == (np.arange(a[side].shape[1]) >= lengths[:, None])).all()
        )
    assert (a["target_input"][:, 0] == SOS).all() and np.array_equal(
        a["target_input"][:, 1:], a["target_output"][:, :-1]
    )
    # padded to the longest of the batch and no further
    assert (a["source_length"].max(), a["target_length"].max()) == (
        a["source"].shape[1],
        a["target_output"].shape[1],
    )
    lookups = {"source_embedding": a["source"].size, "target_embedding": a["target_input"].size}
    terms = a["target_length"].sum()
    return {
        "units": a["source_length"].sum() + terms,
        "padded_units": sum(lookups.values()),
        "terms": terms,
        "lookups": lookups,
    }


def check_step(
    source: Any, step: int, sizes: list[int], vocabularies: tuple[int, int] = (1000, 900)
) -> list[Batch]:
    """The shards of one step: counts equal a recount, every rank states every shard's."""
    batches = [source.batch(step, rank) for rank in range(len(sizes))]
    counts = [recount(batch) for batch in batches]
    for rank, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        assert (batch.rank, len(batch.arrays["source"])) == (rank, sizes[rank])
        assert (batch.units, batch.padded_units) == (count["units"], count["padded_units"])
        assert batch.loss_terms == tuple(each["terms"] for each in counts)
        assert batch.lookups == tuple(each["lookups"] for each in counts)
        assert all(
            rows <= source.capacity[name] for each in batch.lookups for name, rows in each.items()
        )
        for side, entries in zip(("source", "target_output"), vocabularies, strict=True):
            assert 0 <= batch.arrays[side].min() <= batch.arrays[side].max() < entries
    return batches


@given(SIZES, st.integers(2, 30), st.integers(0, 2**31))
def test_synthetic_sentences_have_the_length_asked_for(sizes: list[int], length: int, seed: int):
    source = synthetic_text(make_run(sizes, sequence_length=length, seed=seed), MODEL)
    for batch, size in zip(check_step(source, 0, sizes), sizes, strict=True):
        assert batch.units == batch.padded_units == size * (2 * length + 1) and batch.arrays[
            "source"
        ].shape == (size, length)
        assert same(batch, source.batch(7, batch.rank)) and batch.arrays["source"].min() > EOS
    assert source.capacity == {
        "source_embedding": max(sizes) * length,
        "target_embedding": max(sizes) * (length + 1),
    }
    assert synthetic_text(make_run([128]), MODEL).batch(0, 0).units == 201 * 128, (
        "words a pair where no length is given: Exp5's"
    )


@settings(max_examples=15)
@given(SIZES, st.integers(0, 1000))
def test_lengths_000_counts_and_repeats(sizes: list[int], seed: int):
    source, twin = (lengths_000(make_run(sizes, "lengths_000", seed), MODEL) for _ in range(2))
    batches = [batch for step in range(30) for batch in check_step(source, step, sizes)]
    assert all(len(set(bucket_of(batch.arrays["target_length"] - 1))) == 1 for batch in batches)
    assert all(
        same(batch, twin.batch(30 + place // len(sizes), batch.rank))
        for place, batch in enumerate(batches)
    )
    assert source.capacity == {
        name: max(batch.lookups[batch.rank][name] for batch in batches) for name in source.capacity
    }


@given(st.data(), shard_lists(5, 6))
def test_an_epoch_of_a_corpus_covers_it_and_shards_are_disjoint(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: list[int]
):
    """Every pair's words have one number, by which it is known."""
    joined, seen, together = sum(sizes), Counter(), set()
    pairs = data.draw(
        st.lists(
            st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=joined, max_size=joined + 40
        )
    )
    files = corpus_files(tmp_path_factory.mktemp("corpus"), pairs)
    source, again = (text_files(make_run(sizes, "text_files", data=files), MODEL) for _ in range(2))
    for step in range(source.steps_per_epoch):
        arrays = [batch.arrays for batch in check_step(source, step, sizes)]
        numbers = [int(row[0]) for each in arrays for row in each["source"]]
        assert len(set(numbers)) == joined
        seen.update(numbers)
        together |= {
            pair
            for each in arrays
            for pair in zip(each["source_length"], each["target_length"] - 1, strict=True)
        }
    assert (
        len(seen) == len(pairs)
        and together == set(pairs)
        and sum(seen.values()) - len(pairs) < joined
    )
    step = data.draw(st.integers(0, 3 * source.steps_per_epoch))
    assert all(
        same(source.batch(step, rank), again.batch(step % again.steps_per_epoch, rank))
        for rank in range(len(sizes))
    )


def test_empty_sides_are_left_out_and_long_sentences_cut_and_both_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    files = corpus_files(tmp_path, [(3, 3), (0, 4), (2, 0), (150, 100), (101, 101)])
    source = text_files(make_run([3], "text_files", data=files), MODEL)
    assert (
        source.steps_per_epoch == 1
        and "2 pairs with an empty side left out, 3 sentences cut to 100 words" in caplog.text
    )
    assert source.batch(0, 0).arrays["source_length"].max() == 100


def test_every_error_is_one_sentence(tmp_path: Path):
    files = corpus_files(tmp_path, [(3, 3), (2, 2)])
    blank = corpus_files(tmp_path, [(3, 3), (2, 2)])[0], str(tmp_path / "blank")
    (tmp_path / "blank").write_text("\n\n")
    cases = [
        (
            synthetic_text,
            {"data": files},
            "inputs 'x' reads no files: leave out data, which names .*train.en, .*train.de",
        ),
        (catalogs, {"data": files}, "inputs 'x' reads no files: leave out data, which names .*"),
        (
            lengths_000,
            {"sequence_length": 50},
            (
                "sequence_length 50 is for inputs 'synthetic' and for batching 'fixed': 'x' has"
                " lengths of its own, leave it out"
            ),
        ),
        (
            bucket_means_000,
            {"batching": "fixed"},
            "batching 'fixed' has no buckets, and inputs 'x' are made of .*: choose own or shared",
        ),
        (text_files, {}, "inputs 'x' needs data to name two files, source and target: it names 0"),
        (text_files, {"data": ("a", "b")}, "text file a does not exist"),
        (text_files, {"data": blank}, "no line has words in both .*train.en and .*blank"),
        (
            text_files,
            {"data": files},
            (
                ".*train.en and .*train.de: a global batch of 4 sentences needs at least as many:"
                " the data set has 2"
            ),
        ),
    ]
    for factory, fields, sentence in cases:
        refused(f"^{sentence}$", factory, make_run([2, 2], "x", **fields), MODEL)
    refused(
        r"^model 'm' has vocabularies of 3 and 900 entries: each needs more than 3$",
        synthetic_text,
        make_run([2]),
        make_text_model(3),
    )
