"""Greedy translation with the PyTorch module: the likeliest word at every position, many sentences at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from multigpu.inputs.drawn_text import LONGEST
from multigpu.inputs.vocabulary import EOS, SOS
from multigpu.workloads.nmt.torch import Nmt


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Sentences filled up with EOS, (sentences, longest) int64."""
    return pad_sequence([torch.tensor(sentence) for sentence in sentences], batch_first=True, padding_value=EOS)


def greedy(module: Nmt, sources: Sequence[Sequence[int]], longest: int = LONGEST, batch_size: int = 64) -> list[list[int]]:
    """The translation of each sentence, without start or end.

    Sentences of like lengths are translated together; the answers stand in the order of `sources`. Each begins with the
    decoder in the encoder's last state, takes the likeliest word (of equals the lowest number) as its own next input, and
    ends before its first EOS or after `longest` words. The start of a sentence is never chosen: no target holds it.

    Args:
        sources: numbers of the words of each sentence, at least one a sentence.
        longest: the most words of a translation.
        batch_size: sentences translated together.

    Raises:
        ValueError: a sentence is empty, or `longest` or `batch_size` is below 1.
    """
    for name, value in (("longest", longest), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} {value} is too few: at least 1 is needed")
    empty = next((place for place, sentence in enumerate(sources) if not len(sentence)), None)
    if empty is not None:
        raise ValueError(f"sentence {empty} is empty: there is nothing to translate")
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    found: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        for place, answer in zip(places, _translate([sources[place] for place in places], module, longest), strict=True):
            found[place] = answer
    return found


@torch.no_grad()
def _translate(sources: list[Sequence[int]], module: Nmt, longest: int) -> list[list[int]]:
    """One batch: encode all, then a position at a time for the sentences that have not ended."""
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
    return [_until_end(row) for row in answers.cpu()]


def _until_end(row: Tensor) -> list[int]:
    """The words before the first EOS."""
    words: list[int] = row.tolist()
    return words[: words.index(EOS)] if EOS in words else words
