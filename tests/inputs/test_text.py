from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.inputs.batch import Batch
from multigpu.inputs.drawn_text import bucket_means_000, lengths_000, synthetic_text
from multigpu.inputs.plans import bucket_of
from multigpu.inputs.sentences import EOS, SOS
from multigpu.inputs.text import catalogs, text_files
from tests.inputs.stand_ins import corpus_files, make_run, make_text_model, same
from tests.refusals import refused

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)
MODEL = make_text_model()


def recount(batch: Batch) -> dict[str, Any]:
    """Every count of a batch, sentence by sentence from its arrays; asserts the arrays' own rules on the way."""
    a = {name: np.asarray(array) for name, array in batch.arrays.items()}
    assert {name: array.dtype for name, array in a.items()} == dict.fromkeys(a, np.dtype(np.int64))
    assert all(array.flags.writeable and array.flags.c_contiguous for array in a.values())
    sentences, width = a["source"].shape
    assert a["target_input"].shape == a["target_output"].shape == (sentences, a["target_output"].shape[1])
    units = terms = 0
    for i in range(sentences):
        n, t = a["source_length"][i], a["target_length"][i]
        assert 1 <= n <= width and 2 <= t <= a["target_output"].shape[1]
        assert EOS not in a["source"][i, :n] and (a["source"][i, n:] == EOS).all()
        assert EOS not in a["target_output"][i, : t - 1] and (a["target_output"][i, t - 1 :] == EOS).all()
        assert a["target_input"][i, 0] == SOS
        assert np.array_equal(a["target_input"][i, 1:], a["target_output"][i, :-1])
        units += n + t
        terms += t
    # padded to the longest of the batch and no further
    assert a["source_length"].max() == width
    assert a["target_length"].max() == a["target_output"].shape[1]
    lookups = {"source_embedding": a["source"].size, "target_embedding": a["target_input"].size}
    return {"units": units, "padded_units": sum(lookups.values()), "terms": terms, "lookups": lookups}


def check_step(source: Any, step: int, sizes: list[int], vocabularies: tuple[int, int] = (1000, 900)) -> list[Batch]:
    """The shards of one step: counts equal a recount, every rank states every shard's."""
    batches = [source.batch(step, rank) for rank in range(len(sizes))]
    counts = [recount(batch) for batch in batches]
    for rank, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        assert (batch.rank, len(batch.arrays["source"])) == (rank, sizes[rank])
        assert (batch.units, batch.padded_units) == (count["units"], count["padded_units"])
        assert batch.loss_terms == tuple(each["terms"] for each in counts)
        assert batch.lookups == tuple(each["lookups"] for each in counts)
        assert all(rows <= source.capacity[name] for each in batch.lookups for name, rows in each.items())
        for side, entries in zip(("source", "target_output"), vocabularies, strict=True):
            assert 0 <= batch.arrays[side].min() <= batch.arrays[side].max() < entries
    return batches


@given(SIZES, st.integers(2, 30), st.integers(0, 2**31))
def test_synthetic_sentences_have_the_length_asked_for(sizes: list[int], length: int, seed: int):
    source = synthetic_text(make_run(sizes, sequence_length=length, seed=seed), MODEL)
    for batch, size in zip(check_step(source, 0, sizes), sizes, strict=True):
        assert batch.units == batch.padded_units == size * (2 * length + 1) and batch.arrays["source"].shape == (size, length)
        assert same(batch, source.batch(7, batch.rank)) and batch.arrays["source"].min() > EOS
    assert source.capacity == {"source_embedding": max(sizes) * length, "target_embedding": max(sizes) * (length + 1)}
    assert synthetic_text(make_run([128]), MODEL).batch(0, 0).units == 201 * 128, "words a pair where no length is given: Exp5's"


