"""Many tiny Runs on CPUs while something kills a random process of the launch again and again:
nothing measured may be lost.

    python benchmarks/soak.py --runs 1000 --every 20 --out build/soak.csv

A row of the table is a kill: who was killed, after how many Records, how long until the next one,
    and what memory the launch then held.
"""

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd
import psutil

from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run

MOST_CALLS = 3
"""Calls of `measure` for each kill and one more: a killed agent ends its call, and the next goes
on.
"""


@dataclass
class Kill:
    """records: that were there; recovered_s: until the next came; memory_mib: resident, of all
    processes of the sweep, before it.
    """

    records: int
    victim: str
    recovered_s: float
    memory_mib: float


@dataclass
class Killer:
    """Kills after every so many Records, from a thread of its own, until it is told to stop."""

    folder: Path
    every: int
    draw: random.Random
    kills: list[Kill] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def records(self) -> int:
        return sum(1 for _ in self.folder.glob("*/*.json.gz"))

    def kill(self) -> str:
        """Kill a process of the launch; its role, "" where there was none."""
        agents = [
            child
            for child in psutil.Process().children()
            if "multigpu.runner.agent" in " ".join(child.cmdline())
        ]
        own = [child for agent in agents for child in (agent, *agent.children(recursive=True))]
        if not own:
            return ""
        victim = self.draw.choice(own)
        victim.send_signal(signal.SIGKILL)
        return "agent" if victim in agents else "worker"

    def run(self) -> None:
        due = self.every
        while not self.stopped.wait(0.05):
            if (before := self.records()) < due:
                continue
            time.sleep(self.draw.random() / 2)
            memory_mib, victim, began = resident_mib(), "", time.monotonic()
            with contextlib.suppress(psutil.NoSuchProcess):
                victim = self.kill()
            if not victim:
                continue
            before = self.records()
            while self.records() <= before and not self.stopped.wait(0.05):
                pass
            self.kills.append(
                Kill(before, victim, round(time.monotonic() - began, 2), round(memory_mib, 1))
            )
            due = before + self.every


def resident_mib() -> float:
    """Of this process and all that it started, what lies in memory."""
    found = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss
    return found / 2**20


def soak(folder: Path, runs: int, every: int, seed: int = 0) -> tuple[RecordStore, list[Kill], int]:
    """Measure so many Runs under kills; their store, the kills, and how many calls of `measure` it
    took.
    """
    fields = {
        "workload": "cnn",
        "model": "resnet_tiny",
        "placement": "ddp",
        "devices": 2,
        "batch_size": 4,
        "device_type": "cpu",
    }
    points = [
        Point(Run(**fields, seed=number, warmup_steps=2, timed_steps=3), timeout_s=120.0)
        for number in range(runs)
    ]
    store, killer = RecordStore(folder), Killer(folder, every, random.Random(seed))
    thread = threading.Thread(target=killer.run)
    thread.start()
    try:
        for calls in range(1, MOST_CALLS * (1 + runs // every) + 1):
            try:
                measure(points, store, progress=False)
                return store, killer.kills, calls
            except RuntimeError as error:
                print(f"after {killer.records()} Records: {error}", file=sys.stderr, flush=True)
    finally:
        killer.stopped.set()
        thread.join()
    return store, killer.kills, calls


def main() -> int:
    parser = argparse.ArgumentParser(description="Tiny Runs on CPUs under random kills.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20, help="Records between two kills")
    parser.add_argument("--out", type=Path, help="a CSV file: a row a kill")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="multigpu-soak-") as folder:
        began = time.monotonic()
        store, kills, calls = soak(Path(folder), arguments.runs, arguments.every)
        took_s = time.monotonic() - began
        found = [record.status for record in store]
        unreadable = len(list(store.unreadable()))
    table = pd.DataFrame([asdict(kill) for kill in kills])
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(arguments.out, index=False)
    print(
        f"{len(found)} of {arguments.runs} Runs have a Record, {found.count('ok')} of them ok;"
        f" {unreadable} files cannot be read"
    )
    print(f"{len(kills)} kills, {calls} calls, {took_s:.0f} s")
    print(
        table.groupby("victim")[["recovered_s", "memory_mib"]]
        .agg(["count", "median", "max"])
        .to_string()
    )
    return 0 if found.count("ok") == arguments.runs and not unreadable else 1


if __name__ == "__main__":
    sys.exit(main())
