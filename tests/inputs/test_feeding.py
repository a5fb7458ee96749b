"""Ways of feeding reviews, without a framework: what is made when, by whom, and how often."""

import threading

import numpy as np
import pytest

from multigpu.inputs.batch import Batch, Feeding, Source

RANKS = (0, 1)


class Numbered(Source):
    """Batches that hold their step and rank, or with a period their place in it; notes who asked for which."""

    label, capacity, fingerprint = "numbered", {}, ""

    def __init__(self, period: int | None) -> None:
        self.period = period
        self.asked: list[tuple[int, int, str]] = []

    def batch(self, step: int, rank: int) -> Batch:
        self.asked.append((step, rank, threading.current_thread().name))
        return Batch({"numbers": np.array([step, rank])}, rank, 1, 1, (1, 1), ({}, {}))


class Copied(Feeding[list[np.ndarray]]):
    """Gives a step copies of its shards' numbers."""

    ranks = RANKS

    def put_all(self, batches: list[Batch]) -> list[np.ndarray]:
        return [np.array(batch.arrays["numbers"]) for batch in batches]


def feeding(period: int | None, mode: str | None) -> tuple[Copied, Numbered]:
    source = Numbered(period)
    return Copied(source, mode), source


def steps_of(given: list[np.ndarray]) -> list[int]:
    assert [int(numbers[1]) for numbers in given] == list(RANKS)
    return [int(numbers[0]) for numbers in given]


def test_what_repeats_is_kept_and_nobody_waits() -> None:
    feed, source = feeding(3, None)
    first = [feed.given(step) for step in range(3)]
    assert [steps_of(given) for given in first] == [[0, 0], [1, 1], [2, 2]]
    assert all(feed.given(step) is first[step % 3] for step in (3, 4, 5, 7))
    assert [(step, rank) for step, rank, _ in source.asked] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert feed.waits == {} and feed.thread is None
    feed.close()


@pytest.mark.parametrize("mode", ["arrays", "strings"])
def test_what_the_step_asks_for_is_copied_by_its_own_thread_every_time(mode: str) -> None:
    feed, source = feeding(2, mode)
    given = [feed.given(step) for step in range(4)]
    assert [steps_of(each) for each in given] == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert given[2][0] is not given[0][0], "a copy every time, of a batch that is made once"
    assert [(step, rank) for step, rank, _ in source.asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {name for _, _, name in source.asked} == {threading.current_thread().name}
    assert sorted(feed.waits) == [0, 1, 2, 3]
    feed.close()


@pytest.mark.parametrize(("period", "mode"), [(None, None), (None, "pipeline"), (9, "pipeline")])
def test_one_step_ahead_is_made_by_another_thread_whatever_the_order(period: int | None, mode: str | None) -> None:
    feed, source = feeding(period, mode)
    assert [steps_of(feed.given(step)) for step in (0, 1, 7, 8)] == [[0, 0], [1, 1], [7, 7], [8, 8]]
    feed.close()
    own = threading.current_thread().name
    by_own = [step for step, rank, name in source.asked if name == own and rank == 0]
    by_other = {step for step, _, name in source.asked if name != own}
    assert by_own == [0, 7], "what no step before asked for"
    assert {1, 2, 8} <= by_other and sorted(feed.waits) == [0, 1, 7, 8]
