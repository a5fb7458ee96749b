"""The committed corpus in sentencepiece pieces, with its held-out catalogs."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from multigpu.inputs.drawn_text import LONGEST, fixed_width, refuse_fields, vocabulary_sizes
from multigpu.inputs.files import ParallelText, file_digest, fingerprint, read_parallel
from multigpu.inputs.sentences import EOS, SOS, UNK
from multigpu.inputs.text import CorpusText, EncodedCorpus, collect_corpus
from multigpu.paths import CORPUS
from multigpu.spec.model import Model
from multigpu.spec.run import Run

PIECES = 8_000
"""The most pieces of a side: this corpus could not fill larger tables."""
EVERY, FIRST = 8, 4
"""Held out are the catalogs number 4, 12, 20, ... by name, whatever their outcome."""


class CorpusSelection(NamedTuple):
    """What an input keeps: one package's catalogs or all, pairs of `longest` pieces a side."""

    package: str | None
    longest: int


SELECTIONS = {
    "pieces": CorpusSelection(None, LONGEST),
    "pieces_package": CorpusSelection("postgresql-15", 30),
    "pieces_short": CorpusSelection("postgresql-15", 14),
}
"""By the name of the input; two CPU cores learn the last in minutes."""


def split_catalogs(
    rows: Sequence[dict[str, str]],
    sources: Sequence[str],
    targets: Sequence[str],
    package: str | None = None,
) -> tuple[list[int], list[int], list[str]]:
    """Lines of the corpus, from 0, to train on and held out, and the held-out catalogs. Held-out
    pairs share no side with a training line.
    rows: of catalogs.csv, in the corpus's order: catalog, package, first_line and last_line (from
        1).
    package: keep the catalogs of one only; one that leaves nothing to train on or to hold out is a
        ValueError.
    """
    kept: dict[bool, list[dict[str, str]]] = {False: [], True: []}  # by whether it is held out
    for place, row in enumerate(rows):
        if package in (None, row["package"]):
            kept[place % EVERY == FIRST].append(row)
    training, candidates = (
        [
            line
            for row in kept[held]
            for line in range(int(row["first_line"]) - 1, int(row["last_line"]))
        ]
        for held in (False, True)
    )
    known = {sources[line] for line in training}, {targets[line] for line in training}
    held_out = [
        line
        for line in candidates
        if sources[line] not in known[0] and targets[line] not in known[1]
    ]
    if not training or not held_out:
        raise ValueError(
            f"catalogs of {package or 'the corpus'} give {len(training)} training pairs and"
            f" {len(held_out)} held-out ones"
        )
    return training, held_out, [row["catalog"] for row in kept[True]]


