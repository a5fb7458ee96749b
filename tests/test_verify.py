"""Every fault that a Record may have is found when it is planted, no exception forgives one of physics, and sound Records pass."""

import copy
import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multigpu import cli, paths
from multigpu.archive import write_archive
from multigpu.measure.machine import source_tree
from multigpu.verify import COMMIT, SCHEMA, TREE, history, lines, measured_again, raw_records, verify
from tests.refusals import refused

Fields = dict[str, Any]


@pytest.fixture(scope="module")
def sound() -> Fields:
    """A measured Run of one H200 whose bytes were counted, as its file has it."""
    records = (raw.record for raw in raw_records(paths.RUNS / "1x-nvidia-h200") if raw.record)
    return next(one for one in records if one["status"] == "ok" and one["measurement"]["moved_bytes"] and one["clean_tree"])


def written(folder: Path, *records: Fields) -> Path:
    for record in records:
        place = folder / record["machine"]["name"]
        place.mkdir(exist_ok=True, parents=True)
        (place / f"{record['key']}.{record['attempt']}.json.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    return folder


def changed(record: Fields, *changes: Callable[[Fields], object]) -> Fields:
    other = copy.deepcopy(record)
    for change in changes:
        change(other)
    return other


def put(*path: str | int, value: Any) -> Callable[[Fields], None]:
    def change(record: Fields) -> None:
        part: Any = record
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value(part[path[-1]]) if callable(value) else value

    return change


ONE_BYTE_MORE = put("measurement", "moved_bytes", value=lambda moved: {name: number + 1 for name, number in moved.items()})
FAULTS: dict[str, tuple[Callable[[Fields], object], str]] = {
    "a rate above the bound": (put("measurement", value=lambda old: old | {"units": 1e12, "padded_units": 1e12}), "a rate above its bound"),
    "bytes off by one": (ONE_BYTE_MORE, "bytes counted are not those predicted"),
    "an edited file under its old key": (put("run", "batch_size", value=lambda n: 2 * n), "its key is not that of its content"),
    "an unknown commit": (put("commit", value="0123456789abcdef"), COMMIT),
    "a changed tree": (put("clean_tree", value=False), TREE),
    "a loss that stood still": (put("measurement", "loss", value=lambda losses: [1.0] * len(losses)), "a loss that did not move"),
    "a step too few": (put("measurement", "step_time_s", 0, value=lambda steps: steps[1:]), "not as many steps as it names"),
    "devices slower than the wall": (put("measurement", "wall_s", value=lambda t: t / 2), "devices' time above the wall clock"),
    "no time": (put("measurement", "wall_s", value=0.0), "no positive time or units"),
    "a field too many": (put("measurement", "colour", value="red"), "not as its schema wants it"),
    "an older schema": (lambda record: record.update(schema_version=0, colour="red"), SCHEMA),
    "a slowed GPU beside others": (put("measurement", "device_states", 0, "sm_clock_mhz", value=lambda mhz: mhz // 2), "a throttled clock"),
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, sound: Fields) -> None:
    monkeypatch.setattr("multigpu.verify.history", lambda: frozenset({sound["commit"][:7]}))


def test_a_sound_record_passes_loose_and_packed(tmp_path: Path, sound: Fields, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose source a commit has, whatever commit, folded into another or never made."""
    write_archive(tmp_path / "packed" / "machine", {(sound["key"], sound["attempt"]): json.dumps(sound).encode()})
    assert verify(written(tmp_path / "loose", sound)).faults == verify(tmp_path / "packed").faults == []
    lost = sound | {"commit": "0123456789", "clean_tree": False, "source_tree": "a1" * 20}
    assert {fault.what for fault in verify(written(tmp_path / "lost", lost)).faults} == {COMMIT, TREE}
    assert [cli.main(["verify", str(tmp_path / name)]) for name in ("loose", "lost", "none")] == [0, 1, 2]
    monkeypatch.setattr("multigpu.verify.history", lambda: None)
    report = verify(written(tmp_path / "other", lost | {"clean_tree": True}))
    assert report.faults == [] and "not checked: commits: no git history here" in list(lines(report))
    monkeypatch.setattr("multigpu.verify.history", lambda: frozenset({"a1" * 20}))
    assert verify(tmp_path / "lost").faults == []


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_name_of_a_tree_is_gits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "src" / "multigpu"
    files = {"a.py": "1", "a/b.py": "2", "a/__pycache__/b.pyc": "3", "a.b/c": "", "A": "5", "empty/__pycache__/x": "6", "é/z": "7"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "A").chmod(0o755)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    named = subprocess.check_output(["git", "rev-parse", "HEAD:src/multigpu"], cwd=tmp_path, text=True).strip()
    assert source_tree(folder) == named
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    assert named in (history.__wrapped__() or ())


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_found_and_nothing_else(tmp_path: Path, sound: Fields, fault: str) -> None:
    change, what = FAULTS[fault]
    report = verify(written(tmp_path, sound, changed(sound, change, put("attempt", value=1))))
    found = [one.what for one in report.faults]
    assert what in found and sum(report.checked.values()) == 2, found
    assert all(one.raw.attempt == 1 for one in report.faults), "the sound one beside it is not blamed"


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
    assert any("is not an archive of Records as it was written" in str(fault) for fault in report.faults)


def test_an_exception_forgives_as_many_as_it_names_and_never_physics(tmp_path: Path, sound: Fields) -> None:
    lost = [changed(sound, put("commit", value="0123456789"), put("attempt", value=number)) for number in (0, 1)]
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


def test_records_of_the_virtual_clock_come_out_again(tmp_path: Path) -> None:
    found = (raw.record for raw in raw_records(paths.SYNCHRONY) if raw.record and "result" in raw.record)
    virtual = [one | {"attempt": 0} for one in found if one["experiment"]["clock"] == "virtual" and one["experiment"]["workers"] == 2][:2]
    for record in virtual:
        record["machine"] |= {"name": "virtual"}
    written(tmp_path, *virtual)
    assert [agrees for _, agrees in measured_again(tmp_path, 2)] == [True, True]
    result = virtual[0]["result"]
    written(tmp_path, virtual[0] | {"result": result | {"end_s": 1.01 * result["end_s"], "fingerprint": "0"}})
    assert sorted(agrees for _, agrees in measured_again(tmp_path, 2)) == [False, True]


def test_all_records_of_the_study_can_be_believed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every committed key comes out again."""
    monkeypatch.setattr("multigpu.verify.history", history)
    assert cli.main(["verify"]) == 0, capsys.readouterr().out
