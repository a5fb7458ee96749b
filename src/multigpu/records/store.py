"""Folders of Records: each written once, atomically, as a compressed JSON file, and never edited;
many may be packed in archives.
"""

import contextlib
import errno
import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from multigpu.plugins import PluginRegistry
from multigpu.records.archive import Name, archives_in, files_in, member_name, name_of, read_archive
from multigpu.records.base import Kept
from multigpu.spec.schema import refusal
from multigpu.writing import check_room, check_size, read_packed, write_whole

Kind = TypeVar("Kind", bound=Kept)
FILES = ("[!.]*.json.gz", "records-*.tar.xz")  # loose Records and archives, as patterns of `glob`
ROOM_BYTES = 1 << 16  # a Record of many steps takes about so much


class Held(NamedTuple):
    """Where a Record lies: `path` is its own file, or the archive that holds it with the JSON text
    `packed`.
    """

    path: Path
    key: str
    attempt: int
    packed: bytes | None = None

    def text(self) -> bytes:
        """Its JSON, also where it was packed since it was seen; raises as `read_packed`."""
        try:
            return read_packed(self.path) if self.packed is None else self.packed
        except FileNotFoundError:
            for held in packed_in(self.path.parent, self.key, []):
                if held.attempt == self.attempt and held.packed is not None:
                    return held.packed
            raise

    def __str__(self) -> str:
        if self.packed is None:
            return str(self.path)
        return f"{member_name(self.key, self.attempt)} in {self.path}"


@dataclass(frozen=True)
class RecordKind:
    """Records of a kind of experiment that another package adds.
    stores: makes the stores that hold them. records: a field that only Records of a class have ->
        the class.
    """

    name: str
    stores: Callable[[], Sequence["Store[Any]"]]
    records: Mapping[str, type[Kept]]


RECORD_KINDS: PluginRegistry[RecordKind] = PluginRegistry("experiments", RecordKind)


