"""Parallel text as WMT ships it: two files, plain or .gz, one sentence a line, line n of one translating line n of the other."""

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from multigpu.inputs.files import CHUNK, fingerprint, open_content


@dataclass(frozen=True)
class TextFile:
    """A readable UTF-8 file of `lines` lines; one named .gz is unpacked as it is read. digest: as `file_digest`, when it was checked."""

    path: Path
    lines: int
    digest: str

    def sentences(self) -> Iterator[str]:
        """The lines in order, without line ends; the file is read as it is asked for, never whole."""
        with io.TextIOWrapper(open_content(self.path), encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\r\n")


@dataclass(frozen=True)
class ParallelText:
    """Two files with one number of lines."""

    source: TextFile
    target: TextFile

    @property
    def fingerprint(self) -> str:
        """sha256 over both files' contents, source first: the same whether they are packed or not."""
        return fingerprint(self.source.digest, self.target.digest)


def check_text(path: str | Path) -> TextFile:
    """Read a text file, plain or packed by gzip (its name ends in .gz), once and count its lines; a last line without line end counts.

    Raises:
        ValueError: the file is missing, cannot be read or unpacked, is empty or is not UTF-8; the sentence names it.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"text file {path} does not exist")
    decoder, digest = codecs.getincrementaldecoder("utf-8")(), hashlib.sha256()
    lines, read, last = 0, 0, b""
    try:
        with open_content(path) as file:
            while chunk := file.read(CHUNK):
                # bytes that the decoder still holds from the chunk before shift the place it reports
                held = len(decoder.getstate()[0])
                try:
                    decoder.decode(chunk)
                except UnicodeDecodeError as error:
                    raise ValueError(f"text file {path} is not UTF-8: byte {read - held + error.start} does not decode") from None
                lines += chunk.count(b"\n")
                read += len(chunk)
                digest.update(chunk)
                last = chunk[-1:]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"text file {path} is not whole or not packed by gzip: {error}") from None
    except OSError as error:
        raise ValueError(f"text file {path} cannot be read: {error.strerror}") from None
    if not read:
        raise ValueError(f"text file {path} is empty")
    if decoder.getstate()[0]:
        raise ValueError(f"text file {path} is not UTF-8: its last character is cut off")
    return TextFile(path, lines + (last != b"\n"), digest.hexdigest())


def read_parallel(source: str | Path, target: str | Path) -> ParallelText:
    """The parallel corpus in two files, each plain or packed by gzip (its name ends in .gz).

    Raises:
        ValueError: a file is missing, damaged, empty or not UTF-8, or their numbers of lines differ; the sentence names both numbers.
    """
    text = ParallelText(check_text(source), check_text(target))
    if text.source.lines != text.target.lines:
        raise ValueError(
            f"source and target must have one number of lines: {text.source.path} has {text.source.lines}, "
            f"{text.target.path} has {text.target.lines}"
        )
    return text
