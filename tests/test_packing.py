"""Packing loses nothing wherever it is interrupted, touches Records alone, and works for every kind that the study keeps; Records that are
shared tell nothing of who measured, or on which host, and what they measured is as it was.
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from multigpu import packing, paths
from multigpu.archive import read_archive
from multigpu.cli import main
from multigpu.packing import FEWEST, pack, stores_of, study_stores
from multigpu.record import Record, RecordStore
from multigpu.store import Held
from tests.conftest import FOLDERS
from tests.factory import make_machine, make_point, plant
from tests.refusals import refused
from tests.test_store import Note, Notes, pack_some, planted, some, text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_loose_ones_become_one_archive_a_place(tmp_path: Path) -> None:
    notes = planted(tmp_path, [*some(30), *some(40, "there"), *some(6, "few")])
    expected, size = list(notes), sum(path.stat().st_size for path in tmp_path.glob("here/*"))
    here, there = pack(notes)
    assert names(here.folder) == [next(tmp_path.glob("here/records-*.tar.xz")).name]
    assert (here.records, there.records, here.before) == (30, 39, size)
    assert here.after == sum(path.stat().st_size for path in tmp_path.glob("here/*")) < size / 4
    assert str(here) == f"{tmp_path / 'here'}: 30 Records packed, {size:,} bytes before, {here.after:,} after"
    assert len(names(tmp_path / "few")) == 6, "too few to be worth an archive"
    assert list(Notes(tmp_path)) == expected
    (path,) = tmp_path.glob("here/*")
    assert read_archive(path)["k02"][1] == text(Note(key="k02", attempt=1, value=2))
    assert list(pack(notes)) == []


def test_later_packings_add_archives_and_rewrite_none(tmp_path: Path) -> None:
    notes = planted(tmp_path, some(60))
    assert [packed.records for packed in pack(notes)] == [60]
    (first,) = tmp_path.glob("here/*")
    before = first.stat()
    later = [Note(key="k00", value=7), *(Note(key=f"k{number:02}", attempt=3, value=1) for number in range(1, FEWEST))]
    planted(tmp_path, later[1:])
    assert list(pack(notes)) == [] and len(names(tmp_path / "here")) == FEWEST
    planted(tmp_path, later[:1])
    assert [packed.records for packed in pack(notes)] == [FEWEST]
    assert first.stat() == before and len(names(tmp_path / "here")) == 2
    assert list(notes)[:FEWEST] == later


def test_wherever_it_is_interrupted_nothing_is_lost_and_a_second_call_finishes(tmp_path: Path) -> None:
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
        assert len([name for name in names(root / "here") if not name.startswith(".")]) == 1
        assert list(Notes(root)) == expected and list(pack(Notes(root))) == []
        if done:
            break
        gone = max(0, sum(call is os.unlink for call in calls) - 2)  # but the temporary file, and the one at which it was stopped
        assert again == [30 - gone]
    assert done and number == 5 + 30 + 1, "sync, mode, name, temporary file, sync of the folder; 30 files; and once to the end"


def test_what_an_interruption_left_is_removed_though_few_are_new_and_is_not_packed_twice(tmp_path: Path) -> None:
    notes = planted(tmp_path, some(30))
    loose = {path: path.read_bytes() for path in tmp_path.glob("here/*")}
    list(pack(notes))
    (first,) = tmp_path.glob("here/*")
    for new in (["new"], [f"new{number}" for number in range(1, FEWEST)]):
        for path, content in list(loose.items())[:4]:
            path.write_bytes(content)
        planted(tmp_path, [Note(key=key) for key in new])
        (packed,) = pack(notes)
        if len(new) == 1:
            assert packed.records == 4 and [name for name in names(tmp_path / "here") if "json" in name] == ["new.0.json.gz"]
            assert packed.after == first.stat().st_size
    (second,) = (path for path in tmp_path.glob("here/*") if path != first)
    assert packed.records == FEWEST + 4 and len(read_archive(second)) == FEWEST
    assert packed.after == first.stat().st_size + second.stat().st_size


def test_files_that_are_no_records_stay(tmp_path: Path) -> None:
    notes = planted(tmp_path, some(30))
    others = {".writing-x": b"half", ".writing-k.0.json.gz": b"half", "ceilings.json": b"{}", "notes.txt": b"words", "k.0.json": b"{}"}
    for name, content in others.items():
        (tmp_path / "here" / name).write_bytes(content)
    (tmp_path / "stray.0.json.gz").write_bytes(b"x")
    list(pack(notes))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("here/*") if path.suffix != ".xz"} == others
    assert (tmp_path / "stray.0.json.gz").exists()


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"{}"), gzip.compress(b"x"), b""], ids=["no gzip", "empty", "no JSON", "none"]
)
def test_nothing_is_touched_where_a_file_is_no_record(tmp_path: Path, content: bytes) -> None:
    notes = planted(tmp_path, [*some(30), *some(30, "before")])
    (tmp_path / "here" / "bad.0.json.gz").write_bytes(content)
    before = names(tmp_path / "here")
    packing_it = pack(notes)
    assert next(packing_it).folder.name == "before"
    refused(r"bad\.0\.json\.gz is not a Note of this version", list, packing_it)
    assert names(tmp_path / "here") == before


def test_nothing_is_touched_where_an_archive_says_otherwise(tmp_path: Path) -> None:
    notes = planted(tmp_path, some(30))
    packed = pack_some(tmp_path, [Note(key="k02", value=99)])
    before = names(tmp_path / "here")
    refused(rf"k02\.0\.json in {packed} and .*k02\.0\.json\.gz differ", list, pack(notes))
    assert names(tmp_path / "here") == before


def test_files_go_only_if_what_was_written_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that keeps other bytes than it was given, in turn some of another Record and none at all."""
    whole = packing.write_archive
    for spoil, words in (
        (lambda folder, texts: whole(folder, dict.fromkeys(texts, b"{}")), "differ"),
        (lambda folder, texts: whole(folder, texts).write_bytes(b"zeros"), "is not an archive of Records"),
    ):
        notes = planted(tmp_path / words, some(30))
        monkeypatch.setattr(packing, "write_archive", spoil)
        refused(words, list, pack(notes))
        assert len(list(tmp_path.glob(f"{words}/here/*.json.gz"))) == 30


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    notes = planted(tmp_path, some(30))
    monkeypatch.setattr(os, "link", full)
    refused(rf"{tmp_path / 'here'} cannot be packed: .*No space left on device; no Record is lost", list, pack(notes))
    assert len(names(tmp_path / "here")) == 30


