"""Many tiny Runs while something kills a random process of the launch again and again, some Runs
never end, and some ask for more memory than there is: nothing measured may be lost.

    python benchmarks/soak.py --runs 1000 --every 20 --hangs 5 --short 5 --out build/soak.csv
    python benchmarks/soak.py --runs 200 --every 16 --hangs 4 --short 4 --device-type cuda

With `--folder` the Records stay, and the next call goes on from there: `--until 100`, `--until 200`
and so on make one soak in pieces. A row of the table is a fault: what it was, after how many
Records, how long until the next good one, and what memory the launch held before a kill.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from unittest import mock

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


HUNG_S = 20.0
"""So long a Run may take that hangs; any other has two minutes."""
PLANTED = "MULTIGPU_SOAK"
"""In the environment of a launch: fault -> the seeds of Runs that meet it, and `marks`, a folder
for a file a fault, made when it strikes.
"""
NAMES = {"timeout": "a Run that hangs", "out_of_memory": "a Run without memory"}
"""The faults that Runs meet, by the status of their Records."""


@dataclass
class Kill:
    """records: that were there; recovered_s: until the next came; memory_mib: resident, of all
    processes of the sweep, before it.
    """

    fault: str
    records: int
    recovered_s: float
    memory_mib: float = float("nan")


def plant(stage: str, run: Run, rank: int) -> None:
    """Strike a Run as the environment says: a plan's hook, called in every process."""
    told = json.loads(os.environ[PLANTED])
    if stage != "timed" or rank != run.devices - 1:
        return
    if run.seed in told["timeout"] + told["out_of_memory"]:
        Path(told["marks"], str(run.seed)).touch()
    if run.seed in told["out_of_memory"]:
        import torch

        torch.empty(1 << 50, dtype=torch.uint8, device=run.device_type)
    if run.seed in told["timeout"] and run.device_type == "cpu":
        time.sleep(3600)
    elif run.seed in told["timeout"]:
        import torch

        torch.cuda._sleep(2 * 10**9 * 120)  # at two thousand million cycles a second


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
        """Kill a process of the launch; what was, "" where there was none."""
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
        return "a killed agent" if victim in agents else "a killed worker"

    def run(self) -> None:
        due = self.records() + self.every
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
                Kill(victim, before, round(time.monotonic() - began, 2), round(memory_mib, 1))
            )
            due = before + self.every


def resident_mib() -> float:
    """Of this process and all that it started, what lies in memory."""
    found = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss
    return found / 2**20


def points_of(runs: int, device_type: str, devices: int, hanging: set[int]) -> list[Point]:
    """The Runs of a soak, by their seeds 0, 1, ..."""
    fields = {
        "workload": "cnn",
        "model": "resnet_tiny",
        "placement": "ddp",
        "devices": devices,
        "batch_size": 4,
        "device_type": device_type,
        "warmup_steps": 2,
        "timed_steps": 3,
    }
    return [
        Point(Run(**fields, seed=number), timeout_s=HUNG_S if number in hanging else 120.0)
        for number in range(runs)
    ]


