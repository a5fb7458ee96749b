"""A file is there whole or not at all, whatever fails while it is written, and can be written
afterwards.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from multigpu.records.packing import share
from multigpu.records.record import RecordStore
from multigpu.writing import check_room, naming, write_whole
from tests.factory import make_record

MOMENTS: dict[str, Callable[[OSError], Any]] = {
    "the folder is made": lambda error: mock.patch.object(Path, "mkdir", side_effect=error),
    "a file is opened": lambda error: mock.patch.object(tempfile, "mkstemp", side_effect=error),
    "half of it is written": lambda error: mock.patch.object(os, "fdopen", half_written(error)),
    "it is sent to the disk": lambda error: mock.patch.object(os, "fsync", side_effect=error),
    "others may read it": lambda error: mock.patch.object(os, "chmod", side_effect=error),
    "it gets its name": lambda error: mock.patch.multiple(
        os, link=mock.Mock(side_effect=error), replace=mock.Mock(side_effect=error)
    ),
}
"""What fails while a file is written, in order."""


def half_written(error: OSError) -> Callable[..., Any]:
    """Files of which the first byte is written, and no more."""
    opened = os.fdopen

    def fdopen(handle: int, mode: str) -> Any:
        file = opened(handle, mode)

        def writelines(data: tuple[bytes, ...]) -> None:
            file.write(data[0][:1])
            file.flush()
            raise error

        return mock.MagicMock(
            __enter__=lambda _: mock.Mock(writelines=writelines), __exit__=lambda *_: file.close()
        )

    return fdopen


@pytest.mark.parametrize("code", ["ENOSPC", "EROFS", "EDQUOT", "EIO", "EACCES"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("replace", [False, True])
def test_whatever_fails_leaves_what_was_there(
    moment: str, code: str, replace: bool, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "file"
    if replace:
        write_whole(path, b"old")
    error = OSError(getattr(errno, code), os.strerror(getattr(errno, code)))
    with MOMENTS[moment](error), pytest.raises(OSError) as caught:
        write_whole(path, b"new", b"er", replace=replace)
    assert caught.value.errno == error.errno
    left = [file.name for file in path.parent.iterdir()] if path.parent.exists() else []
    assert left == (["file"] if replace else []) and (not replace or path.read_bytes() == b"old")
    write_whole(path, b"new", b"er", replace=replace)
    assert path.read_bytes() == b"newer" and len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("moment", [one for one in MOMENTS if one != "the folder is made"])
def test_a_record_that_fails_at_any_moment_is_there_whole_the_next_time(
    moment: str, tmp_path: Path
) -> None:
    store, record = RecordStore(tmp_path), make_record()
    with MOMENTS[moment](OSError(errno.ENOSPC, "full")), pytest.raises(OSError):
        store.write(record)
    assert not list(store) and not list(store.unreadable())
    store.write(record)
    assert list(store) == [record]


def test_room_is_asked_for_before_anything_is_measured_and_not_kept(tmp_path: Path) -> None:
    check_room(tmp_path / "new", 1 << 16)
    assert not list((tmp_path / "new").iterdir())
    with (
        mock.patch.object(os, "fsync", side_effect=OSError(errno.EDQUOT, "quota")),
        pytest.raises(OSError, match="quota"),
    ):
        check_room(tmp_path / "new", 1 << 16)
    assert not list((tmp_path / "new").iterdir())


def test_a_full_disk_is_named_by_the_file_that_it_did_not_take(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"), naming(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        MOMENTS["half of it is written"](full),
        pytest.raises(OSError, match=f"{tmp_path}/shared/8x-nvidia-h200"),
    ):
        share([make_record()], tmp_path / "shared")
