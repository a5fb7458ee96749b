from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.inputs.plans import bucket_of, plan_epoch

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


def test_shards_of_one_step_sit_in_different_buckets():
    # sentences of buckets 0 and 1 take turns, so two shards of two fill up in turn
    plan = plan_epoch(np.array([0, 1, 0, 1, 1, 0, 0, 1]), [2, 2])
    assert plan.tolist() == [[0, 2, 1, 3], [5, 6, 4, 7]]


def test_a_smaller_shard_takes_what_was_too_little_for_a_larger_one():
    # two of bucket 1 wait while rank 0 needs three; rank 1 needs two and takes them at once
    assert plan_epoch(np.array([1, 1, 2, 2, 2, 0, 0, 0]), [3, 2]).tolist() == [[2, 3, 4, 0, 1], [5, 6, 7, 2, 3]]


def test_the_last_step_is_filled_up_from_the_beginning():
    assert plan_epoch(np.array([0, 0, 0, 0, 0]), [2, 1]).tolist() == [[0, 1, 2], [3, 4, 0]]


def test_a_corpus_smaller_than_a_joined_batch_is_refused():
    with pytest.raises(ValueError, match=r"^a joined batch of 8 sentences needs at least as many pairs: the corpus has 7$"):
        plan_epoch(np.zeros(7, dtype=int), [4, 4])
