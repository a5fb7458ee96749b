"""Archives of Records: equal ones are equal bytes, any tar opens them, and one that is not as it was written is named."""

import hashlib
import io
import lzma
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.archive import Name, archives_in, read_archive, write_archive
from tests.refusals import refused

KEYS = st.text("0123456789abcdef", min_size=1, max_size=20)
TEXTS = st.dictionaries(st.tuples(KEYS, st.integers(0, 12)), st.binary(max_size=600), min_size=1, max_size=12)
FEW = {("b0", 0): b'{"n": 1}', ("a1", 10): b'{"n": 2}', ("a1", 2): b'{"n": 3}'}


def flat(path: Path) -> dict[Name, bytes]:
    return {(key, attempt): text for key, attempts in read_archive(path).items() for attempt, text in attempts.items()}


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS)
def test_what_is_packed_comes_back_and_equal_records_are_equal_bytes(texts: dict[Name, bytes], tmp_path_factory) -> None:
    one, two = (write_archive(tmp_path_factory.mktemp("a"), dict(each)) for each in (texts.items(), reversed(texts.items())))
    assert flat(one) == texts
    assert one.name == two.name and one.read_bytes() == two.read_bytes()


def test_any_tar_opens_one_whose_name_is_a_digest_of_the_whole(tmp_path: Path) -> None:
    """Order, times and owners of its members, too; one that is there is not written again."""
    path = write_archive(tmp_path, FEW)
    assert path.name == "records-ec6fcf5dbaf5.tar.xz" and path.stat().st_mode & 0o777 == 0o644
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "xf", path, "-C", tmp_path / "out"], check=True)
    files = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert files == {f"{key}.{attempt}.json": text for (key, attempt), text in FEW.items()}
    before = path.stat()
    assert write_archive(tmp_path, FEW) == path and path.stat() == before
    other = write_archive(tmp_path, FEW | {("c", 0): b"{}"})
    for name in (".writing-records-x.tar.xz", "records.json"):
        (tmp_path / name).write_bytes(b"half")
    assert archives_in(tmp_path) == sorted([path, other]) and archives_in(tmp_path / "absent") == []
    path.write_bytes(other.read_bytes())
    refused(f"{path.name} is not an archive of Records as it was written: by its content its name is {other.name}", read_archive, path)


def test_a_broken_one_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = write_archive(tmp_path, FEW)
    whole = path.read_bytes()
    broken = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 7)]
    for data in [*broken, whole[:-9], whole[: len(whole) // 2], b"", b"no xz", lzma.compress(b"no tar")]:
        path.write_bytes(data)
        refused(rf"{path} is not an archive of Records as it was written: .", read_archive, path)
    path.unlink()
    refused(rf"{path} is not an archive of Records as it was written: .*No such file", read_archive, path)


def tar_of(name: str, data: bytes = b"", form: int = tarfile.USTAR_FORMAT, **entry_fields: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        entry = tarfile.TarInfo(name)
        for field, value in {"size": len(data), **entry_fields}.items():
            setattr(entry, field, value)
        tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


GOOD = tar_of("key.0.json", b"{}", mtime=10**9, uid=7, uname="who")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD, ""),
        *((tar_of(name), f"its member {name} is no Record") for name in ("key.json", "key.01.json", "key.0.json.gz", "folder/key.0.json")),
        (tar_of("key.0.json", type=tarfile.DIRTYPE), "its member key.0.json/ is no file of its own"),
        (tar_of("key.0.json", type=tarfile.SYMTYPE, linkname="other"), "its member key.0.json is no file of its own"),
        (tar_of("k" * 120 + ".0.json", b"{}", tarfile.PAX_FORMAT), "is no file of its own"),
        (tar_of(f"{'d' * 90}/{'k' * 60}.0.json", b"{}"), "is no file of its own"),
        (GOOD[:513], "its member key.0.json is no file of its own"),
        (GOOD[:124] + b"-0000000002" + GOOD[135:], "its member key.0.json is no file of its own"),
        (GOOD[:124] + b"many" + GOOD[128:], "invalid literal"),
        (GOOD + tar_of("b.0.json"), "something follows its last member"),
    ],
)
def test_one_made_by_hand_holds_whole_records_alone(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / f"records-{hashlib.sha256(content).hexdigest()[:12]}.tar.xz"
    path.write_bytes(lzma.compress(content))
    if words:
        refused(rf"{path.name} is not an archive of Records as it was written: .*{words}", read_archive, path)
    else:
        assert flat(path) == {("key", 0): b"{}"}
