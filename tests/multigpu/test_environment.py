"""What the repository promises about itself: environments agree, notebooks are clean, nothing is
too large or tied to one machine.
"""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from multigpu import paths
from multigpu.report.notebooks import parameter_names
from tests.refusals import refused

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
EVERY = [
    requirement
    for requirement in (*PROJECT["dependencies"], *EXTRAS["report"], *EXTRAS["study"])
    if not requirement.startswith("multigpu")
]
"""Requirements of `make study`: the base's, and those of the study's extras."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

IMPORT_NAMES = {
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages that are imported under another name."""


def tracked() -> list[Path]:
    """Files that git tracks, or would track if everything were added."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def named(*requirements: str) -> dict[str, SpecifierSet]:
    """The versions that each package may have: {"pandas": ">=2.2"} of "pandas >= 2.2"."""
    return {canonicalize_name(one.name): one.specifier for one in map(Requirement, requirements)}


@cache
def exact() -> dict[str, str]:
    """The version of each package that constraints.txt names."""
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines), (
        "exact public versions only"
    )
    versions = {
        canonicalize_name(name): version for name, version in (line.split("==") for line in lines)
    }
    assert len(versions) == len(lines)
    return versions


def test_conda_and_pip_install_the_same() -> None:
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert f"python{PROJECT['requires-python']}" in dependencies
    assert pip[0] == "-c constraints.txt" and pip[-1] == "-e ."
    wanted = named(*EVERY, *EXTRAS["dev"], *EXTRAS["lab"])
    assert named(*pip[1:-1]) == wanted
    for name, allowed in (wanted | named(*EXTRAS["tensorflow-cpu"])).items():
        assert allowed.contains(exact()[name]), (
            f"constraints.txt has {name} {exact()[name]}, pyproject.toml wants {allowed}"
        )


def test_what_is_imported_is_declared() -> None:
    declared = named(*EVERY)
    # triton: a part of PyTorch's builds for GPUs, imported there alone; ipywidgets, ray: of extras,
    # with something in their place
    optional = {"multigpu", "multigpu_study", "tensorflow", "keras", "triton", "ipywidgets", "ray"}
    imported: dict[str, Path] = {}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "report").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            imported |= {name.split(".")[0]: path for name in names}
    for name, path in imported.items():
        if name not in optional | sys.stdlib_module_names:
            assert canonicalize_name(IMPORT_NAMES.get(name, name)) in declared, (
                f"{path} imports {name}, which is not declared"
            )


def test_the_tree_is_small_and_no_file_is_tied_to_one_machine() -> None:
    assert sum(path.stat().st_size for path in tracked()) < 20 * 2**20
    homes = rb"(?<![\w./~-])/(?:work|root|home|Users|tmp|opt/pypi|private/var)/[\w.-]+"
    hosts = rb"(?:pypi|npm|debian)[\w-]*\.(?:internal|local|mirror)\b"
    for path in tracked():
        found = re.search(homes + rb"|" + hosts, path.read_bytes())
        assert not found, f"{path.relative_to(ROOT)} names {found[0].decode()}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert re.match(r"(\d\d-[a-z0-9-]+|experiment|your-model)\.ipynb$", path.name), (
        "a page is numbered, in lower case, with dashes"
    )
    assert parameter_names(path), "the parameters cell gives values"
    kernel = notebook.metadata.kernelspec
    assert (kernel.name, kernel.get("language")) == ("python3", "python"), (
        "papermill needs the kernel's language"
    )
    first = notebook.cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# "), (
        "the first cell holds the title and the question"
    )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "parameters" in code[0].metadata.get("tags", []), (
        "the parameters cell is the first code cell"
    )
    assert re.search(r"\b(check_parameters|page)\(globals\(\)", code[1].source), (
        "the second code cell checks the parameters"
    )
    assert sum(cell.source.count("file=") for cell in code) <= 4 or path.name >= "2", (
        "at most four figures, but in appendices"
    )
    for cell in code:
        assert not cell.outputs and cell.execution_count is None, (
            "committed without outputs: make format"
        )
        for node in ast.walk(ast.parse(cell.source)):
            kind = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
            assert not isinstance(node, kind), (
                f"code lives in src/, not in notebooks: {ast.unparse(node)[:60]}"
            )


LOCKS = {
    file.stem: dict(re.findall(r"^([\w.-]+)==(\S+)", file.read_text(), re.MULTILINE))
    for file in (ROOT / "locks").glob("*.txt")
}


def test_locks_hold_what_constraints_say_and_only_files_with_a_hash() -> None:
    constraints = exact()
    for name, packages in LOCKS.items():
        for package, version in packages.items():
            if name != "tools":  # those of make live in an environment of their own
                assert version.partition("+")[0] == constraints.get(
                    package, version.partition("+")[0]
                ), f"{name}: {package}: run `make lock`"
        entries = re.split(
            r"^(?=\w)", (ROOT / "locks" / f"{name}.txt").read_text(), flags=re.MULTILINE
        )[1:]
        assert len(entries) == len(packages) and all(
            re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries
        )
        assert not re.search(r"://|--(extra-)?index|--find-links|file:", "".join(entries)), (
            f"{name} names where its packages come from"
        )


def test_every_dependency_is_locked() -> None:
    everywhere = LOCKS["all"] | LOCKS["torch-cuda"]
    for extra, place in {
        "": everywhere,
        "dev": everywhere,
        "lab": LOCKS["lab"],
        "tensorflow-cpu": LOCKS["tensorflow-cpu"],
    }.items():
        for name, wanted in named(*(EXTRAS[extra] if extra else EVERY)).items():
            version = (place | everywhere).get(name)
            assert version and wanted.contains(version), (
                f"{name} {wanted} is not locked: run `make lock`"
            )
    assert LOCKS["torch-cpu"]["torch"] == f"{LOCKS['torch-cuda']['torch']}+cpu"


def test_the_repository_is_the_one_whose_src_holds_the_package_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    assert paths.find_checkout() == Path(__file__).resolve().parents[2]
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    assert paths.find_checkout() == tmp_path.resolve()
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "absent"))
    told = "^MULTIGPU_HOME names .*absent, which is not a folder: set it to the repository's root$"
    refused(told, paths.find_checkout, error=FileNotFoundError)
    monkeypatch.delenv(paths.HOME_VARIABLE)
    # an environment inside of another project, whose pyproject.toml is none of this package's
    (tmp_path / "pyproject.toml").touch()
    site = tmp_path / "venv" / "site-packages"
    monkeypatch.setattr(paths, "__file__", str(site / "multigpu" / "paths.py"))
    assert paths.find_checkout() is None
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert paths.own_folder() == tmp_path / "share" / "multigpu"
