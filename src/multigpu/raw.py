"""Records as their files have them, as plain JSON and unchecked: for what must read what no class accepts any more."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from multigpu.archive import archives_in, name_of, read_archive


class Raw(NamedTuple):
    """One Record: kind, the folders above its own below the root, and the file that it lies in; record None: `fault` says why."""

    kind: str
    path: Path
    key: str
    attempt: int
    record: dict[str, Any] | None
    fault: str = ""


def raw_records(root: Path) -> Iterator[Raw]:
    """Every Record below a folder, all attempts, loose and packed; what cannot be read has a fault and stops nothing."""
    for folder, below, names in os.walk(root):
        below.sort()
        place = Path(folder)
        kind = "/".join(place.relative_to(root).parts[:-1]) or place.name
        for archive in archives_in(place):
            try:
                texts = read_archive(archive)
            except ValueError as error:
                yield Raw(kind, archive, "", 0, None, str(error))
                continue
            for key, attempts in texts.items():
                for attempt, text in attempts.items():
                    yield _read(kind, archive, key, attempt, text)
        for name in sorted(names):
            if name.endswith(".json.gz") and not name.startswith("."):
                yield _loose(kind, place / name)


def _loose(kind: str, path: Path) -> Raw:
    found = name_of(path.name.removesuffix(".gz"))
    if found is None:
        return Raw(kind, path, "", 0, None, f"{path} is no Record: the name of one is <key>.<attempt>.json.gz")
    try:
        return _read(kind, path, *found, gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error) as error:
        return Raw(kind, path, *found, None, f"{path} cannot be unpacked: {error}")


def _read(kind: str, path: Path, key: str, attempt: int, text: bytes) -> Raw:
    try:
        record = json.loads(text)
    except ValueError as error:
        return Raw(kind, path, key, attempt, None, f"{path} holds no JSON under {key}: {error}")
    if not isinstance(record, dict):
        return Raw(kind, path, key, attempt, None, f"{path} holds no Record under {key}")
    return Raw(kind, path, key, attempt, record)
