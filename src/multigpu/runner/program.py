"""How a process of a launch measures a plan: deciding, training, watching for hangs, and writing
Records. Imports no framework.
"""

import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from multigpu.engines.common.failures import CAUSES, Fault, Stuck, is_echo, status_of
from multigpu.engines.common.session import Session, load_hook
from multigpu.engines.common.stacks import ending_told, own_call, read_stacks
from multigpu.engines.common.standing import DUMPING, Board, board_file, noted
from multigpu.machine.machine import confine, this_machine
from multigpu.machine.process import STARTED_AT, age_s, end_with_parent
from multigpu.machine.surroundings import SurroundingsWatch
from multigpu.records.base import Status
from multigpu.runner.experiment import Trial, WorkerContext
from multigpu.runner.plan import Journal, Plan
from multigpu.spec.errors import DidNotTrain, EndsProcess, of_a_signal


def guarded(action: Callable[[], Any]) -> tuple[Any, Fault | None]:
    """The action's result, or its failure as a status and a sentence; no traceback is kept, for it
    would keep tensors alive.
    """
    try:
        return action(), None
    except BaseException as error:
        if of_a_signal(error) or isinstance(error, EndsProcess):
            raise
        if os.environ.get("MULTIGPU_TRACEBACKS"):
            traceback.print_exc()
        return None, status_of(error)


