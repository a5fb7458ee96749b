import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import nbformat
import psutil
import pytest

from multigpu.report.kernels import this_interpreter
from multigpu.report.notebooks import (
    NotebookError,
    execute_notebooks,
    load_parameters,
    numbered_notebooks,
)
from multigpu.spec.parameters import ParameterError, check_parameters
from tests.refusals import refused

Measure = Literal["missing", "all", "none"]
CHECK = (
    "from multigpu.spec.parameters import check_parameters\n"
    "check_parameters(globals(), measure=str, grid=str)"
)


def write(path: Path, *cells: str, parameters: str = 'measure = "none"\ngrid = "default"') -> Path:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(metadata=metadata)
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# A question"),
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *(nbformat.v4.new_code_cell(source) for source in (CHECK, *cells)),
    ]
    nbformat.write(notebook, path)
    return path


def test_every_numbered_notebook_runs_here_with_the_parameters_it_has(tmp_path: Path) -> None:
    write(tmp_path / "02-second.ipynb", "import sys\nprint(measure, grid, sys.executable)")
    first = write(tmp_path / "01-first.ipynb", "print(measure)", parameters='measure = "none"')
    first.write_text(first.read_text().replace(", grid=str", ""))
    (tmp_path / "draft.ipynb").write_text("not numbered, not read")
    done = execute_notebooks(tmp_path, tmp_path / "out", {"measure": "all", "grid": "small"})
    assert sorted((tmp_path / "out").iterdir()) == done and [path.name for path in done] == [
        "01-first.ipynb",
        "02-second.ipynb",
    ]
    said = [
        [
            output["text"]
            for cell in nbformat.read(path, 4).cells
            for output in cell.get("outputs", [])
        ]
        for path in done
    ]
    assert said == [["all\n"], [f"all small {sys.executable}\n"]]


