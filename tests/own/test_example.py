"""The README's example, as it is printed: a script that anybody may run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from multigpu import paths
from multigpu.own import compare


def printed() -> str:
    """The README's block of Python that describes a job."""
    blocks = re.findall(r"```python\n(.*?)```", (paths.REPOSITORY / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "multigpu.Job(" in block)


def test_the_example_is_the_one_that_the_notebook_runs() -> None:
    assert printed() == (paths.REPOSITORY / "examples" / "my_model.py").read_text()
    assert printed().count("\n") <= 30


@pytest.mark.slow
def test_the_example_ends_with_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_model.py").write_text(printed())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "WINDOW_S", 0.2)
    runpy.run_path("my_model.py", run_name="__main__")
    *lines, last = capsys.readouterr().out.splitlines()
    assert "samples/s" in lines[0] and any("computing, as on one device" in line for line in lines)
    assert re.fullmatch(r"on 8 devices: [\d.,]+( [KM])? samples/s \(.+\)", last)
    assert (tmp_path / "multigpu-compare" / "index.html").read_text().count("<tr>") > 3
