"""Packing loses nothing wherever it is interrupted; equal archives are equal bytes; shared Records
tell nothing of who measured.
"""

import gzip
import hashlib
import io
import lzma
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu import paths
from multigpu.cli.main import main
from multigpu.records import packing
from multigpu.records.archive import Name, archives_in, read_archive, write_archive
from multigpu.records.packing import FEWEST, pack, stores_of
from multigpu.records.record import RecordStore
from tests.conftest import OF_THE_TOOL
from tests.factory import make_machine, make_point, plant
from tests.multigpu.test_store import Note, Notes, pack_some, planted, some, text
from tests.refusals import refused


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_loose_ones_become_one_archive_a_place(tmp_path: Path) -> None:
    """Later packings add archives and rewrite none; what is no Record stays."""
    notes = planted(tmp_path, [*some(30), *some(40, "there"), *some(6, "few")])
    others = {
        ".writing-x": b"half",
        ".writing-k.0.json.gz": b"half",
        "ceilings.json": b"{}",
        "k.0.json": b"{}",
    }
    for name, content in others.items():
        (tmp_path / "few" / name).write_bytes(content)
    expected, size = list(notes), sum(path.stat().st_size for path in tmp_path.glob("here/*"))
    here, there = pack(notes)
    assert names(here.folder) == [next(tmp_path.glob("here/records-*.tar.xz")).name]
    assert (here.records, there.records, here.before) == (30, 39, size)
    assert here.after == sum(path.stat().st_size for path in tmp_path.glob("here/*")) < size / 4
    assert (
        str(here)
        == f"{tmp_path / 'here'}: 30 Records packed, {size:,} bytes before, {here.after:,} after"
    )
    assert len(names(tmp_path / "few")) == 6 + len(others), "too few to be worth an archive"
    assert list(Notes(tmp_path)) == expected
    (path,) = tmp_path.glob("here/*")
    assert read_archive(path)["k02"][1] == text(Note(key="k02", attempt=1, value=2))
    planted(tmp_path, [Note(key=f"new{number}") for number in range(1, FEWEST)])
    assert list(pack(notes)) == []
    (tmp_path / "here" / "k02.1.json.gz").write_bytes(
        gzip.compress(text(Note(key="k02", attempt=1, value=2)))
    )
    assert [packed.records for packed in pack(notes)] == [1], (
        "what an interruption left is removed though few are new"
    )
    before = path.stat()
    planted(
        tmp_path,
        [Note(key="new0"), *(Note(key=f"new{number}", place="few") for number in range(20))],
    )
    assert [packed.records for packed in pack(notes)] == [26, FEWEST]
    assert path.stat() == before and len(names(tmp_path / "here")) == 2
    assert {
        path.name: path.read_bytes() for path in tmp_path.glob("few/*") if path.suffix != ".xz"
    } == others


def test_wherever_it_is_interrupted_nothing_is_lost_and_a_second_call_finishes(
    tmp_path: Path,
) -> None:
    """At every call that changes a file, or makes sure of one, in turn."""

    def stop_at(number: int, call: Callable) -> Callable:
        def stopped(*given, **more):
            calls.append(call)
            if len(calls) == number:
                raise KeyboardInterrupt
            return call(*given, **more)

        return stopped

    every = some(30)
    for number in range(1, 60):
        root, calls = tmp_path / str(number), []
        expected = list(planted(root, every))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("link", "unlink", "fsync", "chmod"):
                patch.setattr(os, name, stop_at(number, getattr(os, name)))
            try:
                done = len(list(pack(Notes(root))))
            except KeyboardInterrupt:
                done = 0
        assert list(Notes(root)) == expected
        for note in every:
            refused("File exists", Notes(root).write, note, error=FileExistsError)
        again = [packed.records for packed in pack(Notes(root))]
        assert (
            len(list((root / "here").glob("[!.]*"))) == 1
            and list(Notes(root)) == expected
            and list(pack(Notes(root))) == []
        )
        if done:
            break
        # but the temporary file, and the one at which it was stopped
        gone = max(0, sum(call is os.unlink for call in calls) - 2)
        assert again == [30 - gone]
    assert done and number == 5 + 30 + 1, (
        "sync, mode, name, temporary file, sync of the folder; 30 files; and once to the end"
    )


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"x"), b"", None], ids=range(4))
def test_nothing_is_touched_where_a_file_is_no_record_or_an_archive_says_otherwise(
    tmp_path: Path, content: bytes | None
) -> None:
    packing_it = pack(planted(tmp_path, [*some(30), *some(30, "before")]))
    if content is None:
        pack_some(tmp_path, [Note(key="k02", value=99)])
        words = r"k02\.0\.json in .*/records-\w+\.tar\.xz and .*k02\.0\.json\.gz differ"
    else:
        (tmp_path / "here" / "bad.0.json.gz").write_bytes(content)
        words = r"bad\.0\.json\.gz is not a Note of this version"
    before = names(tmp_path / "here")
    assert next(packing_it).folder.name == "before"
    refused(words, list, packing_it)
    assert names(tmp_path / "here") == before


