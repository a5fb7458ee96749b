"""Keras users' throughput: warm-up left out, a short last batch counted as what it holds."""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.refusals import refused


@pytest.fixture
def callbacks(tf: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, imported by the one process that runs these tests, not by all that collect them:
    Keras takes seconds.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    return importlib.import_module("keras_throughput")


def test_warmup_is_left_out_and_a_short_batch_counts_what_it_holds(callbacks) -> None:
    """There are 100 s between batches that are nobody's time, and the second epoch has no
    warm-up.
    """
    now = [0.0]
    callback = callbacks.ThroughputCallback(
        clock=lambda: now[0], batch_size=32, samples=100, warmup_batches=2
    )
    assert np.isnan(callback.samples_per_s)
    for _ in range(2):
        for batch, duration in enumerate([10.0, 5.0, 2.0, 1.0]):
            callback.on_train_batch_begin(batch)
            now[0] += duration
            callback.on_train_batch_end(batch)
            now[0] += 100.0
    assert [samples for samples, _, _ in callback.batches] == [32, 32, 32, 4] * 2
    assert callback.samples_per_s == pytest.approx(136 / 21.0), "not the mean of the batches' rates"
    assert callback.batch_samples_per_s == pytest.approx([3.2, 6.4, 16.0, 4.0] * 2)
    for wrong in (
        {"batch_size": 0},
        {"batch_size": 4, "samples": 0},
        {"batch_size": 4, "warmup_batches": -1},
    ):
        refused("must be positive", callbacks.ThroughputCallback, **wrong)


def test_the_pages_example(callbacks, capsys) -> None:
    """In a real fit: a thousand samples in batches of 32."""
    page = (Path(__file__).parents[2] / "report" / "use.md").read_text(encoding="utf-8")
    (example,) = (
        one
        for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "ThroughputCallback" in one
    )
    names: dict[str, Any] = {}
    exec(example, names)
    assert [samples for samples, _, _ in names["throughput"].batches] == [32] * 31 + [8]
    printed = capsys.readouterr().out.split()
    assert (
        float(printed[-1]) == names["throughput"].samples_per_s > 0 and "samples_per_s:" in printed
    )