KEPT = study_stores()


@pytest.mark.parametrize(
    "number", range(len(KEPT)), ids=[f"{type(store).__name__}-{store.root.parent.name}-{store.root.name}" for store in KEPT]
)
def test_every_kind_that_the_study_keeps_can_be_packed(number: int, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the committed Records of each."""
    monkeypatch.setattr(packing, "FEWEST", 1)
    store, mine = KEPT[number], study_stores()[number]
    records = list(store)
    records = records[:: len(records) // 40 + 1]
    assert records, f"{store.root} holds none of this kind"
    assert mine.root.is_relative_to(elsewhere)
    for record in records:
        mine.write(record)
    done = [packed for one in study_stores() for packed in pack(one)]
    assert {packed.folder for packed in done} == {mine.root / record.place for record in records}
    assert sum(packed.records for packed in done) == len(records)
    assert not list(elsewhere.rglob("*.json.gz")) and len(list(elsewhere.rglob("records-*.tar.xz"))) == len(done)
    # text against text: some hold figures that are no numbers, which equal nothing
    assert [record.model_dump_json() for record in mine] == [record.model_dump_json() for record in records]
    for record in records:
        refused("File exists", mine.write, record, error=FileExistsError)


def test_a_folder_is_packed_as_what_it_holds(tmp_path: Path) -> None:
    assert [type(store).__name__ for store in stores_of(paths.SYNCHRONY)] == ["SynchronyStore"]
    assert [type(store).__name__ for store in stores_of(paths.HOSTS / "runs" / "..")] == ["CollectiveStore"]
    (store,) = stores_of(tmp_path)
    assert isinstance(store, RecordStore) and store.root == tmp_path
    assert {store.root for store in KEPT} == {getattr(paths, name) for name in FOLDERS}


SECRETS = ("acme-node-17", "somebody", "/" + "home/somebody/envs", "10.1.2.3", "GPU-1234abcd", "deadbeef")


def tellings(settings: dict[str, str], **machine: str) -> list[Record]:
    """Records of a machine with these settings, whose host was started as `deadbeef`."""
    own = make_machine(2).model_copy(update={"environment": settings, **machine})
    return make_point([1e6, 1.1e6], devices=2, machine=own, boot="deadbeef")


def texts(folder: Path) -> list[Held]:
    return [held for store in [RecordStore(folder)] for place in store.places() for held in store.held(place).values()]


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing.socket, "gethostname", lambda: SECRETS[0])
    monkeypatch.setattr(packing.getpass, "getuser", lambda: SECRETS[1])


def test_nothing_identifies_and_every_figure_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"OMP_NUM_THREADS": "8", "NCCL_IB_HCA": "mlx5_0", "CUDA_VISIBLE_DEVICES": "GPU-1234abcd", "NCCL_TOPO_FILE": SECRETS[2]}
    records = tellings(settings | {"NCCL_SOCKET_IFNAME": "=eth0 at 10.1.2.3"}, kernel="6.8.0-acme-node-17", network="10.1.2.3")
    plant(RecordStore(tmp_path / "runs"), records)
    out = tmp_path / "offered"
    assert main(["--records", str(tmp_path / "runs"), "records", "--share", str(out)]) == 0
    assert len(list(out.rglob("records-*.tar.xz"))) == 1
    found = list(RecordStore(out))
    assert len(found) == len(records) and not [secret for held in texts(out) for secret in SECRETS if secret.encode() in held.text()]
    assert found[0].machine.environment["OMP_NUM_THREADS"] == "8" and found[0].machine.environment["NCCL_IB_HCA"] == "mlx5_0"
    for own, other in zip(sorted(records, key=lambda r: r.key), sorted(found, key=lambda r: r.key), strict=True):
        assert (own.key, own.own_key, own.measurement, own.run) == (other.key, other.own_key, other.measurement, other.run)
    capsys.readouterr()


def test_what_still_names_a_host_is_left_out_and_counted(tmp_path: Path) -> None:
    named = [record.model_copy(update={"input_label": "photos of somebody"}) for record in tellings({})]
    addressed = [record.model_copy(update={"launch_id": "10.1.2.3"}) for record in tellings({})]
    written, left = packing.share([*named, *addressed], tmp_path)
    assert not written and list(left.values()) == [4]


def test_shared_records_are_verified_as_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real Records, which a launch wrote."""
    store = RecordStore(paths.RUNS)
    place = min(store.places(), key=lambda name: len(store.held(name)))
    records = [store.read(held) for held in list(store.held(place).values())[:40]]
    written, left = packing.share(records, tmp_path)
    assert len(written) == 1 and not left
    assert main(["verify", str(tmp_path)]) == 0
    assert f"{len(records)}" in capsys.readouterr().out
