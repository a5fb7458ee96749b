"""Seals of packed jobs: reading a pickle runs its author's code, so that a job is read only if this
user packed it here. The key is a file of this user alone; packed jobs lie in the user's cache.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from multigpu.writing import write_whole

KEPT_S = 30 * 86400.0
SIZE = hashlib.sha256().digest_size


def own_cache() -> Path:
    """Return a folder of this user's alone, in the cache or among temporary files."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "multigpu"
    for folder in (usual, Path(tempfile.gettempdir()) / f"multigpu-{os.getuid()}"):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # a folder that others could write to might hold a key of theirs
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
    raise PermissionError(
        f"{usual} cannot be written: set XDG_CACHE_HOME to a folder of your own, where the key to"
        " your packed jobs is kept"
    )


def key_file() -> Path:
    """Return where this user's key is."""
    return own_cache() / "key"


def keep_packed(name: str, content: bytes) -> None:
    """Keep a packed job in this user's cache, from which those of a month ago go."""
    (folder := own_cache() / "jobs").mkdir(exist_ok=True)
    for old in folder.glob("*.job"):
        with contextlib.suppress(OSError):  # another process was faster
            if old.stat().st_mtime < time.time() - KEPT_S:
                old.unlink()
    write_whole(folder / name, content, replace=True, synced=False)


def find_packed(name: str, folder: Path) -> Path:
    """Return where a packed job lies: in a folder, or else in this user's cache."""
    return own if (own := folder / name).is_file() else own_cache() / "jobs" / name


@lru_cache
def _key(path: Path) -> bytes:
    if not path.exists():
        handle, made = tempfile.mkstemp(dir=path.parent)
        os.write(handle, secrets.token_bytes(SIZE))
        os.close(handle)
        with contextlib.suppress(FileExistsError):  # another process was faster: its key is the one
            os.link(made, path)
        os.unlink(made)
    return path.read_bytes()


def _seal(content: bytes) -> bytes:
    return hmac.new(_key(key_file()), content, hashlib.sha256).digest()


def sealed(content: bytes) -> bytes:
    """The content behind its seal."""
    return _seal(content) + content


def opened(kept: bytes) -> bytes | None:
    """The content behind a seal of this user's; None: it is another's, or was changed."""
    seal, content = kept[:SIZE], kept[SIZE:]
    return content if hmac.compare_digest(seal, _seal(content)) else None
