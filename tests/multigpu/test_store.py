"""A store of Records: loose, in archives or in both makes no difference; none is lost, hidden or
edited; its key says what was measured.
"""

import errno
import gzip
import os
import re
import signal
import time
from itertools import count, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from multigpu.records.archive import write_archive
from multigpu.records.packing import pack
from multigpu.records.record import RecordStore
from multigpu.records.store import Store, stamp_of
from tests.factory import make_record
from tests.forked import forking
from tests.refusals import refused


class Note(BaseModel):
    """A Record that is quick to make."""

    key: str
    attempt: int = 0
    place: str = "here"
    value: int = 0


class Notes(Store[Note]):
    kind = Note


def text(note: Note) -> bytes:
    return note.model_dump_json().encode()


def pack_some(root: Path, notes: list[Note]) -> Path:
    """An archive of these in the folder of the first."""
    return write_archive(
        root / notes[0].place, {(note.key, note.attempt): text(note) for note in notes}
    )


def some(count: int = 30, place: str = "here") -> list[Note]:
    numbers = [(number, attempt) for number in range(count) for attempt in range(number % 3)]
    return [
        Note(key=f"k{number:02}", attempt=attempt, place=place, value=number)
        for number, attempt in numbers
    ]


def planted(root: Path, notes: list[Note]) -> Notes:
    for note in notes:
        Notes(root).write(note)
    return Notes(root)


KEYS = ["a", "ab", "abc", "b", "d"]
"""Some begin with others."""

LAID = st.dictionaries(
    st.tuples(st.sampled_from(["here", "there"]), st.sampled_from(KEYS), st.integers(0, 11)),
    st.sets(st.sampled_from(["loose", "first", "second"]), min_size=1),
    max_size=25,
)
"""(machine, key, attempt) -> where it lies, which may be in several places at once."""


@settings(max_examples=30, deadline=None)
@given(laid=LAID)
def test_any_mix_of_loose_and_packed_reads_as_the_loose_ones(
    laid: dict[tuple[str, str, int], set[str]], tmp_path_factory
) -> None:
    root, plain = tmp_path_factory.mktemp("mixed"), tmp_path_factory.mktemp("loose")
    notes = {
        name: Note(place=name[0], key=name[1], attempt=name[2], value=value)
        for value, name in enumerate(laid)
    }
    expected, mixed = planted(plain, list(notes.values())), Notes(root)
    for machine, which in product(("here", "there"), ("first", "second")):
        if packed := [notes[name] for name in laid if name[0] == machine and which in laid[name]]:
            pack_some(root, packed)
    for name, places in laid.items():
        if "loose" in places:
            path = expected.path(*name)
            mixed.path(*name).parent.mkdir(exist_ok=True)
            mixed.path(*name).write_bytes(path.read_bytes())
    assert list(mixed) == list(expected)
    for asked in product(("here", "there", "elsewhere"), [*KEYS, "bc"]):
        attempts = [notes[name] for name in sorted(laid) if name[:2] == asked]
        for own in (mixed, expected):
            assert own.find(*asked) == (attempts[-1] if attempts else None)
            assert [own.read(held) for held in own.attempts(*asked)] == attempts
    for note in notes.values():
        refused("File exists", mixed.write, note, error=FileExistsError)


def test_one_record_with_two_contents_is_refused_by_both_names(tmp_path: Path) -> None:
    note, other = Note(key="a", value=1), Note(key="a", value=2)
    loose = planted(tmp_path, [note]).path("here", "a")
    packed = pack_some(tmp_path, [note, Note(key="b")])
    assert Notes(tmp_path).find("here", "a") == note
    loose.write_bytes(gzip.compress(text(note), compresslevel=1, mtime=7))
    assert Notes(tmp_path).find("here", "a") == note, "the JSON counts, not how it was packed"
    loose.write_bytes(gzip.compress(text(other)))
    told = rf"a\.0\.json in {packed} and {loose} differ, and a Record is never edited"
    for ask in (
        lambda: Notes(tmp_path).find("here", "a"),
        lambda: list(Notes(tmp_path)),
        lambda: Notes(tmp_path).attempts("here", "a"),
    ):
        refused(told, ask)
    loose.write_bytes(b"no gzip")
    refused(rf"a\.0\.json in {packed} and {loose} cannot be compared: .", list, Notes(tmp_path))
    loose.unlink()
    second = pack_some(tmp_path, [other])
    said = refused("differ", Notes(tmp_path).find, "here", "a")
    assert (
        str(packed) in said
        and str(second) in said
        and Notes(tmp_path).find("here", "b") == Note(key="b")
    )
    planted(tmp_path, [Note(key="a", attempt=1)])
    refused("differ", list, Notes(tmp_path))  # an older attempt with two contents, too


