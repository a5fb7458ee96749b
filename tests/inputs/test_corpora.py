"""Files of sentences, and the words and numbers that they are counted into."""

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

from multigpu.inputs.files import check_text, file_digest, read_parallel
from multigpu.inputs.plans import BUCKETS, bucket_of
from multigpu.inputs.sentences import SPECIAL, UNK, count_vocabulary, words
from multigpu.paths import CORPUS, REPOSITORY
from tests.refusals import refused


@given(st.text())
def test_words(sentence: str):
    assert "".join(words(sentence)) == "".join(sentence.split()), "nothing is lost but white space"
    assert words("don't --stop %s: über_all 3.5") == ["don", "'", "t", "-", "-", "stop", "%", "s", ":", "über_all", "3", ".", "5"]
    assert words("a <unk> b") == ["a", "<unk>", "b"]


@given(st.lists(st.text(alphabet="abc .,", max_size=30), max_size=20), st.integers(4, 9))
def test_the_most_frequent_words_are_kept_and_ties_are_alphabetical(sentences: list[str], limit: int):
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
    assert vocabulary.entries == (*SPECIAL, "a")
    assert vocabulary.encode("a <unk> b") == [3, UNK, UNK]
    one, two, three = (count_vocabulary([sentence], 10).fingerprint for sentence in ("a a b", "b b a", "b a a"))
    assert one == three != two
    refused(r"^a vocabulary of 3 entries has no room for a word beside its 3 special ones$", count_vocabulary, ["a"], 3)


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
        ("block.gz", whole[:10] + b"\xff" + whole[11:], damaged),  # a kind of block that deflate does not have
        ("checksum.gz", whole[:-8] + bytes(4) + whole[-4:], damaged),
        ("tail.gz", whole + b"more", damaged),
    ):
        refused(rf"^text file .*/{name} {sentence}$", check_text, write(tmp_path, name, data))
    for name in ("absent", "absent.gz"):
        refused(rf"^text file .*/{name} does not exist$", read_parallel, good, tmp_path / name)
    refused(r"^source and target must have one number of lines: .*/good has 2, .*/longer has 3$", read_parallel, good, longer)


def test_packing_a_file_does_not_change_its_fingerprint(tmp_path: Path):
    contents = "ä b\nc\n".encode(), b"d\ne\n"
    plain = [write(tmp_path, name, content) for name, content in zip(("1", "2"), contents, strict=True)]
    packed = [write(tmp_path, f"{path.name}.gz", gzip.compress(path.read_bytes())) for path in plain]
    assert file_digest(packed[0]) == file_digest(plain[0]) == hashlib.sha256(contents[0]).hexdigest()
    assert read_parallel(*packed).fingerprint == read_parallel(*plain).fingerprint == read_parallel(plain[0], packed[1]).fingerprint
    link = tmp_path / "link.gz"  # to a file whose own name does not say that it is packed
    link.symlink_to(packed[0].rename(tmp_path / "stored"))
    assert check_text(link).lines == 2 and file_digest(link) == file_digest(plain[0])
    assert read_parallel(*plain[::-1]).fingerprint != read_parallel(*plain).fingerprint
    write(tmp_path, "1.gz", gzip.compress(b"changed\nc\n"))
    assert read_parallel(*packed).fingerprint != read_parallel(*plain).fingerprint


TEXT = read_parallel(CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")


def test_committed_corpus_is_what_the_records_read():
    # of the time when the files were committed unpacked: every Record of this corpus was derived from these
    assert TEXT.source.digest == "69c7e839f1295749f9565bb130c6a7f8ecf0a693616287e1f9e866afa32a8bbe"
    assert TEXT.target.digest == "9a83a74d7122acf7ac854881282cbe6d18f94a6f809f5e2ef461e4bbf7060143"
    assert TEXT.fingerprint == "86d45b8b2716db1e513236249d34e2f4d5f97395980128c9374735abebe32f22"
    for side in (TEXT.source, TEXT.target):
        # flags 0 (no name), time 0, level 9 (2), no system named (255): nothing but the text and zlib decides the bytes
        assert side.path.read_bytes()[:10] == b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff"


def row_of(path: Path) -> str:
    """How the README tells of a file of the corpus."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return f"| corpus/{path.name} | {path.stat().st_size:,} | {len(content):,} | `{hashlib.sha256(content).hexdigest()}` |"


def test_committed_corpus_is_what_the_readme_says():
    readme = (REPOSITORY / "data" / "README.md").read_text(encoding="utf-8")
    assert all(row_of(path) in readme for path in CORPUS.iterdir())
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_000_000 and TEXT.source.lines >= 7000
    rows = list(csv.DictReader((CORPUS / "catalogs.csv").open(encoding="utf-8")))
    line = 0
    for row in rows:
        assert int(row["first_line"]) == line + 1
        line = int(row["last_line"])
        assert line - int(row["first_line"]) + 1 == int(row["pairs"]) <= int(row["messages"])
        assert f"| {row['catalog']} | {row['package']} {row['version']} | {row['licence']} | {int(row['pairs']):,} |" in readme
    assert line == TEXT.source.lines
    notices = (CORPUS / "COPYRIGHT").read_text(encoding="utf-8")
    assert {f"=== {row['package']} {row['version']} ===" for row in rows} == set(re.findall(r"^=== .* ===$", notices, re.MULTILINE))
    lengths = np.array([[len(words(sentence)) for sentence in side.sentences()] for side in (TEXT.source, TEXT.target)])
    shares = np.bincount(bucket_of(lengths[1]), minlength=BUCKETS) / lengths.shape[1]
    assert "| share of sentences, `catalogs` | " + " | ".join(f"{100 * share:.1f}%" for share in shares) + " |" in readme
    assert f"`catalogs` counts {(lengths.sum() / lengths.shape[1] + 1):.1f} words a pair." in readme


def test_extraction_packs_the_text_and_describes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "data"))
    script: Any = importlib.import_module("extract_corpus")
    counts = {"messages": 2, "pairs": 2, "first_line": 1, "last_line": 2}
    rows = [{"catalog": "c", "package": "p", "version": "1", "licence": "GPL-3+", **counts}]
    found = script.Extract([("a file", "eine Datei"), ("a key", "ein Schlüssel")], rows, {"p 1": "notice"}, {"d": "names only"})
    folder = tmp_path / "data" / "corpus"
    monkeypatch.setattr("sys.argv", ["extract_corpus.py"])
    for name, value in {"REPOSITORY": tmp_path, "CORPUS": folder, "LICENCE_TEXTS": (), "extract": lambda catalogs: found}.items():
        monkeypatch.setattr(script, name, value)
    folder.parent.mkdir()
    marks = b"".join(b"<!-- %b -->\n<!-- end %b -->\n" % (mark, mark) for mark in (b"catalogs", b"checksums"))
    readme = write(folder.parent, "README.md", marks)
    script.main()
    text = read_parallel(folder / "catalogs.en.gz", folder / "catalogs.de.gz")
    assert list(zip(text.source.sentences(), text.target.sentences(), strict=True)) == found.pairs
    assert all(row_of(path) in readme.read_text(encoding="utf-8") for path in folder.iterdir())
