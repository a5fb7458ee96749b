"""The program of one worker process: every Run of a plan, one after the other, surviving what fails in between.

Started once a device by the elastic launcher (`agent.py`) or by `torchrun`; a Run uses the first `devices` workers, the
others wait for rank 0's word. The group of a Run's workers is the default group, rebuilt when the number changes.
Workers agree over the launcher's store, never over a collective that a lost replica would block.
"""

import contextlib
import gc
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.engines.torch.devices import give_back_memory, local_device
from multigpu.measure.experiment import Due
from multigpu.measure.plan import Fault, Plan
from multigpu.measure.program import Program, Stuck, guarded, is_echo, run_program
from multigpu.measure.session import Session


@dataclass
class Votes:
    """One Run's messages among its replicas."""

    store: dist.Store
    prefix: str
    rank: int
    replicas: int

    def gather(self, name: str, value: Any, timeout_s: float) -> list[Any]:
        """Every replica's `value`, by rank, once all have given theirs.

        Raises:
            Stuck: one has not after `timeout_s`.
        """
        self.store.set(f"{self.prefix}/{name}/{self.rank}", json.dumps(value))
        keys = [f"{self.prefix}/{name}/{rank}" for rank in range(self.replicas)]
        try:
            self.store.wait(keys, timedelta(seconds=timeout_s))
        except RuntimeError as error:  # DistStoreError is one
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            raise Stuck(f"replicas {missing} did not reach {name!r} within {timeout_s:.0f} s") from error
        return [json.loads(self.store.get(key)) for key in keys]


LONG = timedelta(days=7)
PATIENCE_S = 10.0
"""After its own failure a replica waits so long for the others' votes before it calls the launch stuck."""


class Worker(Program):
    """One process of a launch."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, int(os.environ["RANK"]))
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LONG)
        # the launcher's store outlives a restart, and with it the addresses of processes that are gone
        self.store = dist.PrefixStore(f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        self.group_devices: tuple[int, ...] = ()
        self.groups_made = 0

    def run_plan(self) -> None:
        for index, item in enumerate(self.plan.items):
            key = self.plan.key(item)
            decision, healthy = self.decide(index, item, key) if self.rank == 0 else "", True
            if self._word(f"{index}/decision", decision) != "run":
                continue
            self._join_group(item.run)
            if self.rank < item.run.devices:
                with self.watched(item, key):
                    healthy = self._attempt(index, item, key)
            if not self._word(f"{index}/healthy", healthy):
                self._leave_group()  # collectives may be out of step after a refusal
        self._leave_group()

    def _word(self, name: str, value: Any) -> Any:
        """Rank 0's value, awaited without a limit and without touching a GPU (if it dies, the launcher ends the wait)."""
        if self.rank == 0:
            self.store.set(name, json.dumps(value))
        return json.loads(self.store.get(name))

    def _join_group(self, run: Any) -> None:
        """Make the first workers the default group, on the Run's devices. Every worker keeps the same account, members or not."""
        if run.chosen_devices == self.group_devices:
            return
        self._leave_group()
        self.group_devices, self.groups_made = run.chosen_devices, self.groups_made + 1
        if self.rank >= run.devices:
            return
        cuda = run.device_type == "cuda"
        mine = local_device(run, self.rank)
        if cuda:
            torch.cuda.set_device(mine)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=dist.PrefixStore(f"group{self.groups_made}", self.store),
            rank=self.rank,
            world_size=run.devices,
            timeout=timedelta(seconds=600),
            device_id=torch.device("cuda", mine) if cuda else None,
        )

    def _leave_group(self) -> None:
        self.group_devices = ()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _attempt(self, index: int, item: Due, key: str) -> bool:
        """One Run on this replica. Returns whether the group is still in step; exits the process where it may not be."""
        votes = Votes(self.store, f"{index}", self.rank, item.run.devices)
        began = time.perf_counter()
        shared = self._shared_folder(votes)
        session: Session | None = None
        try:
            session, fault = guarded(lambda: self.session(item, shared))
            if fault:
                self._wake_peers(item)
            if fault := self._vote(votes, key, "built", fault, item.timeout_s):
                return self._refuse(index, item, key, fault)
            assert session
            _, fault = guarded(session.warm_up)
            if fault:
                session.close()
                session = None
                self._wake_peers(item)
            if fault := self._vote(votes, key, "warm", fault, item.timeout_s):
                return self._refuse(index, item, key, fault)
            assert session
            mine, fault = guarded(session.time)
            if fault:  # others may be inside a collective: nothing but a restart is sure to free them
                self.give_up(key, fault)
            parts = [part for mine in votes.gather("parts", mine, item.timeout_s) for part in mine]
            if self.rank == 0:
                self.conclude(index, item, key, parts, time.perf_counter() - began)
            return True
        except Stuck as stuck:
            self.give_up(key, ("timeout", str(stuck)))
            raise
        finally:
            if session:
                with contextlib.suppress(Exception):
                    session.close()
            session = None
            cuda = torch.cuda.is_available() and item.run.device_type == "cuda"
            if self.kind.cyclic:
                give_back_memory(cuda)
            elif cuda:
                torch.cuda.empty_cache()
            if self.rank == 0:
                shutil.rmtree(shared, ignore_errors=True)

    def _shared_folder(self, votes: Votes) -> Path:
        """A folder in memory that all replicas know: rank 0 names it."""
        name = tempfile.mkdtemp(dir=self.plan.memory) if self.rank == 0 else ""
        return Path(votes.gather("shared", name, 60.0)[0])

    def _wake_peers(self, item: Due) -> None:
        """After a failure here, free the replicas that wait for this one in a collective.

        On CPUs leaving the group ends their wait with an error at once, provided nothing holds on to the group. On GPUs
        nothing wakes them but a restart, which `_vote` asks for when their votes stay out.
        """
        gc.collect()
        if item.run.device_type == "cpu":
            self._leave_group()

    def _vote(self, votes: Votes, key: str, name: str, fault: Fault | None, timeout_s: float) -> Fault | None:
        """All replicas say whether they are well. The first fault by rank, or None.

        Raises:
            Stuck: a replica did not answer; if this one failed, the other waits for it in a collective.
        """
        try:
            faults = [f for f in votes.gather(name, fault, PATIENCE_S if fault else timeout_s) if f]
        except Stuck:
            if fault:
                self.give_up(key, fault)
            raise
        causes = [f for f in faults if not is_echo(f[1], f[0])] or faults
        return (causes[0][0], causes[0][1]) if causes else None

    def _refuse(self, index: int, item: Due, key: str, fault: Fault) -> bool:
        """Every replica knows that this Run cannot be measured, and is free to go on to the next."""
        if self.rank == 0:
            self.refuse(index, item, key, fault)
        return False


def main() -> None:
    """Entry point: `python -m multigpu.measure.worker PLAN`, in the environment that the launcher sets."""
    run_program(lambda plan: Worker(plan).run_plan())


if __name__ == "__main__":
    main()
