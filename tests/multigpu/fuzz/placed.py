"""Two processes that stay: each example trains in them under placements, without a launch."""

import os
import tempfile
import traceback
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from multigpu.spec.run import Run
from tests.forked import forking

PATIENCE_S = 30.0
"""After which a process that does not answer is taken to hang."""


def serve(rank: int, count: int, meeting: str, line: Connection) -> None:
    """One process: compare each Run that comes with one process, until the line ends."""
    from multigpu.engines.common.session import Opening
    from multigpu.engines.torch.checked import equivalence
    from multigpu.workloads.own.description import know

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    while (asked := line.recv()) is not None:
        folder, run, shared = asked
        know(folder)
        try:
            opening = Opening(run, rank, 1, shared, PATIENCE_S, 0.0, lambda stage: None)
            found = equivalence(opening)
            line.send((found and found.model_dump(), ""))
        except BaseException:
            line.send((None, traceback.format_exc()))


class Processes:
    """A pair of such processes, started when one is asked for and anew after a failure."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.members: list[Any] = []
        self.lines: list[Connection] = []

    def start(self) -> None:
        context = forking()
        meeting = tempfile.mktemp(prefix="meeting-")
        for rank in range(self.count):
            here, there = context.Pipe()
            member = context.Process(
                target=serve, args=(rank, self.count, meeting, there), daemon=True
            )
            member.start()
            there.close()
            self.members.append(member)
            self.lines.append(here)

    def end(self) -> None:
        for member in self.members:
            member.kill()
            member.join()
        self.members, self.lines = [], []

    def compared(self, folder: Path, run: Run) -> tuple[dict[str, Any] | None, str]:
        """How far the placement is from one process (`Equivalence`), or what it failed with."""
        if not self.members:
            self.start()
        root = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(dir=root) as shared:
            for line in self.lines:
                line.send((folder, run, Path(shared)))
            answers: list[tuple[dict[str, Any] | None, str]] = []
            left = list(self.lines)
            while left:
                ready: Sequence[Any] = wait(left, 5.0 if answers else PATIENCE_S)
                if not ready:
                    self.end()
                    failed = [why for _, why in answers if why]
                    return None, failed[0] if failed else "no process answers"
                for line in ready:
                    left.remove(line)
                    try:
                        answers.append(line.recv())
                    except EOFError:
                        answers.append((None, "a process ended"))
        if failed := [why for _, why in answers if why]:
            self.end()
            return None, failed[0]
        return answers[0][0], ""
