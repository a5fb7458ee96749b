from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multigpu.inputs.vocabulary import SPECIAL, UNK, Vocabulary, count_vocabulary, words


def test_words():
    assert words("don't --stop %s: über_all 3.5") == ["don", "'", "t", "-", "-", "stop", "%", "s", ":", "über_all", "3", ".", "5"]
    assert words("a <unk> b") == ["a", "<unk>", "b"]
    assert words(" \t ") == []


@given(st.text())
def test_words_lose_nothing_but_white_space(sentence: str):
    assert "".join(words(sentence)) == "".join(sentence.split())


@given(st.lists(st.text(alphabet="abc .,", max_size=30), max_size=20), st.integers(4, 9))
def test_the_most_frequent_words_are_kept_and_ties_are_alphabetical(sentences: list[str], limit: int):
    vocabulary = count_vocabulary(sentences, limit)
    counts = Counter(word for sentence in sentences for word in words(sentence))
    assert vocabulary.entries[:3] == SPECIAL
    assert len(vocabulary) == min(limit, 3 + len(counts))
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


def test_fingerprint_depends_on_entries_and_their_order():
    one, two = Vocabulary((*SPECIAL, "a", "b")), Vocabulary((*SPECIAL, "b", "a"))
    assert one.fingerprint != two.fingerprint
    assert one.fingerprint == Vocabulary((*SPECIAL, "a", "b")).fingerprint


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^a vocabulary of 3 entries has no room for a word beside its 3 special ones$"):
        count_vocabulary(["a"], 3)
    with pytest.raises(ValueError, match=r"^a vocabulary begins with <unk>, <s>, </s>, not with a, b$"):
        Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match=r"^a vocabulary lists each word once: 'a' comes again$"):
        Vocabulary([*SPECIAL, "a", "a"])
