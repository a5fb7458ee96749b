"""What a sweep on two GPUs survives: a rank that is killed or stops while gradients are summed, and memory short on one GPU.

    python benchmarks/faults_on_gpus.py --out data/faults/gpus.csv

A row is a fault: how the Run that met it ended, and the seconds from the fault until the next Run of the sweep had its Record.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pandas as pd
import psutil

from multigpu.measure.point import Point
from multigpu.measure.sweep import measure
from multigpu.record import RecordStore
from multigpu.run import Run, build_run

FIELDS = {"workload": "cnn", "model": "resnet20", "placement": "ddp", "devices": 2, "precision": "bf16", "layout": "channels_last"}
LONG = {"batch_size": 512, "timed_steps": 100_000}
"""Longer than any of these faults takes."""
FILL = "import sys, time, torch; kept = []\nwhile torch.cuda.mem_get_info(1)[0] > 2 << 30: kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda:1'))\nprint('full', flush=True); time.sleep(600)"  # noqa: E501


def workers() -> list[psutil.Process]:
    """The ranks of the launch that this process started, the first one first."""
    agents = [child for child in psutil.Process().children() if "multigpu.measure.agent" in " ".join(child.cmdline())]
    return sorted((one for agent in agents for one in agent.children()), key=lambda one: one.pid)


def to_last_rank(sent: signal.Signals) -> Callable[[float], float]:
    """Send it to the last rank so many seconds after all ranks are there; the time at which it was sent."""

    def send(after_s: float) -> float:
        found: list[psutil.Process] = []
        while len(found) < FIELDS["devices"]:
            time.sleep(0.05)
            with suppress(psutil.Error):
                found = workers()
        time.sleep(after_s)
        found[-1].send_signal(sent)
        return time.time()

    return send


def full_gpu(stack: ExitStack) -> float:
    """Leave 2 GiB free on the second GPU until the stack is closed; the time at which it was full."""
    filler = subprocess.Popen([sys.executable, "-c", FILL], stdout=subprocess.PIPE, text=True)
    stack.callback(filler.kill)
    assert filler.stdout is not None and filler.stdout.readline().strip() == "full"
    return time.time()


def tried(name: str, run: Run, send: Callable[[float], float] | None, after_s: float, timeout_s: float) -> dict[str, object]:
    """Measure a Run that meets a fault and one after it, on the same GPUs."""
    after = build_run(**FIELDS, batch_size=32, timed_steps=10)
    sent: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = RecordStore(Path(folder))
        if send is None:
            sent.append(full_gpu(stack))
        else:
            threading.Thread(target=lambda: sent.append(send(after_s)), daemon=True).start()
        for _ in range(2):  # a killed agent ends its call, and the next goes on
            try:
                measure([Point(run, timeout_s=timeout_s), Point(after, timeout_s=120.0)], store, progress=False)
                break
            except RuntimeError as error:
                print(error, file=sys.stderr)
        found = {record.run.digest: record for record in store}
        ended, followed = found.get(run.digest), found.get(after.digest)
        ok = followed is not None and followed.status == "ok"
        recovered_s = pd.Timestamp(followed.measured_at).timestamp() - sent[0] if ok and followed and sent else float("nan")
        said = (ended.reason or "").splitlines()[0][:160] if ended else ""
        return {"fault": name, "status": ended.status if ended else "no Record", "reason": said, "recovered_s": round(recovered_s, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults that need two GPUs.")
    parser.add_argument("--out", type=Path, required=True, help="a CSV file: a row a fault")
    parser.add_argument("--after-s", type=float, default=12.0, help="seconds from the start of the ranks to the fault")
    arguments = parser.parse_args()
    eager, captured = (build_run(**FIELDS, **LONG, execution=execution) for execution in ("eager", "captured"))
    large = build_run(**FIELDS, batch_size=8192, timed_steps=5)
    kill, stop = to_last_rank(signal.SIGKILL), to_last_rank(signal.SIGSTOP)
    faults = [
        ("a rank killed inside an all-reduce", eager, kill, 60.0),
        ("a rank killed in a captured step", captured, kill, 60.0),
        ("a rank that stops", eager, stop, 25.0),
        ("memory short on one GPU of two", large, None, 60.0),
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    for name, run, send, timeout_s in faults:
        rows.append(tried(name, run, send, arguments.after_s, timeout_s))
        print(rows[-1], flush=True)
        pd.DataFrame(rows).to_csv(arguments.out, index=False)
    return 0 if all(row["recovered_s"] == row["recovered_s"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
