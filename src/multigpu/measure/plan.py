"""What a launch is told to do: a list of Runs, in a file, so that launcher and workers need no common memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from multigpu.record import Record, RecordStore, Status, record_key
from multigpu.run import Run

MAX_STARTS = 2
"""A Run that was started so often without leaving a Record or a reason is given up as failed."""


class Item(BaseModel):
    """One Run to measure. timeout_s: for the whole Run, building included. smaller: batches of the plan's Runs that differ in nothing
    else: where one of them did not fit, this one is passed over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: Run
    repeat: int = 0
    attempt: int = 0
    timeout_s: float = 300.0
    smaller: tuple[int, ...] = ()


class Plan(BaseModel):
    """One launch.

    program: "worker" for one process a device, "solo" for one that dispatches for all, or whose sessions start
        the others.
    workers: processes of the launch.
    records: the root of the Records. scratch: a folder for this launch's progress, starts, stacks and logs. memory: a folder
        of memory-backed files, where replicas share what lives on the host; the launcher removes it, whatever became of them.
    hook: "module:function" called as f(stage, run, rank) in every process at the stages "build", "warm-up", "step" and
        "timed"; a way to plant delays and faults. A process that dispatches for all replicas calls it with rank 0.
    environment: what else the processes of the launch find in theirs.
    hosts: on which the launch runs, with `workers` on each (`hosts.launching`); host: the number of this one; rendezvous: "address:port"
        at which their agents meet. address: of this host, as the others reach it. gathering: "address:port" at which host 0's program
        hears those of the other hosts, where one program a host starts what it needs itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    items: list[Item]
    program: Literal["worker", "solo"] = "worker"
    workers: int
    machine: str
    versions: dict[str, str]
    framework_version: str
    timing_version: int
    records: Path
    scratch: Path
    memory: Path
    launch_id: str
    hook: str | None = None
    environment: dict[str, str] = {}
    hosts: int = 1
    host: int = 0
    rendezvous: str = ""
    address: str = ""
    gathering: str = ""

    def key(self, item: Item) -> str:
        return record_key(item.run, item.repeat, self.machine, self.framework_version, self.timing_version)


class Journal:
    """The small files by which launches, restarts and the watching notebook know how far a plan is."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.progress = plan.scratch / "progress.jsonl"

    def stack_file(self, key: str, rank: int) -> Path:
        """Where a replica that hangs leaves its stacks."""
        return self.plan.scratch / f"{key}.{rank}.stacks"

    def starts(self, key: str) -> int:
        file = self.plan.scratch / f"{key}.starts"
        return len(file.read_text().split()) if file.exists() else 0

    def note_start(self, key: str) -> None:
        with open(self.plan.scratch / f"{key}.starts", "a") as file:
            file.write(f"{time.time():.3f}\n")

    def note_fault(self, key: str, status: Status, reason: str) -> None:
        """Leave the reason for what the restarted launch reads. The first replica to fail knows the cause best."""
        try:
            with open(self.plan.scratch / f"{key}.fault", "x") as file:
                file.write(f"{status}\n{reason}")
        except FileExistsError:
            pass

    def fault(self, key: str) -> tuple[Status, str] | None:
        """Why an earlier start of this Run must not be repeated, or None."""
        file = self.plan.scratch / f"{key}.fault"
        if file.exists():
            status, _, reason = file.read_text().partition("\n")
            return status, reason  # type: ignore[return-value]
        hung = [f.name.split(".")[1] for f in self.plan.scratch.glob(f"{key}.*.stacks") if "Timeout" in f.read_text()]
        if hung:
            return "timeout", f"replicas {', '.join(sorted(hung))} did not finish in time; their stacks are in {self.plan.scratch.name}"
        if self.starts(key) >= MAX_STARTS:
            return "failed", f"its workers died {self.starts(key)} times without a message"
        return None

    def report(self, **event: Any) -> None:
        """One line for whoever watches the sweep."""
        with open(self.progress, "a") as file:
            file.write(json.dumps(event) + "\n")


def find_record(plan: Plan, item: Item) -> Record | None:
    """The Record that makes this item unnecessary, or None."""
    record = RecordStore(plan.records).find(plan.machine, plan.key(item))
    return record if record and record.attempt >= item.attempt else None
