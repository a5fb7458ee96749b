"""Tell a launch what to do, and follow it meanwhile: in files, so that launcher and workers need no
common memory.
"""

import contextlib
import json
import pkgutil
import re
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import SerializeAsAny, ValidationInfo, field_validator

from multigpu.engines.common.failures import Fault
from multigpu.engines.common.stacks import how_ended, own_call, read_stacks
from multigpu.records.base import Status, made_here
from multigpu.runner.experiment import Experiment, Trial
from multigpu.spec.schema import Data

Noted = Literal["fault", "echo"]
"""A cause; or what a replica said that lost another: told if there is nothing better in the end."""

# a Run that was started so often without leaving a Record or a reason is given up as failed
MAX_STARTS = 2
# so many of a stack's innermost calls are told: a library's, its wrapper's and whose call it was
FRAMES = 3
FRAME = re.compile(r'File "(.*)", line (\d+) in (.+)')
STACK_LINE = re.compile(
    r'File "|(Current t|T)hread 0x|Garbage-collecting|<no Python frame>|\.\.\.$|Extension modules: '
)
"""Lines of a dumped stack, which a process leaves when it is told to end: no words of its own."""


class Plan(Data):
    """One launch.

    experiment: of what kind its items are, by the path of an `Experiment`. program: "worker" for
        one process a device, "solo" for one that dispatches for all, or whose sessions start the
        others. workers: processes of the launch on each host.
    records: their root. scratch: a folder for progress, stacks and logs. memory: one of
        memory-backed files, where replicas share what lives on the host.
    hook: "module:function" called as f(stage, run, rank) in every process (rank 0 where one
        dispatches for all) at the stages "build", "warm-up", "step" and "timed"; a way to plant
        delays and faults. environment: what else processes find in theirs.
    until_s: when it is to end, by the monotonic clock (None: when all is measured).
    hosts: on which the launch runs (`runner.hosts.launching`); host: the number of this one;
        address: of this one, as the others reach it; rendezvous: "address:port" at which their
        agents meet; gathering: and at which host 0's program hears those of the other hosts.
    """

    experiment: str
    items: list[SerializeAsAny[Trial]]
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
    def _of_its_kind(cls, items: list[Any], found: ValidationInfo) -> list[Trial]:
        kind = pkgutil.resolve_name(found.data["experiment"]).item
        return [
            item if isinstance(item, Trial) else kind.model_validate_json(json.dumps(item))
            for item in items
        ]

    @property
    def kind(self) -> Experiment[Any]:
        return pkgutil.resolve_name(self.experiment)

    def key(self, item: Trial) -> str:
        return self.kind.store.kind.key_for(
            item.spec, item.repeat, self.machine, self.framework_version
        )

    def record(
        self, item: Trial, status: Status, reason: str, launch_id: str, **fields: Any
    ) -> Any:
        """Make the Record of this item, not yet written. fields: those that its kind adds."""
        return self.kind.store.kind(
            key=self.key(item),
            attempt=item.attempt,
            repeat=item.repeat,
            status=status,
            reason=reason,
            launch_id=launch_id,
            **fields,
            **made_here(self.versions),
        )

    def find(self, item: Trial) -> Any:
        """The Record that makes this item unnecessary, or None."""
        record = self.kind.store(self.records).find(self.machine, self.key(item))
        return record if record and record.attempt >= item.attempt else None


