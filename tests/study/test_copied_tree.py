"""What a newcomer adds to a copy of the tree is found wherever such things stand, from as few files
as can say it.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from multigpu.paths import REPOSITORY
from tests.plugins import EACH, FILES, JOB
from tests.study.claims.planted import ENTRY, NEW

pytestmark = pytest.mark.slow

STUDY = (
    "from multigpu_study.pages import *\n\nstudy = page(globals())\ntable(study.points,"
    ' "placement |'
    ' planted | n", note="Planted.")'
)
PAGE = nbformat.v4.new_notebook(
    cells=[
        nbformat.v4.new_markdown_cell("# A planted page"),
        nbformat.v4.new_code_cell('records = "data"', metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(STUDY),
    ]
)
NEW_FILES = {
    "src/multigpu/placements/by_copy.py": FILES["placements.py"].replace("BY_COPY", "PLACEMENT"),
    **{
        f"src/multigpu/workloads/{name}": text
        for name, text in FILES.items()
        if name.startswith("blobs/")
    },
    "notebooks/19-planted.ipynb": nbformat.writes(PAGE),
}
"""A placement, a workload of one framework, which is a folder, and a page."""

CHANGED = {
    "src/multigpu_study/claims/documents/004.yaml": ENTRY,
    "data/claims-ledger.csv": (
        f"{NEW},0000000000000000,2026-11-27T00:00:00+00:00,,none,first test\n"
    ),
    "src/multigpu/spec/run.py": "    planted: float | None = Field(default=None, gt=0)\n",
    "src/multigpu/analysis/fields.csv": "planted,way\n",
    "src/multigpu/analysis/words.csv": "way,planted,,planted {value} times\n",
}
"""A claim, from two files, and a field of a Run, from three: what is added to each, at the end of a
table and behind the last field.
"""


def last_field(program: str) -> int:
    """The line with which the last field of its class Run ends."""
    (run,) = (node for node in ast.parse(program).body if getattr(node, "name", "") == "Run")
    return max(node.end_lineno or 0 for node in run.body if isinstance(node, ast.AnnAssign))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy without Records, to which all is added."""
    for name in ("src", "report", "data/published", "data/faults"):
        shutil.copytree(
            REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in (
        "pyproject.toml",
        "data/claims-ledger.csv",
        "data/claims-changes.csv",
        "notebooks/00-front.ipynb",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for name, text in NEW_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, added in CHANGED.items():
        text = (tmp_path / name).read_text()
        at = last_field(text) if name.endswith("run.py") else len(text.splitlines())
        lines = text.splitlines(keepends=True)
        (tmp_path / name).write_text("".join([*lines[:at], added, *lines[at:]]))
    return tmp_path


def test_what_is_added_is_measured_explained_advised_told_and_published(tree: Path) -> None:
    own = {
        "PYTHONPATH": str(tree / "src"),
        "MULTIGPU_HOME": str(tree),
        "MULTIGPU_COMMIT": "0" * 40,
        "MULTIGPU_CLEAN": "1",
    }
    of_it = f"{JOB} placement=by_copy planted=0.5"
    measure = f"measure {of_it} device_type=cpu warmup_steps=2 timed_steps=3 --repeats 2"
    lines = (
        measure,
        f"explain {of_it}",
        f"advise {JOB}",
        "records --export listed.csv",
        "doctor",
        "claims",
        "report",
    )
    words = [sys.executable, "-c", EACH, *lines]
    done = subprocess.run(
        words, cwd=tree, env=os.environ | own, capture_output=True, text=True, check=False
    )
    told = {
        line: done.stdout.partition(f"0 is the end of {line}\n")[0].rpartition(" is the end of ")[2]
        for line in lines
    }
    assert all(f"0 is the end of {line}\n" in done.stdout for line in lines), done.stderr[-2000:]
    for line in lines[1:3]:
        assert "by_copy, eager, planted 0.5 times" in told[line], "in explain and in advise"
    assert (
        "placement   by_copy: torch" in told["doctor"]
        and "workload    blobs: blobs_tiny; inputs synthetic" in told["doctor"]
    )
    assert f"{NEW}  ○  not yet measured       004       Planted sentences hold." in told["claims"]
    header, *rows = (tree / "listed.csv").read_text().splitlines()
    assert "planted" in header.split(",") and len(rows) == 2
    site = tree / "build" / "html"
    assert (
        "19-planted.html" in (site / "index.html").read_text()
        and "Planted sentences hold." in (site / "claims.html").read_text()
    )
    assert (
        '<tr><td>by_copy</td><td>0.5</td><td class="number">2</td></tr>'
        in (site / "19-planted.html").read_text()
    )
