"""The processes of one number of devices: started, given their turn, watched and ended. Imports no framework."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from multigpu.collectives.plan import CollectivePlan
from multigpu.hosts.launching import libraries_environment
from multigpu.measure.launch import SAFE
from multigpu.measure.machine import source_state

START_S = 120.0
"""The longest that processes may take to import the framework."""


class Launch:
    """The processes of one plan, started at once; they wait for their turn with the framework imported.

    prefix: words before the command of a rank, which put it on its host; by rank.
    extra: environment of all processes besides.
    """

    def __init__(
        self, plan: CollectivePlan, prefix: Callable[[int], list[str]] | None = None, extra: Mapping[str, str] | None = None
    ) -> None:
        self.plan, self.prefix, self.extra = plan, prefix, extra
        plan.scratch.mkdir(parents=True)
        path = plan.scratch / "plan.json"
        path.write_text(plan.model_dump_json())
        self.logs = [(plan.scratch / f"{rank}.log").open("w") for rank in range(plan.devices)]
        self.processes = [
            subprocess.Popen(
                [*(prefix(rank) if prefix else []), sys.executable, "-m", "multigpu.collectives.worker", str(path), str(rank)],
                env=environment() | libraries_environment(plan.address) | dict(extra or {}),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
            for rank, log in enumerate(self.logs)
        ]
        self.seen = 0
        self.killed: dict[int, int] = {}
        """Rank -> signal, of processes that somebody else killed (the kernel short of memory, a user)."""

    def wait_until_ready(self) -> None:
        """Until every process has imported what it needs, so that no start disturbs what is timed; a dead one is found later."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and not any(process.poll() for process in self.processes):
            if all((self.plan.scratch / f"{rank}.ready").exists() for rank in range(self.plan.devices)):
                return
            time.sleep(0.05)

    def go(self, deadline: float) -> None:
        """Their turn, until `deadline` (seconds since the epoch)."""
        for process in self.processes:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):  # it has died, which `ended` finds out
                process.stdin.write(f"{deadline}\n")
                process.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        """What the launch reported since the last call."""
        path = self.plan.scratch / "progress.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        new, self.seen = lines[self.seen :], len(lines)
        return [json.loads(line) for line in new]

    def ended(self) -> bool:
        """Whether all processes have ended. One that failed takes the others with it: they would wait for it for ever."""
        codes = [process.poll() for process in self.processes]
        if any(code for code in codes):
            self.killed = {rank: -code for rank, code in enumerate(codes) if code is not None and code < 0}
            time.sleep(0.5)  # let the others leave by themselves and say why
            self.end()
            return True
        return all(code is not None for code in codes)

    def end(self) -> None:
        """End what still runs, by its process id."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin:
                with contextlib.suppress(BrokenPipeError):  # it died before its turn
                    process.stdin.close()
        for log in self.logs:
            log.close()

    @property
    def failed(self) -> bool:
        return any(process.returncode for process in self.processes)

    def last_words(self) -> str:
        """The last line that any process wrote."""
        texts = [Path(log.name).read_text(errors="replace").strip() for log in self.logs]
        return next((text.splitlines()[-1].strip()[:200] for text in texts if text), "its processes left no message")


def environment() -> dict[str, str]:
    """What every process is started with: NVLink multicast off, and the source that this process runs."""
    commit, clean = source_state()
    source = str(Path(__file__).resolve().parents[2])
    found = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        **SAFE,
        "PYTHONPATH": os.pathsep.join(found),
        "MULTIGPU_COMMIT": commit,
        "MULTIGPU_CLEAN": "1" if clean else "0",
    }
