"""All committed Records can be believed, those of the virtual clock come out again, and files that
cannot be read slow no verdict.
"""

from pathlib import Path

import pytest

from multigpu import paths
from multigpu.analysis.verify import raw_records
from multigpu.cli.main import main
from multigpu.records import store as stores
from multigpu.records.packing import stores_of
from multigpu_study.claims import find_claim
from tests.conftest import FOLDERS
from tests.multigpu.test_verify import hundred_bad_files, two_records, written
from tests.scripts import load


def test_records_of_every_folder_are_verified() -> None:
    assert {store.root for store in stores_of()} == {getattr(paths, name) for name in FOLDERS}
    assert [type(store).__name__ for store in stores_of(paths.SYNCHRONY)] == ["SynchronyStore"]


def test_records_of_the_virtual_clock_come_out_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = (
        raw.record for raw in raw_records(paths.SYNCHRONY) if raw.record and "result" in raw.record
    )
    virtual = [
        one | {"attempt": 0}
        for one in found
        if one["experiment"]["clock"] == "virtual" and one["experiment"]["workers"] == 2
    ][:2]
    for record in virtual:
        record["machine"] |= {"name": "virtual"}
    written(tmp_path, *virtual)
    measured_again = load("measured_again")
    assert [agrees for _, agrees in measured_again.measured_again(tmp_path, 2)] == [True, True]
    result = virtual[0]["result"]
    written(
        tmp_path,
        virtual[0] | {"result": result | {"end_s": 1.01 * result["end_s"], "fingerprint": "0"}},
    )
    assert measured_again.main(["2", "--records", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(":")[0] for line in said) == ["agrees", "differs"]


def test_all_records_of_the_study_can_be_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every committed key comes out again."""
    assert main(["verify"]) == 0, capsys.readouterr().out


def test_a_hundred_bad_files_slow_no_verdict_and_hide_nothing(
    tmp_path: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # verdicts that are remembered take no time, and new files make them forgotten; all of them take
    # long
    monkeypatch.setattr(
        "multigpu_study.claims.results.cached_on_disk", lambda name, roots, compute: compute()
    )
    monkeypatch.setattr("multigpu_study.claims.verdicts.all_claims", lambda: [find_claim("C1")])
    monkeypatch.setattr(stores, "_told", set())
    hundred_bad_files(two_records(tmp_path), ["claims"], capsys)
