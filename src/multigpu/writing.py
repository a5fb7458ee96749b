"""Files that readers see whole or not at all, and that nothing overwrites."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to a new file, atomically; while it is written, a hidden `.writing-...` lies beside it.

    Raises:
        FileExistsError: the file is there already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
