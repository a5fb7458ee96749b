"""Whatever stands in a file of Records of up to 5 MB is read or refused below 1 GiB and 10 s."""

import gzip
import json
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from multigpu.records import archive
from multigpu.records.archive import read_archive, write_archive, write_archives
from multigpu.records.record import Record
from multigpu.writing import MOST_BYTES, MOST_VALUES, check_size
from tests.factory import make_record
from tests.further import but
from tests.multigpu.runner.launched import PATHS
from tests.patience import slowness
from tests.refusals import refused

pytestmark = pytest.mark.slow
MOST_PACKED = 5 * 10**6
ROOM = MOST_BYTES - 4096


def steps_of(text: str, count: int) -> bytes:
    """A Record that its schema allows, whose steps are so many of this number."""
    content = json.loads(make_record().model_dump_json())
    content["measurement"]["step_time_s"] = ["STEPS"]
    numbers = ",".join([text] * count)
    return json.dumps(content).replace('"STEPS"', f"[{numbers}]").encode()


CONTENTS: dict[str, Callable[[], list[bytes]]] = {
    "zeros": lambda: [bytes(ROOM)],
    "a number without end": lambda: [b"1" * ROOM],
    "a text of wide letters": lambda: [json.dumps({"run": "x" * (ROOM - 99) + "🌲"}).encode()],
    "lists of nothing": lambda: [b"[" + b"[]," * (ROOM // 3 - 1) + b"[]]"],
    "the most lists": lambda: [b'{"run":[' + b"{}," * ((1 << 17) - 5) + b"{}]}"] * 4,
    "the most numbers": lambda: [b'{"run":[' + b"0," * (MOST_VALUES - 9) + b"0]}"],
    "numbers in many": lambda: [b'{"run":[' + b"0," * 300_000 + b"0]}"] * 20,
    "nested": lambda: [b"[" * 100_000, b'{"a":' * 100_000, b'{"run": 5}', b"5", b'{"run":"a"}'],
    "steps": lambda: [steps_of("0", MOST_VALUES - 999)],
    "steps in many": lambda: [steps_of("0.1", 290_000)] * 20,
    "many that are small": lambda: [b"{}"] * 60_000,
}


LOOSE = (
    "a text of wide letters",
    "lists of nothing",
    "the most lists",
    "the most numbers",
    "steps",
)
"""What one file can hold; an archive may hold each of them."""
FORMS = [("loose", name) for name in LOOSE] + [("packed", name) for name in CONTENTS]
OFTEN = ("zeros", "the most lists", "steps", "nested", "many that are small")


@pytest.mark.parametrize(
    "form_and_content",
    but([("loose", "the most numbers"), *(("packed", name) for name in OFTEN)], FORMS),
    ids="-".join,
)
def test_it_is_read_or_refused_in_little_memory_and_time(
    form_and_content: tuple[str, str], tmp_path: Path
) -> None:
    form, content = form_and_content
    texts, place = CONTENTS[content](), tmp_path / "runs" / "8x-nvidia-h200"
    place.mkdir(parents=True)
    if form == "loose":
        for number, text in enumerate(texts[:2]):
            (place / f"{number:020x}.0.json.gz").write_bytes(gzip.compress(text, 9))
    else:
        packed_whole(place, texts)
    assert max(file.stat().st_size for file in place.iterdir()) < MOST_PACKED
    for command in ("verify", "records") if content == "the most numbers" else ("verify",):
        code, said, used = run([command], tmp_path / "runs")
        assert code in (0, 1) and "Traceback" not in said, said[-2000:]
        assert used.ru_maxrss < 1 << 20, f"{used.ru_maxrss >> 10} MiB"
        assert used.ru_utime + used.ru_stime < 10 * slowness()


def packed_whole(place: Path, texts: list[bytes]) -> None:
    """Write an archive of these, whatever its bounds say, under the name that is right for it."""
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, text in enumerate(texts):
            entry = tarfile.TarInfo(f"{number:020x}.0.json")
            entry.size = len(text)
            tar.addfile(entry, BytesIO(text))
    name = archive._archive_name(out.getvalue())
    (place / name).write_bytes(lzma.compress(out.getvalue(), preset=1))


STARTER = """
import json, os, subprocess, sys
with open(sys.argv[1], "w") as said:
    process = subprocess.Popen(sys.argv[2:], stdout=said, stderr=subprocess.STDOUT)
    _, status, used = os.wait4(process.pid, 0)
print(json.dumps([status, used.ru_maxrss, used.ru_utime, used.ru_stime]))
"""


def run(words: list[str], folder: Path) -> tuple[int, str, Any]:
    """How a command on a folder of Records ends, what it says, and what it used."""
    line = [sys.executable, "-m", "multigpu", "--records", str(folder), *words]
    said = folder.parent / "said"
    # a process begins with the peak of the one that started it: a small one starts this
    started = subprocess.run(
        [sys.executable, "-c", STARTER, str(said), *line],
        env=os.environ | {"PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=True,
    )
    status, peak, user, system = json.loads(started.stdout)
    used = SimpleNamespace(ru_maxrss=peak, ru_utime=user, ru_stime=system)
    return os.waitstatus_to_exitcode(status), said.read_text(), used


def test_more_values_than_any_record_holds_are_refused_with_their_number() -> None:
    refused("it holds 11 values and 0 lists, ", check_size, b"," * 11, 99, 10, 9, error=EOFError)
    refused(
        "it holds 0 values and 11 lists, ", check_size, b"[{" * 5 + b"[", 99, 9, 10, error=EOFError
    )
    refused("it unpacks to more than 0 MiB", check_size, b"123", 2, error=EOFError)
    check_size(make_record().model_dump_json().encode())


def test_more_than_an_archive_holds_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {(f"{number:020x}", 0): steps_of("0.1", 400) for number in range(40)}
    whole = write_archive(tmp_path, texts)
    monkeypatch.setattr(archive, "MOST_BYTES", 60_000)
    refused("unpacks to more than 0 MiB", write_archive, tmp_path, texts, error=EOFError)
    written = write_archives(tmp_path, texts)
    assert len(written) > 2 and whole not in written
    found = {
        (key, attempt): text
        for path in written
        for key, attempts in read_archive(path).items()
        for attempt, text in attempts.items()
    }
    assert found == texts
    assert all(Record.model_validate_json(text).status == "ok" for text in found.values())
