"""Measuring must not need what only analysis, reports or one framework needs: GPU hosts may have
none of it.
"""

import ast
import re
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


LAYERS = (("spec",), ("placements",), ("inputs", "workloads"))
"""Folders of which none imports a later one in any way: not for types, in functions or by name."""


def named_anywhere(path: Path, root: Path) -> set[str]:
    """Folders and root modules of the package that a file names in an import of any kind: for type
    checking, inside a function, relative, or by a text such as "multigpu.inputs.text:pieces".
    """
    package = root.name
    # the beginning of a text with fields, too, such as "multigpu.engines.{framework}"
    by_name = re.compile(rf"{package}(\.\w+)+\.?(:\w+)?")
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(root.parent).parts[: -node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            modules |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and by_name.fullmatch(str(node.value)):
            modules.add(node.value.partition(":")[0])
    parts = (module.split(".") for module in modules)
    return {part[1] for part in parts if part[0] == package and len(part) > 1}


def against_layers(root: Path) -> list[str]:
    """Imports of a later layer, one a line."""
    wrong = []
    for number, layer in enumerate(LAYERS):
        later = {name for others in LAYERS[number + 1 :] for name in others}
        for folder in layer:
            for path in sorted((root / folder).rglob("*.py")):
                wrong += [
                    f"{path.relative_to(root)} imports {name}"
                    for name in sorted(named_anywhere(path, root) & later)
                ]
    return wrong


def test_what_a_run_is_knows_nothing_of_who_carries_it_out() -> None:
    """`spec` takes rows and descriptions handed in, and may use what has no Run: collectives."""
    root = Path(multigpu.__file__).parent
    assert against_layers(root) == []
    of_spec = {
        name for path in (root / "spec").rglob("*.py") for name in named_anywhere(path, root)
    }
    assert of_spec <= {"spec", "collectives"}, of_spec


@pytest.mark.parametrize(
    "statement",
    [
        "from multigpu.workloads import find_model",
        "from multigpu import workloads",
        "from ..workloads.base import Workload",
        "import multigpu.workloads.cnn",
        "if TYPE_CHECKING:\n    from multigpu.workloads import base",
        "def late():\n    import multigpu.workloads as found",
        'found = importlib.import_module("multigpu.workloads.cnn.torch")',
        'made = later("multigpu.workloads:find_model")',
        'found = importlib.import_module(f"multigpu.workloads.{name}.torch")',
    ],
)
def test_every_kind_of_import_counts(tmp_path: Path, statement: str) -> None:
    root = tmp_path / "multigpu"
    (root / "placements").mkdir(parents=True)
    (root / "placements" / "row.py").write_text(f"{statement}\n")
    assert against_layers(root) == ["placements/row.py imports workloads"]
