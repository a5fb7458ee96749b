"""Files of sentences, the words and numbers that they are counted into, and the committed corpus in
pieces, in part held out.
"""

import csv
import gzip
import hashlib
import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.build import build_run
from multigpu.inputs.files import check_text, file_digest, read_parallel
from multigpu.inputs.pieces import PIECES, SELECTIONS, Pieces, pieces, split_catalogs
from multigpu.inputs.plans import BUCKETS, bucket_of
from multigpu.inputs.sentences import EOS, SOS, SPECIAL, UNK, count_vocabulary, words
from multigpu.paths import CORPUS, REPOSITORY
from multigpu.workloads import find_model
from tests.multigpu.inputs.stand_ins import make_run, make_text_model
from tests.multigpu.inputs.test_text import check_step
from tests.refusals import refused


@given(st.text())
def test_words(sentence: str):
    assert "".join(words(sentence)) == "".join(sentence.split()), "nothing is lost but white space"
    assert words("don't --stop %s: über_all 3.5") == [
        "don",
        "'",
        "t",
        "-",
        "-",
        "stop",
        "%",
        "s",
        ":",
        "über_all",
        "3",
        ".",
        "5",
    ]
    assert words("a <unk> b") == ["a", "<unk>", "b"]


@given(st.lists(st.text(alphabet="abc .,", max_size=30), max_size=20), st.integers(4, 9))
def test_the_most_frequent_words_are_kept_and_ties_are_alphabetical(
    sentences: list[str], limit: int
):
    vocabulary = count_vocabulary(sentences, limit)
    counts = Counter(word for sentence in sentences for word in words(sentence))
    assert vocabulary.entries[:3] == SPECIAL
    assert len(vocabulary.entries) == min(limit, 3 + len(counts))
    kept = vocabulary.entries[3:]
    assert list(kept) == sorted(counts, key=lambda word: (-counts[word], word))[: limit - 3]
    assert count_vocabulary(sentences[::-1], limit).fingerprint == vocabulary.fingerprint
    for sentence in sentences:
        decoded = [vocabulary.entries[number] for number in vocabulary.encode(sentence)]
        assert decoded == [word if word in kept else "<unk>" for word in words(sentence)]


def test_special_words_in_the_text_take_no_second_place():
    vocabulary = count_vocabulary(["<unk> <unk> a"], 10)
    assert vocabulary.entries == (*SPECIAL, "a") and vocabulary.encode("a <unk> b") == [3, UNK, UNK]
    refused(
        r"^a vocabulary of 3 entries has no room for a word beside its 3 special ones$",
        count_vocabulary,
        ["a"],
        3,
    )


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        (b"a b\nc\n", ["a b", "c"]),
        (b"a b\nc", ["a b", "c"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        ("ü\u2028ö\x85ä\n".encode(), ["ü\u2028ö\x85ä"]),
    ],
)
def test_lines_are_what_wmt_takes_for_lines(tmp_path: Path, content: bytes, sentences: list[str]):
    for path in (write(tmp_path, "t", content), write(tmp_path, "t.gz", gzip.compress(content))):
        text = check_text(path)
        assert text.lines == len(sentences)
        assert list(text.sentences()) == sentences


def test_every_error_is_one_sentence(tmp_path: Path):
    good, longer = write(tmp_path, "good", b"a\nb\n"), write(tmp_path, "longer", b"a\nb\nc\n")
    content = "".join(f"line {number}\n" for number in range(1000)).encode()
    whole = gzip.compress(content, mtime=0)
    damaged = "is not whole or not packed by gzip: .+"
    for name, data, sentence in (
        ("empty", b"", "is empty"),
        ("none.gz", gzip.compress(b""), "is empty"),
        ("bad", "aaüb€\nüü".encode() + b"\xff\n", "is not UTF-8: byte 13 does not decode"),
        ("torn", b"a\n\xc3", "is not UTF-8: byte 2 does not decode"),
        ("latin.gz", gzip.compress(b"a\xfcb\n"), "is not UTF-8: byte 1 does not decode"),
        ("cut.gz", whole[:-20], damaged),
        ("head.gz", whole[:5], damaged),
        ("plain.gz", content, damaged),
        # a kind of block that deflate does not have
        ("block.gz", whole[:10] + b"\xff" + whole[11:], damaged),
        ("checksum.gz", whole[:-8] + bytes(4) + whole[-4:], damaged),
        ("tail.gz", whole + b"more", damaged),
    ):
        refused(rf"^text file .*/{name} {sentence}$", check_text, write(tmp_path, name, data))
    for name in ("absent", "absent.gz"):
        refused(rf"^text file .*/{name} does not exist$", read_parallel, good, tmp_path / name)
    refused(
        r"^source and target must have one number of lines: .*/good has 2, .*/longer has 3$",
        read_parallel,
        good,
        longer,
    )


