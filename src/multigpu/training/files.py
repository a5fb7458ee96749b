"""Which files of a folder this process opens for writing, as Python itself reports them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_watched: dict[str, list[str]] = {}
_installed = False

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watched:
        return
    path, _, flags = arguments
    if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int) or not flags & WRITING:
        return
    text = os.path.abspath(os.fsdecode(path))
    for folder, names in _watched.items():
        if text.startswith(folder + os.sep):
            name = os.path.relpath(text, folder)
            # temporary names differ by process; what they are for does not
            plain = ".writing" if name.startswith(".writing-") else name
            if plain not in names:
                names.append(plain)


class FileWatch:
    """Names of the files below `folder` that this process opened for writing since now."""

    def __init__(self, folder: Path) -> None:
        global _installed
        if not _installed:
            sys.addaudithook(_hook)  # cannot be taken back, so it is one for all watches
            _installed = True
        self.folder = os.path.abspath(folder)
        self.names = _watched[self.folder] = []

    def close(self) -> None:
        """Watch no longer."""
        _watched.pop(self.folder, None)
