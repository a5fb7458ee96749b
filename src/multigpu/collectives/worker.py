"""One process of a launch: every CollectiveRun of a plan, in step with the others, until the time is up."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.collectives.bench import SymmetricMemory, joined, measure_here
from multigpu.collectives.plan import CollectivePlan, Forecast, Item, make_record
from multigpu.collectives.record import CollectiveMeasurement, CollectiveStore
from multigpu.measure.agree import Votes, await_word, publish
from multigpu.measure.machine import this_machine
from multigpu.measure.process import end_with_parent
from multigpu.measure.program import Fault, Stuck, guarded, is_echo
from multigpu.measure.store import serve_store

OUT_OF_STEP = 3
"""The exit code after which the launcher starts fresh processes for what is left."""

PATIENCE_S = 10.0
"""After its own failure a rank waits so long for the others before it calls the launch stuck."""

MARGIN_S = 1.0
"""Time that is left for writing and leaving."""


class CollectiveWorker:
    """One rank. The store carries decisions and votes; the default group is what is measured."""

    def __init__(self, plan: CollectivePlan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.symmetric = SymmetricMemory()
        self.forecast = Forecast()
        self.results = CollectiveStore(plan.records)

    def run_plan(self, deadline: float) -> bool:
        """Every item until `deadline` (seconds since the epoch). Returns whether all ranks stayed in step."""
        self.store = self._meet()
        self._join()
        for index, item in enumerate(self.plan.items):
            if self.rank == 0:
                left = deadline - MARGIN_S - time.time()
                word = "stop" if left <= 0 else "skip" if self.forecast.seconds(item.run) > left else "run"
                publish(self.store, f"{index}/word", word)
            word = await_word(self.store, f"{index}/word")
            if word == "stop":
                break
            if word == "run" and not self._attempt(index, item):
                return False
            if self.rank == 0 and word == "skip":
                self._report(event="skip", label=item.run.label())
        self._leave()
        return True

    def _leave(self) -> None:
        """Rank 0 leaves last, since it holds the store."""
        self.store.set(f"left/{self.rank}", "")
        if self.rank == 0:
            with contextlib.suppress(RuntimeError):
                self.store.wait([f"left/{rank}" for rank in range(self.plan.devices)], timedelta(seconds=PATIENCE_S))

    def _meet(self) -> dist.Store:
        """Rank 0 offers a store on a free port and says which in a file."""
        offer = self.plan.scratch / "port"
        if self.rank == 0:
            store = serve_store(self.plan.address)
            draft = offer.with_suffix(".draft")
            draft.write_text(str(store.port))
            draft.rename(offer)
            return store
        until = time.monotonic() + self.plan.timeout_s
        while not offer.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"process 0 offered no store within {self.plan.timeout_s:.0f} s")
            time.sleep(0.02)
        return dist.TCPStore(self.plan.address, int(offer.read_text()), is_master=False)

    def _join(self) -> None:
        plan = self.plan
        torch.set_num_threads(max(1, this_machine().cores // plan.devices))
        if plan.cuda:
            torch.cuda.set_device(self.rank)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if plan.cuda else "gloo",
            store=dist.PrefixStore("group", self.store),
            rank=self.rank,
            world_size=plan.devices,
            timeout=timedelta(seconds=plan.timeout_s),
            device_id=torch.device("cuda", self.rank) if plan.cuda else None,
        )
        # NCCL takes batches of sends and receives only after a collective of the whole group
        dist.all_reduce(torch.zeros(1, device="cuda" if plan.cuda else "cpu"))

    def _attempt(self, index: int, item: Item) -> bool:
        """One Run. Returns whether all ranks are still in step."""
        plan, began = self.plan, time.perf_counter()
        votes = Votes(self.store, str(index), self.rank, plan.devices)
        if self.rank == 0:
            (plan.scratch / "current").write_text(str(index))
            self._report(event="start", label=item.run.label())
        faulthandler.dump_traceback_later(plan.timeout_s + PATIENCE_S, exit=True)
        try:
            part, fault = guarded(lambda: measure_here(item.run, self.symmetric, plan.most_symmetric_bytes, plan.interface))
            if fault:
                self._note_fault(index, fault)
                gc.collect()
            if plan.cuda:
                torch.cuda.empty_cache()
            answers = votes.gather("done", {"part": part, "fault": fault}, PATIENCE_S if fault else plan.timeout_s)
        except Stuck:
            return False
        finally:
            faulthandler.cancel_dump_traceback_later()
        faults = [answer["fault"] for answer in answers if answer["fault"]]
        if self.rank == 0:
            seconds = time.perf_counter() - began
            self.forecast.note(item.run, seconds)
            self._write(item, [answer["part"] for answer in answers], faults, seconds)
        # a refusal that all ranks made alike leaves them in step; after anything else a GPU may be unusable
        return not faults or (len(faults) == plan.devices and all(fault[0] in ("unsupported", "out_of_memory") for fault in faults))

    def _note_fault(self, index: int, fault: Fault) -> None:
        """For the launcher, should this be the launch's last word; the first rank to fail knows the cause best."""
        try:
            with open(self.plan.scratch / f"{index}.fault", "x") as file:
                json.dump(fault, file)
        except FileExistsError:
            pass

    def _write(self, item: Item, parts: list[Any], faults: list[Fault], seconds: float) -> None:
        if faults:
            causes = [fault for fault in faults if not is_echo(fault[1], fault[0])] or faults
            record = make_record(item, self.plan.launch_id, causes[0][0], causes[0][1], None, self.plan.machine)
        else:
            measurement = CollectiveMeasurement.model_validate(joined(item.run, parts, seconds))
            record = make_record(item, self.plan.launch_id, "ok", "", measurement, self.plan.machine)
        self.results.write(record)
        self._report(event="done", label=item.run.label(), status=record.status, reason=record.reason, time_s=record.time_s)

    def _report(self, **event: Any) -> None:
        """One line for whoever watches."""
        with open(self.plan.scratch / "progress.jsonl", "a") as file:
            file.write(json.dumps(event) + "\n")


def main() -> None:
    """Entry point: `python -m multigpu.collectives.worker PLAN RANK`; starts at the word "DEADLINE" on standard input."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan, rank = CollectivePlan.model_validate_json(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    (plan.scratch / f"{rank}.ready").touch()
    word = sys.stdin.readline()
    if word.strip():  # nothing: the launcher has ended or needs this process no more
        code = 1
        try:
            code = 0 if CollectiveWorker(plan, rank).run_plan(float(word)) else OUT_OF_STEP
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            # an orderly end may wait for ever for communicators whose peers have gone; Records are on the disk
            os._exit(code)


if __name__ == "__main__":
    main()
