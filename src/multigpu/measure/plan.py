"""What a launch is told to do: a list of points, in a file, so that launcher and workers need no common memory."""

import contextlib
import json
import pkgutil
import re
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import SerializeAsAny, ValidationInfo, field_validator

from multigpu.kept import Status
from multigpu.measure.experiment import Due, Experiment
from multigpu.schema import Data

Fault = tuple[Status, str]
"""The status of a Run that cannot be measured, and why."""

Noted = Literal["fault", "echo"]
"""A cause; or what a replica said that lost another: told if there is nothing better in the end."""

MAX_STARTS = 2
"""A Run that was started so often without leaving a Record or a reason is given up as failed."""

FRAMES = 3
"""Of a stack, so many of the innermost calls are told: a library's, its wrapper's and whose call it was."""

FRAME = re.compile(r'File "(.*)", line (\d+) in (.+)')

STACK_LINE = re.compile(r'File "|(Current t|T)hread 0x|Garbage-collecting|<no Python frame>|\.\.\.$|Extension modules: ')
"""Lines of a dumped stack, which a process leaves when it is told to end: no words of its own."""


class Plan(Data):
    """One launch.

    experiment: of what kind its items are, by the path of an `Experiment`.
    program: "worker" for one process a device, "solo" for one that dispatches for all, or whose sessions start
        the others.
    workers: processes of the launch. framework: that they use.
    records: the root of the Records. scratch: a folder for this launch's progress, starts, stacks and logs. memory: a folder
        of memory-backed files, where replicas share what lives on the host; the launcher removes it, whatever became of them.
    hook: "module:function" called as f(stage, run, rank) in every process at the stages "build", "warm-up", "step" and
        "timed"; a way to plant delays and faults. A process that dispatches for all replicas calls it with rank 0.
    environment: what else the processes of the launch find in theirs.
    until_s: when it is to end, in seconds of the epoch (None: when all is measured).
    hosts: on which the launch runs, with `workers` on each (`hosts.launching`); host: the number of this one; rendezvous: "address:port"
        at which their agents meet. address: of this host, as the others reach it. gathering: "address:port" at which host 0's program
        hears those of the other hosts, where one program a host starts what it needs itself.
    """

    experiment: str
    items: list[SerializeAsAny[Due]]
    program: Literal["worker", "solo"] = "worker"
    workers: int
    framework: str
    machine: str
    versions: dict[str, str]
    framework_version: str
    records: Path
    scratch: Path
    memory: Path
    launch_id: str
    hook: str | None = None
    environment: dict[str, str] = {}
    until_s: float | None = None
    hosts: int = 1
    host: int = 0
    rendezvous: str = ""
    address: str = ""
    gathering: str = ""

    @field_validator("items", mode="before")
    @classmethod
    def _of_its_kind(cls, items: list[Any], found: ValidationInfo) -> list[Due]:
        kind = pkgutil.resolve_name(found.data["experiment"]).item
        return [item if isinstance(item, Due) else kind.model_validate_json(json.dumps(item)) for item in items]

    @property
    def kind(self) -> Experiment[Any]:
        """The experiment."""
        found: Experiment[Any] = pkgutil.resolve_name(self.experiment)
        return found

    def key(self, item: Due) -> str:
        found: str = self.kind.store.kind.key_for(item.asked, item.repeat, self.machine, self.framework_version)
        return found

    def find(self, item: Due) -> Any:
        """The Record that makes this item unnecessary, or None."""
        record = self.kind.store(self.records).find(self.machine, self.key(item))
        return record if record and record.attempt >= item.attempt else None


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

    def note(self, key: str, fault: Fault, kind: Noted = "fault") -> None:
        """Leave what ended a Run for the restarted launch to read, unless that is there: the first replica to fail knows the cause best."""
        with contextlib.suppress(FileExistsError), open(self.plan.scratch / f"{key}.{kind}", "x") as new:
            new.write("\n".join(fault))

    def note_end(self, why: str, until: str) -> None:
        """Leave word why nothing can be measured any more, and what must be before it can."""
        with contextlib.suppress(OSError):  # this disk may be full too; then the launcher finds out by itself
            (self.plan.scratch / "end").write_text(f"{why}\n{until}")

    def end(self) -> tuple[str, str] | None:
        """Both of `note_end`; None as long as it goes on."""
        file = self.plan.scratch / "end"
        why, _, until = file.read_text().partition("\n") if file.exists() else ("", "", "")
        return (why, until) if until else None

    def fault(self, key: str) -> Fault | None:
        """Why an earlier start of this Run must not be repeated, or None."""
        scratch = self.plan.scratch
        if fault := noted(scratch, "fault").get(key):
            return fault
        if stood := hung(scratch).get(key):
            return "timeout", f"replicas {', '.join(map(str, stood))} did not finish in time{_told(stood)}"[:300]
        if (starts := self.starts(key)) < MAX_STARTS:
            return None
        died = f"its workers died {starts} times"
        if echo := noted(scratch, "echo").get(key):
            return echo[0], f"{died}: {echo[1]}"
        words = self._dying_words(key)
        return "failed", f"{died} without a message" + (f"; last on standard error: {words}" if words else "")

    def _dying_words(self, key: str) -> str:
        """The last line on standard error, since this Run was last started, of the worker that fell silent first; "" where there is none.

        To be asked by a worker that was started again: the newest logs are its own and its peers'.
        """
        since = float((self.plan.scratch / f"{key}.starts").read_text().split()[-1])
        starts = sorted((self.plan.scratch / "logs").glob("*/attempt_*"), key=lambda folder: folder.stat().st_mtime)[:-1]
        logs = sorted(starts[-1].glob("*/stderr.log"), key=lambda log: log.stat().st_mtime) if starts else []
        for log in logs:
            # the kernel's stamp of a file is up to a tick older than the clock
            if log.stat().st_mtime > since - 0.1:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
                if words := [line for line in lines if line and not STACK_LINE.match(line)]:
                    return words[-1][:200]
        return ""

    def report(self, **event: Any) -> None:
        """One line for whoever watches the sweep."""
        with open(self.progress, "a") as file:
            file.write(json.dumps(event) + "\n")