def soak(
    folder: Path,
    runs: int,
    every: int,
    seed: int = 0,
    planted: Sequence[int] = (0, 0),
    until: int | None = None,
    devices: int = 2,
    device_type: str = "cpu",
) -> tuple[RecordStore, list[Kill], int]:
    """Measure so many Runs under kills; their store, the faults of this call, and how many calls of
    `measure` it took.

    planted: how many of the Runs hang, and how many ask for too much memory. until: the number of
    Runs after which this call ends.
    """
    hanging, short = planted
    drawn = random.Random(seed).sample(range(runs), hanging + short)
    told = {"timeout": drawn[:hanging], "out_of_memory": drawn[hanging:]}
    points = points_of(runs, device_type, devices, set(told["timeout"]))[:until]
    store, marks = RecordStore(folder / "runs"), folder / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    more = {PLANTED: json.dumps({**told, "marks": str(marks)}), "PYTHONPATH": path}
    began_s, calls = time.time(), 0
    killer = Killer(store.root, every, random.Random(seed + (until or 0)))
    thread = threading.Thread(target=killer.run)
    thread.start()
    with mock.patch.dict(os.environ, more):
        try:
            while calls < MOST_CALLS * (1 + len(points) // every):
                calls += 1
                try:
                    measure(points, store, progress=False, hook="soak:plant" if drawn else None)
                    break
                except RuntimeError as error:
                    print(f"after {killer.records()} Records: {error}", file=sys.stderr, flush=True)
        finally:
            killer.stopped.set()
            thread.join()
    met = met_by_runs(store, marks, told, began_s)
    return store, sorted([*killer.kills, *met], key=lambda kill: kill.records), calls


def met_by_runs(
    store: RecordStore, marks: Path, told: Mapping[str, list[int]], since_s: float
) -> list[Kill]:
    """The faults that Runs met since then, each with the time until the next good Record."""
    good = sorted(
        store.path(one.place, one.key, one.attempt).stat().st_mtime
        for one in store
        if one.status == "ok"
    )
    found = []
    for status, seeds in told.items():
        for mark in (marks / str(seed) for seed in seeds):
            if mark.exists() and (at := mark.stat().st_mtime) >= since_s:
                later = next((time_s for time_s in good if time_s > at), float("nan"))
                before = sum(time_s <= at for time_s in good)
                found.append(Kill(NAMES[status], before, round(later - at, 2)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20, help="Records between two kills")
    parser.add_argument("--hangs", type=int, default=0, help="Runs that never end")
    parser.add_argument("--short", type=int, default=0, help="Runs that ask for too much memory")
    parser.add_argument("--device-type", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", type=int, default=2, help="processes of each Run")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed and planted")
    parser.add_argument("--folder", type=Path, help="where Records stay from call to call")
    parser.add_argument("--until", type=int, help="end this call after so many of the Runs")
    parser.add_argument("--out", type=Path, help="a CSV file: a row a fault; rows are added")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="multigpu-soak-") as new:
        began = time.monotonic()
        store, kills, calls = soak(
            (asked.folder or Path(new)).resolve(),
            asked.runs,
            asked.every,
            asked.seed,
            (asked.hangs, asked.short),
            asked.until,
            asked.devices,
            asked.device_type,
        )
        took_s = time.monotonic() - began
        found = Counter(record.status for record in store)
        unreadable = len(list(store.unreadable()))
    wanted_now = min(asked.until or asked.runs, asked.runs)
    lost = max(0, wanted_now - found.total()) + unreadable
    table = pd.DataFrame([asdict(kill) for kill in kills])
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        older = [pd.read_csv(asked.out)] if asked.folder and asked.out.exists() else []
        # what is lost is found at the end of the call, and stands in its last row
        new = table.assign(device_type=asked.device_type, lost=[0] * (len(table) - 1) + [lost])
        pd.concat([*older, new]).to_csv(asked.out, index=False)
    told = ", ".join(f"{count} {status}" for status, count in sorted(found.items()))
    print(f"{found.total()} of {asked.runs} Runs have a Record: {told}")
    print(f"{unreadable} files cannot be read; {len(kills)} faults, {calls} calls, {took_s:.0f} s")
    columns = ["recovered_s", "memory_mib"]
    print(table.groupby("fault")[columns].agg(["count", "median", "max"]).to_string())
    if asked.until is not None and asked.until < asked.runs:
        return int(found.total() != asked.until or unreadable > 0)
    wanted = Counter(timeout=asked.hangs, out_of_memory=asked.short)
    wanted["ok"] = asked.runs - wanted.total()
    return int(found != wanted or unreadable > 0)


if __name__ == "__main__":
    sys.exit(main())
