"""The files that an input reads: opened before any Run starts, packed or not, and as fingerprints.

A wrong path costs a second and a sentence, not a launch. A fingerprint is what defines an input's data, as one sha256, so that two Records
can be seen to have read the same.
"""

import gzip
import hashlib
import io
import stat
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from multigpu.run import Run
from multigpu.workloads import open_source

DRAWN = ("synthetic", "synthetic_host", "lengths_000", "bucket_means_000", "planted_reviews", "teacher", "teacher_small")
"""Inputs that are drawn from a law and read nothing."""


def check_inputs(runs: Iterable[Run]) -> None:
    """Make the source of every kind of input once.

    Raises:
        ValueError: a file is missing, empty or does not fit, or the library that reads it is; the sentence names it.
    """
    seen = set()
    for run in runs:
        kind = (run.workload, run.model, run.inputs, run.data, run.batch_size, run.devices, run.batching, run.sequence_length)
        if kind in seen or (run.inputs in DRAWN and run.data is None):
            continue
        seen.add(kind)
        try:
            open_source(run)
        except ImportError as error:
            raise ValueError(f"input {run.inputs!r} needs {error.name}, which is not installed here") from None
        except OSError as error:
            raise ValueError(f"{error.filename or ', '.join(run.data or ())} cannot be read: {error.strerror or error}") from None


def no_files(run: Run) -> None:
    """Refuse files, which this input does not read."""
    if run.data is not None:
        raise ValueError(f"inputs {run.inputs!r} reads no files: leave out data, which names {', '.join(run.data)}")


def named_files(run: Run, *wanted: str) -> list[Path]:
    """The paths that `run.data` names, one for each of `wanted`.

    Raises:
        ValueError: it names more or fewer.
    """
    if run.data is None or len(run.data) != len(wanted):
        what = f"one {wanted[0]}" if len(wanted) == 1 else f"two files, {' and '.join(wanted)}"
        raise ValueError(f"inputs {run.inputs!r} needs data to name {what}: it names {len(run.data or ())}")
    return [Path(path) for path in run.data]


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
