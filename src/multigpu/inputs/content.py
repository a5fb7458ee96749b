"""What a file of an input holds, whether it is stored plain or packed by gzip."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

PACKED = ".gz"


def open_content(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """The file's bytes; of one whose name ends in .gz, the bytes that are packed in it.

    Reading a damaged .gz raises gzip.BadGzipFile, EOFError or zlib.error.

    Raises:
        OSError: the file cannot be opened.
    """
    return gzip.open(path, "rb") if path.suffix == PACKED else path.open("rb")
