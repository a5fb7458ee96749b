"""Problems, networks and the study's own models: gradients against finite differences, shards,
averaging of models trained apart.
"""

import numpy as np
import pytest
from benchmarks.synchrony.averaging import measure_averaging

from multigpu_study.synchrony.averaging import AveragingExperiment
from multigpu_study.synchrony.experiment import ProblemDescription, TrainedModel
from multigpu_study.synchrony.problems import (
    Batches,
    DigitsProblem,
    LinearRegression,
    PlantedTeacher,
    RareFeatures,
)
from tests.refusals import refused
from tests.study.synchrony.cases import RESNET

NMT = TrainedModel(workload="nmt", model="nmt_tiny", batch_size=8, rows=8, test_rows=8, longest=5)
SMALL_TEACHER = PlantedTeacher(
    features=20, rows=300, test_rows=50, hidden=(8,), teacher_hidden=4, batch_size=300
)
WHOLE: tuple[ProblemDescription, ...] = (
    LinearRegression(rows=40, features=4, batch_size=40),
    RareFeatures(rows=40, features=4, batch_size=40),
    DigitsProblem(batch_size=1437),
    DigitsProblem(hidden=(5,), batch_size=1437),
    SMALL_TEACHER,
)


@pytest.mark.parametrize("description", WHOLE, ids=lambda d: f"{d.kind}-{getattr(d, 'hidden', '')}")
def test_gradients_are_the_losses_slopes(description: ProblemDescription) -> None:
    problem = description.build()
    generator = np.random.default_rng(0)
    point = problem.initial(1) + 0.1 * generator.standard_normal(problem.size)
    gradient = problem.gradient(point, 0, 0)
    for _ in range(5):
        direction = generator.standard_normal(problem.size)
        step = 1e-5 / np.linalg.norm(direction)
        slope = (
            problem.loss(point + step * direction) - problem.loss(point - step * direction)
        ) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=2e-4)


@pytest.mark.parametrize(
    "description",
    [RESNET.model_copy(update={"batch_size": 16}), NMT],
    ids=lambda description: description.model,
)
def test_a_models_gradient_is_that_of_its_loss(description: TrainedModel) -> None:
    """Where a batch is all rows: the loss rises along the gradient as fast as that is long; equal
    arguments give equal bits.
    """
    problem = description.build()
    start = problem.initial(3)
    assert start.dtype == problem.dtype == np.float32 and start.shape == (problem.size,)
    gradient = problem.gradient(start, 0, 0)
    np.testing.assert_array_equal(gradient, problem.gradient(start, 1, 5))
    length = float(np.linalg.norm(gradient))
    step = np.float32(2e-4) * gradient / np.float32(length)
    slope = (problem.loss(start + step) - problem.loss(start - step)) / 4e-4
    assert slope == pytest.approx(length, rel=0.03)
    error = problem.error(start)
    assert error is not None and 0.5 < error <= 1
    parameters = start
    for _ in range(8):
        parameters = parameters - np.float32(0.3) * problem.gradient(parameters, 0, 0)
    assert problem.loss(parameters) < 0.99 * problem.loss(start)


def test_rare_features_are_rare_and_read_apart() -> None:
    problem = RareFeatures(rows=20_000, features=8).build()
    np.testing.assert_allclose(problem.inputs.mean(axis=0), 0.5 / np.arange(1, 9), rtol=0.1)
    assert set(np.unique(problem.inputs)) == {0.0, 1.0}
    half_found = problem.planted * [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]
    assert problem.of_rare(problem.initial(), np.ones(8)) == {"rare_missed": 1.0, "rare_rate": 1.0}
    read = problem.of_rare(half_found, np.array([1, 2, 4, 8, 4, 8, np.nan, 16]))
    assert read == pytest.approx({"rare_missed": 0.25, "rare_rate": 8 / 2**1.5})
    assert LinearRegression(noise=0.0).build().best_loss < 1e-20


def test_batches_follow_from_worker_and_draw_alone_and_stay_in_the_shard() -> None:
    description = LinearRegression(rows=50, shards=3, batch_size=8)
    forward, backward = Batches(description, 50), Batches(description, 50)
    drawn = [forward.rows_of(4, draw).copy() for draw in range(70)]
    for draw in reversed(range(70)):
        np.testing.assert_array_equal(backward.rows_of(4, draw), drawn[draw])
    # worker 4 has shard 1 of 3
    assert {int(row) for rows in drawn for row in rows} == set(range(1, 50, 3))
    assert len({tuple(rows) for rows in drawn}) == 70
    assert tuple(Batches(description, 50).rows_of(1, 0)) != tuple(drawn[0]), (
        "workers of one shard draw for themselves"
    )


def test_a_mean_over_whole_shards_is_the_whole_gradient() -> None:
    whole = LinearRegression(rows=60, batch_size=60).build()
    parts = LinearRegression(rows=60, shards=3, batch_size=20).build()
    point = np.ones(10)
    np.testing.assert_allclose(
        np.mean([parts.gradient(point, w, 0) for w in range(3)], axis=0),
        whole.gradient(point, 0, 0),
        rtol=1e-12,
    )


def test_the_teacher_can_be_learnt() -> None:
    problem = SMALL_TEACHER.model_copy(update={"label_noise": 0.0}).build()
    point = problem.initial()
    before = problem.error(point)
    for _ in range(400):
        point = point - 0.3 * problem.gradient(point, 0, 0)
    assert problem.error(point) < before - 0.2


def test_averaging_after_one_step_is_sync() -> None:
    asked = AveragingExperiment(
        problem=DigitsProblem(shards=3), workers=3, rate=0.2, steps=1, same_start=True
    )
    result = measure_averaging(asked, asked.open())
    assert result.averaged.loss == pytest.approx(result.joint.loss, rel=1e-12)
    with pytest.raises(ValueError, match="3 workers need as many shards to be disjoint, not 1"):
        AveragingExperiment(**dict(asked) | {"problem": DigitsProblem()})


def test_what_a_model_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown model 'resnet' of workload 'cnn': choose one of"):
        TrainedModel(workload="cnn", model="resnet")
    few = NMT.model_copy(update={"longest": 2, "rows": 89_000, "test_rows": 1000}).build()
    refused(
        r"the corpus has \d+ pairs of at most 2 words, not 90000: ask for fewer rows",
        few.loss,
        np.zeros(1, np.float32),
    )
