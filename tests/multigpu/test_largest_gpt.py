"""The largest GPT that is forecast to fit: the two that were measured, and depths not followed."""

import csv
from functools import partial
from importlib import import_module
from types import ModuleType

import pytest

from multigpu import paths


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(paths.REPOSITORY / "benchmarks"))
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    return import_module("largest_gpt")


def test_measured_peaks_are_what_gradients_made_in_backward_need(script: ModuleType) -> None:
    """Two forecasts are those of before, which had all gradients beside all activations."""
    with (paths.DATA / "benchmarks" / "largest_gpt.csv").open(encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[2]["forecast_gib"]) == pytest.approx(float(rows[2]["peak_gib"]), rel=0.01)
    for row in rows[:3]:
        blocks, width, peak = int(row["blocks"]), int(row["width"]), float(row["peak_gib"])
        found = script.needs(blocks, width, "independent", 1)
        assert found.least / script.GIB == pytest.approx(peak, rel=0.01)
        # of biases and norms, too, variable, gradient and two states
        assert found.least == 16 * int(row["parameters"]) + 16 * width * (13 * blocks + 2)
        assert (float(row["forecast_gib"]) > 1.15 * peak) == (row is not rows[2])
    against = [script.against_forecast("larger" in row["of"], row["outcome"]) for row in rows]
    assert [*map(bool, against)] == [False, True, False, False]


@pytest.mark.parametrize("placement", ["independent", "replicated_allreduce", "fsdp2"])
def test_depths_that_are_not_followed_lie_on_the_lines_of_two(
    script: ModuleType, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few words and tokens, so that activations of eight sequences weigh as gradients do."""
    small = {"words": 300, "length": 32}
    monkeypatch.setattr(script, "Logits", partial(script.Logits, **small))
    monkeypatch.setattr(script, "WORDS", 300)
    monkeypatch.setattr(script, "LENGTH", 32)
    described = partial(script.GptConfig, vocabulary=300, context=32)
    monkeypatch.setattr(script, "GptConfig", described)
    ranks = 2 if placement == "fsdp2" else 1
    needed_by = script.forecast(64, 8, placement, ranks)
    for layers in (8, 12):
        found = script.needs(layers, 64, placement, ranks)
        begin, end = script.followed(layers, 64, 8, found.made)
        followed = max(found.held + max(begin, found.made + end), found.least)
        assert needed_by(layers) == pytest.approx(followed, rel=0.01)
        assert begin > 0.3 * found.made, "both ends matter"


def test_three_finite_losses_are_trained_whatever_they_do(script: ModuleType) -> None:
    assert script.outcome_of([11.2, 12.9, 13.0]) == "trained"
    assert script.outcome_of([11.2, float("nan"), 13.0]) == "losses [11.2, nan, 13.0]"
    told = {
        (larger, outcome): script.against_forecast(larger, outcome)
        for larger in (False, True)
        for outcome in ("trained", "out of memory", "losses [nan]")
    }
    assert not told[False, "trained"] and not told[True, "out of memory"]
    assert sum(map(bool, told.values())) == 4
    assert "should not fit" in told[True, "trained"]
    assert "did not train: out of memory" in told[False, "out of memory"]
