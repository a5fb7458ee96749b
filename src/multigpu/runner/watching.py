"""How far a Run is while it is measured: rank 0 counts its steps in a memory-mapped file, which
costs the step less than a microsecond. `note` is a plan's hook; who watches names the file in the
environment. Where kernels are launched ahead, a step counts when it is launched.
"""

import contextlib
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from multigpu.spec.run import Run

WATCHED = "MULTIGPU_WATCHED"  # the environment variable that names the file
HOOK = "multigpu.runner.watching:note"
STAGES = ("", "build", "warm-up", "timed")
_LAYOUT = struct.Struct("<qq")


@cache
def _counter(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), _LAYOUT.size)


def note(stage: str, run: Run, rank: int) -> None:
    """A plan's hook: the stage that begins, or one more step of it."""
    if rank or not (path := os.environ.get(WATCHED)) or not os.path.exists(path):
        return
    counter = _counter(path)
    begun, steps = _LAYOUT.unpack_from(counter)
    if stage == "step":
        _LAYOUT.pack_into(counter, 0, begun, steps + 1)
    elif stage in STAGES:
        _LAYOUT.pack_into(counter, 0, STAGES.index(stage), 0)


class Watched:
    """The file, on the side of who watches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reset()

    def reset(self) -> None:
        """No stage has begun."""
        if not self.path.exists():
            self.path.write_bytes(bytes(_LAYOUT.size))
        _LAYOUT.pack_into(_counter(str(self.path)), 0, 0, 0)

    def state(self) -> tuple[str, int]:
        """The stage ("" before the first) and how many of its steps were launched."""
        stage, steps = _LAYOUT.unpack_from(_counter(str(self.path)))
        return STAGES[stage], steps


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """The file that is named in the environment, where somebody watches already; else a new one,
    which is named there meanwhile.
    """
    before = os.environ.get(WATCHED)
    with tempfile.TemporaryDirectory(prefix="multigpu-watched-") as folder:
        found = Watched(Path(before or Path(folder, "watched")))
        os.environ[WATCHED] = str(found.path)
        try:
            yield found
        finally:
            if before is None:
                del os.environ[WATCHED]