def test_packing_a_file_does_not_change_its_fingerprint(tmp_path: Path):
    contents = "ä b\nc\n".encode(), b"d\ne\n"
    plain = [
        write(tmp_path, name, content) for name, content in zip(("1", "2"), contents, strict=True)
    ]
    packed = [
        write(tmp_path, f"{path.name}.gz", gzip.compress(path.read_bytes())) for path in plain
    ]
    assert (
        file_digest(packed[0]) == file_digest(plain[0]) == hashlib.sha256(contents[0]).hexdigest()
    )
    assert (
        read_parallel(*packed).fingerprint
        == read_parallel(*plain).fingerprint
        == read_parallel(plain[0], packed[1]).fingerprint
    )
    link = tmp_path / "link.gz"  # to a file whose own name does not say that it is packed
    link.symlink_to(packed[0].rename(tmp_path / "stored"))
    assert check_text(link).lines == 2 and file_digest(link) == file_digest(plain[0])
    assert read_parallel(*plain[::-1]).fingerprint != read_parallel(*plain).fingerprint
    write(tmp_path, "1.gz", gzip.compress(b"changed\nc\n"))
    assert read_parallel(*packed).fingerprint != read_parallel(*plain).fingerprint


TEXT = read_parallel(CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")


def test_committed_corpus_is_what_the_records_read():
    # of the time when the files were committed unpacked: every Record of this corpus was derived
    # from these
    assert TEXT.source.digest == "69c7e839f1295749f9565bb130c6a7f8ecf0a693616287e1f9e866afa32a8bbe"
    assert TEXT.target.digest == "9a83a74d7122acf7ac854881282cbe6d18f94a6f809f5e2ef461e4bbf7060143"
    assert TEXT.fingerprint == "86d45b8b2716db1e513236249d34e2f4d5f97395980128c9374735abebe32f22"
    for side in (TEXT.source, TEXT.target):
        # flags 0 (no name), time 0, level 9 (2), no system named (255): nothing but the text and
        # zlib decides the bytes
        assert side.path.read_bytes()[:10] == b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff"


def row_of(path: Path) -> str:
    """How the README tells of a file of the corpus."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return (
        f"| corpus/{path.name} | {path.stat().st_size:,} | {len(content):,} |"
        f" `{hashlib.sha256(content).hexdigest()}` |"
    )


def test_committed_corpus_is_what_the_readme_says():
    readme = (REPOSITORY / "data" / "README.md").read_text(encoding="utf-8")
    assert all(row_of(path) in readme for path in CORPUS.iterdir())
    assert (
        sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_000_000
        and TEXT.source.lines >= 7000
    )
    rows = list(csv.DictReader((CORPUS / "catalogs.csv").open(encoding="utf-8")))
    line = 0
    for row in rows:
        assert int(row["first_line"]) == line + 1
        line = int(row["last_line"])
        assert line - int(row["first_line"]) + 1 == int(row["pairs"]) <= int(row["messages"])
        assert (
            f"| {row['catalog']} | {row['package']} {row['version']} | {row['licence']} |"
            f" {int(row['pairs']):,} |" in readme
        )
    assert line == TEXT.source.lines
    notices = (CORPUS / "COPYRIGHT").read_text(encoding="utf-8")
    assert {f"=== {row['package']} {row['version']} ===" for row in rows} == set(
        re.findall(r"^=== .* ===$", notices, re.MULTILINE)
    )
    lengths = np.array(
        [
            [len(words(sentence)) for sentence in side.sentences()]
            for side in (TEXT.source, TEXT.target)
        ]
    )
    shares = np.bincount(bucket_of(lengths[1]), minlength=BUCKETS) / lengths.shape[1]
    assert (
        "| share of sentences, `catalogs` | "
        + " | ".join(f"{100 * share:.1f}%" for share in shares)
        + " |"
        in readme
    )
    assert f"`catalogs` counts {(lengths.sum() / lengths.shape[1] + 1):.1f} words a pair." in readme


def test_extraction_packs_the_text_and_describes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(REPOSITORY / "data"))
    script: Any = importlib.import_module("extract_corpus")
    counts = {"messages": 2, "pairs": 2, "first_line": 1, "last_line": 2}
    rows = [{"catalog": "c", "package": "p", "version": "1", "licence": "GPL-3+", **counts}]
    found = script.Extract(
        [("a file", "eine Datei"), ("a key", "ein Schlüssel")],
        rows,
        {"p 1": "notice"},
        {"d": "names only"},
    )
    folder = tmp_path / "data" / "corpus"
    monkeypatch.setattr("sys.argv", ["extract_corpus.py"])
    for name, value in {
        "REPOSITORY": tmp_path,
        "CORPUS": folder,
        "LICENCE_TEXTS": (),
        "extract": lambda catalogs: found,
    }.items():
        monkeypatch.setattr(script, name, value)
    folder.parent.mkdir()
    marks = b"".join(
        b"<!-- %b -->\n<!-- end %b -->\n" % (mark, mark) for mark in (b"catalogs", b"checksums")
    )
    readme = write(folder.parent, "README.md", marks)
    script.main()
    text = read_parallel(folder / "catalogs.en.gz", folder / "catalogs.de.gz")
    assert list(zip(text.source.sentences(), text.target.sentences(), strict=True)) == found.pairs
    assert all(row_of(path) in readme.read_text(encoding="utf-8") for path in folder.iterdir())


WORDS = [
    "could not open file",
    "cannot read file",
    "file is not open",
    "no such table",
    "table could not be read",
    "open the table again",
]
WORDS *= 3


def test_special_pieces_keep_their_numbers_and_text_comes_back():
    learned = Pieces(WORDS, 60)
    assert [learned.processor.id_to_piece(number) for number in (UNK, SOS, EOS)] == [
        "<unk>",
        "<s>",
        "</s>",
    ]
    encoded = [learned.encode(sentence) for sentence in WORDS]
    assert min(map(min, encoded)) > EOS and list(map(learned.decode, encoded)) == WORDS
    assert len(learned) == 60 and UNK in learned.encode("§")
    assert learned.fingerprint == Pieces(WORDS, 60).fingerprint != Pieces(WORDS[1:], 60).fingerprint


def test_a_number_of_pieces_that_cannot_be_is_refused_in_one_sentence():
    for entries in (4, 5000):
        refused(
            f"sentencepiece cannot learn {entries} pieces from 18 sentences: .*",
            Pieces,
            WORDS,
            entries,
        )
    said = "pieces are too many for this corpus: at most 8000; larger tables are for timing"
    refused(f"{PIECES + 1} {said}", Pieces, WORDS, PIECES + 1)
    refused(f"50000 {said}", pieces, make_run([2], "pieces"), make_text_model(50_000, 50_000))


def rows_of(sizes: list[int]) -> list[dict[str, str]]:
    """One catalog a size, in two packages by turns."""
    last = np.cumsum(sizes).tolist()
    return [
        {
            "catalog": f"c{place}",
            "package": f"p{place % 2}",
            "first_line": str(end - size + 1),
            "last_line": str(end),
        }
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
    refused(
        "catalogs of p1 give 4 training pairs and 0 held-out ones",
        split_catalogs,
        rows_of([1, 2, 1, 2]),
        sources,
        targets,
        "p1",
    )


def test_short_pairs_of_the_corpus_train_and_no_held_out_sentence_is_among_them():
    model = find_model("nmt", "nmt_short")
    run = build_run(
        workload="nmt",
        model=model.name,
        placement="ddp",
        device_type="cpu",
        devices=2,
        batch_size=16,
        inputs="pieces_short",
    )
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
        assert (
            source.corpus.target_pieces.encode(source.corpus.training_texts[place][1])
            == target.tolist()
        )
    read = np.concatenate(
        [source.items(step, rank) for step in range(source.steps_per_epoch) for rank in range(2)]
    )
    assert set(read.tolist()) == set(range(source.count))


def test_pieces_are_those_of_the_committed_records():
    source = pieces(
        make_run([16, 16], "pieces_short", shuffle=True), find_model("nmt", "nmt_short")
    )
    assert (source.label, source.fingerprint[:16]) == (
        "de-en catalogs in pieces of postgresql-15 up to 14, shuffled",
        "9155d7f1b2d2c158",
    )
