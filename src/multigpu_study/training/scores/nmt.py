"""How well a translation model does on sentences that it was not trained on, translated greedily
(see `training.evaluation`).
"""

import math
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from multigpu.inputs.batch import Source
from multigpu.inputs.drawn_text import LONGEST
from multigpu.inputs.pieces import SELECTIONS, PieceCorpus, PieceText
from multigpu.inputs.sentences import EOS, SOS
from multigpu.spec.run import Run
from multigpu.workloads.nmt.torch import Nmt


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Sentences filled up with EOS, (sentences, longest) int64."""
    return pad_sequence(
        [torch.tensor(sentence) for sentence in sentences], batch_first=True, padding_value=EOS
    )


def greedy(
    module: Nmt, sources: Sequence[Sequence[int]], longest: int = LONGEST, batch_size: int = 64
) -> list[list[int]]:
    """The translation of each sentence, without start or end.

    Sentences of like lengths go together. Each takes the likeliest word (of equals the lowest
    number) as its own next input, and ends before its first EOS or after `longest` words; SOS is
    never chosen. A ValueError: a sentence is empty, or a number is below 1.
    """
    for name, value in (("longest", longest), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} {value} is too few: at least 1 is needed")
    empty = next((place for place, sentence in enumerate(sources) if not len(sentence)), None)
    if empty is not None:
        raise ValueError(f"sentence {empty} is empty: there is nothing to translate")
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    found: dict[int, list[int]] = {}
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        found |= zip(
            places, _translate([sources[place] for place in places], module, longest), strict=True
        )
    return [found[place] for place in range(len(sources))]


@torch.no_grad()
def _translate(sources: list[Sequence[int]], module: Nmt, longest: int) -> list[list[int]]:
    device = module.projection.device
    lengths = torch.tensor([len(sentence) for sentence in sources])
    state = module.encode(padded(sources).to(device), lengths)
    running = torch.arange(len(sources), device=device)  # rows of those that go on
    words = torch.full((len(sources),), SOS, device=device)
    answers = torch.full((len(sources), longest), EOS, device=device)
    for position in range(longest):
        scores, state = module.decode_step(words, state)
        scores[:, SOS] = -torch.inf
        words = scores.argmax(1)
        answers[running, position] = words
        goes_on = words != EOS
        if not bool(goes_on.any()):
            break
        if not bool(goes_on.all()):
            words, running = words[goes_on], running[goes_on]
            state = (state[0][:, goes_on], state[1][:, goes_on])
    return [list(takewhile(lambda word: word != EOS, row)) for row in answers.tolist()]


TOGETHER = 128
"""Sentences scored at a time."""
REMEMBERED = 300
"""Training pairs, evenly spaced, that are translated too: what a model learned by heart."""


def scores(module: nn.Module, run: Run, source: Source, device: torch.device) -> dict[str, float]:
    """loss: mean cross entropy of a held-out target piece (ends of sentences included), in nats;
    perplexity: its exponential.
    bleu: of the held-out pairs, translated greedily. bleu_training: of REMEMBERED training pairs.
    """
    corpus = held_out_of(run, source)
    assert isinstance(module, Nmt)
    held = corpus.held_out
    loss = held_out_loss(module, held.sources, held.targets, device)
    remembered = np.linspace(
        0, len(corpus.training_texts) - 1, min(REMEMBERED, len(corpus.training_texts))
    ).astype(int)
    texts = [corpus.training_texts[place] for place in remembered]
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
        "bleu": corpus_bleu(translate(module, corpus, held.sources), held.references),
        "bleu_training": corpus_bleu(
            translate(
                module, corpus, [corpus.source_pieces.encode(english) for english, _ in texts]
            ),
            [german for _, german in texts],
        ),
    }


def held_out_of(run: Run, source: Source) -> PieceCorpus:
    """The corpus of a source that holds catalogs out; a ValueError names those that do."""
    if not isinstance(source, PieceText):
        raise ValueError(
            f"inputs {run.inputs!r} hold nothing out to score with: choose one of"
            f" {', '.join(SELECTIONS)}"
        )
    return source.corpus


def translate(module: Nmt, corpus: PieceCorpus, sources: Sequence[Sequence[int]]) -> list[str]:
    """Translate greedily; ends after twice the longest source sentence, at most 100 pieces."""
    longest = min(LONGEST, 2 * max(map(len, sources)))
    return [
        corpus.target_pieces.decode(answer) for answer in greedy(module, sources, longest, TOGETHER)
    ]


@torch.no_grad()
def held_out_loss(
    module: Nmt, sources: Sequence[list[int]], targets: Sequence[list[int]], device: torch.device
) -> float:
    """Mean cross entropy over all target pieces and ends of sentences, in nats."""
    order = sorted(range(len(targets)), key=lambda place: len(targets[place]))
    total, terms = 0.0, 0
    for start in range(0, len(order), TOGETHER):
        places = order[start : start + TOGETHER]
        asked, wanted = ([side[place] for place in places] for side in (sources, targets))
        total += float(module(_batch(asked, wanted, device)))
        terms += sum(len(targets[place]) + 1 for place in places)
    return total / terms


def _batch(
    sources: list[list[int]], targets: list[list[int]], device: torch.device
) -> dict[str, Tensor]:
    started = [[SOS, *sentence] for sentence in targets]
    ended = [[*sentence, EOS] for sentence in targets]
    ids = {
        "source": padded(sources),
        "target_input": padded(started),
        "target_output": padded(ended),
    }
    lengths = {"source_length": sources, "target_length": ended}
    on_device = {name: tensor.to(device) for name, tensor in ids.items()}
    return on_device | {
        name: torch.tensor([len(sentence) for sentence in side]) for name, side in lengths.items()
    }


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of a corpus, 0 to 100, by sacrebleu's defaults; ValueError: not as many references."""
    import sacrebleu

    if not references or len(translations) != len(references):
        raise ValueError(
            f"BLEU compares as many translations as references, at least one: {len(translations)}"
            f" and {len(references)}"
        )
    return float(sacrebleu.corpus_bleu(list(translations), [list(references)]).score)
