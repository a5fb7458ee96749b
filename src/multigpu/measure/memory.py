"""Folders of one launch: for what it notes, and memory-backed for what its replicas share. None is left of a launch that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
