"""Which sentences share a step: a corpus's own buckets, a shared bucket, or one width; document 000's buckets and lengths."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.inputs import lengths as law
from multigpu.inputs.drawn_text import bucket_means_000, lengths_000
from multigpu.inputs.plans import bucket_of, plan_batches, plan_epoch
from multigpu.inputs.text import catalogs, text_files
from multigpu.paths import REPOSITORY
from multigpu.published import load_published, published_value
from tests.inputs.stand_ins import make_run, make_text_model, same
from tests.inputs.test_text import corpus_files
from tests.refusals import refused

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def test_buckets_are_those_of_document_000():
    words = np.array([0, 1, 9, 10, 19, 20, 39, 40, 49, 50, 51, 1000])
    assert bucket_of(words).tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 5]


@given(st.lists(st.integers(0, 5), min_size=40, max_size=300), SIZES)
def test_shards_are_of_one_bucket_until_the_epoch_runs_out(buckets: list[int], sizes: list[int]):
    if len(buckets) < sum(sizes):
        return
    array = np.array(buckets)
    plan = plan_epoch(array, sizes)
    bounds = np.cumsum([0, *sizes])
    shards = [step[bounds[rank] : bounds[rank + 1]] for step in plan for rank in range(len(sizes))]
    mixed = [len(set(array[shard].tolist())) > 1 for shard in shards]
    rest = sum(len(shard) for shard in shards[mixed.index(True) :]) if any(mixed) else 0
    # at most one batch less a sentence waits in each of the six buckets, and less than a joined batch is filled up
    assert rest <= 6 * (max(sizes) - 1) + sum(sizes)


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


def test_a_corpus_smaller_than_a_joined_batch_is_refused():
    refused(r"^a joined batch of 8 sentences needs at least as many pairs: the corpus has 7$", plan_epoch, np.zeros(7, dtype=int), [4, 4])


def test_the_law_has_the_mean_of_document_000():
    table = load_published("000_experiments")
    table = table[table["experiment"] != "Exp5"]
    pairs = published_value("000_statements", "mini_batches") * table["batch_size"] * table["gpus"]
    published = table["total_time_s"] * table["words_per_s"] / pairs
    words_a_pair = 2 * law.target_probabilities() @ np.arange(1, law.LONGEST + 1) + 1  # a source's mean is its target's length
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
    assert set(bucket_of(target).tolist()) == {bucket}
    assert target.min() >= 1 and target.max() <= law.LONGEST
    assert source.min() >= 1
    assert (abs(source - target) <= target // law.SPREAD).all()
    inside = bucket_of(np.arange(1, 101)) == bucket
    expected = (law.target_probabilities() * np.arange(1, 101))[inside].sum() / law.target_probabilities()[inside].sum()
    assert target.mean() == pytest.approx(expected, rel=0.02)
    assert source.mean() == pytest.approx(expected, rel=0.03)


def test_thirty_steps_hold_the_shares_and_ten_nearly_do():
    shares = law.bucket_shares()
    orders = set()
    for seed in range(20):
        drawn = law.draw_buckets(np.random.default_rng(seed))
        assert drawn.shape == (30,)
        assert np.bincount(drawn, minlength=6).tolist() == [5, 9, 7, 5, 2, 2]
        for ten in drawn.reshape(3, 10):
            # one of every three neighbouring strata: only the two at a bucket's ends can be off by one
            assert (abs(np.bincount(ten, minlength=6) - 10 * shares) < 2).all()
        orders.add(tuple(drawn.tolist()))
    assert len(orders) == 20
    assert max(abs(np.array([5, 9, 7, 5, 2, 2]) / 30 - shares)) < 1 / 30


MODEL = make_text_model()


def buckets_of_step(source: Any, step: int, ranks: int) -> list[set[int]]:
    """The buckets of each shard of a step."""
    return [set(bucket_of(source.batch(step, rank).arrays["target_length"] - 1).tolist()) for rank in range(ranks)]


@given(st.data(), SIZES, st.sampled_from(["own", "shared", "fixed"]))
def test_in_every_mode_an_epoch_covers_everything_and_a_step_repeats_nothing(data: st.DataObject, sizes: list[int], batching: Any):
    joined = sum(sizes)
    buckets = np.array(data.draw(st.lists(st.integers(0, 5), min_size=joined, max_size=joined + 150)))
    plan = plan_batches(buckets, sizes, batching)
    assert plan.shape == (-(-len(buckets) // joined), joined)
    seen = plan.ravel()[: len(buckets)].tolist()
    assert (seen if batching == "fixed" else sorted(seen)) == list(range(len(buckets))), "fixed takes sentences as they stand"
    assert all(len(set(step)) == joined for step in plan.tolist())


@given(st.lists(st.integers(0, 5), min_size=40, max_size=300), SIZES)
def test_own_is_the_plan_of_before_and_shared_fills_whole_steps(buckets: list[int], sizes: list[int]):
    joined, array = sum(sizes), np.array(buckets)
    assert np.array_equal(plan_batches(array, sizes, "own"), plan_epoch(array, sizes))
    steps = [set(array[step].tolist()) for step in plan_batches(array, sizes, "shared")]
    mixed = [len(step) > 1 for step in steps]
    # all shards of a step are of one bucket until less than a joined batch waits in each of the six
    if any(mixed):
        assert len(mixed) - mixed.index(True) <= -(-(6 * (joined - 1) + joined) // joined)


@pytest.mark.parametrize("inputs", [lengths_000, catalogs])
def test_shared_shares_and_own_does_not(inputs: Any):
    ranks = 6
    shared, own = (inputs(make_run([16] * ranks, "x", batching=batching), MODEL) for batching in ("shared", "own"))
    steps = range(0, 30)
    assert all(len(set.union(*buckets_of_step(shared, step, ranks))) == 1 for step in steps)
    assert sum(len(set.union(*buckets_of_step(own, step, ranks))) > 1 for step in steps) > 25
    assert shared.fingerprint != own.fingerprint
    # the same words a step on average: the modes draw from one law, or share out one corpus
    if shared.period:
        counts = [sum(source.batch(step, rank).units for step in range(30) for rank in range(ranks)) for source in (shared, own)]
        assert counts[0] == pytest.approx(counts[1], rel=0.02)


def test_the_documents_own_batches_are_those_of_the_committed_records():
    run = make_run([4, 4, 3], "x", seed=3)
    assert [inputs(run, MODEL).fingerprint[:16] for inputs in (lengths_000, catalogs)] == ["14a3c0cfc531d4d2", "41e6c63f562aa4cc"]
    assert lengths_000(run, MODEL).capacity == {"source_embedding": 360, "target_embedding": 332}


def test_shared_on_one_device_is_own():
    own, shared = (lengths_000(make_run([8], "lengths_000", batching=batching), MODEL) for batching in ("own", "shared"))
    assert all(same(own.batch(step, 0), shared.batch(step, 0)) for step in range(30))
    own, shared = (catalogs(make_run([50], "catalogs", batching=batching), MODEL) for batching in ("own", "shared"))
    assert all(same(own.batch(step, 0), shared.batch(step, 0)) for step in range(0, own.steps_per_epoch, 40))


@settings(max_examples=5)
@given(SIZES, st.integers(0, 1000))
def test_fixed_pads_every_step_to_one_width_and_counts_words_unpadded(sizes: list[int], seed: int):
    source = lengths_000(make_run(sizes, "lengths_000", seed, batching="fixed"), MODEL)
    short = lengths_000(make_run(sizes, "lengths_000", seed, sequence_length=20, batching="fixed"), MODEL)
    for step in range(3):
        for rank, sentences in enumerate(sizes):
            for each, width in ((source, 100), (short, 20)):
                batch = each.batch(step, rank)
                lengths = batch.arrays["source_length"], batch.arrays["target_length"]
                assert batch.arrays["source"].shape == (sentences, width)
                assert batch.arrays["target_output"].shape == batch.arrays["target_input"].shape == (sentences, width + 1)
                assert batch.units == lengths[0].sum() + lengths[1].sum()
                assert batch.padded_units == sentences * (2 * width + 1)
                assert lengths[0].max() <= width and lengths[1].max() <= width + 1
                assert batch.loss_terms[rank] == lengths[1].sum()
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
    assert source.cut == 2
    assert source.items(0, 1).tolist() == [2, 3] and source.count == 4


def test_bucket_means_need_one_shape_a_bucket_where_the_bucket_is_shared():
    ranks = 4

    def shapes(batching: str) -> set[Any]:
        source = bucket_means_000(make_run([16] * ranks, "bucket_means_000", batching=batching), MODEL)
        return {source.shapes(step) for step in range(30)}

    shared, own = shapes("shared"), shapes("own")
    assert len(shared) == 6 and len(own) > 8
    assert all(each.units == each.sentences * (each.source_width + each.target_width) for step in shared for each in step)
    pairs = [step[0].units / step[0].sentences for step in shared]
    assert all(later > earlier for earlier, later in pairwise(sorted(pairs)))
    source = bucket_means_000(make_run([16], "bucket_means_000"), MODEL)
    assert sum(source.shapes(step)[0].units for step in range(30)) / (30 * 16) == pytest.approx(48.37, abs=1)


def test_shuffling_off_is_the_corpus_order(tmp_path: Any):
    files = corpus_files(tmp_path, [(3, 3)] * 40)
    plain, shuffled = (text_files(make_run([5], "text_files", data=files, shuffle=shuffle), MODEL) for shuffle in (False, True))
    orders = [[item for step in range(8) for item in source.items(step, 0).tolist()] for source in (plain, shuffled)]
    assert orders[0] == list(range(40)) and orders[1] != orders[0] and Counter(orders[1]) == Counter(orders[0])
    assert plain.fingerprint != shuffled.fingerprint
