"""Ties between processes: children that end with their parent, and what they find in their environment."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psutil

PR_SET_PDEATHSIG = 1
NO_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
"""Environment of processes that use TensorFlow without Keras: it would import Keras 3, scikit-learn and matplotlib, half its start."""

STOPPED_S = 5.0
"""A process of a launch that somebody stopped (SIGSTOP) gets so long to be continued."""

WITH_KERAS = {"TF_USE_LEGACY_KERAS": "0"}
"""The same of processes that train a user's Keras model, whose file may say `tf.keras`."""

STARTED_AT = "MULTIGPU_STARTED_AT"
"""In the environment of a forked worker: when its start began, in seconds of the epoch, with what was imported for it before the fork."""


def started_at() -> float:
    """When the start of this process began, in seconds of the epoch."""
    return float(os.environ.get(STARTED_AT) or psutil.Process().create_time())


def import_for_good(name: str) -> Any:
    """The module. On hosts without GPUs no collection of garbage, with which every Run ends, looks through what is imported by then."""
    if name not in sys.modules:
        collecting = gc.isenabled()
        gc.disable()  # of what is imported nothing is garbage
        try:
            importlib.import_module(name)
            if not os.path.exists("/dev/nvidiactl"):
                gc.freeze()
        finally:
            if collecting:
                gc.enable()
    return sys.modules[name]


def ask(what: str, module: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
    """What `python -m module` prints when it is given this text.

    Raises:
        RuntimeError: it failed; the sentence says in what, and its last words.
    """
    done = subprocess.run([sys.executable, "-m", module], input=text, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{what} failed: {last_words(done.stderr)}")
    return done.stdout


def last_words(text: str) -> str:
    """The last line that a process left, in few words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it left no message"


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends, however it ends (Linux only).

    A papermill or notebook kernel that is killed with -9 cannot clean up; this does it for it.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended between the two lines
        os.kill(os.getpid(), signal.SIGKILL)


def end_in_order(processes: Iterable[subprocess.Popen[Any]], patience_s: float = 0.0) -> None:
    """End those that still run: politely, which lets them end what they have started, and surely after so many seconds, or at once."""
    left = [process for process in processes if process.poll() is None]
    for process in left if patience_s else ():
        process.terminate()
    until = time.monotonic() + patience_s
    for process in left:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class StoppedProcesses:
    """Those of a launch that somebody stopped: they neither answer nor end, and all others would wait for them."""

    def __init__(self) -> None:
        self.since: dict[psutil.Process, float] = {}
        self.looked_s = 0.0

    def kill(self, roots: Sequence[int]) -> list[int]:
        """Kill what was stopped `STOPPED_S` ago among these processes and all that they started, and tell which; a look a second."""
        now = time.monotonic()
        if now < self.looked_s + 1:
            return []
        self.looked_s, found = now, []
        for root in roots:
            with contextlib.suppress(psutil.Error):  # one has ended meanwhile
                own = psutil.Process(root)
                found += [each for each in (own, *own.children(recursive=True)) if each.status() == psutil.STATUS_STOPPED]
        self.since = {each: self.since.get(each, now) for each in found}
        over = [each for each, since in self.since.items() if now - since >= STOPPED_S]
        for each in over:
            each.kill()
        return [each.pid for each in over]
