"""Seals of packed jobs: who reads a pickle runs what its author put into it, so that a job is read
only if this user packed it on this machine. The key is a file that no other user can read.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from functools import lru_cache
from pathlib import Path

SIZE = hashlib.sha256().digest_size


def key_file() -> Path:
    """Where this user's key is: in the folder for caches, or where that cannot be written, in one
    for temporary files under the user's number.
    """
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "multigpu"
    for folder in (usual, Path(tempfile.gettempdir()) / f"multigpu-{os.getuid()}"):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # a folder that others could write to might hold a key of theirs
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder / "key"
    raise PermissionError(
        f"{usual} cannot be written: set XDG_CACHE_HOME to a folder of your own, where the key to"
        " your packed jobs is kept"
    )


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
