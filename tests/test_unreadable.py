"""What lies among Records and is none, or cannot be what a launch wrote: named, left out, and in nobody's way."""

import gzip
import json
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multigpu import store as stores
from multigpu.claims import find_claim
from multigpu.cli import main
from multigpu.record import Record, RecordStore
from tests.factory import make_record, plant

Change = Callable[[dict[str, Any]], None]


def put(part: str = "", /, **values: Any) -> Change:
    """Changes these fields of a Record, or of a part of it."""
    return lambda record: (record[part] if part else record).update(values)


BAD: dict[str, tuple[Change, str]] = {
    "another version": (put(schema_version=2), "schema_version 2 is not the 1 that this version reads"),
    "a field to come": (put(flavour="mint"), "flavour is no field that this version knows"),
    "no status": (lambda record: record.pop("status"), "status has no value"),
    "a foreign key": (put("run", seed=7), "its key is '.*' and what it measured has the key"),
    "another machine": (put("machine", name="2x-other"), "it belongs into the folder '2x-other'"),
    "another name": (put(attempt=3), "it holds attempt 3 of"),
    "ok and nothing": (put(measurement=None), "status 'ok' without a measurement"),
    "negative steps": (lambda record: record["measurement"]["step_time_s"][0].__setitem__(2, -1.0), "a time is negative"),
    "no time": (put("measurement", wall_s=0.0), "no time passed"),
    "endless": (put("measurement", total_s=math.inf), "without end"),
    "too few ranks": (lambda record: record["measurement"]["step_time_s"].pop(), "step_time_s is of 1 replicas and the Run has 2"),
    "more units than with padding": (put("measurement", units=10**6, padded_units=5), "1000000 units of 5"),
    "negative bytes": (put("measurement", predicted_bytes={"all_reduce": -1}), "bytes are negative"),
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RecordStore, Record, Path]:
    """Two healthy Records of two repeats, of which the second's file is to be spoiled."""
    monkeypatch.setattr(stores, "_told", set())
    store, good = RecordStore(tmp_path), make_record()
    plant(store, [good])
    return store, good, store.write(make_record(repeat=1))


@pytest.mark.parametrize("kind", BAD)
def test_what_no_launch_wrote_is_named_and_hides_nothing(kind: str, planted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store, good, file = planted
    assert not list(store.unreadable())
    content = json.loads(gzip.decompress(file.read_bytes()))
    BAD[kind][0](content)
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert list(store) == [good]
    said = capsys.readouterr().err
    assert re.fullmatch(rf"multigpu: left out: {file} is not a Record of this version: .*{BAD[kind][1]}.*\n", said), said
    assert main(["--records", str(store.root), "verify"]) == 1
    assert capsys.readouterr().out == said.removeprefix("multigpu: left out: ")


def test_what_is_no_json_unpacks_without_end_or_is_a_pipe_is_named_at_once(planted: Any) -> None:
    store, good, file = planted
    for content in (b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b"[" * 100_000), gzip.compress(b"\xff\xfe")):
        file.write_bytes(content)
        assert list(store) == [good] and len(list(store.unreadable())) == 1
    bomb = zlib.compressobj(9, wbits=31)
    file.write_bytes(b"".join(bomb.compress(bytes(1 << 24)) for _ in range(16)) + bomb.flush())  # 256 MiB
    assert file.stat().st_size < 1 << 19
    assert list(store) == [good] and next(store.unreadable()).endswith("it unpacks to more than 128 MiB")
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


def test_a_hundred_bad_files_slow_no_command_and_hide_nothing(planted: Any, elsewhere: Path, capsys, monkeypatch) -> None:
    store, good, file = planted
    # verdicts that are remembered take no time, and new files make them forgotten; all of them take long
    monkeypatch.setattr("multigpu.claims.results.remembered", lambda name, roots, compute: compute())
    monkeypatch.setattr("multigpu.claims.verdicts.all_claims", lambda: [find_claim("C1")])
    lines = ("records", f"explain {good.key}", "advise workload=nmt", "claims", "measure --grid cpu_study --devices 1 --dry-run")

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
    assert len(left_out) == 6 and left_out[-1] == "multigpu: more is left out: `python -m multigpu verify` lists it"
    for (out, took_s), (same, longer_s) in zip(before, said(), strict=True):
        assert out == same and longer_s < took_s + 2
    assert main(["--records", str(store.root), "verify"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 100
