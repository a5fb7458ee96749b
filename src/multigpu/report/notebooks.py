"""Execute the numbered notebooks with papermill, in the interpreter that runs this."""

import argparse
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from papermill.exceptions import PapermillException, PapermillExecutionError
from papermill.execute import execute_notebook
from tqdm.auto import tqdm

from multigpu import paths
from multigpu.grids.expand import read_yaml
from multigpu.report.kernels import this_interpreter
from multigpu.spec.parameters import ParameterError, assigned_names, check_known
from multigpu.writing import explaining


class NotebookError(RuntimeError):
    """A notebook that cannot be executed; its message is one sentence."""


class NamedError(NotebookError, ValueError):
    """A notebook, page or folder that was named and is none; its message is one sentence."""


def numbered_notebooks(folder: Path, only: str = "") -> list[Path]:
    """The notebooks of `folder` whose names start with a digit (or a NotebookError); or the one of
    them that `only` names or begins.
    """
    every = sorted(path for path in folder.glob("[0-9]*.ipynb") if path.suffixes == [".ipynb"])
    if not every:
        raise NotebookError(f"no numbered notebook (such as 01-name.ipynb) lies in {folder}.")
    found = [path for path in every if path.stem == only.removesuffix(".ipynb")] or [
        path for path in every if path.stem.startswith(only)
    ]
    if only and len(found) != 1:
        raise NamedError(
            f"{only!r} names {len(found) or 'no'} page: choose one of"
            f" {', '.join(path.stem for path in every)}."
        )
    return found


def load_parameters(path: Path) -> dict[str, Any]:
    """Parameters from a YAML file of `name: value` lines, as `papermill -f` reads it; or a
    ParameterError.
    """
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise ParameterError(f"the parameters file {error}.") from None
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ParameterError(f"the parameters file {path} must hold lines of `name: value`.")
    for name, value in content.items():
        if "\0" in str(value):
            raise ParameterError(
                f"the parameters file {path}: {name} = {value!r} holds a NUL, which no path, name"
                " or text of a page can: leave it out."
            )
    return content


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook in the format of today, or a NotebookError."""
    try:
        return nbformat.read(path, as_version=4)
    except OSError as error:
        raise NamedError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise NamedError(f"{path} is no notebook: {' '.join(str(error).split())[:200]}") from None


def parameter_names(path: Path) -> list[str]:
    """The names that a notebook's one parameters cell gives a value; without such a cell a
    NotebookError.
    """
    cells = [
        cell for cell in read_notebook(path).cells if "parameters" in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise NamedError(
            f"{path.name} has {len(cells)} cells tagged `parameters`: it must have one."
        )
    return assigned_names(cells[0].source)


def execute_notebooks(
    folder: Path, output: Path, parameters: Mapping[str, Any] | None = None, only: str = ""
) -> list[Path]:
    """Execute every numbered notebook of `folder`, or the one that `only` names, and return the
    executed copies in `output`. Each gets those of the parameters that it has; a ParameterError if
    none has one of them. Earlier copies are removed first.
    """
    given = parameters or {}
    folder, output = folder.resolve(), output.resolve()
    names = {path: parameter_names(path) for path in numbered_notebooks(folder, only)}
    check_known(given, {name for has in names.values() for name in has}, "any notebook")
    if output == folder:
        raise NamedError(
            f"executed notebooks cannot be written over their own sources in {folder}: choose"
            " another folder."
        )
    _make_folder(output)
    for old in output.glob("[0-9]*.ipynb"):  # of notebooks with other names, or failed
        if (
            not only
            or old.name.startswith(next(iter(names)).stem)
            or not (folder / old.name).exists()
        ):
            old.unlink()
    reading = any("records" in has for has in names.values())
    # a kernel starts and draws on one; all are heard before one that stopped is told
    cores = min(4, os.cpu_count() or 1)
    with (
        this_interpreter(names, str(given.get("records", paths.DATA)) if reading else ""),
        tqdm(total=len(names), unit="notebook") as bar,
        ThreadPoolExecutor(cores) as pool,
    ):
        started = []
        for path, has in names.items():
            own = {name: given[name] for name in given if name in has}
            started.append(pool.submit(_execute, path, output / path.name, own, each_cell=False))
            started[-1].add_done_callback(lambda _: bar.update())
    return [future.result() for future in started]


def execute_one(notebook: Path, output: Path, parameters: Mapping[str, Any]) -> None:
    """Execute one notebook; a ParameterError if it has not all of these parameters, or a
    NotebookError as of `_execute`.
    """
    check_known(parameters, parameter_names(notebook), notebook.name)
    _make_folder(output.parent)
    with this_interpreter():
        _execute(notebook.resolve(), output, parameters)


def page_command(arguments: argparse.Namespace) -> int:
    """Execute one notebook, a job of the workflow."""
    if strange := [text for text in arguments.parameters if "=" not in text]:
        raise ValueError(f"parameters {' '.join(strange)!r} are not of the form name=value")
    execute_one(
        arguments.notebook,
        arguments.output,
        dict(text.split("=", 1) for text in arguments.parameters),
    )
    return 0


def _make_folder(folder: Path) -> None:
    """Make it, or say why not (NotebookError)."""
    with explaining(f"executed notebooks cannot be written to {folder}", ".", NamedError):
        folder.mkdir(parents=True, exist_ok=True)


def _execute(path: Path, copy: Path, parameters: Mapping[str, Any], each_cell: bool = True) -> Path:
    """Run a notebook to its end; its copy has its name only then, and before, or if it stops
    (NotebookError), `NAME.failed.ipynb`.
    each_cell: write the copy after every cell, which costs a page of many figures seconds.
    """
    unfinished = copy.with_name(f"{copy.stem}.failed.ipynb")
    try:
        shutil.copyfile(path, unfinished)  # what is left of a page whose kernel dies
        execute_notebook(
            path,
            unfinished,
            dict(parameters),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            request_save_on_cell_execute=each_cell,
            # not `cwd`, which papermill makes the folder of all its threads
            resources={"metadata": {"path": str(path.parent)}},
        )
    except PapermillExecutionError as error:
        reason = " ".join(str(error.evalue).split())
        raise NotebookError(
            f"{path.name} stopped in cell {error.exec_count} with {error.ename}: {reason}"
        ) from None
    except (PapermillException, RuntimeError, TimeoutError, OSError) as error:
        reason = " ".join(str(error).split()) or "no reason was given"
        raise NotebookError(
            f"{path.name} could not be executed: {type(error).__name__}: {reason}"
        ) from None
    return unfinished.replace(copy)