def noted(scratch: Path, kind: Noted) -> dict[str, Fault]:
    """What this host's workers noted of Runs, by key."""
    found: dict[str, Fault] = {}
    for file in scratch.glob(f"*.{kind}"):
        status, _, reason = file.read_text().partition("\n")
        found[file.stem] = (status, reason)  # type: ignore[assignment]
    return found


def hung(scratch: Path) -> dict[str, dict[int, str]]:
    """Which of this host's replicas did not finish in time, and where they stood: key -> rank -> calls, innermost first."""
    found: dict[str, dict[int, str]] = {}
    for file in scratch.glob("*.stacks"):
        if "Timeout" in (stacks := file.read_text()):
            key, rank = file.name.split(".")[:2]
            found.setdefault(key, {})[int(rank)] = stood_at(stacks)
    return {key: dict(sorted(ranks.items())) for key, ranks in found.items()}


def stood_at(stacks: str) -> str:
    """The innermost calls of the main thread, which is the last in what `faulthandler` writes; "" where it was cut off before them."""
    main = stacks.rpartition("(most recent call first):")[2]
    return " < ".join(f"{call} ({Path(file).name}:{line})" for file, line, call in FRAME.findall(main)[:FRAMES])


def _told(stood: dict[int, str]) -> str:
    """Where replicas stood, in words: few that stand together before many, for the others often wait for them."""
    places: dict[str, list[str]] = {}
    for rank, place in stood.items():
        if place:
            places.setdefault(place, []).append(str(rank))
    groups = sorted(places.items(), key=lambda group: len(group[1]))
    return "".join(f"{'; ' if index else ': '}{', '.join(ranks)} in {place}" for index, (place, ranks) in enumerate(groups))