class Store(Generic[Kind]):
    """Records as `<root>/<place>/<key>.<attempt>.json.gz`, or in archives
    (`multigpu.records.archive`) of the same folder, for readers alike.
    kind: the class of its Records; kinds: of those in the folders named. Which place, a Record says
        (`Kept.place`).

    Raises:
        ValueError: the folder cannot be written, a file in it is no such Record or no such archive,
            or two hold different Records under one key and attempt; the sentence names each.
    """

    kind: type[Kind]
    kinds: ClassVar[Mapping[str, type[Kept]]] = {}

    def __init__(self, root: Path) -> None:
        self.root = root

    def places(self) -> list[str]:
        """The folders below the root that may hold Records of this kind, in order."""
        if self.root.is_dir():
            return sorted(path.name for path in self.root.iterdir() if path.is_dir())
        return []

    def path(self, place: str, key: str, attempt: int = 0) -> Path:
        """Where this Record is written, and lies until it is packed."""
        return self.root / place / f"{key}.{attempt}.json.gz"

    def attempts(self, place: str, key: str | None = None) -> list[Held]:
        """Where the attempts under this key, or under every key of the place in order, lie, the
        oldest first.
        """
        return [held for _, held in sorted(self.held(place, key).items())]

    def find(self, place: str, key: str) -> Kind | None:
        """The latest attempt under this key that can be read, or None; of any other, standard error
        says what is wrong.
        """
        return self._latest(self.attempts(place, key))

    def _latest(self, attempts: Iterable[Held]) -> Kind | None:
        for held in reversed([*attempts]):
            with _left_out():
                return self.read(held)
        return None

    def next_attempt(self, place: str, key: str) -> int:
        """The number that the next Record under this key gets."""
        return max((held.attempt + 1 for held in self.attempts(place, key)), default=0)

    def unreadable(self, only: Set[tuple[Path, Name]] | None = None) -> Iterator[str]:
        """Of every file that is no Record of this kind: what is wrong with it, in a sentence that
        names it. only: where those lie (resolved) and which they are that are looked into.
        """
        for place in self.places():
            broken = loose_in(self.root / place)[1]
            list(packed_in(self.root / place, None, broken))
            yield from broken
            try:
                held = self.held(place)
            except ValueError as error:
                yield str(error)
                continue
            folder = (self.root / place).resolve()
            for name, one in held.items():
                if only is None or (only and (folder / one.path.name, name) in only):
                    try:
                        self.read(one)
                    except ValueError as error:
                        yield str(error)

    def kind_in(self, place: str) -> type[Kept]:
        """The class of the Records of a place."""
        return self.kinds.get(place, self.kind)

    def check_writable(self, place: str = "") -> None:
        """Refuse (ValueError) now, not after an hour of measuring, a folder of the place, or else a
        root, that cannot be written.
        """
        folder = self.root / place if (self.root / place).is_dir() else self.root
        try:
            check_room(folder, ROOM_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                help = "make room there"
            else:
                help = "choose a folder with write permission"
            raise ValueError(
                f"records cannot be written to {folder}: {error.strerror}; {help}"
            ) from None

    def write(self, record: Kind) -> Path:
        """Write `record` atomically, as a file of its own; a FileExistsError if this attempt is
        written already, loose or packed; an EOFError if it is more than can be read.
        """
        path = self.path(record.place, record.key, record.attempt)
        if any(held.attempt == record.attempt for held in packed_in(path.parent, record.key, [])):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        text = record.model_dump_json().encode()
        check_size(text)  # what is written can be read
        # equal Records are equal bytes
        write_whole(path, gzip.compress(text, mtime=0))
        return path

    def read(self, held: Held) -> Kind:
        """The Record that lies there, or that was packed since it lay there; a ValueError that
        names it if it is none of this kind.
        """
        kind: type[Any] = self.kind_in(held.path.parent.name)
        try:
            record: Kind = parsed(kind, held.text())
            if fault := self.fault(record, held):
                raise EOFError(fault)
            return record
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            words = (
                refusal(error) if isinstance(error, ValidationError) else str(error).splitlines()[0]
            )
            raise ValueError(
                f"{held} is not {article} {kind.__name__} of this version: {words}"
            ) from None

    def fault(self, record: Kind, held: Held) -> str:
        """Why this cannot be the Record that lies there; "" if it can."""
        if (record.key, record.attempt) != (held.key, held.attempt):
            return f"it holds attempt {record.attempt} of {record.key!r}"
        if (place := record.place) == held.path.parent.name:
            return ""
        return f"it belongs into the folder {place!r}"

    def __iter__(self) -> Iterator[Kind]:
        """Every Record, the latest attempt of each key that can be read, in order of place and key;
        standard error tells of the rest.
        """
        for place in self.places():
            yield from self.of(place)

    def of(self, place: str) -> Iterator[Kind]:
        """Those of one place, as iterating over all gives them."""
        found = (self._latest(own) for _, own in groupby(self.attempts(place), attrgetter("key")))
        yield from (record for record in found if record is not None)

    def held(self, place: str, key: str | None = None) -> dict[Name, Held]:
        """Where the Records of a place lie, of this key or of all."""
        folder, found = self.root / place, dict[Name, Held]()
        # before the archives: what is packed meanwhile is in one before its own file goes
        loose, left_out = loose_in(folder, key)
        packed = list(packed_in(folder, key, left_out))
        for said in left_out:
            with _left_out():
                raise ValueError(said)
        for held in [*packed, *loose]:
            there = found.setdefault((held.key, held.attempt), held)
            if there is not held:
                check_same(there, held)
        return found


def parsed(kind: type[Any], text: bytes) -> Any:
    """Return the Record of this kind in JSON; a ValueError: it is none.

    Where pydantic reads JSON itself, each of its errors copies the value that it is about, and for
    a missing field the whole object. Errors about an object parsed before only refer to it.
    """
    try:
        content = from_json(text)
    except ValueError:
        return kind.model_validate_json(text)  # which says why this is no JSON
    if len(text) >= 1 << 20:
        return kind.model_validate(content, strict=False)
    needed = {name for name, field in kind.model_fields.items() if field.is_required()}
    if isinstance(content, dict) and not needed <= content.keys():
        kind.model_validate(content, strict=False)
    return kind.model_validate_json(text)


MOST_TOLD = 5
_told: set[str] = set()


@contextlib.contextmanager
def _left_out() -> Iterator[None]:
    """Pass over what is no Record: it blocks no other. Standard error says so, once a process, and
    no more often than is read.
    """
    try:
        yield
    except ValueError as error:
        if (text := str(error)) not in _told and len(_told) <= MOST_TOLD:
            if len(_told) == MOST_TOLD:
                more = "more is left out: `python -m multigpu verify` lists it"
            else:
                more = f"left out: {text}"
            _told.add(text)
            print(f"multigpu: {more}", file=sys.stderr)


def loose_in(folder: Path, key: str | None = None) -> tuple[list[Held], list[str]]:
    """The loose Records of a folder, of this key or of all, and of files that end as those do and
    have another name what is wrong.
    """
    start = "" if key is None else f"{key}."
    found, misnamed = list[Held](), list[str]()
    for file in files_in(folder):
        # hidden ones are being written
        if file.startswith(start) and file.endswith(".json.gz") and not file.startswith("."):
            if name := name_of(file.removesuffix(".gz")):
                found.append(Held(folder / file, *name))
            else:
                misnamed.append(
                    f"{folder / file} is no Record: the name of one is <key>.<attempt>.json.gz"
                )
    return found, sorted(misnamed)


def packed_in(
    folder: Path, key: str | None = None, broken: list[str] | None = None
) -> Iterator[Held]:
    """The Records in the archives of a folder, of this key or of all, some in several. An archive
    that is broken is named in a ValueError, or in `broken` if that is given, and hides no other.
    """
    for archive in archives_in(folder):
        try:
            yield from held_in(archive, key)
        except ValueError as error:
            if broken is None:
                raise
            broken.append(str(error))


def held_in(archive: Path, key: str | None = None) -> Iterator[Held]:
    """The same of one archive."""
    texts = read_archive(archive)
    for each in texts if key is None else texts.keys() & {key}:
        for attempt, text in texts[each].items():
            yield Held(archive, each, attempt, text)


def check_same(one: Held, other: Held) -> None:
    """Refuse (ValueError, which names both) two that differ, or cannot be read: one Record may lie
    in two places while it is packed.
    """
    try:
        same = one.text() == other.text()
    except FileNotFoundError:  # packed since it was seen
        return
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{one} and {other} cannot be compared: {error}") from None
    if not same:
        raise ValueError(
            f"{one} and {other} differ, and a Record is never edited: keep the one that was"
            " measured"
        )


def stamp_of(*roots: Path) -> tuple[tuple[str, int, int], ...]:
    """Return a stamp that differs whenever the stores in these folders do: each file, when it was
    written, and its size (or an OSError).
    """
    files = sorted(
        path.absolute() for root in roots for pattern in FILES for path in root.glob(f"*/{pattern}")
    )
    return tuple(
        (str(path), found.st_mtime_ns, found.st_size) for path in files for found in (path.stat(),)
    )
