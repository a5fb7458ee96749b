"""What a comparison may spend, on a made-up clock; and a user's model beside the published job
nearest to it, on committed Records.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from multigpu.analysis.points import Missing
from multigpu.spec.run import Run
from multigpu.user_model import budget
from multigpu.user_model.budget import Budget
from multigpu.user_model.drawings import beside, shown_beside
from multigpu.user_model.lookout import OutOfTime
from tests.refusals import refused


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


def found(model: str) -> Any:
    """A comparison of a model as large as this one, on two devices."""
    gains = {"one device": 1.0, "ddp": 1.8, "exp2": 1.2, "unpublished": 1.5}
    frame = pd.DataFrame({"name": [*gains], "speedup": [*gains.values()], "n": 5}).assign(
        speedup_low=1.0, speedup_high=2.0
    )
    run = Run(workload="cnn", model=model, placement="ddp", devices=2, batch_size=64)
    return SimpleNamespace(runs=[run], names=[*gains], frame=frame)


def test_the_nearest_published_job_is_one_of_the_models_own_size_or_none_is_shown() -> None:
    rows = beside(found("vgg16"))
    here, there = rows[rows["place"] == "here"], rows[rows["place"] != "here"]
    assert dict(zip(here["name"], here["efficiency"], strict=True)) == {"ddp": 0.9, "exp2": 0.6}
    assert (
        there["place"].nunique() == 1
        and there["place"].str.startswith("vgg16, ").all()
        and set(there["name"]) == set(here["name"])
    )
    assert (there["n"] > 1).all() and there["efficiency"].between(
        there["efficiency_low"], there["efficiency_high"]
    ).all()
    assert "<svg" in shown_beside(found("vgg16"))
    refused("no published job on 2 GPUs", beside, found("resnet_tiny"), error=Missing)
    assert shown_beside(found("resnet_tiny")) == ""
