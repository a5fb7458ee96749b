"""Results are computed once, and again as soon as a Record or the program is another."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from multigpu import remembered as module
from multigpu.claims import Result, all_claims
from multigpu.remembered import remembered
from tests.claims.planted import evaluate


@pytest.fixture
def results() -> list[Result]:
    return [evaluate(claim, pd.DataFrame()) for claim in all_claims()]


def test_results_are_computed_once_and_come_back_equal(tmp_path: Path, results: list[Result]) -> None:
    calls: list[int] = []
    records = tmp_path / "records" / "machine"
    records.mkdir(parents=True)

    def compute() -> list[Result]:
        calls.append(1)
        return results

    roots, folder = [records.parent], tmp_path / "cache"
    first, second = (remembered("claims", roots, compute, folder) for _ in range(2))
    assert first == second == results and len(calls) == 1
    assert [one.claim.digest for one in second] == [one.claim.digest for one in results], "kinds of tests are kept"
    assert any(one.claim.predicate and one.claim.predicate.of == "synchrony" for one in second)
    (records / "abc.0.json.gz").write_bytes(b"new")
    remembered("claims", roots, compute, folder)
    assert len(calls) == 2 and len(list(folder.iterdir())) == 1, "the old file is gone"


def test_another_program_and_a_broken_file_compute_again(tmp_path: Path, results: list[Result], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.setattr(module, "SOURCE", source)

    def compute() -> list[Result]:
        calls.append(1)
        return results

    for expected in (1, 1):
        remembered("claims", [], compute, tmp_path / "cache")
        assert len(calls) == expected
    (source / "claims.py").write_text("changed = True\n")
    remembered("claims", [], compute, tmp_path / "cache")
    assert len(calls) == 2
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(b"broken")
    remembered("claims", [], compute, tmp_path / "cache")
    assert len(calls) == 3
    (tmp_path / "file").write_text("")
    assert remembered("claims", [], compute, tmp_path / "file") == results, "a folder that cannot be written is done without"
