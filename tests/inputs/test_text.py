import gzip
import logging
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
from multigpu.inputs.sentences import EOS, SOS, UNK
from multigpu.inputs.text import CorpusText, catalogs, text_files
from tests.inputs.stand_ins import make_run, make_text_model, same
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
        assert batch.rank == rank
        assert len(batch.arrays["source"]) == sizes[rank]
        assert (batch.units, batch.padded_units) == (count["units"], count["padded_units"])
        assert batch.units <= batch.padded_units
        assert batch.loss_terms == tuple(each["terms"] for each in counts)
        assert batch.lookups == tuple(each["lookups"] for each in counts)
        assert all(rows <= source.capacity[name] for each in batch.lookups for name, rows in each.items())
        assert batch.arrays["source"].min() >= 0 and batch.arrays["source"].max() < vocabularies[0]
        assert batch.arrays["target_output"].min() >= 0 and batch.arrays["target_output"].max() < vocabularies[1]
    return batches


@given(SIZES, st.integers(2, 30), st.integers(0, 2**31))
def test_synthetic_sentences_have_the_length_asked_for(sizes: list[int], length: int, seed: int):
    source = synthetic_text(make_run(sizes, sequence_length=length, seed=seed), MODEL)
    assert (source.label, source.period) == ("synthetic", 1)
    batches = check_step(source, 0, sizes)
    for batch, size in zip(batches, sizes, strict=True):
        assert batch.units == batch.padded_units == size * (2 * length + 1)
        assert batch.arrays["source"].shape == (size, length)
        assert batch.arrays["target_output"].shape == (size, length + 1)
        assert same(batch, source.batch(7, batch.rank))
        assert batch.arrays["source"].min() > EOS
    assert source.capacity == {"source_embedding": max(sizes) * length, "target_embedding": max(sizes) * (length + 1)}


def test_synthetic_default_counts_201_words_a_pair_as_exp5_does():
    batch = synthetic_text(make_run([128]), MODEL).batch(0, 0)
    assert batch.units == 201 * 128
    assert batch.joined_loss_terms == 101 * 128


def test_shards_and_seeds_differ():
    source = synthetic_text(make_run([4, 4]), MODEL)
    assert not np.array_equal(source.batch(0, 0).arrays["source"], source.batch(0, 1).arrays["source"])
    other = synthetic_text(make_run([4, 4], seed=1), MODEL)
    assert not np.array_equal(source.batch(0, 0).arrays["source"], other.batch(0, 0).arrays["source"])
    assert source.fingerprint != other.fingerprint
    assert source.fingerprint == synthetic_text(make_run([9]), MODEL).fingerprint


@settings(max_examples=15)
@given(SIZES, st.integers(0, 1000))
def test_lengths_000_counts_and_repeats(sizes: list[int], seed: int):
    source, twin = (lengths_000(make_run(sizes, "lengths_000", seed), MODEL) for _ in range(2))
    assert (source.label, source.period) == ("synthetic lengths of 000", 30)
    capacity = {"source_embedding": 0, "target_embedding": 0}
    for step in range(30):
        batches = check_step(source, step, sizes)
        for batch in batches:
            buckets = bucket_of(batch.arrays["target_length"] - 1)
            assert len(set(buckets.tolist())) == 1
            assert same(batch, twin.batch(step + 30, batch.rank))
            capacity = {name: max(capacity[name], rows) for name, rows in batch.lookups[batch.rank].items()}
    assert source.capacity == capacity


def corpus_files(folder: Path, lengths: list[tuple[int, int]]) -> tuple[str, str]:
    """A corpus whose pair i is the words `s<i>` and `t<i>`, repeated."""
    paths = folder / "train.en", folder / "train.de"
    for side, path in enumerate(paths):
        path.write_text("".join(" ".join([f"{'st'[side]}{i}"] * pair[side]) + "\n" for i, pair in enumerate(lengths)), encoding="utf-8")
    return str(paths[0]), str(paths[1])


@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_an_epoch_of_a_corpus_covers_it_and_shards_are_disjoint(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: list[int]
):
    joined = sum(sizes)
    pairs = data.draw(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=joined, max_size=joined + 40))
    files = corpus_files(tmp_path_factory.mktemp("corpus"), pairs)
    source = text_files(make_run(sizes, "text_files", data=files), MODEL)
    assert source.period is None
    seen: Counter[int] = Counter()
    for step in range(source.steps_per_epoch):
        batches = check_step(source, step, sizes)
        # pair i's words have one number each; the vocabularies order them by length, so decode by length and number
        of_step = [tuple(row.tolist()) for batch in batches for row in batch.arrays["source"][:, :1]]
        assert len(set(of_step)) == joined
        seen.update(number for (number,) in of_step)
        for batch in batches:
            for i, (number,) in enumerate(batch.arrays["source"][:, :1].tolist()):
                assert (batch.arrays["source"][i, : batch.arrays["source_length"][i]] == number).all()
    assert len(seen) == len(pairs)
    assert sum(seen.values()) - len(pairs) < joined
    again = text_files(make_run(sizes, "text_files", data=files), MODEL)
    step = data.draw(st.integers(0, 3 * source.steps_per_epoch))
    for rank in range(len(sizes)):
        assert same(source.batch(step, rank), again.batch(step % again.steps_per_epoch, rank))


