"""What the benchmark of capture pitfalls makes of a try, and that it says where it cannot run."""

import importlib.util
import subprocess
import sys
import time
from concurrent.futures import Future
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


def test_the_file_holds_every_try_that_ended_so_far(pitfalls: ModuleType, tmp_path: Path) -> None:
    """Also where a later one breaks the whole; a try that was cut off is none."""
    first, second = pitfalls.ATTEMPTS[:2]
    path = tmp_path / "pitfalls.csv"
    right, cut_off, broken = Future[Any](), Future[Any](), Future[Any]()
    right.set_result(("right", 1e-12, ""))
    cut_off.set_result(None)
    running = {right: (first, "ddp"), cut_off: (second, "ddp")}
    rows, count = pitfalls.try_all(running, {"gpus": 2}, path)
    assert count == len(rows) == 1
    kept = path.read_text()
    assert first.without in kept and second.without not in kept
    broken.set_exception(OSError("no more processes"))
    with pytest.raises(OSError, match="no more processes"):
        pitfalls.try_all({broken: (first, "ddp")}, {}, path)
    assert path.read_text() == kept


def test_no_try_begins_after_the_end(pitfalls: ModuleType) -> None:
    attempt = pitfalls.ATTEMPTS[0]
    assert pitfalls.tried(None, attempt, "ddp", 2, time.monotonic() - 1) is None
