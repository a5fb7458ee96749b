"""Greedy translation, BLEU, and the scores of a model on held-out pairs."""

import csv
import gzip
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from multigpu.engines.torch.variables import initial_values
from multigpu.inputs import pieces as pieces_module
from multigpu.inputs.sentences import EOS, SOS
from multigpu.spec.model import Optimizer
from multigpu.workloads.nmt.description import NmtConfig, describe
from multigpu.workloads.nmt.torch import Nmt, build
from multigpu_study.training.scores.nmt import corpus_bleu, greedy, held_out_loss, scores
from tests.multigpu.inputs.stand_ins import make_run
from tests.refusals import refused

CPU = torch.device("cpu")


def make_module(
    units: int = 12, entries: int = 30, seed: int = 0, scale: float | None = None
) -> Nmt:
    """A model of one cell a stack."""
    model = describe(
        "planted",
        NmtConfig(units, entries, entries, encoder_layers=1, initial_scale=scale),
        Optimizer("adam", 1e-3),
    )
    module = build(model)
    assert isinstance(module, Nmt)
    with torch.no_grad():
        for variable, value in initial_values(model, seed, CPU, torch.float32):
            module.get_parameter(variable.name).copy_(value)
    return module


@torch.no_grad()
def by_hand(module: Nmt, source: list[int], longest: int) -> list[int]:
    """One sentence, the whole prefix run again for every word."""
    first = module.encode(torch.tensor([source]), torch.tensor([len(source)]))
    answer: list[int] = []
    while len(answer) < longest:
        state, scores_ = first, torch.empty(0)
        for word in [SOS, *answer]:
            scores_, state = module.decode_step(torch.tensor([word]), state)
        scores_[:, SOS] = -torch.inf
        word = int(scores_.argmax())
        if word == EOS:
            break
        answer.append(word)
    return answer


def test_sentences_translated_together_are_translated_as_each_alone():
    module = make_module(scale=1.0)
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 9, (23,), generator=generator).tolist()
    sources = [torch.randint(3, 30, (length,), generator=generator).tolist() for length in lengths]
    expected = [by_hand(module, source, 12) for source in sources]
    assert (
        greedy(module, sources, longest=12, batch_size=5)
        == expected
        == greedy(module, sources, longest=12, batch_size=64)
    )
    # some end by themselves, others after the most words
    assert {len(answer) < 12 for answer in expected} == {True, False}
    assert greedy(module, sources, longest=4) == [answer[:4] for answer in expected]


def test_what_cannot_be_translated_or_scored_is_refused():
    refused("sentence 1 is empty: there is nothing to translate", greedy, make_module(), [[3], []])
    for name in ("longest", "batch_size"):
        refused(
            f"{name} 0 is too few: at least 1 is needed", greedy, make_module(), [[3]], **{name: 0}
        )
    why = (
        "inputs 'lengths_000' hold nothing out to score with: choose one of pieces, pieces_package,"
        " pieces_short"
    )
    refused(why, scores, make_module(), make_run([2], "lengths_000"), SimpleNamespace(), CPU)


def test_bleu():
    german = ["das ist ein kleines Haus", "die Datei ist nicht offen"]
    assert (
        corpus_bleu(german, german) == pytest.approx(100)
        and corpus_bleu(["x y z w v"] * 2, german) < 5
    )
    refused("as many translations as references, at least one: 1 and 2", corpus_bleu, ["a"], german)


NOUNS = {
    "file": "Datei",
    "table": "Tabelle",
    "key": "Schlüssel",
    "server": "Server",
    "user": "Benutzer",
    "index": "Index",
}
VERBS = {
    "open": "öffnen",
    "read": "lesen",
    "find": "finden",
    "write": "schreiben",
    "lock": "sperren",
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A corpus of 30 regular sentences in 5 catalogs, the last one held out, and its source."""
    # every pair once, and each word in every catalog
    combined = [(list(VERBS)[place % 5], list(NOUNS)[place % 6]) for place in range(30)]
    pairs = [
        (f"could not {verb} the {noun}", f"konnte {NOUNS[noun]} nicht {VERBS[verb]}")
        for verb, noun in combined
    ]
    for side, name in enumerate(("catalogs.en.gz", "catalogs.de.gz")):
        (tmp_path / name).write_bytes(
            gzip.compress("".join(f"{pair[side]}\n" for pair in pairs).encode())
        )
    with (tmp_path / "catalogs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("catalog", "package", "first_line", "last_line"))
        writer.writerows((f"c{place}", "p", 6 * place + 1, 6 * place + 6) for place in range(5))
    monkeypatch.setattr(pieces_module, "CORPUS", tmp_path)
    run = make_run([8], "pieces", shuffle=True)
    run.description = SimpleNamespace(
        name="planted", config=SimpleNamespace(source_vocabulary=60, target_vocabulary=60)
    )
    return run, pieces_module.pieces(run, run.description)


def test_held_out_loss_does_not_depend_on_how_sentences_are_batched(
    monkeypatch: pytest.MonkeyPatch,
):
    module = make_module(scale=0.5)
    sources, targets = [[3, 4], [5], [6, 7, 8], [9]], [[3], [4, 5, 6], [7, 8], [9, 10, 11, 12]]
    together = held_out_loss(module, sources, targets, CPU)
    monkeypatch.setattr("multigpu_study.training.scores.nmt.TOGETHER", 1)
    assert held_out_loss(module, sources, targets, CPU) == pytest.approx(together, rel=1e-5)


def test_a_trained_model_knows_its_pairs_by_heart_and_translates_others_better_than_a_copy(
    planted: Any,
):
    run, source = planted
    module, held = make_module(units=48, entries=60), source.held_out()
    (
        knows_nothing := make_module(entries=60)
    ).projection.data.zero_()  # every piece is as likely as any other of 60
    assert held_out_loss(knows_nothing, held.sources, held.targets, CPU) == pytest.approx(
        math.log(60)
    )
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for step in range(300):
        batch = source.batch(step, 0)
        tensors = {name: torch.from_numpy(array) for name, array in batch.arrays.items()}
        optimizer.zero_grad()
        (module(tensors) / batch.global_loss_terms).backward()
        optimizer.step()
    with torch.inference_mode():
        found = scores(module, run, source, CPU)
    assert (
        found["bleu_training"]
        > 90
        > found["bleu"]
        > 10 + corpus_bleu(held.source_texts, held.references)
    )
    assert found["loss"] < math.log(60) and found["perplexity"] == pytest.approx(
        math.exp(found["loss"])
    )