def test_pairs_stay_together(tmp_path: Path):
    lengths = [(1 + i % 7, 1 + (3 * i) % 65) for i in range(60)]
    files = corpus_files(tmp_path, lengths)
    source = text_files(make_run([4, 3], "text_files", data=files), MODEL)
    expected = Counter(lengths)
    found: Counter[tuple[int, int]] = Counter()
    for step in range(source.steps_per_epoch):
        for rank in range(2):
            batch = source.batch(step, rank)
            found.update(zip(batch.arrays["source_length"].tolist(), (batch.arrays["target_length"] - 1).tolist(), strict=True))
    assert all(found[pair] >= count for pair, count in expected.items())
    assert set(found) == set(expected)


def test_rare_words_become_unknown(tmp_path: Path):
    files = corpus_files(tmp_path, [(5, 5), (4, 4), (3, 3), (2, 2)])
    batch = text_files(make_run([4], "text_files", data=files), make_text_model(5, 4)).batch(0, 0)
    assert sorted(batch.arrays["source"][:, 0].tolist()) == [UNK, UNK, 3, 4]
    assert sorted(batch.arrays["target_output"][:, 0].tolist()) == [UNK, UNK, UNK, 3]


def test_empty_sides_are_left_out_and_long_sentences_cut_and_both_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    files = corpus_files(tmp_path, [(3, 3), (0, 4), (2, 0), (150, 100), (101, 101)])
    with caplog.at_level(logging.WARNING):
        source = text_files(make_run([3], "text_files", data=files), MODEL)
    assert (source.left_out, source.cut, source.steps_per_epoch) == (2, 3, 1)
    assert "2 pairs with an empty side left out, 3 sentences cut to 100 words" in caplog.text
    assert source.batch(0, 0).arrays["source_length"].max() == 100


def test_packed_files_give_the_batches_of_the_plain_ones(tmp_path: Path):
    files = corpus_files(tmp_path, [(3, 4), (2, 2), (30, 7)])
    packed = [Path(f"{path}.gz") for path in files]
    for path, target in zip(files, packed, strict=True):
        target.write_bytes(gzip.compress(Path(path).read_bytes()))
    ours, theirs = (text_files(make_run([2, 1], "text_files", data=[str(path) for path in each]), MODEL) for each in (packed, files))
    assert ours.fingerprint == theirs.fingerprint and ours.label == "text files train.en.gz, train.de.gz"
    assert all(same(ours.batch(0, rank), theirs.batch(0, rank)) for rank in range(2))


def test_a_changed_file_is_read_again(tmp_path: Path):
    first = text_files(make_run([2], "text_files", data=corpus_files(tmp_path, [(3, 3), (2, 2)])), MODEL)
    second = text_files(make_run([2], "text_files", data=corpus_files(tmp_path, [(4, 4), (2, 2)])), MODEL)
    assert first.fingerprint != second.fingerprint
    assert second.batch(0, 0).arrays["source_length"].max() == 4


def test_catalogs_are_the_same_on_every_rank_and_in_every_epoch():
    sizes, model = [33, 32, 32], make_text_model(8000, 9000)
    sources = [catalogs(make_run(sizes, "catalogs"), model) for _ in range(2)]
    assert sources[0].label == "de-en catalogs"
    last = sources[0].steps_per_epoch - 1
    for step in (0, 1, last):
        batches = check_step(sources[0], step, sizes, (8000, 9000))
        assert all(same(batch, sources[1].batch(step + last + 1, batch.rank)) for batch in batches)
    first = [set(bucket_of(sources[0].batch(5, rank).arrays["target_length"] - 1).tolist()) for rank in range(3)]
    assert all(len(buckets) == 1 for buckets in first)


def test_shuffling_changes_the_order_and_not_the_sentences():
    def pairs(source: CorpusText) -> list[Counter[bytes]]:
        batches = [source.batch(step, 0) for step in range(source.steps_per_epoch)]
        return [Counter(row[:n].tobytes() for row, n in zip(b.arrays["source"], b.arrays["source_length"], strict=True)) for b in batches]

    model = make_text_model(50000, 50000)
    plain, shuffled = (catalogs(make_run([500], "catalogs", shuffle=shuffle), model) for shuffle in (False, True))
    assert shuffled.label == "de-en catalogs, shuffled"
    assert plain.fingerprint != shuffled.fingerprint
    assert shuffled.fingerprint != catalogs(make_run([500], "catalogs", seed=1, shuffle=True), model).fingerprint
    assert plain.fingerprint == catalogs(make_run([7], "catalogs", seed=1), model).fingerprint
    one, two = pairs(plain), pairs(shuffled)
    assert one[0] != two[0]
    assert set().union(*one) == set().union(*two)


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
        (text_files, {"data": files}, "a joined batch of 4 sentences needs at least as many pairs: the corpus has 2"),
    ]
    for factory, fields, sentence in cases:
        refused(f"^{sentence}$", factory, make_run([2, 2], "x", **fields), MODEL)
    refused(r"^model 'm' has vocabularies of 3 and 900 entries: each needs more than 3$", synthetic_text, make_run([2]), make_text_model(3))
