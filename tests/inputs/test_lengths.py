from __future__ import annotations

import numpy as np
import pytest

from multigpu.inputs import lengths as law
from multigpu.inputs.plans import bucket_of
from multigpu.paths import REPOSITORY
from multigpu.published import load_published, published_value


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
