"""Files that readers see whole or not at all; compressed ones are unpacked no further than is
sane.
"""

import contextlib
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

# of a Record's JSON, unpacked: some hundred times what the largest takes, and far less than the
# memory of any machine, of which a value takes up to a hundred bytes once parsed, a list up to 400
MOST_BYTES, MOST_VALUES, MOST_LISTS = 1 << 25, 1 << 21, 1 << 17


def write_whole(
    path: Path, *data: bytes | memoryview, replace: bool = False, synced: bool = True
) -> None:
    """Write a new file (or a FileExistsError), or in place of an old one, atomically; meanwhile a
    hidden `.writing-...` lies beside it.
    synced: whether it is to outlast a power cut, which takes time; a process that is killed it
        outlasts anyway.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # unlike rename, fails if the file exists
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an OSError name this path: one of a full disk names none."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def explaining(what: str, then: str = "", kind: type[Exception] = ValueError) -> Iterator[None]:
    """Raise an OSError as a `kind`, in one sentence: what failed, the reason, what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}{then}") from None


def read_packed(path: Path) -> bytes:
    """Read a compressed file; an OSError, EOFError or zlib.error if it cannot be read, is damaged,
    or holds more than any Record.
    """
    if stat.S_ISFIFO(path.stat().st_mode):  # reading it might never end
        raise OSError("it is no file but a pipe")
    unpacking = zlib.decompressobj(wbits=31)
    found = unpacking.decompress(path.read_bytes(), MOST_BYTES + 1)
    check_size(found)
    if not unpacking.eof:
        raise EOFError("its end is missing")
    return found


def check_size(
    text: bytes, size: int = MOST_BYTES, values: int = MOST_VALUES, lists: int = MOST_LISTS
) -> None:
    """Refuse (EOFError) JSON of more bytes, or of more values or lists, which take far more memory
    once parsed.
    """
    if len(text) > size:
        raise EOFError(f"it unpacks to more than {size >> 20} MiB")
    found = text.count(b","), text.count(b"[") + text.count(b"{")
    if found[0] > values or found[1] > lists:
        raise EOFError(f"it holds {found[0]:,} values and {found[1]:,} lists, more than any Record")


def check_room(folder: Path, count: int = 0) -> None:
    """Make the folder, and write so many bytes there, which do not stay; or an OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\xff" * count)
        file.flush()
        os.fsync(file.fileno())
