"""Tell the launcher, in memory, how far each process is with its Run. Imports no framework."""

import contextlib
import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from multigpu.engines.common.stacks import own_call, read_stacks, waits_in

FORM = struct.Struct("qqd")  # process, place in PHASES, when it last got on
PHASES = {
    "": "before its first step",
    "compared": "while it was compared with one process",
    "build": "while its model was built",
    "warm-up": "while it warmed up",
    "timed": "in its timed steps",
}
"""Stages of a Run, in words; a "step" belongs to the stage that it is in."""

DUMPING = signal.SIGUSR2
"""Asks a process to write its stacks."""
DUMPED_S = 1.0  # that it may take to do so


@dataclass(frozen=True)
class Standing:
    """Where a process is with its Run. since_s: when it last got on, by the monotonic clock.
    stacks: what it wrote when it was asked; "": nothing.
    """

    rank: int
    process: int
    phase: str
    since_s: float
    stacks: str = ""


class Board:
    """One process's own account of how far it is."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(FORM.size))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), FORM.size)
        self.process, self.place = os.getpid(), 0
        self.got_on()

    def at(self, stage: str) -> None:
        """Note the stage, or the step, that begins."""
        if stage != "step" and stage in PHASES:
            self.place = list(PHASES).index(stage)
        self.got_on()

    def got_on(self) -> None:
        FORM.pack_into(self.memory, 0, self.process, self.place, time.monotonic())


_board: Board | None = None


@contextlib.contextmanager
def noted(path: Path) -> Iterator[Board]:
    """The board of the Run that this process measures, until that is left."""
    global _board
    _board = Board(path)
    try:
        yield _board
    finally:
        _board = None


def got_on() -> None:
    """Note that this process is not stuck, in work that no stage tells of."""
    if _board is not None:
        _board.got_on()


def board_file(memory: Path, key: str, rank: int) -> Path:
    """Where a launch with this folder in memory keeps a replica's board."""
    return memory / f"{key}.{rank}.board"


def standings(memory: Path, key: str) -> list[Standing]:
    """Where the processes of a Run are, by rank; those that have not begun it are not told of."""
    found = []
    for path in memory.glob(f"{key}.*.board"):
        content = path.read_bytes()
        if len(content) == FORM.size and (values := FORM.unpack(content))[0]:
            process, place, since_s = values
            phase = list(PHASES.values())[place]
            found.append(Standing(int(path.name.split(".")[-2]), process, phase, since_s))
    return sorted(found, key=lambda standing: standing.rank)


def with_stacks(found: Sequence[Standing], files: Sequence[Path]) -> list[Standing]:
    """The same processes with their stacks, which each is asked to write to its file."""
    for standing in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(standing.process, DUMPING)
    until_s = time.monotonic() + DUMPED_S
    while time.monotonic() < until_s and not all(map(read_stacks, files)):
        time.sleep(0.05)
    time.sleep(0.1)  # what has begun is written to its end
    return [
        Standing(one.rank, one.process, one.phase, one.since_s, read_stacks(file))
        for one, file in zip(found, files, strict=True)
    ]


def ranks_told(ranks: Sequence[int]) -> str:
    """Ranks in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def stuck(found: Sequence[Standing], now_s: float) -> str:
    """Say which replicas do not get on, since when and in which line, and who waits for them."""
    quiet_s = now_s - max(standing.since_s for standing in found)
    places: dict[str, list[int]] = {}
    waiting: dict[str, list[int]] = {}
    for standing in found:
        place, wait = own_call(standing.stacks), waits_in(standing.stacks)
        if place and not wait:
            places.setdefault(place, []).append(standing.rank)
        else:
            waiting.setdefault(wait, []).append(standing.rank)
    rest = ", ".join(
        f"{ranks_told(ranks)} waited" + (f" in {wait}" if wait else "")
        for wait, ranks in waiting.items()
    )
    if not places:
        return f"no replica got on for {quiet_s:.0f} s {found[0].phase}: {rest}"
    stood = " and ".join(
        f"{ranks_told(ranks) if len(found) > 1 else 'its process'} stood in `{place}`"
        for place, ranks in places.items()
    )
    return f"{stood} for {quiet_s:.0f} s, {found[0].phase}" + (f", while {rest}" if rest else "")
