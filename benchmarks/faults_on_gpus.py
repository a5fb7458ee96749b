"""What a sweep on GPUs survives: a kernel without end, a device that is hidden, memory that is
short, a rank that is killed or stops.

    python benchmarks/faults_on_gpus.py --devices 1 --times 2 --out data/faults/gpus.csv

A row is a fault, once: how the Run that met it ended, and the seconds from the fault until the
    sweep had its next good Record, of this Run
once more or of the next.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from multigpu.build import build_run
from multigpu.machine.machine import source_state, this_machine
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import sweep
from multigpu.runner.timed import Timed
from multigpu.spec.run import Run

FIELDS = {
    "workload": "cnn",
    "model": "resnet20",
    "placement": "ddp",
    "precision": "bf16",
    "layout": "channels_last",
}
LONG = {"batch_size": 512, "timed_steps": 2_000}
"""Some twenty seconds, so that a fault meets its steps."""
FILL = "import sys, time, torch; kept = []\nwhile torch.cuda.mem_get_info(1)[0] > 6 << 30: kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda:1'))\nprint('full', flush=True); time.sleep(600)"  # noqa: E501
CYCLES_A_SECOND, ENDLESS_S = 2 * 10**9, 120


def hang(stage: str, run: Run, rank: int) -> None:
    """A plan's hook: the last rank's GPU gets a kernel that outlasts the Run."""
    if stage == "step" and rank == run.devices - 1 and run.timed_steps == LONG["timed_steps"]:
        import torch

        torch.cuda._sleep(CYCLES_A_SECOND * ENDLESS_S)
        with suppress(FileExistsError):  # a disturbed Run is measured, and hangs, once more
            Path(os.environ["MULTIGPU_FAULT"]).touch(exist_ok=False)


class InOrder(Timed):
    """Steps against the clock, not shuffled: the Run that meets the fault comes first."""

    def ordered(self, items: Sequence[Point], launch_id: str) -> list[Point]:
        return list(items)


@dataclass(frozen=True)
class Fault:
    """run, timeout_s: of the Run that meets it. sent: a signal to the last rank. hook, environment:
    of its launch. full: the second GPU.
    """

    name: str
    run: dict[str, Any]
    sent: signal.Signals | None = None
    hook: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    full: bool = False
    timeout_s: float = 60.0


def faults(devices: int) -> list[Fault]:
    """Those that so many GPUs can meet."""
    captured = LONG | {"execution": "captured"}
    alone = [
        Fault(
            "a kernel that does not end", LONG, hook=f"{Path(__file__).stem}:hang", timeout_s=30.0
        ),
        Fault("more memory asked for than there is", {"batch_size": 1 << 19, "timed_steps": 5}),
        Fault(
            "a GPU hidden from the next launch",
            {"batch_size": 64, "timed_steps": 5},
            environment={"CUDA_VISIBLE_DEVICES": ""},
        ),
        Fault("a worker killed in a captured step", captured, signal.SIGKILL),
    ]
    together = [
        Fault("a rank killed inside an all-reduce", LONG, signal.SIGKILL),
        Fault("a rank killed in a captured step", captured, signal.SIGKILL),
        Fault("a rank that stops", LONG, signal.SIGSTOP, timeout_s=25.0),
        Fault("memory short on one GPU of two", {"batch_size": 8192, "timed_steps": 5}, full=True),
    ]
    return alone if devices == 1 else together


def last_rank(devices: int) -> psutil.Process:
    """Of the launch that this process started, once all ranks are there."""
    while True:
        time.sleep(0.05)
        with suppress(psutil.Error):
            agents = [
                child
                for child in psutil.Process().children()
                if "multigpu.runner.agent" in " ".join(child.cmdline())
            ]
            found = sorted(
                (one for agent in agents for one in agent.children()), key=lambda one: one.pid
            )
            if len(found) >= devices:
                return found[-1]


def full_gpu(stack: ExitStack) -> float:
    """Leave less than 6 GiB free on the second GPU until the stack is closed; the time at which it
    was full.
    """
    filler = subprocess.Popen([sys.executable, "-c", FILL], stdout=subprocess.PIPE, text=True)
    stack.callback(filler.kill)
    assert filler.stdout is not None and filler.stdout.readline().strip() == "full"
    return time.time()


def sender(fault: Fault, devices: int, after_s: float, sent: list[float]) -> Callable[[], None]:
    """Sends the fault's signal so many seconds after all ranks are there, and notes when."""

    def send() -> None:
        rank = last_rank(devices)
        time.sleep(after_s)
        if fault.sent:
            rank.send_signal(fault.sent)
            sent.append(time.time())

    return send


def tried(fault: Fault, devices: int, after_s: float) -> dict[str, object]:
    """Measure a Run that meets a fault and one after it, on the same GPUs."""
    run, after = (
        build_run(**FIELDS, devices=devices, **more)
        for more in (fault.run, {"batch_size": 32, "timed_steps": 10})
    )
    sent: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store, marked = RecordStore(Path(folder) / "runs"), Path(folder) / "marked"
        if fault.full:
            sent.append(full_gpu(stack))
        threading.Thread(target=sender(fault, devices, after_s, sent), daemon=True).start()
        points = [Point(run, timeout_s=fault.timeout_s), Point(after, timeout_s=120.0)]
        environment, started = fault.environment | {"MULTIGPU_FAULT": str(marked)}, time.time()
        # a killed agent ends its call; the next goes on
        for items in (points[:1], points[1:]) if fault.environment else (points, points):
            try:
                sweep(
                    InOrder(),
                    items,
                    store,
                    progress=False,
                    hook=fault.hook,
                    environment=environment if items[0] is points[0] else {},
                )
            except RuntimeError as error:
                print(error, file=sys.stderr)
        ended = next((record for record in store if record.run.digest == run.digest), None)
        if marked.exists():
            at = marked.stat().st_mtime
        elif ended and ended.status == "out_of_memory":
            at = pd.Timestamp(ended.measured_at).timestamp()
        else:
            at = (sent or [started])[0]
        followed_s = [
            pd.Timestamp(record.measured_at).timestamp() - at
            for record in store
            if record.status == "ok"
        ]
        said = (((ended.reason or "") if ended else "").splitlines() or [""])[0][:160]
        recovered_s = round(min((one for one in followed_s if one > 0), default=float("nan")), 2)
        return {
            "fault": fault.name,
            "status": ended.status if ended else "no Record",
            "reason": said,
            "recovered_s": recovered_s,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a CSV file: a row a fault")
    parser.add_argument("--devices", type=int, choices=(1, 2), default=1)
    parser.add_argument("--times", type=int, default=1, help="how often each is tried")
    parser.add_argument("--only", default="", help="faults whose names hold this text")
    parser.add_argument(
        "--after-s",
        type=float,
        default=12.0,
        help="seconds from the start of the ranks to a signal",
    )
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    )
    machine, (commit, clean) = this_machine(), source_state()
    conditions = {
        "devices": options.devices,
        "machine": machine.name,
        "driver": machine.driver,
        "commit": commit,
        "clean": clean,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    for number in range(options.times):
        for fault in (one for one in faults(options.devices) if options.only in one.name):
            rows.append(
                tried(fault, options.devices, options.after_s) | {"time": number} | conditions
            )
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(options.out, index=False)
    return 0 if all(row["recovered_s"] == row["recovered_s"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
