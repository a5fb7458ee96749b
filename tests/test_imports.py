"""Measuring must not need what only analysis, reports or one framework needs: GPU hosts may have
none of it.
"""

import ast
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

import multigpu

HEAVY = (
    "torch",
    "tensorflow",
    "pandas",
    "matplotlib",
    "great_tables",
    "papermill",
    "sphinx",
    "sklearn",
    "polib",
)
DRAWING = ("matplotlib", "seaborn", "altair", "IPython", "great_tables", "nbformat", "sphinx")

MEASURING = (
    "multigpu.cli, multigpu.grid, multigpu.measure.sweep, multigpu.record, multigpu.placements"
)
READING = "multigpu.pages, multigpu.analysis.advise, multigpu.analysis.explain_text"
ANSWERING = (
    "multigpu.analysis.explain_text, multigpu.analysis.advise, multigpu.own.compare,"
    " multigpu.claims.results, multigpu.cli_read"
)


@pytest.mark.parametrize(
    "stages",
    [{MEASURING: HEAVY, READING: ("torch", "tensorflow", "keras")}, {ANSWERING: DRAWING}],
    ids=len,
)
def test_each_part_imports_no_more_than_it_needs(stages: dict[str, Collection[str]]) -> None:
    """One after the other in a process of their own: what answers runs on a GPU host with pandas
    and SciPy at most.
    """
    told = (
        f"import sys, {names}\nprint(*[name for name in {left_out} if name in sys.modules])\n"
        for names, left_out in stages.items()
    )
    found = subprocess.run(
        [sys.executable, "-c", "".join(told)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert dict(zip(stages, found, strict=True)) == dict.fromkeys(stages, "")


def imported(path: Path, modules: Collection[str]) -> set[str]:
    """Which of these modules a file imports anywhere but for types."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in whole}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            waiting += ast.iter_child_nodes(node)
    return found & set(modules)


def test_imports_go_one_way() -> None:
    """No module needs itself, not even through an import inside a function or a package that runs
    before it: each can be imported first.
    """
    root = Path(multigpu.__file__).parent
    modules = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in root.rglob("*.py")
    }
    assert len(modules) > 200 and "multigpu.record" in imported(
        root / "measure" / "point.py", modules
    )
    packages = {
        name: set(accumulate(name.split(".")[:-1], "{}.{}".format)) - {"multigpu"}
        for name in modules
    }
    needs: dict[str, set[str]] = {}
    for name, path in modules.items():
        named = imported(path, modules) - {name}
        needs[name] = (
            named | {parent for other in named for parent in packages[other]} - packages[name]
        ) - {name}
    assert "multigpu.placements" in needs["multigpu.stages.measure"] - imported(
        modules["multigpu.stages.measure"], modules
    )
    TopologicalSorter(needs).prepare()
