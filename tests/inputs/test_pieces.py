"""Sentencepiece pieces of the committed corpus, and catalogs that are held out."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from multigpu.inputs import pieces as pieces_module
from multigpu.inputs.pieces import PIECES, SELECTIONS, Pieces, pieces, split_catalogs
from multigpu.inputs.sentences import EOS, SOS, UNK
from multigpu.run import build_run
from multigpu.workloads import find_model
from tests.inputs.stand_ins import make_run, make_text_model
from tests.inputs.test_text import check_step
from tests.refusals import refused

WORDS = ["could not open file", "cannot read file", "file is not open", "no such table", "table could not be read", "open the table again"]
WORDS *= 3


def test_special_pieces_keep_their_numbers_and_text_comes_back():
    learned = Pieces(WORDS, 60)
    assert [learned.processor.id_to_piece(number) for number in (UNK, SOS, EOS)] == ["<unk>", "<s>", "</s>"]
    assert len(learned) == 60
    for sentence in WORDS:
        numbers = learned.encode(sentence)
        assert min(numbers) > EOS and learned.decode(numbers) == sentence
    assert UNK in learned.encode("§")
    assert learned.fingerprint == Pieces(WORDS, 60).fingerprint != Pieces(WORDS[1:], 60).fingerprint


def test_a_number_of_pieces_that_cannot_be_is_refused_in_one_sentence():
    for entries in (4, 5000):
        refused(f"sentencepiece cannot learn {entries} pieces from 18 sentences: .*", Pieces, WORDS, entries)
    said = "pieces are too many for this corpus: at most 8000; larger tables are for timing"
    refused(f"{PIECES + 1} {said}", Pieces, WORDS, PIECES + 1)
    refused(f"50000 {said}", pieces, make_run([2], "pieces"), make_text_model(50_000, 50_000))


def rows_of(sizes: list[int]) -> list[dict[str, str]]:
    """One catalog a size, in two packages by turns."""
    last = np.cumsum(sizes).tolist()
    return [
        {"catalog": f"c{place}", "package": f"p{place % 2}", "first_line": str(end - size + 1), "last_line": str(end)}
        for place, (size, end) in enumerate(zip(sizes, last, strict=True))
    ]


def test_whole_catalogs_are_held_out_and_what_training_sees_of_them_is_left_out():
    sources, targets = ([f"{side}{line}" for line in range(10)] for side in "st")
    # catalogs 0 to 5 have 1, 2, 1, 2, 3 and 1 lines; number 4 is held out: lines 6, 7, 8
    sources[7], targets[8] = sources[0], targets[9]
    split = split_catalogs(rows_of([1, 2, 1, 2, 3, 1]), sources, targets)
    assert split == ([0, 1, 2, 3, 4, 5, 9], [6], ["c4"])
    # of package p0 (catalogs 0, 2 and 4) line 9 is no training line, so line 8 does not leak
    split = split_catalogs(rows_of([1, 2, 1, 2, 3, 1]), sources, targets, "p0")
    assert split == ([0, 3], [6, 8], ["c4"])
    refused("catalogs of p1 give 4 training pairs and 0 held-out ones", split_catalogs, rows_of([1, 2, 1, 2]), sources, targets, "p1")


def test_short_pairs_of_the_corpus_train_and_no_held_out_sentence_is_among_them():
    model = find_model("nmt", "nmt_short")
    run = build_run(workload="nmt", model=model.name, placement="ddp", device_type="cpu", devices=2, batch_size=16, inputs="pieces_short")
    source = pieces(run, model)
    held, longest = source.held_out(), SELECTIONS["pieces_short"].longest
    english, german = (set(side) for side in zip(*source.corpus.training_texts, strict=True))
    assert not english & set(held.source_texts) and not german & set(held.references)
    assert len(held.references) > 400 and source.count == len(source.corpus.training_texts) > 3000
    assert max(map(len, held.sources + held.targets)) <= longest
    for step in (0, source.steps_per_epoch - 1):
        check_step(source, step, [16, 16], (1500, 1500))
    # what a batch holds is what its text says
    batch, places = source.batch(3, 1), source.items(3, 1)
    for row, place in enumerate(places):
        target = batch.arrays["target_output"][row, : batch.arrays["target_length"][row] - 1]
        assert source.corpus.target_pieces.encode(source.corpus.training_texts[place][1]) == target.tolist()
    read = np.concatenate([source.items(step, rank) for step in range(source.steps_per_epoch) for rank in range(2)])
    assert set(read.tolist()) == set(range(source.count))


def test_pieces_are_those_of_the_committed_records():
    source = pieces(make_run([16, 16], "pieces_short", shuffle=True), find_model("nmt", "nmt_short"))
    assert (source.label, source.fingerprint[:16]) == ("de-en catalogs in pieces of postgresql-15 up to 14, shuffled", "9155d7f1b2d2c158")


def test_a_damaged_corpus_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces_module, "CORPUS", tmp_path)
    (tmp_path / "catalogs.en.gz").write_bytes(gzip.compress(b"a\n")[:-1])
    said = r"^text file .*catalogs\.en\.gz is not whole or not packed by gzip: "
    refused(said, pieces, make_run([16], "pieces_short"), find_model("nmt", "nmt_short"))
