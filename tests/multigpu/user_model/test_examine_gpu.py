"""A job examined on the GPU that will train it is what it is on the CPU.

python -m pytest -c /dev/null --noconftest tests/multigpu/user_model/test_examine_gpu.py
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.user_model.describe import begun, describe, on_a_gpu
from multigpu.workloads.own.description import know
from multigpu.workloads.own.job import load_job

JOBS = Path(__file__).parent / "jobs"
TAKEN = (
    "attention_with_mask",
    "batch_norm",
    "causal_language_model",
    "dead_relu",
    "tied_autoencoder",
    "weight_in_a_list",
)
TOLD = ("variables", "tables", "tied", "fixed", "seldom", "leaves", "any_rows", "checked_in")


def named(name: str) -> str:
    return f"{JOBS / name}.py:job"


@pytest.mark.gpu
@pytest.mark.parametrize("name", TAKEN)
def test_a_gpu_finds_what_the_cpu_finds(name: str, tmp_path: Path) -> None:
    know(tmp_path)
    found: list[Any] = [
        describe(load_job(named(name)), tmp_path, 2, named(name), timed=timed)
        for timed in (True, False)
    ]
    on_cpu, on_gpu = ({key: getattr(one, key) for key in TOLD} for one in found)
    assert on_gpu == on_cpu
    assert not [note for note in found[1].notes if "on a GPU it fails" in note]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a computer without a GPU")
def test_what_fails_on_a_gpu_is_examined_on_the_cpu() -> None:
    job = load_job(named("batch_norm"))
    described = on_a_gpu(begun("torch", job, 2, "cpu"), named("batch_norm"), b"code")
    assert described.checked_in == "fp64"
    assert [note for note in described.notes if "on a GPU it fails" in note]
