"""Where a process stands, from the stacks that `faulthandler` writes. Imports no framework."""

import contextlib
import faulthandler
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from multigpu.paths import PACKAGE, is_own, quoted

CALL = re.compile(r'File "(.*)", line (\d+) in (.+)')
THREAD = re.compile(r"^(?:Current t|T)hread 0x", re.MULTILINE)
# files whose calls wait for other replicas
WAITING = re.compile(r"/torch/distributed/(?!fsdp|_composable)|/engines/torch/(wire|told)\.py$")
ENDED = "Ended by os._exit"
"""Begins a stack that a process wrote when its own code ended it."""


def _calls(stacks: str) -> list[list[tuple[str, int, str]]]:
    """The calls of each thread, innermost first; the main thread's come last in a dump of all."""
    return [
        [(file, int(line), call) for file, line, call in CALL.findall(part)]
        for part in THREAD.split(stacks)
    ]


def own_call(stacks: str) -> str:
    """Find the user's own line in which a process stands, with its text; "": it is in none."""
    for calls in reversed(_calls(stacks)):
        for file, line, _ in calls:
            if is_own(file):
                return quoted(file, line)
    return ""


def waits_in(stacks: str) -> str:
    """Name the call for other replicas in which the main thread waits; "": it does not."""
    calls = next((calls for calls in reversed(_calls(stacks)) if calls), [])
    for file, _, call in calls:
        if is_own(file):
            return ""
        if WAITING.search(file):
            return call
    return ""


@contextlib.contextmanager
def ending_told(file: IO[str], also: Callable[[int], None] = lambda code: None) -> Iterator[None]:
    """Have this process leave its stacks in the file before anything inside ends it but a SIGKILL:
    a fault of memory, or `os._exit`, of which `also` hears the exit code; 0 becomes 1.
    """
    end, process = os._exit, os.getpid()

    def told(status: int) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        # and no child, which ends so as a rule; the package says itself why it ends
        if os.getpid() == process and not caller.startswith(PACKAGE):
            file.write(f"{ENDED}({status})\n")
            file.flush()
            faulthandler.dump_traceback(file, all_threads=False)
            also(status)
            status = status or 1
        end(status)

    faulthandler.enable(file)
    os._exit = told
    try:
        yield
    finally:
        os._exit = end
        faulthandler.disable()


def how_ended(code: int) -> str:
    """Say how a process ended, by its exit code: a negative one is a signal's number."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    why = ", as where the system has no memory left" if name == "SIGKILL" else ""
    return f"was killed by {name}{why}"


def read_stacks(path: Path) -> str:
    """The stacks in a file; "" where there is none."""
    return path.read_text(errors="replace") if path.is_file() else ""
