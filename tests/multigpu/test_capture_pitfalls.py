"""What the benchmark of capture pitfalls makes of a try, and that it says where it cannot run."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "capture_pitfalls.py"


@pytest.fixture(scope="module")
def pitfalls() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capture_pitfalls", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


DONE = [{"doing": "warm-up"}, {"doing": "capture"}, {"doing": "replay"}]


@pytest.mark.parametrize(
    "told, exit_code, said",
    [
        ([*DONE, {"doing": "shutdown", "difference": 1e-13}], 0, "right"),
        ([*DONE, {"doing": "shutdown", "difference": 0.3}], 0, "wrong, and nothing says so"),
        ([*DONE, {"doing": "shutdown", "difference": float("nan")}], 0, "wrong, and nothing"),
        ([*DONE, {"doing": "shutdown", "difference": 0.0}], -6, "right; process dies in the shut"),
        ([*DONE, {"doing": "shutdown", "difference": 0.0}], None, "hangs in the shutdown"),
        ([*DONE[:2], {"error": "RuntimeError: capturing"}], 1, "error in the capture"),
        (DONE[:1], -6, "process dies in the warm-up"),
        (DONE, None, "hangs in the replay"),
        ([], 1, "process dies in the start"),
    ],
)
def test_what_came_of_a_try(
    pitfalls: ModuleType, told: list[dict[str, Any]], exit_code: int | None, said: str
) -> None:
    assert pitfalls.outcome(told, exit_code).startswith(said)


def test_a_row_counts_its_tries_and_keeps_the_worst_difference(pitfalls: ModuleType) -> None:
    attempt, nan = pitfalls.ATTEMPTS[1], float("nan")
    tries = [
        ("right", 1e-12, ""),
        ("error in the capture", nan, "RuntimeError: no"),
        ("right", 1e-13, ""),
    ]
    (row,) = pitfalls.rows_of({(attempt, "ddp"): tries, (attempt, "fsdp2"): []}, {"gpus": 2})
    assert (row["without"], row["n"], row["gpus"]) == ("no warm-up", 3, 2)
    assert row["outcome"] == "right (2 of 3); error in the capture (1 of 3)"
    assert (row["difference"], row["error"]) == ("1e-12", "RuntimeError: no")
    changed = [vars(each) | {"without": ""} for each in pitfalls.ATTEMPTS]
    assert all(changed.count(each) == 1 for each in changed), "each attempt changes something else"


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would run")
def test_without_a_gpu_it_says_so() -> None:
    ended = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.startswith("no GPU is here")
