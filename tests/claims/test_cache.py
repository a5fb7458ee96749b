"""Results are computed once, and again as soon as a Record or the program is another."""

from pathlib import Path

import pandas as pd
import pytest

from multigpu import remembered as module
from multigpu.claims import Result, evaluate_all
from multigpu.remembered import remembered


def test_results_are_computed_once_and_again_where_anything_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Record, the program, the file itself."""
    results, calls = evaluate_all(runs=pd.DataFrame()), []
    for name in ("records/machine", "source"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(module, "SOURCE", tmp_path / "source")

    def told(folder: str = "cache") -> list[Result]:
        return remembered("claims", [tmp_path / "records"], lambda: calls.append(1) or results, tmp_path / folder)

    assert told() == told() == results and len(calls) == 1
    assert [one.claim.digest for one in told()] == [one.claim.digest for one in results], "kinds of tests are kept"
    assert any(one.claim.predicate and one.claim.predicate.of == "synchrony" for one in told())
    for count, (name, content) in enumerate({"records/machine/abc.0.json.gz": b"new", "source/claims.py": b"changed = True\n"}.items(), 2):
        (tmp_path / name).write_bytes(content)
        told()
        assert len(calls) == count
        (kept,) = (tmp_path / "cache").iterdir()  # the old file is gone
    kept.write_bytes(b"broken")
    told()
    assert len(calls) == 4
    (tmp_path / "file").write_text("")
    assert told("file") == results, "a folder that cannot be written is done without"
