"""The program of one worker process: every Run of a plan, one after the other, surviving what fails in between.

Started once a device by the elastic launcher (`agent.py`) or by `torchrun`; a Run uses the first `devices` workers, the
others wait for rank 0's word. The group of a Run's workers is the default group, rebuilt when the number changes.
"""

from __future__ import annotations

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
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from multigpu.engines.errors import DidNotTrain, Unsupported
from multigpu.measure.agree import Stuck, Votes, await_word, publish
from multigpu.measure.machine import source_state, this_machine
from multigpu.measure.plan import Item, Journal, Plan, find_record
from multigpu.measure.process import end_with_parent
from multigpu.measure.session import Session, load_hook, measurement
from multigpu.record import Record, RecordStore, Status
from multigpu.workloads import workloads

LONG = timedelta(days=7)
PATIENCE_S = 10.0
"""After its own failure a replica waits so long for the others' votes before it calls the launch stuck."""


LOST_PEER = ("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "remote process", "nccl", "gloo")
"""Words in the errors of a collective whose other end is gone: an echo of a death elsewhere, not a cause."""


def is_echo(reason: str) -> bool:
    """Whether this failure only says that another replica has gone."""
    return any(words in reason.lower() for words in LOST_PEER)


def status_of(error: BaseException) -> tuple[Status, str]:
    """The status and the sentence for a Record of a Run that ended with `error`."""
    text = " ".join(str(error).split())
    if (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "can't allocate memory" in text
        or getattr(error, "errno", None) in (12, 28)
    ):
        return "out_of_memory", text[:300]
    if isinstance(error, Unsupported):
        return "unsupported", text[:300]
    if isinstance(error, (TimeoutError, Stuck)):
        return "timeout", text[:300]
    return "failed", f"{type(error).__name__}: {text}"[:300]


class Worker:
    """One process of a launch."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.journal = plan, Journal(plan)
        self.rank, self.workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LONG)
        # the launcher's store outlives a restart, and with it the addresses of processes that are gone
        self.store = dist.PrefixStore(f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        self.group_size = 0
        self.groups_made = 0
        self.hook = load_hook(plan.hook)
        self.startup_s = time.time() - psutil.Process().create_time()

    def run_plan(self) -> None:
        for index, item in enumerate(self.plan.items):
            key = self.plan.key(item)
            if self.rank == 0:
                publish(self.store, f"{index}/decision", self._decide(index, item, key))
            if await_word(self.store, f"{index}/decision") != "run":
                continue
            self._join_group(item.run.devices, item.run.device_type)
            if self.rank < item.run.devices:
                healthy = self._attempt(index, item, key)
            if self.rank == 0:
                publish(self.store, f"{index}/healthy", healthy)
            if not await_word(self.store, f"{index}/healthy"):
                self._leave_group()  # collectives may be out of step after a refusal
        self._leave_group()

    def _decide(self, index: int, item: Item, key: str) -> str:
        """Rank 0 alone looks at the disk."""
        known = find_record(self.plan, item)
        if known is None and (fault := self.journal.fault(key)):
            known = self._write(item, key, fault[0], fault[1])
        if known is not None:
            self.journal.report(index=index, event="done", status=known.status, reason=known.reason)
            return "skip"
        self.journal.note_start(key)
        self.journal.report(index=index, event="start", label=item.run.label())
        return "run"

    def _join_group(self, size: int, device_type: str) -> None:
        """Make the first `size` workers the default group. Every worker keeps the same account, members or not."""
        if size == self.group_size:
            return
        self._leave_group()
        self.group_size, self.groups_made = size, self.groups_made + 1
        if self.rank >= size:
            return
        cuda = device_type == "cuda"
        if cuda:
            torch.cuda.set_device(self.rank)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=dist.PrefixStore(f"group{self.groups_made}", self.store),
            rank=self.rank,
            world_size=size,
            timeout=timedelta(seconds=600),
            device_id=torch.device("cuda", self.rank) if cuda else None,
        )

    def _leave_group(self) -> None:
        self.group_size = 0
        if dist.is_initialized():
            dist.destroy_process_group()

    def _attempt(self, index: int, item: Item, key: str) -> bool:
        """One Run on this replica. Returns whether the group is still in step; exits the process where it may not be."""
        votes = Votes(self.store, f"{index}", self.rank, item.run.devices)
        stacks = open(self.journal.stack_file(key, self.rank), "w")  # noqa: SIM115  (must stay open while it may be written)
        faulthandler.dump_traceback_later(item.timeout_s, exit=True, file=stacks)
        began = time.perf_counter()
        shared = self._shared_folder(votes)
        session: Session | None = None
        try:
            session, fault = self._guarded(lambda: self._session(item, shared))
            if fault:
                self._wake_peers(item)
            if fault := self._vote(votes, key, "built", fault, item.timeout_s):
                return self._refuse(index, item, key, fault)
            assert session
            _, fault = self._guarded(session.warm_up)
            if fault:
                session.close()
                session = None
                self._wake_peers(item)
            if fault := self._vote(votes, key, "warm", fault, item.timeout_s):
                return self._refuse(index, item, key, fault)
            assert session
            part, fault = self._guarded(session.time)
            if fault:  # others may be inside a collective: nothing but a restart is sure to free them
                self._give_up(key, fault)
            parts = votes.gather("parts", part, item.timeout_s)
            if self.rank == 0:
                self._publish_record(index, item, key, parts, time.perf_counter() - began)
            return True
        except Stuck as stuck:
            self._give_up(key, ("timeout", str(stuck)))
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
            stacks.close()
            if session:
                with contextlib.suppress(Exception):
                    session.close()
            session = None
            gc.collect()
            if torch.cuda.is_available() and item.run.device_type == "cuda":
                torch.cuda.empty_cache()
            if self.rank == 0:
                shutil.rmtree(shared, ignore_errors=True)

    def _shared_folder(self, votes: Votes) -> Path:
        """A folder in memory that all replicas know: rank 0 names it."""
        name = tempfile.mkdtemp(prefix="multigpu-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) if self.rank == 0 else ""
        return Path(votes.gather("shared", name, 60.0)[0])

    def _session(self, item: Item, shared: Path) -> Session:
        threads = max(1, this_machine().cores // item.run.devices)

        def stage(name: str) -> None:
            self.hook(name, item.run, self.rank)

        return Session(item.run, self.rank, threads, shared, item.timeout_s, self.startup_s, stage)

    def _guarded(self, action: Callable[[], Any]) -> tuple[Any, tuple[Status, str] | None]:
        """The action's result, or its failure as a status and a sentence; no traceback is kept, for it would keep tensors alive."""
        try:
            return action(), None
        except Exception as error:
            if os.environ.get("MULTIGPU_TRACEBACKS"):
                traceback.print_exc()
            return None, status_of(error)

    def _wake_peers(self, item: Item) -> None:
        """After a failure here, free the replicas that wait for this one in a collective.

        On CPUs leaving the group ends their wait with an error at once, provided nothing holds on to the group. On GPUs
        nothing wakes them but a restart, which `_vote` asks for when their votes stay out.
        """
        gc.collect()
        if item.run.device_type == "cpu":
            self._leave_group()

    def _vote(self, votes: Votes, key: str, name: str, fault: tuple[Status, str] | None, timeout_s: float) -> tuple[Status, str] | None:
        """All replicas say whether they are well. The first fault by rank, or None.

        Raises:
            Stuck: a replica did not answer; if this one failed, the other waits for it in a collective.
        """
        try:
            faults = [f for f in votes.gather(name, fault, PATIENCE_S if fault else timeout_s) if f]
        except Stuck:
            if fault:
                self._give_up(key, fault)
            raise
        causes = [f for f in faults if not is_echo(f[1])] or faults
        return (causes[0][0], causes[0][1]) if causes else None

    def _refuse(self, index: int, item: Item, key: str, fault: tuple[Status, str]) -> bool:
        """Every replica knows that this Run cannot be measured, and is free to go on to the next."""
        if self.rank == 0:
            self._write(item, key, fault[0], fault[1])
            self.journal.report(index=index, event="done", status=fault[0], reason=fault[1])
        return False

    def _give_up(self, key: str, fault: tuple[Status, str]) -> None:
        """Leave the reason and exit: the launcher restarts all workers, and rank 0 then writes the Record."""
        if not is_echo(fault[1]):
            self.journal.note_fault(key, *fault)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _publish_record(self, index: int, item: Item, key: str, parts: list[dict[str, Any]], total_s: float) -> None:
        try:
            measured = measurement(item.run, parts, total_s)
        except DidNotTrain as error:
            self._write(item, key, "failed", f"did not train: {error}")
            self.journal.report(index=index, event="done", status="failed", reason=str(error))
            return
        self._write(item, key, "ok", "", measured)
        rate = measured.units / measured.wall_s
        self.journal.report(
            index=index, event="done", status="ok", label=item.run.label(), units_per_s=rate, unit=item.run.description.unit
        )

    def _write(self, item: Item, key: str, status: Status, reason: str, measured: Any = None) -> Record:
        source = None
        with contextlib.suppress(Exception):  # an input that cannot be opened is why this Run has no measurement
            source = workloads()[item.run.workload].inputs[item.run.inputs](item.run, item.run.description)
        commit, clean = source_state()
        record = Record(
            key=key,
            attempt=item.attempt,
            run=item.run,
            repeat=item.repeat,
            status=status,
            reason=reason,
            machine=this_machine(),
            versions=self.plan.versions,
            timing_version=self.plan.timing_version,
            launch_id=f"{self.plan.launch_id}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=commit,
            clean_tree=clean,
            input_label=source.label if source else "",
            input_fingerprint=source.fingerprint if source else "",
            measurement=measured,
        )
        RecordStore(self.plan.records).write(record)
        return record


def main() -> None:
    """Entry point: `python -m multigpu.measure.worker PLAN`, in the environment that the launcher sets."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan = Plan.model_validate_json(Path(sys.argv[1]).read_text())
    Worker(plan).run_plan()


if __name__ == "__main__":
    main()