@settings(max_examples=15)
@given(SIZES, st.integers(0, 1000))
def test_lengths_000_counts_and_repeats(sizes: list[int], seed: int):
    source, twin = (lengths_000(make_run(sizes, "lengths_000", seed), MODEL) for _ in range(2))
    batches = [batch for step in range(30) for batch in check_step(source, step, sizes)]
    assert all(len(set(bucket_of(batch.arrays["target_length"] - 1))) == 1 for batch in batches)
    assert all(same(batch, twin.batch(30 + place // len(sizes), batch.rank)) for place, batch in enumerate(batches))
    assert source.capacity == {name: max(batch.lookups[batch.rank][name] for batch in batches) for name in source.capacity}


@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_an_epoch_of_a_corpus_covers_it_and_shards_are_disjoint(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: list[int]
):
    """Every pair's words have one number, by which it is known."""
    joined, seen, together = sum(sizes), Counter(), set()
    pairs = data.draw(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=joined, max_size=joined + 40))
    files = corpus_files(tmp_path_factory.mktemp("corpus"), pairs)
    source, again = (text_files(make_run(sizes, "text_files", data=files), MODEL) for _ in range(2))
    for step in range(source.steps_per_epoch):
        arrays = [batch.arrays for batch in check_step(source, step, sizes)]
        numbers = [int(row[0]) for each in arrays for row in each["source"]]
        assert len(set(numbers)) == joined
        seen.update(numbers)
        together |= {pair for each in arrays for pair in zip(each["source_length"], each["target_length"] - 1, strict=True)}
    assert len(seen) == len(pairs) and together == set(pairs) and sum(seen.values()) - len(pairs) < joined
    step = data.draw(st.integers(0, 3 * source.steps_per_epoch))
    assert all(same(source.batch(step, rank), again.batch(step % again.steps_per_epoch, rank)) for rank in range(len(sizes)))


def test_empty_sides_are_left_out_and_long_sentences_cut_and_both_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    files = corpus_files(tmp_path, [(3, 3), (0, 4), (2, 0), (150, 100), (101, 101)])
    source = text_files(make_run([3], "text_files", data=files), MODEL)
    assert source.steps_per_epoch == 1 and "2 pairs with an empty side left out, 3 sentences cut to 100 words" in caplog.text
    assert source.batch(0, 0).arrays["source_length"].max() == 100


def test_a_changed_file_is_read_again(tmp_path: Path):
    first = text_files(make_run([2], "text_files", data=corpus_files(tmp_path, [(3, 3), (2, 2)])), MODEL)
    second = text_files(make_run([2], "text_files", data=corpus_files(tmp_path, [(4, 4), (2, 2)])), MODEL)
    assert first.fingerprint != second.fingerprint
    assert second.batch(0, 0).arrays["source_length"].max() == 4


def test_every_error_is_one_sentence(tmp_path: Path):
    files = corpus_files(tmp_path, [(3, 3), (2, 2)])
    blank = corpus_files(tmp_path, [(3, 3), (2, 2)])[0], str(tmp_path / "blank")
    (tmp_path / "blank").write_text("\n\n")
    cases = [
        (synthetic_text, {"data": files}, "inputs 'x' reads no files: leave out data, which names .*train.en, .*train.de"),
        (catalogs, {"data": files}, "inputs 'x' reads no files: leave out data, which names .*"),
        (
            lengths_000,
            {"sequence_length": 50},
            "sequence_length 50 is for inputs 'synthetic' and for batching 'fixed': 'x' has lengths of its own, leave it out",
        ),
        (text_files, {"sequence_length": 50, "data": files}, "sequence_length 50 is for inputs 'synthetic' and .*"),
        (bucket_means_000, {"batching": "fixed"}, "batching 'fixed' has no buckets, and inputs 'x' are made of .*: choose own or shared"),
        (text_files, {}, "inputs 'x' needs data to name two files, source and target: it names 0"),
        (text_files, {"data": ("a",)}, "inputs 'x' needs data to name two files, source and target: it names 1"),
        (text_files, {"data": ("a", "b")}, "text file a does not exist"),
        (text_files, {"data": blank}, "no line has words in both .*train.en and .*blank"),
        (text_files, {"data": files}, "a joined batch of 4 sentences needs at least as many: the data set has 2"),
    ]
    for factory, fields, sentence in cases:
        refused(f"^{sentence}$", factory, make_run([2, 2], "x", **fields), MODEL)
    refused(r"^model 'm' has vocabularies of 3 and 900 entries: each needs more than 3$", synthetic_text, make_run([2]), make_text_model(3))
