"""Hold a launch's locks on its machine: its turn, and folders, of which none is left of one that
was killed. Imports no framework.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import IO

LOCK_VARIABLE = "MULTIGPU_LOCK"
"""Names another lock file, for sweeps that never meet: in containers with own GPUs, say."""
LOCK_HOLDER_VARIABLE = "MULTIGPU_TURN"
"""In the environment of a process that has its turn, and of all that it starts: whose it is."""
WORD = '{"pid": '
"""A lock's first word while a sweep holds it, and after a killed one; else it is empty."""


def memory_root() -> Path:
    """Where files in memory are, or where there are none, any that do not last."""
    return Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())


def _opened() -> IO[str]:
    """Open the file by which sweeps here know of each other, made where it is missing. Who may not
    write there takes it and leaves no word. A ValueError: it is another file, which stays as it is.
    """
    path = Path(os.environ.get(LOCK_VARIABLE) or memory_root() / "multigpu-machine.lock")
    why = "it is no file"
    try:
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
            os.fchmod(handle, 0o666)
            os.close(handle)
        if path.is_file():  # a pipe would be waited for
            with open(path, errors="replace") as file:
                word = file.read(len(WORD))
            if word in ("", WORD):
                return open(path, "r+" if os.access(path, os.W_OK) else "r")
            why = "it holds something else, which would be lost"
    except OSError as error:
        why = error.strerror or str(error)
    raise ValueError(
        f"{path} cannot be this machine's lock: {why}; give {LOCK_VARIABLE} the name of a new file"
    )


def holder(text: str) -> str:
    """Who holds the lock, in words, by what its file says."""
    try:
        told = json.loads(text)
        since = datetime.fromtimestamp(told["since"]).astimezone()
        minutes = max(0.0, time.time() - told["since"]) / 60
        return (
            f"process {told['pid']} ({told['command']}) since {since:%H:%M:%S}, for {minutes:.0f}"
            " minutes"
        )
    except (ValueError, KeyError, TypeError, OSError, OverflowError):
        return "a process that did not say which"


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """This machine for one sweep, and all that the sweep starts, until it is left. Waits, with a
    sentence, while another sweep has it.
    """
    if LOCK_HOLDER_VARIABLE in os.environ:
        yield
        return
    with _opened() as lock:
        _take(lock)
        if lock.writable():
            lock.truncate(0)
            word = {"pid": os.getpid(), "since": time.time(), "command": " ".join(sys.argv)[:200]}
            with contextlib.suppress(OSError):  # no room for it
                os.pwrite(lock.fileno(), json.dumps(word).encode(), 0)
        os.environ[LOCK_HOLDER_VARIABLE] = str(os.getpid())
        try:
            yield
        finally:
            del os.environ[LOCK_HOLDER_VARIABLE]
            if lock.writable():
                lock.truncate(0)


def _take(lock: IO[str]) -> None:
    for patience in itertools.count():
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if not patience:
            lock.seek(0)
            print(
                f"multigpu: another sweep measures on this machine: {holder(lock.read())}. This one"
                " waits until that has ended; Ctrl-C ends the wait, and `measure --share` measures"
                " side by side.",
                file=sys.stderr,
                flush=True,
            )
            lock.seek(0)
        time.sleep(0.2)


def scratch_folder(prefix: str) -> AbstractContextManager[Path]:
    """A new folder for what a launch notes on its way; those of launchers that were killed are
    removed first. A launcher holds a lock on its folders as long as it lives: whether the process
    is alive that a folder's name tells could not be asked of one in another container.
    """
    return _folder(Path(tempfile.gettempdir()), prefix)


def memory_folder() -> AbstractContextManager[Path]:
    """As `scratch_folder`, of memory-backed files, for what replicas share."""
    return _folder(memory_root(), "multigpu-memory-")


@contextlib.contextmanager
def _folder(root: Path, prefix: str) -> Iterator[Path]:
    for left in root.glob(f"{prefix}*"):
        with _locked(left) as free:
            if free:
                shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="multigpu-new-", dir=root))
    with _locked(made):
        # it gets the name by which others find it only now that it is locked
        folder = made.rename(root / f"{prefix}{os.getpid()}-{made.name.rpartition('-')[2]}")
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