def test_a_broken_archive_is_named_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is in a whole one and no such Record."""
    other = write_archive(
        tmp_path / "other" / "here", {("a", 0): b"{}", ("b", 0): text(Note(key="b"))}
    )
    monkeypatch.setattr("multigpu.records.store._told", set())
    told = f"a.0.json in {other} is not a Note of this version: key has no value: give it one"
    assert list(Notes(tmp_path / "other").unreadable()) == [told] and list(
        Notes(tmp_path / "other")
    ) == [Note(key="b")]
    notes = planted(tmp_path, [Note(key="b")])
    path = pack_some(tmp_path, [Note(key="a")])
    path.write_bytes(path.read_bytes()[:-9])
    assert notes.find("here", "b") == Note(key="b") and list(notes) == [Note(key="b")]
    notes.write(Note(key="c"))
    (told,) = notes.unreadable()
    assert told == f"{path} is not an archive of Records as it was written: its end is missing"
    assert told in capsys.readouterr().err and notes.find("here", "c") == Note(key="c")
    absent = Notes(tmp_path / "absent")
    assert (
        list(absent) == absent.places() == absent.attempts("here", "a") == []
        and absent.find("here", "a") is None
    )


def test_a_file_of_another_name_is_named_and_blocks_nothing(tmp_path: Path) -> None:
    notes = planted(tmp_path, [Note(key="a")])
    for name in ("a.json.gz", "a.00.json.gz", "a.0.1.json.gz"):
        path = tmp_path / "here" / name
        path.write_bytes(gzip.compress(text(Note(key="a"))))
        assert list(notes) == [Note(key="a")]
        assert list(notes.unreadable()) == [
            f"{path} is no Record: the name of one is <key>.<attempt>.json.gz"
        ]
        refused(re.escape(f"{path} is no Record"), list, pack(notes))
        path.unlink()
    for name in ("here/.writing-a.0.json.gz", "here/ceilings.json", "stray.0.json.gz"):
        (tmp_path / name).write_bytes(b"{}")
    assert list(notes) == [Note(key="a")]


def test_what_is_packed_while_a_store_is_read_is_read(tmp_path: Path) -> None:
    notes = planted(tmp_path, some(60))
    expected = list(notes)
    reading = iter(Notes(tmp_path))
    first = next(reading)
    assert len(list(pack(notes))) == 1 and not list(tmp_path.glob("*/*.gz"))
    assert [first, *reading] == expected
    (lost,) = planted(tmp_path, [Note(key="lost")]).attempts("here", "lost")
    lost.path.unlink()
    refused(r"lost\.0\.json\.gz is not a Note of this version: .*No such file", notes.read, lost)


def test_the_stamp_notices_archives(tmp_path: Path) -> None:
    loose = planted(tmp_path, [Note(key="a")]).path("here", "a")
    stamps = [stamp_of(tmp_path)]
    path = pack_some(tmp_path, [Note(key="b")])
    whole = path.read_bytes()
    changes = (
        lambda: os.utime(path, ns=(0, 0)),
        lambda: path.write_bytes(whole + b"\0"),
        loose.unlink,
    )
    for change in (lambda: None, *changes):
        change()
        stamps.append(stamp_of(tmp_path))
    assert len(set(stamps)) == 5 and stamp_of(tmp_path) == stamps[-1]


def test_equal_records_are_equal_bytes_and_none_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_record(measurement={"loss": [1.0, float("nan"), float("inf")]})
    path = RecordStore(tmp_path / "a").write(record)
    before = path.read_bytes()
    # a time stamp of the archive would differ by now
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert RecordStore(tmp_path / "b").write(record).read_bytes() == before
    refused(
        "File exists",
        RecordStore(tmp_path / "a").write,
        record.model_copy(update={"status": "failed"}),
        error=FileExistsError,
    )
    assert path.read_bytes() == before and [*path.parent.iterdir()] == [path], (
        "no temporary file stays"
    )
    (read,) = RecordStore(tmp_path / "a")
    assert read.model_dump_json() == record.model_dump_json(), (
        "a figure that is no number is read back"
    )


def write_for_ever(root: Path) -> None:
    for number in count():
        RecordStore(root).write(make_record(repeat=number))


def test_a_killed_writer_leaves_no_half_record(tmp_path: Path) -> None:
    """Kill -9 at a moment of its own choosing: every file that readers see is whole."""
    writer = forking().Process(target=write_for_ever, args=(tmp_path,))
    writer.start()
    while len(list(tmp_path.glob("*/*.json.gz"))) < 5:
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    assert not list(RecordStore(tmp_path).unreadable()) and len(list(RecordStore(tmp_path))) >= 5


def test_a_folder_that_takes_no_record_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place's own where it is there, else the root; with room for a Record of many steps."""
    store, place = RecordStore(tmp_path), make_record().place
    asked = []

    def full(folder: Path, size: int) -> None:
        asked.append((folder, size))
        raise OSError(errno.ENOSPC if len(asked) == 1 else errno.EACCES, "no")

    store.check_writable(place)
    monkeypatch.setattr("multigpu.records.store.check_room", full)
    refused(f"to {tmp_path}: no; make room there", store.check_writable, place)
    (tmp_path / place).mkdir()
    refused(f"to {tmp_path / place}: no; choose a folder", store.check_writable, place)
    refused(f"to {tmp_path}: no; choose a folder", store.check_writable)
    assert [folder for folder, _ in asked] == [tmp_path, tmp_path / place, tmp_path]
    written = store.write(make_record())
    assert all(size > 10 * written.stat().st_size for _, size in asked)