@pytest.mark.parametrize(
    ("name", "instead", "words"),
    [
        (
            "multigpu.records.packing.write_archives",
            lambda folder, texts: [write_archive(folder, dict.fromkeys(texts, b"{}"))],
            "differ",
        ),
        (
            "os.link",
            mock.Mock(side_effect=OSError(28, "No space left")),
            "here cannot be packed: .*No space left; no Record is lost",
        ),
    ],
)
def test_files_go_only_if_what_was_written_holds_them(
    tmp_path: Path, monkeypatch, name: str, instead: Callable, words: str
) -> None:
    """A disk that keeps other bytes than it was given, or that is full."""
    notes = planted(tmp_path, some(30))
    monkeypatch.setattr(name, instead)
    refused(words, list, pack(notes))
    assert len(list(tmp_path.glob("here/*.json.gz"))) == 30


KEPT = stores_of()


def test_every_kind_that_the_study_keeps_can_be_packed(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the committed Records of each."""
    monkeypatch.setattr(packing, "FEWEST", 1)
    for store, mine in zip(KEPT, stores_of(), strict=True):
        records = list(store)
        records = records[:: len(records) // 40 + 1]
        assert records and mine.root.is_relative_to(elsewhere)
        for record in records:
            mine.write(record)
        done = list(pack(mine))
        assert {packed.folder for packed in done} == {
            mine.root / record.place for record in records
        }
        assert sum(packed.records for packed in done) == len(records) and not list(
            elsewhere.rglob("*.json.gz")
        )
        # text against text: some hold figures that are no numbers, which equal nothing
        assert [record.model_dump_json() for record in mine] == [
            record.model_dump_json() for record in records
        ]
        for record in records:
            refused("File exists", mine.write, record, error=FileExistsError)


SECRETS = (
    "acme-node-17",
    "somebody",
    "/" + "home/somebody/envs",
    "10.1.2.3",
    "GPU-1234abcd",
    "deadbeef",
)


def test_nothing_identifies_and_every_figure_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What still names a host is left out and counted."""
    monkeypatch.setattr(packing.socket, "gethostname", lambda: SECRETS[0])
    monkeypatch.setattr(packing.getpass, "getuser", lambda: SECRETS[1])
    settings = {
        "OMP_NUM_THREADS": "8",
        "NCCL_IB_HCA": "mlx5_0",
        "CUDA_VISIBLE_DEVICES": "GPU-1234abcd",
        "NCCL_TOPO_FILE": SECRETS[2],
    }
    settings["NCCL_SOCKET_IFNAME"] = "=eth0 at 10.1.2.3"
    telling = {"environment": settings, "kernel": f"6.8.0-{SECRETS[0]}", "network": SECRETS[3]}
    records = make_point(
        [1e6, 1.1e6], devices=2, machine=make_machine(2).model_copy(update=telling), boot=SECRETS[5]
    )
    plant(RecordStore(tmp_path / "runs"), records)
    out = tmp_path / "offered"
    assert main(["--records", str(tmp_path / "runs"), "records", "--share", str(out)]) == 0
    (path,) = out.rglob("records-*.tar.xz")
    texts = [text for attempts in read_archive(path).values() for text in attempts.values()]
    found = {record.key: record for record in RecordStore(out)}
    assert len(texts) == len(records) and not [
        secret for text in texts for secret in SECRETS if secret.encode() in text
    ]
    for own in records:
        other = found[own.key]
        assert (
            other.machine.environment["OMP_NUM_THREADS"] == "8"
            and other.machine.environment["NCCL_IB_HCA"] == "mlx5_0"
        )
        assert (own.own_key, own.measurement, own.run) == (
            other.own_key,
            other.measurement,
            other.run,
        )
    naming = ({"input_label": "photos of somebody"}, {"launch_id": "10.1.2.3"})
    named = [record.model_copy(update=words) for words in naming for record in records]
    written, left = packing.share(named, tmp_path)
    assert not written and list(left.values()) == [4]


def test_shared_records_are_verified_as_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real Records, which a launch wrote."""
    store = RecordStore(paths.RUNS)
    place = min(store.places(), key=lambda name: len(store.held(name)))
    records = [store.read(held) for held in list(store.held(place).values())[:40]]
    written, left = packing.share(records, tmp_path)
    assert len(written) == 1 and not left
    assert main(["verify", str(tmp_path)]) == 0
    assert f"{len(records)}" in capsys.readouterr().out
    roots = {store.root for store in KEPT}
    assert roots >= {getattr(paths, name) for name in OF_THE_TOOL}
    assert [store.root for store in stores_of(tmp_path)] == [tmp_path]


KEYS = st.text("0123456789abcdef", min_size=1, max_size=20)
TEXTS = st.dictionaries(
    st.tuples(KEYS, st.integers(0, 12)), st.binary(max_size=600), min_size=1, max_size=12
)
FEW = {("b0", 0): b'{"n": 1}', ("a1", 10): b'{"n": 2}', ("a1", 2): b'{"n": 3}'}


def flat(path: Path) -> dict[Name, bytes]:
    return {
        (key, attempt): text
        for key, attempts in read_archive(path).items()
        for attempt, text in attempts.items()
    }


@settings(max_examples=30, deadline=None)
@given(texts=TEXTS)
def test_what_is_packed_comes_back_and_equal_records_are_equal_bytes(
    texts: dict[Name, bytes], tmp_path_factory
) -> None:
    one, two = (
        write_archive(tmp_path_factory.mktemp("a"), dict(each))
        for each in (texts.items(), reversed(texts.items()))
    )
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
    its_name = f"by its content its name is {other.name}"
    refused(f"{path.name} is not an archive of Records as .*: {its_name}", read_archive, path)


def test_a_broken_one_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = write_archive(tmp_path, FEW)
    whole = path.read_bytes()
    broken = [
        whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        for place in range(0, len(whole), 7)
    ]
    for data in [
        *broken,
        whole[:-9],
        whole[: len(whole) // 2],
        b"",
        b"no xz",
        lzma.compress(b"no tar"),
    ]:
        path.write_bytes(data)
        refused(rf"{path} is not an archive of Records as it was written: .", read_archive, path)
    path.unlink()
    refused(rf"{path} is not an archive of Records as .*: .*No such file", read_archive, path)


def tar_of(
    name: str, data: bytes = b"", form: int = tarfile.USTAR_FORMAT, **entry_fields: object
) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        entry = tarfile.TarInfo(name)
        for field, value in {"size": len(data), **entry_fields}.items():
            setattr(entry, field, value)
        tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


GOOD = tar_of("key.0.json", b"{}", mtime=10**9, uid=7, uname="who")
FOLDER = tar_of("key.0.json", type=tarfile.DIRTYPE)
LINK = tar_of("key.0.json", type=tarfile.SYMTYPE, linkname="other")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD, ""),
        *(
            (tar_of(name), f"its member {name} is no Record")
            for name in ("key.json", "key.01.json", "key.0.json.gz", "folder/key.0.json")
        ),
        (FOLDER, "its member key.0.json/ is no file of its own"),
        (LINK, "its member key.0.json is no file of its own"),
        (tar_of("k" * 120 + ".0.json", b"{}", tarfile.PAX_FORMAT), "is no file of its own"),
        (tar_of(f"{'d' * 90}/{'k' * 60}.0.json", b"{}"), "is no file of its own"),
        (GOOD[:513], "its member key.0.json is no file of its own"),
        (GOOD[:124] + b"-0000000002" + GOOD[135:], "its member key.0.json is no file of its own"),
        (GOOD[:124] + b"many" + GOOD[128:], "invalid literal"),
        (GOOD + tar_of("b.0.json"), "something follows its last member"),
    ],
)
def test_one_made_by_hand_holds_whole_records_alone(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / f"records-{hashlib.sha256(content).hexdigest()[:12]}.tar.xz"
    path.write_bytes(lzma.compress(content))
    if words:
        refused(rf"{path.name} is not an archive of Records as .*{words}", read_archive, path)
    else:
        assert flat(path) == {("key", 0): b"{}"}
