"""On GPUs, every in-graph TensorFlow placement trains as one GPU on the joined batch, moves what its row predicts, and runs where it says.

fp32 is fp32 (TF32 is off), on up to four GPUs. MULTIGPU_STAND_INS=3 runs the same on so many stand-ins of a CPU, where there is none.
"""

import os

import pytest

from multigpu.measure.machine import gpu_count
from multigpu.run import Run
from tests.equivalence.tensorflow_cases import device_cases, name_of, run_devices
from tests.equivalence.tensorflow_checks import check

STAND_INS = int(os.environ.get("MULTIGPU_STAND_INS", "0"))
KIND, DEVICES = ("cpu", STAND_INS) if STAND_INS else ("cuda", min(4, gpu_count()))
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}

pytestmark = [
    pytest.mark.skipif(DEVICES < 2, reason="needs two NVIDIA GPUs"),
    pytest.mark.timeout(600),
    *([] if STAND_INS else [pytest.mark.gpu]),
]


@pytest.fixture(scope="module")
def results():
    return run_devices(KIND, DEVICES)


@pytest.mark.parametrize("run", device_cases(KIND, max(2, DEVICES)), ids=name_of)
def test_trains_as_one_gpu_on_the_joined_batch_and_moves_and_runs_as_its_row_says(run: Run, results) -> None:
    check(run, results, TOLERANCE[run.precision])
