"""The program of one process that dispatches for all devices, or whose session starts others: every Run of a plan, one after the
other.

Supervised by the same elastic agent as `worker.py`, but alone: no store, no votes, no group, and no framework until the
first Run names one. On several hosts it is alone on each: that of the first decides, the others do what its sessions ask.
"""

import contextlib
import gc
import importlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from multigpu.measure.experiment import Due
from multigpu.measure.plan import Plan
from multigpu.measure.program import Program, guarded, run_program
from multigpu.measure.session import Session


class Solo(Program):
    """The only process of a launch, or of its first host. hosts: what a session must know of the others."""

    def run_plan(self, **hosts: Any) -> None:
        """Every item that has no Record."""
        self.hosts = hosts
        for index, item in enumerate(self.plan.items):
            key = self.plan.key(item)
            if self.decide(index, item, key) == "run":
                with self.watched(item, key):
                    self._attempt(index, item, key)

    def _attempt(self, index: int, item: Due, key: str) -> None:
        """One Run. After a failure that may have left a GPU unusable, the process exits and the launcher starts a fresh one."""
        began = time.perf_counter()
        shared = Path(tempfile.mkdtemp(dir=self.plan.memory))
        session: Session | None = None
        try:
            session, fault = guarded(lambda: self.session(item, shared, **self.hosts))
            if session and not fault:
                _, fault = guarded(session.warm_up)
            parts = None
            if session and not fault:
                parts, fault = guarded(session.time)
            if parts:
                self.conclude(index, item, key, parts, time.perf_counter() - began)
                return
            assert fault
            if fault[0] not in ("out_of_memory", "unsupported") and item.run.device_type == "cuda":
                self.give_up(key, fault)
            self.refuse(index, item, key, fault)
        finally:
            if session:
                with contextlib.suppress(Exception):
                    session.close()
            session = None
            gc.collect()
            shutil.rmtree(shared, ignore_errors=True)


def carry_out(plan: Plan) -> None:
    """Every item of the plan, or on another host than the first, what its sessions ask."""
    if plan.hosts == 1:
        Solo(plan).run_plan()
        return
    members = importlib.import_module(f"multigpu.engines.{plan.framework}.members")
    if plan.host:
        members.attend(plan)
        return
    with members.Gathering(plan) as gathering:
        Solo(plan).run_plan(gathering=gathering)


def main() -> None:
    """Entry point: `python -m multigpu.measure.solo PLAN`."""
    run_program(carry_out)


if __name__ == "__main__":
    main()
