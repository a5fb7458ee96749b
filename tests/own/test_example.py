"""The README's example, as it is printed: a script that anybody may run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu import paths


def printed() -> str:
    """The README's block of Python that describes a job."""
    blocks = re.findall(r"```python\n(.*?)```", (paths.REPOSITORY / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "multigpu.Job(" in block)


def test_the_example_is_the_one_that_the_notebook_runs() -> None:
    assert printed() == (paths.REPOSITORY / "examples" / "my_model.py").read_text()
    assert printed().count("\n") <= 30


@pytest.mark.slow
def test_the_example_ends_with_the_answer(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(printed())
    ended = subprocess.run([sys.executable, "my_model.py"], cwd=tmp_path, capture_output=True, text=True, timeout=115, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    *lines, last = ended.stdout.splitlines()
    assert "samples/s" in lines[0] and any("computing, as on one device" in line for line in lines)
    assert re.fullmatch(r"on 8 devices: [\d.,]+( [KM])? samples/s \(.+\)", last)
    assert (tmp_path / "multigpu-compare" / "index.html").read_text().count("<tr>") > 3
