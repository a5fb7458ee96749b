"""What a launch holds of its machine: its turn, and folders. Imports no framework.

One sweep a machine: a second waits for its turn, and says for whom (Runs side by side are `--share`'s business). A folder is for what the
launch notes, a memory-backed one for what its replicas share; none is left of a launch that was killed.
"""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

LOCK_VARIABLE = "MULTIGPU_LOCK"
"""Names another file than the machine's, for sweeps that are known not to meet: in containers with GPUs of their own, say."""

HELD_VARIABLE = "MULTIGPU_TURN"
"""In the environment of a process that has its turn, and of all that it starts: whose it is."""


def lock_path() -> Path:
    """The file by which sweeps of this machine know of each other, whoever runs them."""
    shared = Path("/dev/shm")
    return Path(os.environ.get(LOCK_VARIABLE) or (shared if shared.is_dir() else Path(tempfile.gettempdir())) / "multigpu-machine.lock")


def _opened(path: Path) -> IO[str]:
    """The lock, made where it is missing; any user may take it, and one who may not write there leaves no word in it."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.fchmod(handle, 0o666)
        os.close(handle)
    try:
        return open(path, "r+")
    except PermissionError:
        return open(path)


def holder(text: str) -> str:
    """Who holds the lock, in words, by what its file says."""
    try:
        told = json.loads(text)
        since = datetime.fromtimestamp(told["since"]).astimezone()
        minutes = (time.time() - told["since"]) / 60
        return f"process {told['pid']} ({told['command']}) since {since:%H:%M:%S}, for {minutes:.0f} minutes"
    except (ValueError, KeyError, TypeError, OSError, OverflowError):
        return "a process that did not say which"


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """This machine for one sweep, and all that the sweep starts, until it is left. Waits, with a sentence, while another sweep has it."""
    if HELD_VARIABLE in os.environ:
        yield
        return
    with _opened(lock_path()) as lock:
        _take(lock)
        if lock.writable():
            lock.truncate(0)
            json.dump({"pid": os.getpid(), "since": time.time(), "command": " ".join(sys.argv)[:200]}, lock)
            lock.flush()
        os.environ[HELD_VARIABLE] = str(os.getpid())
        try:
            yield
        finally:
            del os.environ[HELD_VARIABLE]
            if lock.writable():
                lock.truncate(0)


def _take(lock: IO[str]) -> None:
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        if not told:
            lock.seek(0)
            print(
                f"multigpu: another sweep measures on this machine: {holder(lock.read())}. This one waits until that has ended; Ctrl-C ends"
                " the wait, and `measure --share` measures side by side.",
                file=sys.stderr,
                flush=True,
            )
            lock.seek(0)
            told = True
        time.sleep(0.2)


NAME = "multigpu-memory"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder for what a launch notes on its way; those of launchers that were killed are removed first.

    A launcher holds a lock on its folders as long as it lives: whether the process is alive that a folder's name tells could not be asked
    of one in another container.
    """
    with _folder(Path(tempfile.gettempdir()), prefix.rstrip("-")) as folder:
        yield folder


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """As `scratch_folder`, of memory-backed files."""
    with _folder(Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir()), NAME) as folder:
        yield folder


@contextlib.contextmanager
def _folder(root: Path, name: str) -> Iterator[Path]:
    for left in root.glob(f"{name}-*"):
        with _locked(left) as free:
            if free:
                shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="multigpu-new-", dir=root))
    with _locked(made):
        # it gets the name by which others find it only now that it is locked
        folder = made.rename(root / f"{name}-{os.getpid()}-{made.name.rpartition('-')[2]}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether this process could lock the folder, which it then holds until this is left."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # gone meanwhile, or another user's
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)
