"""Which sentences share a step: a corpus's own buckets, a shared bucket, or one width; document 000's buckets and lengths."""

from collections import Counter
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.inputs import drawn_text as law
from multigpu.inputs.drawn_text import bucket_means_000, lengths_000
from multigpu.inputs.plans import bucket_of, plan_epoch
from multigpu.inputs.text import catalogs, text_files
from multigpu.paths import REPOSITORY
from multigpu.published import load_published, published_value
from tests.inputs.stand_ins import corpus_files, make_run, make_text_model

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=8)
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


def test_the_law_has_the_mean_of_document_000():
    table = load_published("000_experiments")
    table = table[table["experiment"] != "Exp5"]
    pairs = published_value("000_statements", "mini_batches") * table["batch_size"] * table["gpus"]
    published = table["total_time_s"] * table["words_per_s"] / pairs
    words_a_pair = 2 * law.target_probabilities() @ law.WORDS + 1  # a source's mean is its target's length
    assert published.min() < words_a_pair < published.max()
    assert words_a_pair == pytest.approx(48.37, abs=0.005)
    assert law.target_probabilities().sum() == pytest.approx(1)


def test_the_docstring_and_the_readme_state_the_shares():
    shares = [f"{100 * share:.1f}" for share in law.bucket_shares()]
    assert ", ".join(shares[:-1]) + f" and {shares[-1]} percent" in " ".join(str(law.__doc__).split())
    readme = (REPOSITORY / "data" / "README.md").read_text(encoding="utf-8")
    assert "| share of sentences, the law | " + " | ".join(f"{share}%" for share in shares) + " |" in readme
    counts = np.bincount(law.draw_buckets(np.random.default_rng(0)))
    assert "| batches in every 30 steps of a shard | " + " | ".join(map(str, counts)) + " |" in readme


