"""What a file holds, packed by gzip or not, and fingerprints: what defines an input's data, as one sha256, so that two Records can be
seen to have read the same.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
from functools import lru_cache
from pathlib import Path

CHUNK = 1 << 20


def open_content(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """The file's bytes; of one whose name ends in .gz, the bytes that are packed in it.

    Reading a damaged .gz raises gzip.BadGzipFile, EOFError or zlib.error.

    Raises:
        OSError: the file cannot be opened.
    """
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def fingerprint(*parts: object) -> str:
    """sha256 over the parts' texts, in order; where one part ends and the next begins counts too."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode(errors="surrogateescape")  # names of files may be no UTF-8
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, modified_ns: int) -> str:
    with open_content(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's content, and of a .gz file's unpacked content: packing a file changes no fingerprint.

    A process reads a file once as long as its size and time of change stay the same.

    Raises:
        OSError: the file cannot be read.
        EOFError, zlib.error: or it is a damaged .gz (gzip.BadGzipFile is an OSError).
    """
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        raise OSError(f"{path} is no file but a pipe, whose reading might never end")
    # not resolved: whether a file is packed is told by the name that was given, and a link's target may have another
    return _digest(path.absolute(), state.st_size, state.st_mtime_ns)
