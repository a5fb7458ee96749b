"""Results that are computed once: kept in a file until a Record or this program changes."""

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from multigpu import paths, plugins
from multigpu.records.store import stamp_of
from multigpu.writing import write_whole

Result = TypeVar("Result")


def state_of(roots: Sequence[Path]) -> str:
    """A digest of names, times and sizes of all files that results depend on: Records, what is
    withdrawn, this program, added packages.
    """
    withdrawn = [path for root in roots if (path := root.parent / paths.WITHDRAWN).is_file()]
    own = [
        (str(path), found.st_mtime_ns, found.st_size)
        for path in [*sorted(plugins.files()), *withdrawn]
        for found in (path.stat(),)
    ]
    return hashlib.sha256(repr((stamp_of(*roots), own)).encode()).hexdigest()[:20]


def cached_on_disk(
    name: str, roots: Sequence[Path], compute: Callable[[], Result], folder: Path = paths.CACHE
) -> Result:
    """Return `compute()`, or its earlier result where nothing has changed since; older results of
    the name go. roots: the Records' folders that it reads.
    """
    place = hashlib.sha256(repr([str(root.resolve()) for root in roots]).encode()).hexdigest()[:8]
    path = folder / f"{name}-{place}-{state_of(roots)}.pickle"
    try:
        return pickle.loads(path.read_bytes())
    except Exception:  # none yet, or of another version of a library: it is computed anew
        result = compute()
    with contextlib.suppress(OSError):  # a folder that cannot be written is done without
        for old in folder.glob(f"{name}-{place}-*.pickle"):
            old.unlink(missing_ok=True)
        write_whole(path, pickle.dumps(result))
    return result