def catalog_rows() -> list[dict[str, str]]:
    """Read the rows of the committed corpus's catalogs.csv."""
    with (CORPUS / "catalogs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def committed_corpus() -> tuple[ParallelText, str]:
    """Read the committed corpus, and fingerprint all its files."""
    text = read_parallel(CORPUS / "catalogs.en.gz", CORPUS / "catalogs.de.gz")
    return text, fingerprint(
        text.source.digest, text.target.digest, file_digest(CORPUS / "catalogs.csv")
    )


class Pieces:
    """One side's pieces by sentencepiece, special entries first, learned alike each time."""

    def __init__(self, sentences: Sequence[str], entries: int) -> None:
        """Learn `entries` pieces, with special ones; a ValueError: sentencepiece cannot."""
        import sentencepiece

        if entries > PIECES:
            raise ValueError(
                f"{entries} pieces are too many for this corpus: at most {PIECES}; larger tables"
                " are for timing"
            )
        model = io.BytesIO()
        form: dict[str, Any] = {
            "model_type": "bpe",
            "character_coverage": 0.9995,
            "vocab_size": entries,
            "num_threads": 1,
        }
        form |= {"unk_id": UNK, "bos_id": SOS, "eos_id": EOS, "minloglevel": 2}
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences), model_writer=model, **form
            )
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].rpartition("] ")[2]
            raise ValueError(
                f"sentencepiece cannot learn {entries} pieces from {len(sentences)} sentences:"
                f" {reason}"
            ) from None
        self.processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        self.fingerprint = fingerprint(
            *(self.processor.id_to_piece(number) for number in range(len(self)))
        )

    def __len__(self) -> int:
        return int(self.processor.get_piece_size())

    def encode(self, sentence: str) -> list[int]:
        return list(self.processor.encode(sentence))

    def decode(self, numbers: Sequence[int]) -> str:
        return str(self.processor.decode([int(number) for number in numbers]))


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs that training never sees, in order: numbers and text of both sides."""

    sources: tuple[list[int], ...]
    targets: tuple[list[int], ...]
    source_texts: tuple[str, ...]
    references: tuple[str, ...]


@dataclass(frozen=True)
class PieceCorpus:
    """The corpus in pieces: what training reads, its texts, and what is held out."""

    training: EncodedCorpus
    training_texts: tuple[tuple[str, str], ...]
    held_out: HeldOutPairs
    source_pieces: Pieces
    target_pieces: Pieces


@lru_cache(maxsize=4)
def read_pieces(
    text: ParallelText,
    content: str,
    sizes: tuple[int, int],
    selection: CorpusSelection,
    longest: int,
) -> PieceCorpus:
    """The committed corpus in pieces, learned from its training catalogs whatever the length; once
    a process.
    content: fingerprint of the corpus's files, so that a changed file is read again. longest:
        pieces to which a training sentence is cut.
    """
    sources, targets = list(text.source.sentences()), list(text.target.sentences())
    kept, left, catalogs = split_catalogs(catalog_rows(), sources, targets, selection.package)
    learned = [
        Pieces([side[line] for line in kept], size)
        for side, size in zip((sources, targets), sizes, strict=True)
    ]

    def cut(lines: Sequence[int]) -> list[tuple[int, list[int], list[int]]]:
        found = [
            (line, learned[0].encode(sources[line]), learned[1].encode(targets[line]))
            for line in lines
        ]
        return [
            each
            for each in found
            if min(map(len, each[1:])) > 0 and max(map(len, each[1:])) <= selection.longest
        ]

    training, held = cut(kept), cut(left)
    marks = (
        content,
        *(pieces.fingerprint for pieces in learned),
        f"held out {', '.join(catalogs)}",
        # as Records have it, whatever the class is called
        f"Selection(package={selection.package!r}, longest={selection.longest})",
    )
    return PieceCorpus(
        training=collect_corpus(
            (pair[1:] for pair in training), "the training catalogs", marks, longest
        ),
        training_texts=tuple((sources[line], targets[line]) for line, _, _ in training),
        held_out=HeldOutPairs(
            sources=tuple(source for _, source, _ in held),
            targets=tuple(target for _, _, target in held),
            source_texts=tuple(sources[line] for line, _, _ in held),
            references=tuple(targets[line] for line, _, _ in held),
        ),
        source_pieces=learned[0],
        target_pieces=learned[1],
    )


class PieceText(CorpusText):
    """The training catalogs in pieces; what is held out lies beside them."""

    def __init__(self, run: Run, label: str, corpus: PieceCorpus) -> None:
        super().__init__(run, label, corpus.training)
        self.corpus = corpus

    def held_out(self) -> HeldOutPairs:
        return self.corpus.held_out


def pieces(run: Run, model: Model) -> PieceText:
    """The committed corpus without its held-out catalogs, in as many pieces a side as the model has
    rows (too many are a ValueError). `run.inputs` names what is kept (SELECTIONS); longer pairs are
    left out, in training and held out.
    """
    refuse_fields(run)
    text, content = committed_corpus()
    selection = SELECTIONS[run.inputs]
    corpus = read_pieces(
        text, content, vocabulary_sizes(model), selection, fixed_width(run) or LONGEST
    )
    kept = f" of {selection.package} up to {selection.longest}" if selection.package else ""
    return PieceText(
        run, f"de-en catalogs in pieces{kept}" + (", shuffled" if run.shuffle else ""), corpus
    )