def test_what_several_notebooks_import_is_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their kernels are forks of a process that has done so; each is a process of its own, in the
    folder of its notebook and with the environment of now.
    """
    said = tmp_path / "imported"
    (tmp_path / "slow_to_import.py").write_text(
        f"import os\nwith open({str(said)!r}, 'a') as file:\n    print(os.getpid(), file=file)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PLANTED", "here")
    tell = "import os\nprint(os.getpid(), os.getppid(), os.getcwd(), os.environ['PLANTED'])"
    for number in range(3):
        write(tmp_path / f"0{number}-page.ipynb", "import slow_to_import", tell)
    told = [
        nbformat.read(path, 4).cells[-1].outputs[0]["text"].split()
        for path in execute_notebooks(tmp_path, tmp_path / "out")
    ]
    pids, parents, folders, planted = zip(*told, strict=True)
    assert len(set(pids)) == 3 and set(parents) == {said.read_text().strip()}
    assert set(folders) == {str(tmp_path)} and set(planted) == {"here"}
    assert not psutil.pid_exists(int(parents[0])), "the process that forks ends with the last"


def test_kernels_end_with_who_executes_them_however_it_ends(tmp_path: Path) -> None:
    for number in range(2):
        wait = (
            f"open({str(tmp_path / str(number))!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        )
        write(tmp_path / f"0{number}-page.ipynb", "import os, time", wait)
    script = (
        "from pathlib import Path; from multigpu.report.notebooks import execute_notebooks;"
        f" execute_notebooks(Path({str(tmp_path)!r}), Path({str(tmp_path / 'out')!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    told = [tmp_path / "0", tmp_path / "1"]
    until = time.monotonic() + 120
    while not all(path.exists() and path.read_text() for path in told):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    kernels = [psutil.Process(int(path.read_text())) for path in told]
    process.kill()
    process.wait()
    assert psutil.wait_procs(kernels, timeout=30)[1] == []


def test_a_notebook_that_stops_leaves_no_copy_that_looks_finished(tmp_path: Path) -> None:
    """Nor one whose kernel dies; what cannot be read, or a name that none has, stops before any is
    executed.
    """
    path, out = tmp_path / "01-a.ipynb", tmp_path / "out"
    refused("no numbered notebook", numbered_notebooks, tmp_path, error=NotebookError)
    write(path)
    told = r"^unknown parameter 'mesure' of any notebook: did you mean 'measure'\?$"
    refused(told, execute_notebooks, tmp_path, out, {"mesure": "all"}, error=ParameterError)
    refused("over their own sources", execute_notebooks, tmp_path, tmp_path, error=NotebookError)
    for source, told in (
        ("{", "01-a.ipynb is no notebook"),
        (path.read_text().replace('"parameters"', '"else"'), "has 0 cells tagged `parameters`"),
    ):
        path.write_text(source)
        refused(told, execute_notebooks, tmp_path, out, error=NotebookError)
    assert not out.exists()
    out.mkdir()
    (out / "01-a.ipynb").write_text("of a call before")
    for cell, told in (
        (
            "raise OSError('the disk\\nis full')",
            r"^01-a.ipynb stopped in cell 3 with OSError: the disk is full$",
        ),
        ("import os\nos._exit(3)", r"^01-a.ipynb could not be executed: DeadKernelError: "),
    ):
        write(path, cell)
        refused(told, execute_notebooks, tmp_path, out, error=NotebookError)
        assert [file.name for file in out.iterdir()] == ["01-a.failed.ipynb"]


def test_papermill_by_hand_stops_at_the_check_cell(tmp_path: Path) -> None:
    """As a reader calls it, with parameters from a YAML file, at a name that papermill would only
    warn of.
    """
    path = write(tmp_path / "01-a.ipynb", "print(measure, grid)")
    (tmp_path / "unknown.yaml").write_text("measure: all\nmesure: none\n")
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(path),
        str(tmp_path / "out.ipynb"),
        "-f",
        str(tmp_path / "unknown.yaml"),
    ]
    with this_interpreter():
        result = subprocess.run(
            [*command, "--no-progress-bar"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=dict(os.environ),
        )
    assert result.returncode != 0
    shown = result.stderr[result.stderr.index("Exception encountered at") :].strip().splitlines()
    assert len(shown) == 2 and shown[1].startswith(
        "ParameterError: unknown parameter 'mesure' of this notebook: did you mean 'measure'?"
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "is no YAML"),
        ("- 1\n", "must hold lines of `name: value`"),
        ("", "must hold lines"),
        ("7: a\n", "must hold lines"),
    ],
)
def test_a_bad_parameters_file_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "parameters.yaml"
    refused("cannot be read", load_parameters, path, error=ParameterError)
    path.write_text(content)
    refused(sentence, load_parameters, path, error=ParameterError)
    path.write_text("measure: none\nname: '007'\ndevices: [1, 2]\n")
    assert load_parameters(path) == {"measure": "none", "name": "007", "devices": [1, 2]}


AS_TEXT = (
    " = 7: input should be a valid string (papermill reads -p values as numbers where it can; -r"
    " passes them as text)."
)


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (7, str, AS_TEXT),
        ("maybe", Measure, " = 'maybe': input should be 'missing', 'all' or 'none'."),
        (True, int, " = True: input should be a valid integer."),
        (1.0, int, " = 1.0: input should be a valid integer."),
        ([1, "2"], list[int], "[1] = '2': input should be a valid integer."),
    ],
)
def test_a_wrong_type_is_one_sentence(value: object, kind: Any, sentence: str) -> None:
    assert (
        refused(".", check_parameters, {"p": value}, p=kind, error=ParameterError)
        == f"parameter p{sentence}"
    )
    check_parameters(
        {"p": "all", "q": [1, 2], "r": 3, "other": object()}, p=Measure, q=list[int], r=float | None
    )
    refused("'p' has no value", check_parameters, {}, error=ParameterError, p=kind)


def test_papermills_text_is_read_as_yaml_where_no_text_can_be() -> None:
    """As `-p trace true`, `-p repeats "[0, 0, 1]"`, which papermill hands over as text."""
    given = {"trace": "true", "repeats": "[0, 0, 1]", "more": "{layout: x}", "data": "null"}
    given |= {"records": "true"}
    check_parameters(
        given,
        trace=int | bool,
        repeats=int | list[int],
        more=dict[str, Any],
        data=list[str] | None,
        records=str | None,
    )
    assert given == {
        "trace": True,
        "repeats": [0, 0, 1],
        "more": {"layout": "x"},
        "data": None,
        "records": "true",
    }
    for bad, told in (
        ("maybe", "p = 'maybe'"),
        ("[a", r"p = '\[a'"),
        ("[0, a]", r"p = \[0, 'a'\]"),
    ):
        refused(told, check_parameters, {"p": bad}, p=int | list[int], error=ParameterError)


def test_an_unknown_name_is_found_in_the_injected_cell_alone() -> None:
    cells = ["", "measure = 'none'", '# Parameters\nmeasure = "all"\nmesure = "none"\n']
    told = "unknown parameter 'mesure' of this notebook: did you mean 'measure'"
    refused(
        told,
        check_parameters,
        {"measure": "all", "In": cells},
        measure=Measure,
        error=ParameterError,
    )
    # A notebook run twice in one kernel holds names of its later cells: they are no parameters.
    check_parameters(
        {"measure": "all", "frame": 1, "In": [*cells[:2], "frame = 1"]}, measure=Measure
    )
