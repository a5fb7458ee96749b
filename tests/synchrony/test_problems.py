"""Problems and the network: gradients against finite differences, shards, known minimum, averaging of models trained apart."""

from typing import Any

import numpy as np
import pytest

from multigpu.synchrony.averaging import AveragingExperiment, AveragingRecord, measure_averaging
from multigpu.synchrony.experiment import ProblemDescription
from multigpu.synchrony.problems import Batches, Digits, LinearRegression, PlantedTeacher, RareFeatures

SMALL_TEACHER = PlantedTeacher(features=20, rows=300, test_rows=50, hidden=(8,), teacher_hidden=4, batch_size=300)
WHOLE: tuple[ProblemDescription, ...] = (
    LinearRegression(rows=40, features=4, batch_size=40),
    RareFeatures(rows=40, features=4, batch_size=40),
    Digits(batch_size=1437),
    Digits(hidden=(5,), batch_size=1437),
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
        slope = (problem.loss(point + step * direction) - problem.loss(point - step * direction)) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=2e-4)


def test_the_minimum_is_one() -> None:
    problem = LinearRegression(rows=100, features=5).build()
    whole = LinearRegression(rows=100, features=5, batch_size=100).build()
    np.testing.assert_allclose(whole.gradient(problem.best, 0, 0), 0, atol=1e-12)
    assert problem.best_loss < problem.loss(problem.best + 0.01)


def test_rare_features_are_rare_and_read_apart() -> None:
    problem = RareFeatures(rows=20_000, features=8).build()
    np.testing.assert_allclose(problem.inputs.mean(axis=0), 0.5 / np.arange(1, 9), rtol=0.1)
    assert set(np.unique(problem.inputs)) == {0.0, 1.0}
    half_found = problem.planted * [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]
    assert problem.of_rare(problem.initial(), np.ones(8)) == {"rare_missed": 1.0, "rare_rate": 1.0}
    read = problem.of_rare(half_found, np.array([1, 2, 4, 8, 4, 8, np.nan, 16]))
    assert read == pytest.approx({"rare_missed": 0.25, "rare_rate": 8 / 2**1.5})


def test_batches_follow_from_worker_and_draw_alone_and_stay_in_the_shard() -> None:
    description = LinearRegression(rows=50, shards=3, batch_size=8)
    forward, backward = Batches(description, 50), Batches(description, 50)
    drawn = [forward.rows_of(4, draw).copy() for draw in range(70)]
    for draw in reversed(range(70)):
        np.testing.assert_array_equal(backward.rows_of(4, draw), drawn[draw])
    assert {int(row) for rows in drawn for row in rows} == set(range(1, 50, 3))  # worker 4 has shard 1 of 3
    assert len({tuple(rows) for rows in drawn}) == 70
    assert tuple(Batches(description, 50).rows_of(1, 0)) != tuple(drawn[0]), "workers of one shard draw for themselves"


def test_a_mean_over_whole_shards_is_the_whole_gradient() -> None:
    whole = LinearRegression(rows=60, batch_size=60).build()
    parts = LinearRegression(rows=60, shards=3, batch_size=20).build()
    point = np.ones(10)
    np.testing.assert_allclose(np.mean([parts.gradient(point, w, 0) for w in range(3)], axis=0), whole.gradient(point, 0, 0), rtol=1e-12)


def test_the_teacher_can_be_learnt() -> None:
    problem = SMALL_TEACHER.model_copy(update={"label_noise": 0.0}).build()
    point = problem.initial()
    before = problem.error(point)
    for _ in range(400):
        point = point - 0.3 * problem.gradient(point, 0, 0)
    assert problem.error(point) < before - 0.2


def apart(hidden: tuple[int, ...] = (), workers: int = 4, **fields: Any) -> AveragingRecord:
    asked = AveragingExperiment(problem=Digits(hidden=hidden, shards=workers), workers=workers, rate=0.2, **fields)
    return measure_averaging(asked, asked.open())


def test_averaging_after_one_step_is_sync() -> None:
    result = apart(workers=3, steps=1, same_start=True)
    assert result.averaged.loss == pytest.approx(result.joint.loss, rel=1e-12)


def test_the_average_of_networks_trained_apart_is_worse_than_each_of_them() -> None:
    """C48 in the small, and its limits: a convex model's average is as good as the joint model."""
    network = apart((32,), steps=300, same_start=False)
    assert network.averaged.error > 3 * max(score.error for score in network.apart)
    assert network.averaged.loss > 5 * network.joint.loss
    convex = apart(steps=300, same_start=False)
    assert convex.averaged.loss == pytest.approx(convex.joint.loss, rel=0.1)
