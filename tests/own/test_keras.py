"""A user's Keras model through `compare` on two logical CPU devices, and Keras jobs that cannot be trained."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import multigpu
from multigpu.own.examine import framework_of
from multigpu.own.placed import ONE
from multigpu.own.result import Result
from tests.own.test_bad_jobs import refused

MODEL = Path(__file__).parent / "keras_model.py"
PLACEMENTS = ("mirrored_nccl", "exp2", "exp4")
BUDGET_S = 150
"""Three processes import Keras, one after the other; the computer may be shared."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("tf")]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("functional")
    job = f"{MODEL}:functional"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multigpu.own.compare.WINDOW_S", 0.0)  # as few steps as can be
        return multigpu.compare(job, 2, PLACEMENTS, budget_s=BUDGET_S, out=out, device_type="cpu", repeats=1, progress=False)


def test_placements_of_a_keras_model_equal_one_device_and_move_what_is_predicted(result: Result) -> None:
    assert {ONE, *PLACEMENTS} <= {*result.names, *result.left_out} and {ONE, "mirrored_nccl"} <= set(result.names) and not result.failed
    for name in result.names:
        compared = result.equivalence(name)
        assert compared is not None and compared.precision == "fp64" and compared.holds and compared.distance < 1e-12
        causes = result.why_not_scaling(name)
        assert causes["ms"].min() >= 0 and causes["ms"].sum() == pytest.approx(1e3 * result[name].row["step_time_s"])
    for record in result.records:
        assert record.measurement is not None and record.measurement.moved_bytes == record.measurement.predicted_bytes
    mirrored = result["mirrored_nccl"]
    assert mirrored.row["moved_bytes"] == 2 * 4 * mirrored.run.description.parameters


def test_what_is_frozen_or_needs_not_move_is_known(result: Result) -> None:
    assert {"conv2d.bias"} == set(result.described.flat)
    assert "batch_normalization.moving_mean" in result.described.fixed and "seed_generator.seed_generator_state" in result.described.fixed
    assert any("dropout" in note for note in result.described.notes) and "mirrored_nccl" in result._repr_html_()
    with pytest.raises(ValueError, match="MirroredStrategy"):
        result["mirrored_nccl"].wrap(None)


GOOD = """
import keras
import numpy as np
import tensorflow as tf
import multigpu as mg

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.one = keras.layers.Dense(4)

    def call(self, x):
        return self.one(x)

def batch(n, generator):
    return generator.random((n, 3), np.float32), generator.random((n, 4), np.float32)

job = mg.Job(Net, batch, keras.losses.MeanSquaredError(), mg.SGD(0.1), batch_size=2)
"""

BAD = {
    "an exception inside call": ("self.one(x)", "self.two(x)", "return self.two", "no attribute 'two'"),
    "a shape that does not fit the loss": ("(n, 4)", "(n, 7)", "job = ", "loss fails with"),
    "neither a function nor a dataset": ("Net, batch", "Net, [1]", "", "a tf.data.Dataset of batches"),
    "an empty dataset": ("Net, batch", "Net, tf.data.Dataset.range(4).batch(2).take(0)", "", "batch has no samples"),
    "nothing to learn": ("Dense(4)", "Dense(4, trainable=False)", "job = ", "nothing can be learned"),
    "a rule that is not built": ("mg.SGD", "mg.AdamW", "job = ", "multigpu.Adam or multigpu.SGD"),
    "a text where a tensor is due": ("generator.random((n, 3), np.float32)", "np.full(n, 'a')", "", "where a tensor is due"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_keras_job_gets_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(GOOD, BAD[name], tmp_path, capsys)


def test_a_function_that_imports_keras_itself_makes_a_keras_model(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    def model() -> keras.Model:
        monkeypatch.setitem(sys.modules, "keras", keras)
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])

    monkeypatch.delitem(sys.modules, "keras")
    assert framework_of(multigpu.Job(model, [], keras.losses.MeanSquaredError(), multigpu.SGD(0.1), batch_size=2)) == "tensorflow"