@pytest.mark.parametrize("bucket", range(6))
def test_lengths_stay_in_their_bucket_and_sources_near_their_targets(bucket: int):
    source, target = law.draw_lengths(np.random.default_rng(bucket), bucket, 5000)
    assert set(bucket_of(target).tolist()) == {bucket} and source.min() >= 1 and 1 <= target.min() <= target.max() <= law.LONGEST
    assert (abs(source - target) <= target // law.SPREAD).all()
    weights = law.target_probabilities(bucket)
    expected = weights @ law.WORDS / weights.sum()
    assert target.mean() == pytest.approx(expected, rel=0.02) and source.mean() == pytest.approx(expected, rel=0.03)


def test_thirty_steps_hold_the_shares_and_ten_nearly_do():
    shares = law.bucket_shares()
    orders = set()
    for seed in range(20):
        drawn = law.draw_buckets(np.random.default_rng(seed))
        assert np.bincount(drawn, minlength=6).tolist() == [5, 9, 7, 5, 2, 2]
        for ten in drawn.reshape(3, 10):
            # one of every three neighbouring strata: only the two at a bucket's ends can be off by one
            assert (abs(np.bincount(ten, minlength=6) - 10 * shares) < 2).all()
        orders.add(tuple(drawn.tolist()))
    assert len(orders) == 20
    assert max(abs(np.array([5, 9, 7, 5, 2, 2]) / 30 - shares)) < 1 / 30


def buckets_of_step(source: Any, step: int, ranks: int) -> list[set[int]]:
    """The buckets of each shard of a step."""
    return [set(bucket_of(source.batch(step, rank).arrays["target_length"] - 1).tolist()) for rank in range(ranks)]


@pytest.mark.parametrize("inputs", [lengths_000, catalogs])
def test_shared_shares_and_own_does_not(inputs: Any):
    ranks, steps = 6, range(30)
    shared, own = (inputs(make_run([16] * ranks, "x", batching=batching), MODEL) for batching in ("shared", "own"))
    assert all(len(set.union(*buckets_of_step(shared, step, ranks))) == 1 for step in steps)
    parts = [buckets_of_step(own, step, ranks) for step in steps]
    assert all(len(part) == 1 for step in parts for part in step) and sum(len(set.union(*step)) > 1 for step in parts) > 25
    assert shared.fingerprint != own.fingerprint
    # the same words a step on average: the modes draw from one law, or share out one corpus
    if shared.period:
        counts = [sum(source.batch(step, rank).units for step in steps for rank in range(ranks)) for source in (shared, own)]
        assert counts[0] == pytest.approx(counts[1], rel=0.02)


def test_the_documents_own_batches_are_those_of_the_committed_records():
    run = make_run([4, 4, 3], "x", seed=3)
    assert [inputs(run, MODEL).fingerprint[:16] for inputs in (lengths_000, catalogs)] == ["14a3c0cfc531d4d2", "41e6c63f562aa4cc"]
    assert lengths_000(run, MODEL).capacity == {"source_embedding": 360, "target_embedding": 332}


@settings(max_examples=5)
@given(SIZES, st.integers(0, 1000))
def test_fixed_pads_every_step_to_one_width_and_counts_words_unpadded(sizes: list[int], seed: int):
    source, short = (lengths_000(make_run(sizes, "x", seed, sequence_length=words, batching="fixed"), MODEL) for words in (None, 20))
    for step, (rank, sentences) in product(range(3), enumerate(sizes)):
        for each, width in ((source, 100), (short, 20)):
            batch = each.batch(step, rank)
            lengths = batch.arrays["source_length"], batch.arrays["target_length"]
            assert batch.arrays["source"].shape == (sentences, width)
            assert batch.arrays["target_output"].shape == batch.arrays["target_input"].shape == (sentences, width + 1)
            assert batch.units == lengths[0].sum() + lengths[1].sum() and batch.loss_terms[rank] == lengths[1].sum()
            assert batch.padded_units == sentences * (2 * width + 1)
            assert lengths[0].max() <= width and lengths[1].max() <= width + 1
        drawn = source.batch(step, rank).arrays["source_length"]
        assert np.array_equal(short.batch(step, rank).arrays["source_length"], np.minimum(drawn, 20))
    assert source.capacity == {"source_embedding": max(sizes) * 100, "target_embedding": max(sizes) * 101}


def test_fixed_cuts_a_corpus_to_its_width(tmp_path: Any):
    lengths = [(3, 4), (9, 2), (2, 12), (5, 5)]
    source = text_files(make_run([2, 2], "text_files", data=corpus_files(tmp_path, lengths), sequence_length=5, batching="fixed"), MODEL)
    assert source.steps_per_epoch == 1
    batches = [source.batch(0, rank) for rank in range(2)]
    assert [batch.arrays["source_length"].tolist() for batch in batches] == [[3, 5], [2, 5]]
    assert [(batch.arrays["target_length"] - 1).tolist() for batch in batches] == [[4, 2], [5, 5]]
    assert {batch.arrays["target_output"].shape for batch in batches} == {(2, 6)}
    assert source.items(0, 1).tolist() == [2, 3] and source.count == 4


def test_bucket_means_need_one_shape_a_bucket_where_the_bucket_is_shared():
    def shapes(batching: str) -> set[Any]:
        source = bucket_means_000(make_run([16] * 4, "bucket_means_000", batching=batching), MODEL)
        return {source.shapes(step) for step in range(30)}

    shared, own = shapes("shared"), shapes("own")
    assert len(shared) == 6 and len(own) > 8
    assert all(each.units == each.sentences * (each.source_width + each.target_width) for step in shared for each in step)
    pairs = [step[0].units / step[0].sentences for step in shared]
    assert all(later > earlier for earlier, later in pairwise(sorted(pairs)))
    source = bucket_means_000(make_run([16], "bucket_means_000"), MODEL)
    assert sum(source.shapes(step)[0].units for step in range(30)) / (30 * 16) == pytest.approx(48.37, abs=1)


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
    assert plain.fingerprint == text_files(make_run([7], "text_files", data=files, seed=1), MODEL).fingerprint
