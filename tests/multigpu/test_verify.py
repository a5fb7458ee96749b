"""What lies among Records and is none, or cannot be what a launch wrote, is named and left out;
every planted fault is found.
"""

import copy
import gzip
import json
import lzma
import math
import os
import re
import resource
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from multigpu import paths
from multigpu.analysis.verify import COMMIT, SCHEMA, TREE, history, lines, raw_records, verify
from multigpu.cli.main import main
from multigpu.machine.machine import source_tree
from multigpu.records import store as stores
from multigpu.records.archive import write_archive
from multigpu.records.record import Record, RecordStore
from tests.factory import make_record, plant
from tests.refusals import refused

Fields = dict[str, Any]
COMMITTED = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> Fields:
    """A measured Run of one H200 whose bytes were counted, as its file has it, of the one commit
    that git knows.
    """
    records = (raw.record for raw in raw_records(paths.RUNS / "1x-nvidia-h200") if raw.record)
    record = next(
        one
        for one in records
        if one["status"] == "ok" and one["measurement"]["moved_bytes"] and one["clean_tree"]
    )
    monkeypatch.setattr(
        "multigpu.analysis.verify.history", lambda: {record["commit"][:7]: COMMITTED}
    )
    return record


def written(folder: Path, *records: Fields) -> Path:
    for record in records:
        place = folder / record["machine"]["name"]
        place.mkdir(exist_ok=True, parents=True)
        (place / f"{record['key']}.{record['attempt']}.json.gz").write_bytes(
            gzip.compress(json.dumps(record).encode())
        )
    return folder


def changed(record: Fields, *changes: Callable[[Fields], object]) -> Fields:
    other = copy.deepcopy(record)
    for change in changes:
        change(other)
    return other


def put(*path: str | int, **values: Any) -> Callable[[Fields], None]:
    """Changes these fields of a Record, or of a part of it: to a value, or by a function of the old
    one.
    """

    def change(record: Fields) -> None:
        part: Any = reduce(getitem, path, record)
        part.update(
            {name: new(part[name]) if callable(new) else new for name, new in values.items()}
        )

    return change


