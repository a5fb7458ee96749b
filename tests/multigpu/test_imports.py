"""Who imports whom: folders form no circle, the tool needs no study, and measuring needs nothing
that only analysis, reports or one framework needs: GPU hosts may have none of it.
"""

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

import multigpu
from multigpu.paths import REPOSITORY
from tests.further import but

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
    "multigpu.cli.main, multigpu.grids, multigpu.runner.sweep, multigpu.records.record,"
    " multigpu.placements"
)
READING = "multigpu.report.pages, multigpu.analysis.advise, multigpu.analysis.explain_text"
ANSWERING = (
    "multigpu.analysis.explain_text, multigpu.analysis.advise, multigpu.user_model.compare,"
    " multigpu.cli.read"
)

SOURCE = Path(multigpu.__file__).parent
STUDY = "multigpu_study"
ORDER = (
    *("paths", "writing", "lazy", "collectives", "spec", "plugins", "placements", "inputs"),
    *("kernels", "workloads", "build", "machine", "records", "engines", "runner", "analysis"),
    *("grids", "user_model", "report", "cli"),
)
"""Folders and modules of the package's root: each may import those that stand before it."""


@pytest.mark.parametrize(
    "stages",
    [{MEASURING: HEAVY, READING: ("torch", "tensorflow", "keras")}, {ANSWERING: DRAWING}],
    ids=len,
)
def test_each_part_imports_no_more_than_it_needs(stages: dict[str, Collection[str]]) -> None:
    """One after the other in a process of their own: what answers runs on a GPU host with pandas
    and SciPy at most.
    """
    programs = (
        f"import sys, {names}\nprint(*[name for name in {left_out} if name in sys.modules])\n"
        for names, left_out in stages.items()
    )
    lines = subprocess.run(
        [sys.executable, "-c", "".join(programs)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert dict(zip(stages, lines, strict=True)) == dict.fromkeys(stages, "")


@cache
def modules_of(source: Path) -> dict[str, Path]:
    """Full name -> file of every module of the packages in a folder."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for path in source.rglob("*.py")
    }


def imports_of(path: Path, source: Path) -> Iterator[tuple[ast.AST, str]]:
    """The names of all that a file imports and of what is taken from it, with their statements: for
    type checking, inside functions, relative, or by a text such as "multigpu.inputs.text:pieces",
    also of one that goes on with a field, as f"multigpu.engines.{framework}".
    """
    by_name = re.compile(r"multigpu(_study)?(\.\w+)*\.?(:\w+)?")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(source).parts[: -node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and by_name.fullmatch(str(node.value)):
            yield node, str(node.value).partition(":")[0].rstrip(".")


def against_the_order(root: Path) -> list[str]:
    """What a folder of the package imports of a later one, or of the study, a line each."""
    wrong = []
    for path in sorted(root.rglob("*.py")):
        own = path.relative_to(root).parts[0].removesuffix(".py")
        if own not in ORDER:
            continue
        for node, name in imports_of(path, root.parent):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package == STUDY or (
                package == root.name and other in ORDER and ORDER.index(other) > ORDER.index(own)
            ):
                wrong.append(f"{path.relative_to(root)}:{node.lineno} imports {name}")
    return wrong


def test_folders_form_no_circle_and_the_tool_needs_no_study() -> None:
    """The study is named once, where plug-ins are found: the tool works where it is not there."""
    names = {path.name.removesuffix(".py") for path in SOURCE.iterdir()} - {"__pycache__"}
    assert names - {"__init__", "__main__"} == set(ORDER)
    (plugin,) = against_the_order(SOURCE)
    assert re.fullmatch(r"plugins\.py:\d+ imports multigpu_study", plugin)


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
        'made = lazy("multigpu.workloads:find_model")',
        'found = importlib.import_module(f"multigpu.workloads.{name}.torch")',
        "import multigpu_study",
        'found = find_spec("multigpu_study")',
    ],
)
def test_every_kind_of_import_counts(tmp_path: Path, statement: str) -> None:
    root = tmp_path / "multigpu"
    (root / "placements").mkdir(parents=True)
    (root / "placements" / "row.py").write_text(f"{statement}\n")
    (line,) = against_the_order(root)
    assert line.startswith("placements/row.py:")


def imported(path: Path, modules: Collection[str]) -> set[str]:
    """Which of these modules a file imports anywhere but for types."""
    named: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            named |= {name if name in modules else node.module for name in whole}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            waiting += ast.iter_child_nodes(node)
    return named & set(modules)


def test_each_module_can_be_imported_first() -> None:
    """No module needs itself, not even through an import inside a function or a package that runs
    before it.
    """
    modules = modules_of(SOURCE.parent)
    packages = {
        name: set(accumulate(name.split(".")[:-1], "{}.{}".format)) - {"multigpu", STUDY}
        for name in modules
    }
    needs: dict[str, set[str]] = {}
    for name, path in modules.items():
        named = imported(path, modules) - {name}
        parents = {parent for other in named for parent in packages[other]}
        needs[name] = (named | parents - packages[name]) - {name}
    assert "multigpu.records.store" in needs["multigpu.runner.point"]
    TopologicalSorter(needs).prepare()


def from_the_root(path: Path, source: Path) -> list[str]:
    """What a file imports of a package's own `__init__`, where users find it."""
    modules = modules_of(source)
    return [
        name
        for node, name in imports_of(path, source)
        if isinstance(node, ast.ImportFrom) and name.count(".") == 1 and name not in modules
    ]


def test_no_module_imports_from_the_packages_root(tmp_path: Path) -> None:
    """`multigpu.compare` is for users: inside, each name comes from the module that defines it."""
    every = [
        (path, name)
        for path in modules_of(SOURCE.parent).values()
        for name in from_the_root(path, SOURCE.parent)
        if name.split(".")[0] in ("multigpu", STUDY)
    ]
    assert every == []
    planted = SOURCE / "planted.py"
    source = tmp_path / "multigpu"
    source.mkdir()
    (source / "__init__.py").touch()
    planted = source / "planted.py"
    planted.write_text("from multigpu import Job, planted\n")
    assert from_the_root(planted, tmp_path) == ["multigpu.Job"]


TESTS = REPOSITORY / "tests" / "multigpu"


def needs_of_the_study(folder: Path) -> list[str]:
    """What files of a folder of tests import of the study, or of its tests, a line each."""
    named = (
        (path, name)
        for path in sorted(folder.rglob("*.py"))
        for node, name in imports_of(path, folder.parents[1])
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return [
        f"{path.relative_to(folder)} imports {name}"
        for path, name in named
        if name.partition(".")[0] == STUDY or f"{name}.".startswith("tests.study.")
    ]


def test_contributing_shows_the_house_as_it_is(tmp_path: Path) -> None:
    found = runpy.run_path(str(REPOSITORY / "workflow" / "house.py"))
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert found["shown"](page) == found["figure"](), "python workflow/house.py --write"
    rooms = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("_")}
    assert {room for room in rooms if f"`{room}/`" not in page and f"`{room}`" not in page} == set()
    planted = {"a": "from multigpu import b, c", "b": "import multigpu.c.d", "c": ""}
    for name, text in planted.items():
        (tmp_path / "multigpu" / name).mkdir(parents=True)
        (tmp_path / "multigpu" / name / "one.py").write_text(f"{text}\n")
    drawn = found["figure"](tmp_path / "multigpu").splitlines()
    assert drawn[1:-1] == ["    a --> b", "    b --> c"]  # and not a --> c, which they imply


def test_tests_of_the_tool_need_no_study(tmp_path: Path) -> None:
    assert needs_of_the_study(TESTS) == []
    folder = tmp_path / "tests" / "multigpu"
    folder.mkdir(parents=True)
    (folder / "test_planted.py").write_text(
        "def test_late():\n    import multigpu_study.claims\n    from tests.study import planted\n"
    )
    assert len(needs_of_the_study(folder)) == 2


SELECTED = (
    "test_store.py spec collectives/test_spec.py"
    " fuzz/test_words.py::test_a_command_ends_well_or_with_one_sentence",
    "test_conditions.py test_packing.py test_plugins.py",
)
"""Of the tests of the tool: what reads Records and commands, and more that reads plug-ins and
grids.
"""


@pytest.mark.slow
@pytest.mark.parametrize("selected", but(SELECTED[:1], SELECTED), ids=len)
def test_the_tool_works_where_the_study_is_not_installed(selected: str) -> None:
    """All of tests/multigpu passes so, too: `PYTHONPATH=tests/multigpu/blocked pytest
    tests/multigpu`.
    """
    path = os.pathsep.join([str(TESTS / "blocked"), str(SOURCE.parent)])
    environment = os.environ | {"PYTHONPATH": path}
    program = "import multigpu_study"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert b"multigpu_study is blocked" in done.stderr
    # not with the options of the suite around it, such as its workers or what it selects
    environment.pop("PYTEST_ADDOPTS", None)
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, *(f"tests/multigpu/{name}" for name in selected.split())],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30  # type: ignore[index]
