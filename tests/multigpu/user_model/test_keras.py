"""A user's Keras model through `compare` on two logical CPU devices, and Keras jobs that cannot be
trained.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multigpu
from multigpu.runner.point import Point
from multigpu.user_model.describe import framework_of
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import Result
from multigpu.workloads import description_of
from tests.further import but
from tests.multigpu.user_model.standing import check_placements
from tests.multigpu.user_model.test_bad_jobs import refused
from tests.refusals import cases_beside
from tests.refusals import refused as told

PLACEMENTS = ("mirrored_nccl", "exp4")
BUDGET_S = 400  # it ends sooner: three processes import Keras, and the computer may be shared

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("tf")]


def compared(named: str, out: Path, placements: tuple[str, ...], budget_s: float) -> Result:
    """The comparison of a job of a file here, with as few steps a window as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multigpu.user_model.candidates.WINDOW_S", 0.0)
        how: dict[str, Any] = {"device_type": "cpu", "repeats": 1, "progress": False}
        job = f"{Path(__file__).parent / named}"
        return multigpu.compare(job, 2, placements, budget_s=budget_s, out=out, **how)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        # all ways in the first round
        patch.setattr(
            "multigpu.user_model.compare.raced",
            lambda result_of, measure, *_: measure([Point(run) for run in result_of().runs]),
        )
        out = tmp_path_factory.mktemp("functional")
        return compared("keras_model.py:functional", out, PLACEMENTS, BUDGET_S)


@pytest.mark.further
@pytest.mark.parametrize("name", ["functional_job", "subclassed_job"])
def test_a_race_of_a_keras_job_launches_its_ways_again(name: str, tmp_path: Path) -> None:
    raced = compared(f"jobs/_keras_dense.py:{name}", tmp_path, ("mirrored_nccl",), 100)
    assert {ONE, "mirrored_nccl"} <= set(raced.names) and not raced.failed
    check_placements(raced, 1e-12)
    assert len({record.launch_id for record in raced.records}) > 1
    assert "mirrored_nccl" in (tmp_path / "index.html").read_text()


def test_placements_of_a_keras_model_equal_one_device_and_move_what_is_predicted(
    result: Result,
) -> None:
    assert (
        {ONE, *PLACEMENTS} <= {*result.names, *result.left_out}
        and {ONE, "mirrored_nccl"} <= set(result.names)
        and not result.failed
    )
    check_placements(result, 1e-12)
    mirrored = result["mirrored_nccl"]
    assert mirrored.row["moved_bytes"] == 2 * 4 * description_of(mirrored.run).parameters
    assert {"conv2d.bias"} == set(result.described.flat)
    assert (
        "batch_normalization.moving_mean" in result.described.fixed
        and "seed_generator.seed_generator_state" in result.described.fixed
    )
    assert (
        any("dropout" in note for note in result.described.notes)
        and "mirrored_nccl" in result._repr_html_()
    )


STRATEGIES = ("mirrored_nccl", "mirrored_hierarchical", "mirrored_one_device", "central_storage")


@pytest.mark.parametrize("name", but(STRATEGIES[:1], STRATEGIES))
def test_a_fit_under_a_placement_equals_one_device_on_the_global_batch(
    result: Result, name: str
) -> None:
    import keras

    def model() -> keras.Model:
        keras.utils.set_random_seed(3)
        word = keras.layers.Flatten()(
            keras.layers.Embedding(9, 4)(words := keras.Input((2,), dtype="int64"))
        )
        return keras.Model(
            words,
            keras.layers.Dense(1)(keras.layers.Dense(8, "tanh", kernel_regularizer="l2")(word)),
        )

    def trained(model: keras.Model) -> list[np.ndarray]:
        with model.distribute_strategy.scope():
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.fit(ids, ids.sum(1) / 9, batch_size=8, epochs=3, shuffle=False, verbose=0)
        return model.get_weights()

    placed = result["mirrored_nccl"]
    ids = np.random.default_rng(0).integers(9, size=(32, 2))
    plain = model()
    placed = replace(placed, run=placed.run.model_copy(update={"placement": name}))
    start = plain.get_weights()
    alone, wrapped = placed.wrap(plain), placed.wrap(model)
    assert wrapped.distribute_strategy.num_replicas_in_sync == 2
    reference = trained(plain)
    for found in (trained(alone), trained(wrapped)):
        assert all(
            np.allclose(own, other, rtol=0, atol=1e-5)
            for own, other in zip(found, reference, strict=True)
        )
    assert all(
        np.abs(own - other).max() > 1e-3 for own, other in zip(reference, start, strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"placement": "exp2"},
            f"'exp2' is no strategy of tf.distribute.*choose .*{STRATEGIES[0]}",
        ),
        ({}, "give a Keras model, or a function"),
        ({"devices": 64}, "64 devices cannot be had"),
    ],
)
def test_what_is_no_strategy_or_no_model_is_refused(
    result: Result, changes: dict[str, Any], said: str
) -> None:
    placed = result["mirrored_nccl"]
    told(said, replace(placed, run=placed.run.model_copy(update=changes)).wrap, list)


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

BAD = {name: tuple(row) for name, *row in cases_beside(__file__, "bad_keras_jobs.csv")}


@pytest.mark.usefixtures("examined_here")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_keras_job_gets_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(GOOD, BAD[name], tmp_path, capsys)


def test_a_function_that_imports_keras_itself_makes_a_keras_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import keras

    def model() -> keras.Model:
        monkeypatch.setitem(sys.modules, "keras", keras)
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])

    monkeypatch.delitem(sys.modules, "keras")
    assert (
        framework_of(
            multigpu.Job(
                model, [], keras.losses.MeanSquaredError(), multigpu.SGD(0.1), batch_size=2
            )
        )
        == "tensorflow"
    )
