"""Archives of Records: `records-<digest>.tar.xz`, which any `tar xf` opens; written once, never
rewritten. Packed together, Records take a quarter of what each takes alone. A member
`<key>.<attempt>.json` holds what the loose file `<key>.<attempt>.json.gz` held unpacked. The
digest, of the tar that is inside, tells an archive that was changed from the one that was written.
"""

import contextlib
import hashlib
import io
import lzma
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from multigpu.writing import check_size, write_whole

Name = tuple[str, int]  # the key and the attempt of a Record
Texts = Mapping[str, Mapping[int, bytes]]  # key -> attempt -> JSON

_START, _END = "records-", ".tar.xz"
_NAME = re.compile(r"([^./]+)\.(0|[1-9][0-9]*)\.json")
MOST_BYTES, MOST_VALUES, MOST_LISTS = 1 << 27, 6 << 20, 1 << 19
"""What the tar inside may take, and hold: ten times the largest, far less than memories."""
# a larger dictionary saves 0.3% of the largest, and takes seven times the memory
_PRESET = 6 | lzma.PRESET_EXTREME


def name_of(file: str) -> Name | None:
    """The Record that a file of this name holds, `<key>.<attempt>.json`; None if it is no such
    name.
    """
    found = _NAME.fullmatch(file)
    return (found[1], int(found[2])) if found else None


def member_name(key: str, attempt: int) -> str:
    """Return the name of a Record in an archive."""
    return f"{key}.{attempt}.json"


def archives_in(folder: Path) -> list[Path]:
    """The archives of a folder, in order of name."""
    return [
        folder / name
        for name in sorted(files_in(folder))
        if name.startswith(_START) and name.endswith(_END)
    ]


def files_in(folder: Path) -> list[str]:
    """The names of what lies in a folder, in no order; none where there is no such folder. Faster
    than `glob`, and asked for every key.
    """
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_archive(folder: Path, texts: Mapping[Name, bytes]) -> Path:
    """Write these Records as an archive, atomically, unless it is there; equal Records are equal
    bytes. An EOFError: they are more than one may hold.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, text in sorted((member_name(*name), text) for name, text in texts.items()):
            entry = tarfile.TarInfo(member)  # mode 0644, mtime, uid and gid 0
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    check_size(content := out.getvalue(), MOST_BYTES, MOST_VALUES, MOST_LISTS)
    path = folder / _archive_name(content)
    with contextlib.suppress(FileExistsError):  # the same Records, by its name
        write_whole(path, lzma.compress(content, preset=_PRESET))
    return path


def write_archives(folder: Path, texts: Mapping[Name, bytes]) -> list[Path]:
    """Write these Records as one archive, or as many as they need, each of half of what one may
    hold.
    """
    parts, size = [dict[Name, bytes]()], 0.0
    for name, text in sorted(texts.items()):
        # its blocks of the tar; or what its values or lists weigh, of which there may be fewer
        lists = text.count(b"[") + text.count(b"{")
        weighs = text.count(b",") / MOST_VALUES, lists / MOST_LISTS
        own = max(len(text) + 2048, MOST_BYTES * max(weighs))
        if parts[-1] and size + own > MOST_BYTES // 2:
            parts.append({})
            size = 0.0
        parts[-1][name] = text
        size += own
    return [write_archive(folder, part) for part in parts]


def read_archive(path: Path) -> Texts:
    """Read an archive, unpacked once a process unless the file changes; a ValueError that names it
    if it is not as it was written.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise _broken(path, error) from None
    texts = _unpack(path, found.st_mtime_ns, found.st_size)
    if isinstance(texts, ValueError):
        raise texts.with_traceback(None)
    return texts


@cache
def _unpack(path: Path, _mtime_ns: int, _size: int) -> Texts | ValueError:
    texts: dict[str, dict[int, bytes]] = {}
    try:
        content = _unpacked(path.read_bytes())
        if path.name != (right := _archive_name(content)):
            raise ValueError(f"by its content its name is {right}")
        for member, text in _members(content):
            if (name := name_of(member)) is None:
                raise ValueError(f"its member {member} is no Record")
            check_size(text)
            texts.setdefault(name[0], {})[name[1]] = text
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        return _broken(path, error)
    return texts


def _unpacked(packed: bytes) -> bytes:
    """Return what is packed; a ValueError, EOFError or LZMAError where it is damaged, or takes more
    memory than any archive of Records.
    """
    unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 28)
    content = unpacking.decompress(packed, MOST_BYTES + 1)
    check_size(content, MOST_BYTES, MOST_VALUES, MOST_LISTS)
    if not unpacking.eof:
        raise ValueError("its end is missing")
    return content


def _broken(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} is not an archive of Records as it was written: {str(error).splitlines()[0]}"
    )


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member of a tar as it is written here (or a ValueError); `tarfile`
    takes twelve times as long.
    """
    at, block = 0, tarfile.BLOCKSIZE
    while (head := content[at : at + block]).strip(b"\0"):
        member, size = head[:100].rstrip(b"\0").decode(), int(head[124:135], 8)
        at += block
        if (
            head[156:157] != tarfile.REGTYPE
            or head[345:500].strip(b"\0")
            or not 0 <= size <= len(content) - at
        ):
            raise ValueError(f"its member {member} is no file of its own")
        yield member, content[at : at + size]
        at += -(-size // block) * block
    if content[at:].strip(b"\0"):
        raise ValueError("something follows its last member")


def _archive_name(content: bytes) -> str:
    return f"{_START}{hashlib.sha256(content).hexdigest()[:12]}{_END}"
