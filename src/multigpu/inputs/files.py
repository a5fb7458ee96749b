"""The files that an input reads, packed or not, as lines of text and as fingerprints (one sha256).
One that is missing, empty, damaged or of another kind is a ValueError that names it.
"""

import gzip
import hashlib
import io
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from multigpu.spec.run import Run


def no_files(run: Run) -> None:
    """Refuse files, which this input does not read."""
    if run.data is not None:
        raise ValueError(
            f"inputs {run.inputs!r} reads no files: leave out data, which names"
            f" {', '.join(run.data)}"
        )


def named_files(run: Run, *wanted: str) -> list[Path]:
    """The paths that `run.data` names, one for each of `wanted`."""
    if run.data is None or len(run.data) != len(wanted):
        what = f"one {wanted[0]}" if len(wanted) == 1 else f"two files, {' and '.join(wanted)}"
        raise ValueError(
            f"inputs {run.inputs!r} needs data to name {what}: it names {len(run.data or ())}"
        )
    return [Path(path) for path in run.data]


def fingerprint(*parts: object) -> str:
    """sha256 over the parts' texts, in order, and where each part ends."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode(errors="surrogateescape")  # names of files may be no UTF-8
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def open_content(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """The file's bytes; of a .gz, those packed in it. OSError; as a damaged .gz is read:
    gzip.BadGzipFile, EOFError, zlib.error.
    """
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, modified_ns: int) -> str:
    with open_content(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's content, unpacked if it is a .gz; read once while size and time of change
    stay. Raises as `open_content`.
    """
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        raise OSError(f"{path} is no file but a pipe, whose reading might never end")
    # not resolved: whether a file is packed is told by the name that was given, and a link's target
    # may have another
    return _digest(path.absolute(), state.st_size, state.st_mtime_ns)


@dataclass(frozen=True)
class TextFile:
    """A readable UTF-8 file of `lines` lines, perhaps packed. digest: as `file_digest`."""

    path: Path
    lines: int
    digest: str

    def sentences(self) -> Iterator[str]:
        """The lines in order, without line ends, read as they are asked for."""
        with io.TextIOWrapper(open_content(self.path), encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\r\n")


def check_text(path: str | Path) -> TextFile:
    """Read a text file in UTF-8 once and count its lines; a last line without line end counts."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"text file {path} does not exist")
    digest, lines, read = hashlib.sha256(), 0, 0
    try:
        with open_content(path) as file:
            for line in file:
                line.decode()
                digest.update(line)
                lines, read = lines + 1, read + len(line)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text file {path} is not UTF-8: byte {read + error.start} does not decode"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"text file {path} is not whole or not packed by gzip: {error}") from None
    except OSError as error:
        raise ValueError(f"text file {path} cannot be read: {error.strerror}") from None
    if not lines:
        raise ValueError(f"text file {path} is empty")
    return TextFile(path, lines, digest.hexdigest())


@dataclass(frozen=True)
class ParallelText:
    """Parallel text as WMT ships it: two files, line n of one translating line n of the other."""

    source: TextFile
    target: TextFile

    @property
    def fingerprint(self) -> str:
        """sha256 over both files' unpacked contents, source first."""
        return fingerprint(self.source.digest, self.target.digest)


def read_parallel(source: str | Path, target: str | Path) -> ParallelText:
    """The parallel corpus in two files of one number of lines, each plain or .gz."""
    one, other = check_text(source), check_text(target)
    if one.lines != other.lines:
        raise ValueError(
            f"source and target must have one number of lines: {one.path} has {one.lines},"
            f" {other.path} has {other.lines}"
        )
    return ParallelText(one, other)