class Program:
    """One process of a launch, alone or one of many (`worker.Worker`). hosts: what a session must
    know of the launch's other hosts.
    """

    def __init__(self, plan: Plan, rank: int = 0, **hosts: Any) -> None:
        self.plan = plan
        self.rank = rank
        self.hosts = hosts
        self.journal = Journal(plan.scratch)
        self.kind = plan.kind
        self.hook = load_hook(plan.hook)
        begun = os.environ.get(STARTED_AT)
        self.startup_s = time.monotonic() - float(begun) if begun else age_s()
        self.watch: SurroundingsWatch | None = None
        self.session: Session | None = None
        self.board: Board | None = None

    def run_plan(self) -> None:
        """Every item that has no Record."""
        for index, item in enumerate(self.plan.items):
            confine(item.run.host_cores)
            if self.decide(index):
                self.attempt(index)

    def decide(self, index: int) -> bool:
        """Whether this item is to be measured now, from what is on the disk; what is not is
        reported.
        """
        item = self.plan.items[index]
        key = self.plan.key(item)
        known = self.plan.find(item)
        if known is not None:
            self.kind.learn(item, known)
        elif fault := self.journal.fault(key):
            known = self.write(item, *fault)
        if (
            over := (known.status, known.reason)
            if known is not None
            else self.kind.passed_over(self.plan, item)
        ):
            self.journal.report("done", index=index, status=over[0], reason=over[1])
            return False
        if self.kind.watched:
            if item.run.device_type == "cuda":
                devices = item.run.chosen_devices[: this_machine().processes_per_host]
            else:
                devices = ()
            self.watch = SurroundingsWatch(devices, os.getppid())
        self.journal.report("start", index=index, key=key, at=time.monotonic(), label=item.label)
        return True

    def attempt(self, index: int) -> bool:
        """Measure one item. Returns whether this process may go on as it is; it ends where only a
        restart helps, and after a time-out.
        """
        item, began = self.plan.items[index], time.perf_counter()
        shared = self.shared_folder(index)
        seat = WorkerContext(
            self.rank, shared, self.startup_s, lambda name: self.begun(name, item.run), self.hosts
        )
        with (
            open(self.journal.stack_file(self.plan.key(item), self.rank), "w") as stacks,
            noted(board_file(self.plan.memory, self.plan.key(item), self.rank)) as self.board,
            ending_told(stacks, lambda code: self.tell_end(index, code, stacks.name)),
        ):
            faulthandler.dump_traceback_later(item.timeout_s, exit=True, file=stacks)
            faulthandler.register(DUMPING, file=stacks)
            try:
                self.session, fault = guarded(lambda: self.kind.open(item, seat))
                if fault := self.agreed(index, "built", fault):
                    return self.refuse(index, fault)
                assert self.session
                _, fault = guarded(self.session.warm_up)
                if fault := self.agreed(index, "warm", fault):
                    return self.refuse(index, fault)
                parts, fault = guarded(self.session.time)
                if fault := self.agreed(index, "timed", fault):
                    return self.refuse(index, fault)
                parts = self.joined(index, parts)
                if self.rank == 0:
                    self.conclude(index, parts, time.perf_counter() - began)
                return True
            except Stuck as stuck:
                self.give_up(index, ("timeout", str(stuck)))
                raise
            finally:
                self.close()
                self.clear(item)
                if self.rank == 0:
                    shutil.rmtree(shared, ignore_errors=True)
                faulthandler.cancel_dump_traceback_later()
                faulthandler.unregister(DUMPING)

    def begun(self, stage: str, run: Any) -> None:
        """Note, and tell the plan's hook, the stage or step of a Run that begins."""
        if self.board is not None:
            self.board.at(stage)
        self.hook(stage, run, self.rank)

    def tell_end(self, index: int, code: int, stacks: str) -> None:
        """Leave word that code inside ends this process, with the user's own line where it is
        theirs.
        """
        place = own_call(read_stacks(Path(stacks)))
        told = f"rank {self.rank} ended its process with os._exit({code})"
        fault: Fault = ("failed", f"{told}, in `{place}`" if place else told)
        self.journal.note(self.plan.key(self.plan.items[index]), fault)

    def shared_folder(self, index: int) -> Path:
        """A new folder in memory that all replicas of an item know."""
        return Path(tempfile.mkdtemp(dir=self.plan.memory))

    def agreed(self, index: int, stage: str, fault: Fault | None) -> Fault | None:
        """Agree with the item's replicas on a fault that keeps them from going on, given this
        process's; after one that may have harmed a GPU, it ends.
        """
        if fault and fault[0] not in CAUSES and self.plan.items[index].run.device_type == "cuda":
            self.give_up(index, fault)
        return fault

    def joined(self, index: int, parts: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The numbers of all replicas, by rank, of this process's."""
        return parts

    def close(self) -> None:
        if self.session:
            with contextlib.suppress(Exception):
                self.session.close()
        self.session = None

    def clear(self, item: Trial) -> None:
        gc.collect()

    def give_up(self, index: int, fault: Fault) -> None:
        """Leave the reason and exit: the launcher restarts all processes, and the first then writes
        the Record.
        """
        self.journal.note(
            self.plan.key(self.plan.items[index]),
            fault,
            "echo" if is_echo(fault[1], fault[0]) else "fault",
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def refuse(self, index: int, fault: Fault) -> bool:
        """Write why this item cannot be measured, as all replicas know; each may go on, but not as
        it is.
        """
        if self.rank == 0:
            self.write(self.plan.items[index], *fault)
            self.journal.report("done", index=index, status=fault[0], reason=fault[1])
        return False

    def conclude(self, index: int, parts: Sequence[Mapping[str, Any]], total_s: float) -> None:
        """Write what all replicas know, by rank, as one Record. What fails on the way would fail
        again, so it is what the Record says.
        """
        _, fault = guarded(lambda: self._publish(index, parts, total_s))
        if fault and self.plan.find(self.plan.items[index]) is None:
            # whatever its kind: a memory that is full now says nothing of the Run's own
            self.refuse(index, ("failed", f"its Record could not be put together: {fault[1]}"))

    def _publish(self, index: int, parts: Sequence[Mapping[str, Any]], total_s: float) -> None:
        item, around = self.plan.items[index], self.watch.seen() if self.watch else None
        try:
            measured = self.kind.measure(item, parts, total_s)
        except DidNotTrain as error:
            self.refuse(index, ("failed", f"did not train: {error}"))
            return
        told = [self.kind.told(item, measured)]
        if around:
            told += around.disturbances
            measured = measured.model_copy(update={"flags": measured.flags + around.disturbances})
        self.write(item, "ok", "", measured, **({"surroundings": around} if around else {}))
        self.journal.report("done", index=index, status="ok", told=", ".join(told))
        self.kind.finished(item)

    def write(
        self, item: Trial, status: Status, reason: str, measured: Any = None, **more: Any
    ) -> Any:
        """The Record of this item, written; where the disk does not take it, no other would be kept
        either, and the launch ends.
        """
        store = self.kind.store(self.plan.records)
        launch_id = f"{self.plan.launch_id}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        fields = {"measurement": measured, **self.kind.fields(item, status), **more}
        record = self.plan.record(item, status, reason, launch_id, **fields)
        try:
            store.write(record)
        except FileExistsError:
            raise
        except OSError as error:
            self.journal.end(
                f"a Record cannot be written to {store.root}: {error.strerror}", "there is room"
            )
            os._exit(1)
        self.kind.learn(item, record)
        return record


def run_program(program: Callable[[Plan], None]) -> None:
    """Run a program's `main`: read the plan that the command line names and carry it out."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan = Plan.model_validate_json(Path(sys.argv[1]).read_text())
    journal = Journal(plan.scratch)
    if journal.ended:  # which the launcher has not seen yet
        os._exit(1)
    # no Record of another machine is made under this one's keys
    if (here := this_machine().name) != plan.machine:
        journal.end(
            f"a process of the launch finds itself on {here}, and not on {plan.machine}",
            "its GPUs are there again",
        )
        os._exit(1)
    confine(plan.items[0].run.host_cores)  # of what follows; and of each item when its turn comes
    program(plan)
    journal.left(os.getpid())
