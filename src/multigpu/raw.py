"""Records as their files have them, as plain JSON and unchecked: for what must read what no class accepts any more."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from multigpu.archive import archives_in
from multigpu.store import Held, held_in, loose_in, misnamed_in


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
    for folder, below, _ in os.walk(root):
        below.sort()
        place = Path(folder)
        kind = "/".join(place.relative_to(root).parts[:-1]) or place.name
        for archive in archives_in(place):
            try:
                found = list(held_in(archive))
            except ValueError as error:
                yield Raw(kind, archive, "", 0, None, str(error))
                continue
            yield from (_read(kind, held) for held in found)
        for name in sorted(misnamed_in(place)):
            yield Raw(kind, place / name, "", 0, None, f"{place / name} is no Record: the name of one is <key>.<attempt>.json.gz")
        yield from (_read(kind, held) for held in sorted(loose_in(place)))


def _read(kind: str, held: Held) -> Raw:
    where = (kind, held.path, held.key, held.attempt)
    try:
        record = json.loads(held.text())
    except (OSError, EOFError, zlib.error) as error:
        return Raw(*where, None, f"{held.path} cannot be unpacked: {error}")
    except ValueError as error:
        return Raw(*where, None, f"{held.path} holds no JSON under {held.key}: {error}")
    return Raw(*where, record) if isinstance(record, dict) else Raw(*where, None, f"{held.path} holds no Record under {held.key}")
