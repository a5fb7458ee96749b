"""What the study adds to the tool: the same entry points for an installation and for a checkout."""

import os
import pkgutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from multigpu import plugins
from multigpu.paths import REPOSITORY
from multigpu.workloads import workloads

DECLARED = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
ENTRY_POINTS = {kind: added for kind in plugins.KINDS if (added := plugins.added_by_study(kind))}


def test_an_installation_and_a_checkout_have_the_same() -> None:
    assert {f"multigpu.{kind}": added for kind, added in ENTRY_POINTS.items()} == DECLARED


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, added in ENTRY_POINTS.items() for name in added]
)
def test_what_is_named_is_there(kind: str, name: str) -> None:
    assert plugins.declared(kind)[name].value == ENTRY_POINTS[kind][name]
    assert pkgutil.resolve_name(ENTRY_POINTS[kind][name]) is not None


def test_a_checkout_is_run_with_its_own_entry_points_whatever_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = "multigpu.commands"
    installed = EntryPoints(
        [
            EntryPoint("claims", "multigpu_study.older:CLAIMS", group),
            EntryPoint("planted", "example.commands:PLANTED", group),
        ]
    )
    monkeypatch.setattr(plugins, "_installed", lambda: installed)
    plugins.declared.cache_clear()
    try:
        points = plugins.declared("commands")
    finally:
        plugins.declared.cache_clear()
    assert {point.name: point.value for point in points} == {
        **ENTRY_POINTS["commands"],
        "planted": "example.commands:PLANTED",
    }


def test_a_workload_of_the_study_stands_among_the_others_once() -> None:
    names = [*workloads()]
    assert names == sorted(set(names)) and "deepconn" in names and len(workloads()) == len(names)


def test_where_the_study_is_not_there_nothing_is_added() -> None:
    blocked = REPOSITORY / "tests" / "multigpu" / "blocked"
    path = os.pathsep.join([str(blocked), str(Path(plugins.__file__).parents[1])])
    program = (
        "from multigpu.plugins import KINDS, declared\n"
        "print(*[point.name for kind in KINDS for point in declared(kind)"
        " if point.module.startswith('multigpu_study')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"
