"""What a comparison may spend, on a made-up clock."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.user_model import budget
from multigpu.user_model.budget import Budget
from multigpu.user_model.lookout import OutOfTime


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves when it is told to."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def launched(
    clock: SimpleNamespace,
    bar: Budget,
    launches: int,
    opening_s: float,
    runs: list[tuple[str, float]],
) -> Iterator[str]:
    """The Runs of one launch that are measured: the first is the throw-away one, and ends
    `opening_s` after the launch began.
    """
    bar.begin(launches)
    for place, (label, took_s) in enumerate(runs):
        try:
            bar.set_description(label)
        except OutOfTime:
            return
        clock.now += took_s if place else opening_s
        bar.update(1)
        yield label


def compared(
    clock: SimpleNamespace,
    budget_s: float,
    opening_s: float,
    took_s: dict[str, float],
    repeats: int = 5,
) -> tuple[list[str], float]:
    """What is measured within a budget, one device in a launch of its own; and when it ended, s
    after it began.
    """
    bar, began, measured = Budget(99, False), clock.now, list[str]()
    bar.ends_s = began + budget_s
    launches = [["one"] * repeats, [name for name in took_s if name != "one"] * repeats]
    for place, names in enumerate(launches):
        try:
            measured += list(
                launched(
                    clock,
                    bar,
                    2 - place,
                    opening_s,
                    [(name, took_s[name]) for name in [names[0], *names]],
                )
            )[1:]
        except OutOfTime:
            break
    return measured, clock.now - began


@pytest.mark.parametrize("budget_s", [15, 20, 25, 40, 60, 300])
@pytest.mark.parametrize("opening_s", [2.0, 5.0, 9.0])
@pytest.mark.parametrize("slow_s", [0.5, 3.0, 12.0])
def test_a_budget_is_exceeded_by_one_run_at_most(
    clock: SimpleNamespace, budget_s: float, opening_s: float, slow_s: float
) -> None:
    took_s: dict[str, Any] = {"one": 1.0, "ddp": 1.5, "exp4": slow_s}
    measured, ended_s = compared(clock, budget_s, opening_s, took_s)
    assert ended_s <= budget_s + max(opening_s, slow_s, 1.5)
    assert "one" in measured and (budget_s < 300 or len(measured) == 15)
    if budget_s >= 2 * opening_s + 8:
        assert "ddp" in measured, "one device's repeats may not use up what its rivals need"
