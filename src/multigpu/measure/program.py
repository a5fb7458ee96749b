"""What the programs that measure a plan share: deciding, watching for hangs, and writing Records. Imports no framework."""

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from multigpu.engines.errors import DidNotTrain, Unsupported
from multigpu.kept import Status, made_here
from multigpu.measure.experiment import Due, Seat, printable
from multigpu.measure.machine import confine, this_machine
from multigpu.measure.plan import Fault, Journal, Plan
from multigpu.measure.process import end_with_parent, started_at
from multigpu.measure.session import Session, load_hook
from multigpu.measure.surroundings import Watch

MEMORY_ERRORS = {"OutOfMemoryError", "ResourceExhaustedError", "MemoryError"}
"""Names of the classes (of PyTorch, TensorFlow and Python) whose meaning is that memory was full."""

MEMORY_WORDS = ("can't allocate memory", "out of memory", "oom when allocating")

LOST_PEER = ("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "remote process", "nccl", "gloo")
"""Words in the errors of a collective whose other end is gone: an echo of a death elsewhere, not a cause."""

CAUSES: tuple[Status, ...] = ("out_of_memory", "unsupported")
"""What a replica says of itself alone."""


class Stuck(Exception):
    """A replica did not answer in time: it may wait in a collective for ever, so the whole launch must restart."""


def is_echo(reason: str, status: Status = "failed") -> bool:
    """Whether this failure only says that another replica has gone. What is a cause by its status is none, whoever raised it: NCCL says of
    its own allocations that memory was full.
    """
    return status not in CAUSES and any(words in reason.lower() for words in LOST_PEER)


def brief(text: str, most: int = 300, end: int = 120) -> str:
    """A message without its middle where it is longer than so many characters: TensorFlow names the operation first and the cause last."""
    return text if len(text) <= most else f"{text[: most - end - 5]} ... {text[-end:]}"


def status_of(error: BaseException) -> Fault:
    """The status and the sentence for a Record of a Run that ended with `error`, decided without importing its framework."""
    text = printable(" ".join(str(error).split()))
    names = {kind.__name__ for kind in type(error).__mro__}
    full = any(words in text.lower() for words in MEMORY_WORDS) or getattr(error, "errno", None) in (12, 28)
    if names & MEMORY_ERRORS or full:
        return "out_of_memory", brief(text)
    if isinstance(error, Unsupported):
        return "unsupported", brief(text)
    if isinstance(error, (TimeoutError, Stuck)):
        return "timeout", brief(text)
    return "failed", brief(f"{type(error).__name__}: {text}")


def guarded(action: Callable[[], Any]) -> tuple[Any, Fault | None]:
    """The action's result, or its failure as a status and a sentence; no traceback is kept, for it would keep tensors alive."""
    try:
        return action(), None
    except Exception as error:
        if os.environ.get("MULTIGPU_TRACEBACKS"):
            traceback.print_exc()
        return None, status_of(error)


class Program:
    """One process of a launch: what it does whatever the number of its kind."""

    def __init__(self, plan: Plan, rank: int = 0) -> None:
        self.plan, self.rank, self.journal, self.kind = plan, rank, Journal(plan), plan.kind
        self.hook = load_hook(plan.hook)
        self.startup_s = time.time() - started_at()
        self.watch: Watch | None = None

    def session(self, item: Due, shared: Path, **hosts: Any) -> Session:
        """This process's side of an item."""

        def stage(name: str) -> None:
            self.hook(name, item.run, self.rank)

        return self.kind.open(item, Seat(self.rank, shared, self.startup_s, stage, hosts))

    def decide(self, index: int, item: Due, key: str) -> str:
        """Whether to "run" or "skip" this item, from what is on the disk."""
        known = self.plan.find(item)
        if known is not None:
            self.kind.learn(item, known)
        elif fault := self.journal.fault(key):
            known = self.write(item, key, fault[0], fault[1])
        if known is not None:
            self.journal.report(index=index, event="done", status=known.status, reason=known.reason)
            return "skip"
        if over := self.kind.passed_over(self.plan, item):
            self.journal.report(index=index, event="done", status=over[0], reason=over[1])
            return "skip"
        run, here = item.run, this_machine().processes_per_host
        if self.kind.watched:
            self.watch = Watch(run.chosen_devices[:here] if run.device_type == "cuda" else (), os.getppid())
        self.journal.note_start(key)
        self.journal.report(index=index, event="start", label=item.label)
        return "run"

    @contextlib.contextmanager
    def watched(self, item: Due, key: str) -> Iterator[None]:
        """Inside, a process that exceeds the item's time-out leaves its stacks and exits."""
        with open(self.journal.stack_file(key, self.rank), "w") as stacks:
            faulthandler.dump_traceback_later(item.timeout_s, exit=True, file=stacks)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()

    def give_up(self, key: str, fault: Fault) -> None:
        """Leave the reason and exit: the launcher restarts all processes, and the first then writes the Record."""
        self.journal.note(key, fault, "echo" if is_echo(fault[1], fault[0]) else "fault")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def refuse(self, index: int, item: Due, key: str, fault: Fault) -> None:
        """Write why this item cannot be measured; the program is free to go on to the next."""
        self.write(item, key, fault[0], fault[1])
        self.journal.report(index=index, event="done", status=fault[0], reason=fault[1])

    def conclude(self, index: int, item: Due, key: str, parts: list[dict[str, Any]], total_s: float) -> None:
        """Publish the Record. What fails on the way fails again if the item is measured again, so it is what the Record says."""
        _, fault = guarded(lambda: self.publish_record(index, item, key, parts, total_s))
        if fault and self.plan.find(item) is None:
            # whatever its kind: memory or a disk that is full now says nothing of the Run's own
            self.refuse(index, item, key, ("failed", f"its Record could not be put together: {fault[1]}"))

    def publish_record(self, index: int, item: Due, key: str, parts: list[dict[str, Any]], total_s: float) -> None:
        """Write what all replicas know, by rank, as one Record."""
        more: dict[str, Any] = {"surroundings": self.watch.seen()} if self.watch else {}
        try:
            measured = self.kind.measure(item, parts, total_s)
        except DidNotTrain as error:
            self.refuse(index, item, key, ("failed", f"did not train: {error}"))
            return
        if self.watch:
            measured = measured.model_copy(update={"flags": measured.flags + more["surroundings"].disturbances})
        self.write(item, key, "ok", "", measured, **more)
        self.journal.report(index=index, event="done", status="ok", told=self.kind.told(item, measured))
        self.kind.finished(item)

    def keep(self, record: Any) -> None:
        """Write a Record; where the disk does not take it, no other would be kept either, and the launch ends."""
        store = self.kind.store(self.plan.records)
        try:
            store.write(record)
        except FileExistsError:
            raise
        except OSError as error:
            self.journal.note_end(f"a Record cannot be written to {store.root}: {error.strerror}", "there is room")
            os._exit(1)

    def write(self, item: Due, key: str, status: Status, reason: str, measured: Any = None, **more: Any) -> Any:
        """The Record of this item, written."""
        record = self.kind.store.kind(
            key=key,
            attempt=item.attempt,
            repeat=item.repeat,
            status=status,
            reason=reason,
            launch_id=f"{self.plan.launch_id}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
            measurement=measured,
            **self.kind.fields(item, status),
            **made_here(self.plan.versions),
            **more,
        )
        self.keep(record)
        self.kind.learn(item, record)
        return record


def run_program(program: Callable[[Plan], None]) -> None:
    """What each program's `main` does: read the plan that the command line names and carry it out."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan = Plan.model_validate_json(Path(sys.argv[1]).read_text())
    journal = Journal(plan)
    if journal.end():  # which the launcher has not seen yet
        os._exit(1)
    if (here := this_machine().name) != plan.machine:  # no Record of another machine is made under this one's keys
        journal.note_end(f"a process of the launch finds itself on {here}, and not on {plan.machine}", "its GPUs are there again")
        os._exit(1)
    confine(plan.items[0].run.host_cores)  # the same for all items of a launch
    program(plan)
