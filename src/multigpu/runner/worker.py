"""The program of one worker process: every Run of a plan, one after the other, surviving what fails
in between.

Started once a device by the elastic launcher (`agent.py`) or by `torchrun`; a Run uses the first
`devices` workers, the others wait for rank 0's word. The group of a Run's workers is the default
group, rebuilt when the number changes. Workers agree over the launcher's store, never over a
collective that a lost replica would block.
"""

import gc
import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.engines.common.failures import Fault, Stuck, is_echo
from multigpu.engines.torch.devices import give_back_memory, local_device
from multigpu.machine.machine import confine
from multigpu.runner.experiment import Trial
from multigpu.runner.plan import Plan
from multigpu.runner.program import Program, run_program
from multigpu.spec.run import Run

LONG = timedelta(days=7)
# after its own failure a replica waits so long for the others' votes before it calls the launch
# stuck
PATIENCE_S = 10.0


def join_group(run: Run, rank: int, store: dist.Store) -> None:
    """Make this process replica `rank` of the Run's default group, on the device that is its own.
    store: where the group's processes meet, and nothing else.
    """
    cuda = run.device_type == "cuda"
    mine = local_device(run, rank)
    if cuda:
        torch.cuda.set_device(mine)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=run.devices,
        timeout=timedelta(seconds=600),
        device_id=torch.device("cuda", mine) if cuda else None,
    )


class Worker(Program):
    """One process of a launch."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, int(os.environ["RANK"]))
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=LONG
        )
        # the launcher's store outlives a restart, and with it the addresses of processes that are
        # gone
        self.store = dist.PrefixStore(
            f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store
        )
        self.group_devices: tuple[int, ...] = ()
        self.groups_made = 0

    def run_plan(self) -> None:
        for index, item in enumerate(self.plan.items):
            confine(item.run.host_cores)
            due, healthy = self.rank == 0 and self.decide(index), True
            if not self._word(f"{index}/due", due):
                continue
            self._join_group(item.run)
            if self.rank < item.run.devices:
                healthy = self.attempt(index)
            if not self._word(f"{index}/healthy", healthy):
                self._leave_group()  # collectives may be out of step after a refusal
        self._leave_group()

    def _word(self, name: str, value: Any) -> Any:
        """Rank 0's value, awaited without a limit and without touching a GPU (if it dies, the
        launcher ends the wait).
        """
        if self.rank == 0:
            self.store.set(name, json.dumps(value))
        return json.loads(self.store.get(name))

    def _join_group(self, run: Any) -> None:
        """Make the first workers the default group, on the Run's devices. Every worker keeps the
        same account, members or not.
        """
        if run.chosen_devices == self.group_devices:
            return
        self._leave_group()
        self.group_devices, self.groups_made = run.chosen_devices, self.groups_made + 1
        if self.rank >= run.devices:
            return
        join_group(run, self.rank, dist.PrefixStore(f"group{self.groups_made}", self.store))

    def _leave_group(self) -> None:
        self.group_devices = ()
        if dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, index: int, name: str, value: Any, timeout_s: float) -> list[Any]:
        """The value of each of an item's replicas, by rank, once all have given theirs; a Stuck:
        one has not after `timeout_s`.
        """
        keys = [f"{index}/{name}/{rank}" for rank in range(self.plan.items[index].run.devices)]
        self.store.set(keys[self.rank], json.dumps(value))
        try:
            self.store.wait(keys, timedelta(seconds=timeout_s))
        except RuntimeError as error:  # DistStoreError is one
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            raise Stuck(
                f"replicas {missing} did not reach {name!r} within {timeout_s:.0f} s"
            ) from error
        return [json.loads(self.store.get(key)) for key in keys]

    def shared_folder(self, index: int) -> Path:
        """Rank 0 names it."""
        name = str(super().shared_folder(index)) if self.rank == 0 else ""
        return Path(self.gather(index, "shared", name, 60.0)[0])

    def agreed(self, index: int, stage: str, fault: Fault | None) -> Fault | None:
        """All say whether they are well: the first fault by rank, or None. A Stuck: one did not
        answer, and may wait in a collective.
        """
        run, timeout_s = self.plan.items[index].run, self.plan.items[index].timeout_s
        if stage == "timed":
            # others may be inside a collective: nothing but a restart is sure to free them
            if fault:
                self.give_up(index, fault)
            return None
        if fault:
            self.close()
            gc.collect()
            if run.device_type == "cpu":
                # ends the wait of those that are inside a collective with an error, provided
                # nothing holds on to the group; on GPUs nothing wakes them but a restart, which is
                # asked for when their votes stay out
                self._leave_group()
        try:
            faults = [
                (one[0], one[1])
                for one in self.gather(index, stage, fault, PATIENCE_S if fault else timeout_s)
                if one
            ]
        except Stuck:
            if fault:
                self.give_up(index, fault)
            raise
        return next(
            (one for one in faults if not is_echo(one[1], one[0])), faults[0] if faults else None
        )

    def joined(self, index: int, parts: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        return [
            part
            for own in self.gather(index, "parts", parts, self.plan.items[index].timeout_s)
            for part in own
        ]

    def clear(self, item: Trial) -> None:
        cuda = torch.cuda.is_available() and item.run.device_type == "cuda"
        if self.kind.cyclic:
            give_back_memory(cuda)
        elif cuda:
            torch.cuda.empty_cache()


def main() -> None:
    """Entry point: `python -m multigpu.runner.worker PLAN`, in the environment that the launcher
    sets.
    """
    run_program(lambda plan: Worker(plan).run_plan())


if __name__ == "__main__":
    main()
