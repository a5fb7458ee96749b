"""On GPUs, every in-graph TensorFlow placement trains as one GPU on the joined batch, moves what its row predicts, and runs where it says.

fp32 is fp32 (TF32 is off), on up to four GPUs. MULTIGPU_STAND_INS=3 runs the same on so many stand-ins of a CPU, where there is none.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

from multigpu.measure.machine import gpu_count
from tests.equivalence.tensorflow_cases import Case, device_cases, run_devices
from tests.equivalence.tensorflow_checks import check_compiled, check_equality, check_places, result_of

STAND_INS = int(os.environ.get("MULTIGPU_STAND_INS", "0"))
KIND, DEVICES = ("cpu", STAND_INS) if STAND_INS else ("cuda", min(4, gpu_count()))
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.skipif(DEVICES < 2, reason="needs two NVIDIA GPUs"),
    pytest.mark.timeout(600),
    *([] if STAND_INS else [pytest.mark.gpu]),
]
each_case = pytest.mark.parametrize("case", device_cases(KIND, max(2, DEVICES)), ids=lambda case: case.name)


@pytest.fixture(scope="module")
def results():
    return run_devices(KIND, DEVICES)


@each_case
def test_equals_one_gpu_on_the_joined_batch(case: Case, results) -> None:
    check_equality(case, result_of(case, results), TOLERANCE[case.run.precision])


@each_case
def test_moves_what_its_row_predicts(case: Case, results) -> None:
    result = result_of(case, results)
    assert result["counted"] == result["predicted"]


@each_case
def test_every_part_ran_where_its_row_says(case: Case, results) -> None:
    check_places(case, result_of(case, results))


@each_case
def test_xla_compiles_each_tower_on_its_own_device(case: Case, results) -> None:
    check_compiled(case, result_of(case, results))
