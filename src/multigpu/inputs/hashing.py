"""Fingerprints: what defines an input's data, as one sha256, so that two Records can be seen to have read the same."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

CHUNK = 1 << 20


def fingerprint(*parts: object) -> str:
    """sha256 over the parts' texts, in order; where one part ends and the next begins counts too."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, modified_ns: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's content; a process reads a file once as long as its size and time of change stay the same."""
    state = path.stat()
    return _digest(path.resolve(), state.st_size, state.st_mtime_ns)
