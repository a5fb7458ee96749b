"""Which sentences share a step: own buckets, a shared bucket, or one width."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.inputs.drawn_text import bucket_means_000, lengths_000
from multigpu.inputs.plans import bucket_of, plan_batches, plan_epoch
from multigpu.inputs.text import catalogs, text_files
from tests.inputs.stand_ins import make_run, make_text_model, same
from tests.inputs.test_text import corpus_files

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)
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
    assert sorted(seen) == list(range(len(buckets)))
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


@settings(max_examples=15)
@given(st.lists(st.integers(0, 5), min_size=40, max_size=90), SIZES)
def test_fixed_takes_sentences_as_they_stand(buckets: list[int], sizes: list[int]):
    plan = plan_batches(np.array(buckets), sizes, "fixed").ravel()[: len(buckets)]
    assert plan.tolist() == list(range(len(buckets)))


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
