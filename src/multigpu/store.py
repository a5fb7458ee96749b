"""Folders of Records: one compressed JSON file each, written once, atomically, and never edited."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

Kind = TypeVar("Kind", bound=BaseModel)
Stamp = tuple[tuple[str, int, int], ...]


class Store(Generic[Kind]):
    """Records of one kind as `<root>/<place>/<key>.<attempt>.json.gz`; a place is a machine's name unless a subclass says otherwise.

    kind: the class of its Records, which have a `key` and an `attempt`.
    foreign: folders below the root that hold Records of another kind.

    Raises:
        ValueError: the folder cannot be written, or a file in it is no such Record; the sentence names the path.
    """

    kind: type[Kind]
    foreign: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, record: Kind) -> str:
        """The folder of this Record."""
        return _any(record).machine.name

    def path(self, place: str, key: str, attempt: int = 0) -> Path:
        return self.root / place / f"{key}.{attempt}.json.gz"

    def attempts(self, place: str, key: str) -> list[Path]:
        """The files under this key, the oldest first."""
        return sorted((self.root / place).glob(f"{key}.*.json.gz"), key=_attempt)

    def latest(self, place: str, key: str) -> Kind | None:
        """The latest attempt under this key, or None."""
        attempts = self.attempts(place, key)
        return self.read(attempts[-1]) if attempts else None

    def check_writable(self) -> None:
        """Fail now rather than after an hour of measuring."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise ValueError(f"records cannot be written to {self.root}: {error.strerror}; choose a folder with write permission") from None

    def write(self, record: Kind) -> Path:
        """Write `record` atomically: readers see the whole file or none.

        Raises:
            FileExistsError: this attempt is written already (Records are never edited).
        """
        path = self.path(self.place(record), _any(record).key, _any(record).attempt)
        write_once(path, record)
        return path

    def read(self, path: Path) -> Kind:
        """The Record in `path`.

        Raises:
            ValueError: the file is none of this kind; the sentence names it.
        """
        try:
            return self.kind.model_validate_json(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, zlib.error, ValidationError) as error:
            name = self.kind.__name__
            article = "an" if name[0] in "AEIOU" else "a"
            raise ValueError(f"{path} is not {article} {name} of this version: {str(error).splitlines()[0]}") from None

    def __iter__(self) -> Iterator[Kind]:
        """Every Record, the latest attempt of each key only, in order of place and key."""
        files = [path for path in self.root.glob("*/[!.]*.json.gz") if path.parent.name not in self.foreign]
        latest = {(path.parent.name, path.name.split(".")[0]): path for path in sorted(files, key=_attempt)}
        for where in sorted(latest):
            yield self.read(latest[where])


class MachineStore(Store[Kind]):
    """Records that are found by the name of their machine and their key."""

    def find(self, machine: str, key: str) -> Kind | None:
        """The latest attempt under this key, or None."""
        return self.latest(machine, key)


def stamp_of(*roots: Path) -> Stamp:
    """What tells one state of the stores in these folders from another: their files, when each was written, and its size.

    Raises:
        OSError: a file cannot be looked at, or went away meanwhile.
    """
    files = sorted(path.absolute() for root in roots for path in root.glob("*/[!.]*.json.gz"))
    return tuple((str(path), found.st_mtime_ns, found.st_size) for path in files for found in (path.stat(),))


def write_once(path: Path, model: BaseModel) -> None:
    """Write `model` as compressed JSON, atomically: readers see the whole file or none.

    Raises:
        FileExistsError: the file is there already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # mtime 0: equal models are equal bytes
    data = gzip.compress(model.model_dump_json().encode(), mtime=0)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # unlike rename, fails if the file exists
    finally:
        os.unlink(temporary)


def _attempt(path: Path) -> int:
    part = path.name.split(".")[1]
    return int(part) if part.isdigit() else -1


def _any(record: BaseModel) -> Any:
    """The fields that every kind has, which no common base declares."""
    return record