class Journal:
    """The files by which launches, restarts and the watching notebook know how far a plan is, in
    its scratch: stacks, and `progress`. That holds an event a line: an item's "start" and "done",
    what its workers `note`, and the "end" after which nothing can be measured.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.progress = scratch, scratch / "progress.jsonl"

    def report(self, event: str, **more: Any) -> None:
        with open(self.progress, "a") as file:
            file.write(json.dumps({"event": event} | more) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """All of them, in order; one that is being written is left out."""
        text = self.progress.read_text() if self.progress.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def note(self, key: str, fault: Fault, kind: Noted = "fault") -> None:
        """Leave what ended a Run for the restarted launch to read."""
        self.report(kind, key=key, status=fault[0], reason=fault[1])

    def noted(self, kind: Noted) -> dict[str, Fault]:
        """Return the faults that this host's workers noted of Runs, by key: of each the first,
        since the first replica to fail knows the cause best.
        """
        return {
            event["key"]: (event["status"], event["reason"])
            for event in reversed(self.events())
            if event["event"] == kind
        }

    def end(self, why: str, until: str) -> None:
        """Leave word why nothing can be measured any more, and what must be before it can."""
        # this disk may be full too; then the launcher finds out by itself
        with contextlib.suppress(OSError):
            self.report("end", why=why, until=until)

    @property
    def ended(self) -> bool:
        return any(event["event"] == "end" for event in self.events())

    def left(self, process: int) -> None:
        """Leave word that a worker is through with its plan, and may end."""
        (self.scratch / f"{process}.left").touch()

    def has_left(self, process: int | None) -> bool:
        return (self.scratch / f"{process}.left").exists()

    def open_item(self) -> dict[str, Any] | None:
        """The last item that was started, as it was reported; None: none is being measured."""
        open_events = [event for event in self.events() if event["event"] in ("start", "done")]
        last = open_events[-1] if open_events else None
        return last if last and last["event"] == "start" else None

    def lost(self, key: str) -> dict[str, Any] | None:
        """The worker that ended first after the last start of this Run, with its exit code, as it
        was reported; None: none did.
        """
        first: dict[str, Any] | None = None
        started = ""
        for event in self.events():
            if event["event"] == "start":
                started = event["key"]
                first = None if started == key else first
            elif event["event"] == "lost" and started == key and first is None:
                first = event
        return first

    def stack_file(self, key: str, rank: int) -> Path:
        """Where a replica that hangs leaves its stacks."""
        return self.scratch / f"{key}.{rank}.stacks"

    def hung(self) -> dict[str, dict[int, str]]:
        """Which of this host's replicas did not finish in time, and where they stood: key -> rank
        -> calls, innermost first.
        """
        found: dict[str, dict[int, str]] = {}
        for file in self.scratch.glob("*.stacks"):
            if "Timeout" in (stacks := file.read_text()):
                key, rank = file.name.split(".")[:2]
                found.setdefault(key, {})[int(rank)] = stood_at(stacks)
        return {key: dict(sorted(ranks.items())) for key, ranks in found.items()}

    def fault(self, key: str) -> Fault | None:
        """Why an earlier start of this Run must not be repeated, or None."""
        if fault := self.noted("fault").get(key):
            return fault
        if stood := self.hung().get(key):
            return (
                "timeout",
                f"replicas {', '.join(map(str, stood))} did not finish in time{_told(stood)}"[:300],
            )
        starts = [
            event["at"]
            for event in self.events()
            if event["event"] == "start" and event["key"] == key
        ]
        if len(starts) < MAX_STARTS:
            return None
        died = f"its workers died {len(starts)} times"
        lost = self.lost(key)
        # who gives up with an echo ends with 1, and is not the one that went first
        if (echo := self.noted("echo").get(key)) and (lost is None or lost["code"] == 1):
            return echo[0], f"{died}: {echo[1]}"
        if lost:
            died += f": rank {lost['rank']} {how_ended(lost['code'])}"
            stacks = read_stacks(self.stack_file(key, lost["rank"]))
            if place := own_call(stacks):
                died += f", in `{place}`"
        else:
            died += " without a message"
        words = self._dying_words(starts[-1])
        return "failed", died + (f"; last on standard error: {words}" if words else "")

    def _dying_words(self, since: float) -> str:
        """The last line on standard error since then (monotonic) of the worker that fell silent
        first, asked by one that was started again.
        """
        since += time.time() - time.monotonic()
        starts = sorted(
            (self.scratch / "logs").glob("*/attempt_*"), key=lambda folder: folder.stat().st_mtime
        )[:-1]
        if starts:
            logs = sorted(starts[-1].glob("*/stderr.log"), key=lambda log: log.stat().st_mtime)
        else:
            logs = []
        for log in logs:
            # the kernel's stamp of a file is up to a tick older than the clock
            if log.stat().st_mtime > since - 0.1:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
                if words := [line for line in lines if line and not STACK_LINE.match(line)]:
                    return words[-1][:200]
        return ""


def stood_at(stacks: str) -> str:
    """The innermost calls of the main thread, which is the last in what `faulthandler` writes; ""
    where it was cut off before them.
    """
    main = stacks.rpartition("(most recent call first):")[2]
    return " < ".join(
        f"{call} ({Path(file).name}:{line})" for file, line, call in FRAME.findall(main)[:FRAMES]
    )


def _told(stood: dict[int, str]) -> str:
    """Where replicas stood, in words: few that stand together before many, for the others often
    wait for them.
    """
    places: dict[str, list[str]] = {}
    for rank, place in stood.items():
        if place:
            places.setdefault(place, []).append(str(rank))
    groups = sorted(places.items(), key=lambda group: len(group[1]))
    return "".join(
        f"{'; ' if index else ': '}{', '.join(ranks)} in {place}"
        for index, (place, ranks) in enumerate(groups)
    )
