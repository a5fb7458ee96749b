"""Initial values of TensorFlow's engine, drawn ahead on threads, and how far variables are from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from multigpu.engines.tensorflow.variables import CHUNK, initial_value, initial_values, squared_distance
from multigpu.workloads import workloads


@pytest.mark.parametrize(("workload", "model"), [("nmt", "nmt_tiny"), ("deepconn", "deepconn_tiny"), ("cnn", "resnet_tiny")])
def test_values_drawn_ahead_come_in_order_and_are_those_drawn_alone(workload: str, model: str) -> None:
    description = workloads()[workload].models[model]
    drawn = list(initial_values(description, seed=3))
    assert [variable.name for variable, _ in drawn] == [variable.name for variable in description.variables]
    for index, (variable, value) in enumerate(drawn):
        assert np.array_equal(value, initial_value(variable, index, 3)), variable.name
        assert value.dtype == np.float32 and value.shape == variable.shape
        if variable.init.law == "uniform":
            assert abs(value).max() <= variable.init.scale and (value.size < 100 or value.min() < 0 < value.max())


def test_values_may_be_left_before_the_last() -> None:
    description = workloads()["nmt"].models["nmt_tiny"]
    first, _ = next(iter(initial_values(description, seed=0)))
    assert first is description.variables[0]


@settings(max_examples=30, deadline=None)
@given(size=st.sampled_from([0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5]), seed=st.integers(0, 99))
def test_a_distance_is_that_of_the_whole_in_float64(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    value, start = generator.standard_normal((2, size)).astype(np.float32)
    exact = float(np.linalg.norm(value.astype(np.float64) - start) ** 2)
    assert squared_distance(value, start) == pytest.approx(exact, rel=1e-12)
    assert squared_distance(value) == pytest.approx(float(np.linalg.norm(value.astype(np.float64)) ** 2), rel=1e-12)
