"""To stop the command is no failure, whenever and however it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.measure.launched import PATHS

SWEEP = ["workload=nmt", "model=nmt_tiny", "placement=ddp", "device_type=cpu", "devices=2", "batch_size=4", "sequence_length=5"]


def wait_for(state: str, process: subprocess.Popen[str]) -> None:
    """Until the command hears of signals, which is before it imports anything, or until its launch has begun."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        caught = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
        hears = int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1
        if hears and (state == "importing" or len(psutil.Process(process.pid).children(recursive=True)) >= 3):
            return
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("state", ["importing", "measuring"])
def test_it_ends_with_one_sentence_and_leaves_nobody(state: str, number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "multigpu", "--records", str(tmp_path), "measure", *SWEEP, "timed_steps=100000", "--quiet"]
    environment = os.environ | {"PYTHONPATH": PATHS}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(state, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "multigpu: stopped; what was measured is kept, and the same command goes on from there\n")
    assert not psutil.wait_procs(children, timeout=10)[1]
