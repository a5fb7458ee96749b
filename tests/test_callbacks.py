"""Keras users' throughput: warm-up left out, a short last batch counted as what it holds."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.refusals import refused

if TYPE_CHECKING:
    from multigpu.callbacks import ThroughputCallback


@pytest.fixture(scope="module")
def callbacks(tf: ModuleType) -> ModuleType:
    """Imported by the one process that runs these tests, not by all that collect them: Keras takes seconds."""
    from multigpu import callbacks

    return callbacks


def played(callbacks: ModuleType, *epochs: list[float], **asked: Any) -> ThroughputCallback:
    """A callback that has seen batches of so many seconds, with 100 s between them that are nobody's time."""
    now = [0.0]
    callback: ThroughputCallback = callbacks.ThroughputCallback(clock=lambda: now[0], **asked)
    for seconds in epochs:
        for batch, duration in enumerate(seconds):
            callback.on_train_batch_begin(batch)
            now[0] += duration
            callback.on_train_batch_end(batch)
            now[0] += 100.0
    return callback


def test_warmup_is_left_out_and_a_short_batch_counts_what_it_holds(callbacks) -> None:
    callback = played(callbacks, [10.0, 5.0, 2.0, 1.0], batch_size=32, samples=100, warmup_batches=2)
    assert [samples for samples, _, _ in callback.batches] == [32, 32, 32, 4]
    assert callback.samples_per_s == pytest.approx(36 / 3.0), "not the mean of 16/s and 4/s"
    assert callback.batch_samples_per_s == pytest.approx([3.2, 6.4, 16.0, 4.0])


def test_warmup_belongs_to_the_first_epoch_alone(callbacks) -> None:
    assert played(callbacks, [4.0, 1.0], [4.0, 1.0], batch_size=10, warmup_batches=1).samples_per_s == pytest.approx(30 / 6.0)


def test_before_the_warmup_has_ended_there_is_no_figure(callbacks) -> None:
    assert np.isnan(callbacks.ThroughputCallback(8).samples_per_s)


@pytest.mark.parametrize("fields", [{"batch_size": 0}, {"batch_size": 4, "samples": 0}, {"batch_size": 4, "warmup_batches": -1}])
def test_impossible_numbers_are_refused(fields, callbacks) -> None:
    refused("must be positive", callbacks.ThroughputCallback, **fields)


def test_in_a_real_fit(callbacks) -> None:
    """21 samples in batches of 8, two epochs: 8, 8, 5, 8, 8, 5."""
    import keras

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = callbacks.ThroughputCallback(8, samples=21, warmup_batches=1)
    history = model.fit(np.ones((21, 3)), np.ones(21), batch_size=8, epochs=2, verbose=0, callbacks=[callback])
    assert [samples for samples, _, _ in callback.batches] == [8, 8, 5, 8, 8, 5]
    assert [warming for _, _, warming in callback.batches] == [True] + [False] * 5
    assert callback.samples_per_s > 0
    assert history.history["samples_per_s"][-1] == pytest.approx(callback.samples_per_s)


def test_the_readmes_example(callbacks, capsys) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = (one for one in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "ThroughputCallback" in one)
    names: dict[str, Any] = {}
    exec(example, names)
    assert [samples for samples, _, _ in names["throughput"].batches] == [32] * 31 + [8]
    printed = capsys.readouterr().out.split()
    assert float(printed[-1]) == names["throughput"].samples_per_s > 0 and "samples_per_s:" in printed