ONE_BYTE_MORE = put(
    "measurement", moved_bytes=lambda moved: {name: number + 1 for name, number in moved.items()}
)
FAULTS: dict[str, tuple[Callable[[Fields], None], str]] = {
    "a rate above the bound": (
        put("measurement", units=1e12, padded_units=1e12),
        "a rate above its bound",
    ),
    "bytes off by one": (ONE_BYTE_MORE, "bytes counted are not those predicted"),
    "an edited file under its old key": (
        put("run", batch_size=lambda n: 2 * n),
        "its key is not that of its content",
    ),
    "an unknown commit": (put(commit="0123456789abcdef"), COMMIT),
    "a changed tree": (put(clean_tree=False), TREE),
    "a loss that stood still": (
        put("measurement", loss=lambda losses: [1.0] * len(losses)),
        "a loss that did not move, or is no number",
    ),
    "a step too few": (
        put("measurement", step_time_s=lambda ranks: [rank[1:] for rank in ranks]),
        "not as many steps as it names",
    ),
    "devices slower than the wall": (
        put("measurement", wall_s=lambda t: t / 2),
        "its events do not fill its wall clock",
    ),
    "no time": (put("measurement", wall_s=0.0), "no positive time or units"),
    "a field too many": (put("measurement", colour="red"), "not as its schema wants it"),
    "an older schema": (put(schema_version=0, colour="red"), SCHEMA),
    "a slowed GPU beside others": (
        put("measurement", "device_states", 0, sm_clock_mhz=lambda mhz: mhz // 2),
        "a throttled clock",
    ),
}


def test_a_sound_record_passes_loose_and_packed(
    tmp_path: Path, sound: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one whose source a commit has, whatever commit, folded into another or never made."""
    write_archive(
        tmp_path / "packed" / "machine",
        {(sound["key"], sound["attempt"]): json.dumps(sound).encode()},
    )
    assert (
        verify(written(tmp_path / "loose", sound)).faults
        == verify(tmp_path / "packed").faults
        == []
    )
    lost = sound | {"commit": "0123456789", "clean_tree": False, "source_tree": "a1" * 20}
    assert {fault.what for fault in verify(written(tmp_path / "lost", lost)).faults} == {
        COMMIT,
        TREE,
    }
    assert [main(["verify", str(tmp_path / name)]) for name in ("loose", "lost", "none")] == [
        0,
        1,
        2,
    ]
    monkeypatch.setattr("multigpu.analysis.verify.history", lambda: None)
    report = verify(written(tmp_path / "other", lost | {"clean_tree": True}))
    assert report.faults == [] and "not checked: commits: no git history here" in list(
        lines(report)
    )
    monkeypatch.setattr("multigpu.analysis.verify.history", lambda: {"a1" * 20: COMMITTED})
    assert verify(tmp_path / "lost").faults == []


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_name_of_a_tree_is_gits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "src" / "multigpu"
    files = {
        "a.py": "1",
        "a/b.py": "2",
        "a/__pycache__/b.pyc": "3",
        "a.b/c": "",
        "A": "5",
        "empty/__pycache__/x": "6",
        "é/z": "7",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "A").chmod(0o755)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    named = subprocess.check_output(
        ["git", "rev-parse", "HEAD:src/multigpu"], cwd=tmp_path, text=True
    ).strip()
    assert source_tree(folder) == named
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    assert named in (history.__wrapped__() or ())


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_found_and_nothing_else(
    tmp_path: Path, sound: Fields, fault: str
) -> None:
    change, what = FAULTS[fault]
    report = verify(written(tmp_path, sound, changed(sound, change, put(attempt=1))))
    found = [one.what for one in report.faults]
    assert what in found and sum(report.checked.values()) == 2, found
    assert all(one.raw.attempt == 1 for one in report.faults), (
        "the sound one beside it is not blamed"
    )


def rekeyed(record: Fields) -> Fields:
    """The Record as a forger leaves it: under the key that its changed content has."""
    return record | {"key": Record.model_validate(record, strict=False).own_key}


def times(share: float, *names: str) -> Callable[[Fields], None]:
    """Changes these times of a measurement, of any shape, by a factor."""

    def scaled(value: Any) -> Any:
        return [scaled(one) for one in value] if isinstance(value, list) else value * share

    return put("measurement", **dict.fromkeys(names, scaled))


UNITS = "units are not those of its batches"
BYTES = "bytes predicted are not those of its placement"
MACHINE = "its GPUs are not those of its machine"
EVERY_BYTE = {
    name: lambda kinds: {k: n // 2 for k, n in kinds.items()}
    for name in ("moved_bytes", "predicted_bytes")
}
ALTERATIONS: dict[int, tuple[tuple[Callable[[Fields], object], ...], str]] = {
    1: ((times(2, "units", "padded_units", "wall_s", "step_time_s", "event_time_s"),), UNITS),
    2: (
        (put("measurement", units=lambda n: n * 11 // 10, padded_units=lambda n: n * 11 // 10),),
        UNITS,
    ),
    3: ((put("run", batch_size=lambda n: n // 2),), UNITS),
    4: ((times(0.8, "wall_s", "event_time_s"),), "its steps do not fill its wall clock"),
    5: ((times(0.0, "step_time_s"),), "its steps do not fill its wall clock"),
    6: ((times(0.25, "wall_s"),), "its steps do not fill its wall clock"),
    7: ((times(0.5, "event_time_s"),), "its events do not fill its wall clock"),
    8: ((put("machine", gpus=lambda gpus: ["NVIDIA B200"] * len(gpus)),), MACHINE),
    9: ((put("machine", name="4x-nvidia-h200"),), MACHINE),
    10: (
        (
            put("machine", name="4x-nvidia-h200", gpus=lambda gpus: gpus * 2),
            put("measurement", wall_s=lambda t: 1.0001 * t),
        ),
        "a launch in two places",
    ),
    11: ((put(measured_at="2031-01-01T00:00:00+00:00"),), "a date that cannot be"),
    12: ((put(measured_at="2019-01-01T00:00:00+00:00"),), "a date that cannot be"),
    13: ((put(repeat=77, launch_id="fresh.0"),), "measured to the last digit what another was"),
    14: ((put("measurement", **EVERY_BYTE),), BYTES),
    15: ((put("run", placement="independent"),), BYTES),
    16: (
        (put("measurement", loss=lambda losses: [*losses[:-1], math.nan]),),
        "a loss that did not move, or is no number",
    ),
    17: ((put("measurement", replicas_agree=False),), "replicas that do not agree"),
    18: ((put("measurement", parameter_change=0.0),), "variables that did not change"),
    19: (
        (put("measurement", peak_memory_gib=lambda peaks: [500.0] * len(peaks)),),
        "a peak above the GPU's memory",
    ),
    20: ((put("measurement", "device_states", 0, sm_clock_mhz=500),), "a throttled clock"),
}
"""The alterations of `report/method.md` by their numbers there, and what is said of each."""


@pytest.fixture(scope="module")
def two_gpus() -> Fields:
    """A measured Run of ddp on two H200s, as its file has it."""
    return next(
        raw.record
        for raw in raw_records(paths.RUNS / "2x-nvidia-h200")
        if raw.record
        and (run := raw.record["run"])
        and raw.record["status"] == "ok"
        and (run["placement"], run["devices"], run["traced_steps"]) == ("ddp", 2, 0)
        and (run["workload"], run["wire_dtype"], run["bucket_send"]) == ("cnn", None, None)
        and raw.record["clean_tree"]
        and raw.record["measurement"]["device_states"]
    )


@pytest.mark.parametrize("number", ALTERATIONS)
def test_each_alteration_is_caught_though_its_key_is_made_again(
    number: int, tmp_path: Path, two_gpus: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = {two_gpus["commit"][:7]: COMMITTED}
    monkeypatch.setattr("multigpu.analysis.verify.history", lambda: commits)
    changes, what = ALTERATIONS[number]
    altered = rekeyed(changed(two_gpus, *changes))
    assert verify(written(tmp_path, two_gpus)).faults == []
    found = verify(written(tmp_path, altered | {"attempt": int(altered["key"] == two_gpus["key"])}))
    assert what in [one.what for one in found.faults], found.faults


def test_the_method_page_numbers_every_alteration() -> None:
    page = (paths.REPOSITORY / "report" / "method.md").read_text()
    assert [int(one) for one in re.findall(r"^\| (\d+) \|", page, re.M)] == sorted(ALTERATIONS)


def test_a_window_shortened_as_a_whole_is_not_seen(tmp_path: Path, two_gpus: Fields) -> None:
    """What one Record cannot show, as the method page says: all of its times by one factor."""
    every = ("wall_s", "step_time_s", "event_time_s", "total_s", "warmup_s")
    altered = changed(two_gpus, times(0.97, *every), put(launch_id="fresh.0"))
    assert verify(written(tmp_path, rekeyed(altered))).faults == []


def test_broken_files_are_named_and_stop_nothing(tmp_path: Path, sound: Fields) -> None:
    written(tmp_path, sound)
    place = tmp_path / "machine"
    place.mkdir()
    archive = write_archive(place, {("abc", 0): b"{}"})
    archive.write_bytes(archive.read_bytes()[:-7])
    (place / "broken.0.json.gz").write_bytes(b"no gzip")
    (place / "notes.json.gz").write_bytes(gzip.compress(b"[]"))
    (place / "other.0.json.gz").write_bytes(gzip.compress(b'{"colour": "red"}'))
    report = verify(tmp_path)
    assert sum(report.checked.values()) == 5 and len(report.faults) == 4
    assert any(
        "is not an archive of Records as it was written" in str(fault) for fault in report.faults
    )


def test_an_exception_forgives_as_many_as_it_names_and_never_physics(
    tmp_path: Path, sound: Fields
) -> None:
    lost = [changed(sound, put(commit="0123456789", attempt=number)) for number in (0, 1)]
    written(tmp_path / "records", *lost)
    listed = tmp_path / "exceptions.csv"
    head = "commit,fault,records,why\n"
    for count, left in ((2, 0), (1, 1)):
        listed.write_text(f"{head}0123456,{COMMIT},{count},folded\n")
        report = verify(tmp_path / "records", listed)
        assert len(report.faults) == left and sum(report.excepted.values()) == count
    for row in ("0123456,a rate above its bound,1,it was fast", f"0123456,{COMMIT},1,"):
        listed.write_text(f"{head}{row}\n")
        refused("cannot be excepted: only", verify, tmp_path / "records", listed)


BAD: dict[str, tuple[Callable[[Fields], object], str]] = {
    "another version": (
        put(schema_version=2),
        "schema_version 2 is not the 1 that this version reads",
    ),
    "a field to come": (put(flavour="mint"), "flavour is no field that this version knows"),
    "no status": (lambda record: record.pop("status"), "status has no value"),
    "a foreign key": (put("run", seed=7), "its key is '.*' and what it measured has the key"),
    "another machine": (put("machine", name="2x-other"), "it belongs into the folder '2x-other'"),
    "another name": (put(attempt=3), "it holds attempt 3 of"),
    "ok and nothing": (put(measurement=None), "status 'ok' without a measurement"),
    "negative steps": (
        put("measurement", step_time_s=lambda ranks: [[-1.0, *rank[1:]] for rank in ranks]),
        "a time is negative",
    ),
    "no time": (put("measurement", wall_s=0.0), "no time passed"),
    "endless": (put("measurement", total_s=math.inf), "without end"),
    "too few ranks": (
        put("measurement", step_time_s=lambda ranks: ranks[:1]),
        "step_time_s is of 1 replicas and the Run has 2",
    ),
    "more units than with padding": (
        put("measurement", units=10**6, padded_units=5),
        "1000000 units of 5",
    ),
    "negative bytes": (
        put("measurement", predicted_bytes={"all_reduce": -1}),
        "bytes are negative",
    ),
}


def two_records(folder: Path) -> tuple[RecordStore, Record, Path]:
    """Two healthy Records of two repeats, of which the second's file is to be spoiled."""
    store, good = RecordStore(folder), make_record(measurement={"predicted_bytes": {"copied": 0}})
    plant(store, [good])
    return store, good, store.write(make_record(repeat=1))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RecordStore, Record, Path]:
    monkeypatch.setattr(stores, "_told", set())
    return two_records(tmp_path)


@pytest.mark.parametrize("kind", BAD)
def test_what_no_launch_wrote_is_named_and_hides_nothing(
    kind: str, planted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store, good, file = planted
    assert not list(store.unreadable())
    content = json.loads(gzip.decompress(file.read_bytes()))
    BAD[kind][0](content)
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert list(store) == [good]
    said = capsys.readouterr().err
    assert re.fullmatch(
        rf"multigpu: left out: {file} is not a Record of this version: .*{BAD[kind][1]}.*\n", said
    ), said
    assert main(["--records", str(store.root), "verify"]) == 1
    assert capsys.readouterr().out.startswith(said.removeprefix("multigpu: left out: "))


def test_what_is_no_json_unpacks_without_end_or_is_a_pipe_is_named_at_once(planted: Any) -> None:
    store, good, file = planted
    for content in (
        b"",
        b"no gzip",
        gzip.compress(b"{"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b"\xff\xfe"),
    ):
        file.write_bytes(content)
        assert list(store) == [good] and len(list(store.unreadable())) == 1
    bomb = zlib.compressobj(9, wbits=31)
    # 256 MiB
    file.write_bytes(b"".join(bomb.compress(bytes(1 << 24)) for _ in range(16)) + bomb.flush())
    assert file.stat().st_size < 1 << 19
    assert list(store) == [good] and next(store.unreadable()).endswith(
        "it unpacks to more than 32 MiB"
    )
    file.unlink()
    os.mkfifo(file)
    assert list(store) == [good] and next(store.unreadable()).endswith("it is no file but a pipe")


def test_an_attempt_that_cannot_be_read_leaves_the_one_before_and_its_number(planted: Any) -> None:
    store, _, file = planted
    place, key = file.parent.name, file.name.split(".")[0]
    store.write(make_record(repeat=1, attempt=1)).write_bytes(b"cut")
    found = store.find(place, key)
    assert found and found.attempt == 0 and store.next_attempt(place, key) == 2
    file.write_bytes(b"cut")
    assert store.find(place, key) is None and store.next_attempt(place, key) == 2
    assert store.next_attempt(place, "none") == 0


def hundred_bad_files(planted: Any, lines: Sequence[str], capsys: Any) -> None:
    """Check that of these command lines each says what it said before, and hardly later, once a
    hundred files beside its Records cannot be read.
    """
    store, _, file = planted

    def said() -> Iterator[tuple[str, float]]:
        for line in lines:
            began = time.process_time()
            assert main(["--records", str(store.root), *line.split()]) == 0
            yield capsys.readouterr().out, time.process_time() - began

    _, before = list(said()), list(said())  # imports are not compared
    for number in range(100):
        (file.parent / f"{number:020d}.0.json.gz").write_bytes(file.read_bytes())
    assert len(list(store)) == 2
    left_out = capsys.readouterr().err.splitlines()
    assert (
        len(left_out) == 6
        and left_out[-1] == "multigpu: more is left out: `python -m multigpu verify` lists it"
    )
    for (out, took_s), (same, longer_s) in zip(before, said(), strict=True):
        assert out == same and longer_s < took_s + 2
    assert main(["--records", str(store.root), "verify"]) == 1
    said_at_once = capsys.readouterr().out.splitlines()
    assert sum("0.json.gz is not a Record" in line for line in said_at_once) == 100


def test_a_hundred_bad_files_slow_no_command_and_hide_nothing(
    planted: Any, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "records",
        f"explain {planted[1].key}",
        "advise workload=nmt",
        "measure --grid cpu_study --devices 1 --dry-run",
    )
    hundred_bad_files(planted, lines, capsys)


def test_a_damaged_archive_hides_no_other_and_stops_no_command(
    planted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store, good, file = planted
    other, place = make_record(repeat=2), file.parent
    write_archive(place, {(other.key, 0): other.model_dump_json().encode()})
    damaged = write_archive(place, {("abc", 0): b"{}"})
    damaged.write_bytes(damaged.read_bytes()[:-7])
    bomb = lzma.LZMACompressor(lzma.FORMAT_XZ, preset=0)
    # 640 MiB of zeros in a hundred kilobytes
    packed = b"".join(bomb.compress(bytes(1 << 26)) for _ in range(10)) + bomb.flush()
    (place / "records-0123456789ab.tar.xz").write_bytes(packed)
    assert {record.repeat for record in store} == {0, 1, 2}
    assert sum("is not an archive of Records" in line for line in store.unreadable()) == 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["--records", str(store.root), "verify"]) == 1
    said = capsys.readouterr().out
    assert "unpacks to more than 128 MiB" in said and "its end is missing" in said
    assert main(["--records", str(store.root), "records"]) == 0
    assert good.run.placement in capsys.readouterr().out
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 1 << 20
    assert store.write(make_record(repeat=3)).exists()


def test_a_folder_is_the_same_by_whatever_path_it_is_named(
    planted: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, file = planted
    content = json.loads(gzip.decompress(file.read_bytes()))
    content["machine"]["name"] = "9x-nvidia-h200"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    (link := store.root.parent / "link").symlink_to(store.root)
    monkeypatch.chdir(store.root.parent)
    for name in (store.root, link, store.root.name):
        assert main(["verify", str(name)]) == 1
        assert "it belongs into the folder '9x-nvidia-h200'" in capsys.readouterr().out
