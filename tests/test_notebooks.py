import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from multigpu.archive import write_archive
from multigpu.notebooks import NotebookError, execute_notebooks, load_parameters, numbered_notebooks, this_interpreter
from multigpu.parameters import ParameterError
from multigpu.store import loose_in, packed_in

CHECK = "from multigpu.parameters import Measure, check_parameters\ncheck_parameters(globals(), measure=Measure, grid=str)"


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


def texts(path: Path) -> str:
    return "".join(output.get("text", "") for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", []))


def test_every_numbered_notebook_runs_here_with_the_parameters_it_has(tmp_path: Path) -> None:
    write(tmp_path / "02-second.ipynb", "import sys\nprint(measure, grid, sys.executable)")
    other = "from multigpu.parameters import Measure, check_parameters\ncheck_parameters(globals(), measure=Measure)"
    first = write(tmp_path / "01-first.ipynb", "print(measure)", parameters='measure = "none"')
    first.write_text(first.read_text().replace(json.dumps(CHECK)[1:-1].split("\\n")[1], other.split("\n")[1]))
    (tmp_path / "draft.ipynb").write_text("not numbered, not read")

    done = execute_notebooks(tmp_path, tmp_path / "out", {"measure": "all", "grid": "small"}, progress=False)

    assert [path.name for path in done] == ["01-first.ipynb", "02-second.ipynb"]
    assert texts(done[0]) == "all\n"
    assert texts(done[1]) == f"all small {sys.executable}\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["01-first.ipynb", "02-second.ipynb"]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (
            {"measure": True},
            "01-a.ipynb stopped in cell 3 with ParameterError: parameter measure = True: input should be 'missing', 'all' or 'none'.",
        ),
        ({"mesure": "all"}, "unknown parameter 'mesure' of any notebook: did you mean 'measure'?"),
    ],
)
def test_a_wrong_parameter_stops_in_one_sentence(tmp_path: Path, parameters: dict[str, object], sentence: str) -> None:
    write(tmp_path / "01-a.ipynb", "open('reached', 'w')")
    with pytest.raises((NotebookError, ParameterError)) as caught:
        execute_notebooks(tmp_path, tmp_path / "out", parameters, progress=False)
    assert str(caught.value) == sentence
    assert not (tmp_path / "reached").exists()


def test_a_notebook_that_stops_leaves_no_copy_that_looks_finished(tmp_path: Path) -> None:
    path = write(tmp_path / "01-a.ipynb")
    execute_notebooks(tmp_path, tmp_path / "out", progress=False)
    write(path, "raise OSError('the disk\\nis full')")
    with pytest.raises(NotebookError, match=r"^01-a.ipynb stopped in cell 3 with OSError: the disk is full$"):
        execute_notebooks(tmp_path, tmp_path / "out", progress=False)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["01-a.failed.ipynb"]


def test_a_kernel_that_dies_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path / "01-a.ipynb", "import os\nos._exit(3)")
    with pytest.raises(NotebookError, match=r"^01-a.ipynb could not be executed: DeadKernelError: "):
        execute_notebooks(tmp_path, tmp_path / "out", progress=False)


def test_papermill_by_hand_stops_at_the_check_cell(tmp_path: Path) -> None:
    """As a reader calls it, with parameters from a YAML file: one that suits, and a name that papermill would only warn of."""
    path = write(tmp_path / "01-a.ipynb", "print(measure, grid)")
    (tmp_path / "good.yaml").write_text("measure: all\ngrid: small\n")
    (tmp_path / "unknown.yaml").write_text("measure: all\nmesure: none\n")
    expected = {"good": None, "unknown": "ParameterError: unknown parameter 'mesure' of this notebook: did you mean 'measure'?"}
    with this_interpreter():
        for name, sentence in expected.items():
            command = [sys.executable, "-m", "papermill", str(path), str(tmp_path / "out.ipynb"), "-f", str(tmp_path / f"{name}.yaml")]
            result = subprocess.run([*command, "--no-progress-bar"], capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
            if sentence is None:
                assert result.returncode == 0, result.stderr
                assert texts(tmp_path / "out.ipynb") == "all small\n"
            else:
                assert result.returncode != 0
                shown = result.stderr[result.stderr.index("Exception encountered at") :].strip().splitlines()
                assert len(shown) == 2 and shown[1].startswith(sentence), result.stderr


def test_notebooks_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match="no numbered notebook"):
        numbered_notebooks(tmp_path)
    (tmp_path / "01-broken.ipynb").write_text("{")
    with pytest.raises(NotebookError, match=r"01-broken.ipynb is no notebook"):
        execute_notebooks(tmp_path, tmp_path / "out", progress=False)
    write(tmp_path / "01-broken.ipynb")
    with pytest.raises(NotebookError, match="over their own sources"):
        execute_notebooks(tmp_path, tmp_path, progress=False)
    notebook = nbformat.read(tmp_path / "01-broken.ipynb", 4)
    notebook.cells[1].metadata.tags = []
    nbformat.write(notebook, tmp_path / "01-broken.ipynb")
    with pytest.raises(NotebookError, match="has 0 cells tagged `parameters`"):
        execute_notebooks(tmp_path, tmp_path / "out", progress=False)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read"),
        ("a: [", "is no YAML"),
        ("- 1\n", "must hold lines of `name: value`"),
        ("", "must hold lines"),
        ("7: a\n", "must hold lines"),
    ],
)
def test_a_bad_parameters_file_is_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    path = tmp_path / "parameters.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ParameterError, match=sentence) as caught:
        load_parameters(path)
    assert "\n" not in str(caught.value)


def test_parameters_are_read_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("measure: none\nname: '007'\ndevices: [1, 2]\n")
    assert load_parameters(tmp_path / "p.yaml") == {"measure": "none", "name": "007", "devices": [1, 2]}


OURS = sorted((Path(__file__).parents[1] / "notebooks").glob("[0-9]*.ipynb"))


SAMPLE = OURS[:2]
"""The others run under papermill in `.ci/run`, all of them, with the parameters of a YAML file, and in this process in tests/study."""
MOST = 40
"""Records that a notebook finds here of each place: a page has to stand on any of them."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with some of the committed Records of each kind and place, every other one packed, and all else that `data/` holds; figures go
    to it, too.
    """
    root, data = tmp_path_factory.mktemp("home"), OURS[0].parents[1] / "data"
    for folder in (path for path in data.rglob("*") if path.is_dir()):
        mine = root / "data" / folder.relative_to(data)
        mine.mkdir(parents=True)
        every = {(held.key, held.attempt): held for held in [*packed_in(folder), *loose_in(folder)]}
        if some := [every[name] for name in sorted(every)][:: len(every) // MOST + 1]:
            write_archive(mine, {(held.key, held.attempt): held.text() for held in some[::2]})
            for held in some[1::2]:
                (mine / f"{held.key}.{held.attempt}.json.gz").write_bytes(gzip.compress(held.text()))
        records = {held.path for held in every.values()}
        for path in (path for path in folder.iterdir() if path.is_file() and path not in records):
            (mine / path.name).symlink_to(path)
    return root


@pytest.mark.parametrize("notebook", SAMPLE, ids=lambda path: path.stem)
def test_each_of_ours_runs_under_papermill_from_a_yaml_file(notebook: Path, home: Path, tmp_path: Path) -> None:
    """Measuring nothing."""
    (tmp_path / "parameters.yaml").write_text("records: data\n")
    import papermill

    takes = papermill.inspect_notebook(str(notebook))
    given = {name: value for name, value in load_parameters(tmp_path / "parameters.yaml").items() if name in takes}
    with this_interpreter() as kernel, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTIGPU_HOME", str(home))
        papermill.execute_notebook(
            str(notebook),
            str(tmp_path / notebook.name),
            parameters=given,
            kernel_name=kernel,
            progress_bar=False,
            cwd=str(tmp_path),
        )
    assert nbformat.read(tmp_path / notebook.name, 4).metadata.papermill.exception is None


@pytest.mark.parametrize(("parameters", "words"), [({"machine": 7}, "machine"), ({"machin": "none"}, "did you mean 'machine'")])
def test_ours_stop_at_the_check(parameters: dict[str, object], words: str, tmp_path: Path) -> None:
    import papermill

    with this_interpreter() as kernel, pytest.raises(papermill.PapermillExecutionError, match=words) as stopped:
        papermill.execute_notebook(
            str(OURS[0]), str(tmp_path / "out.ipynb"), parameters=parameters, kernel_name=kernel, progress_bar=False, cwd=str(tmp_path)
        )
    assert stopped.value.ename == "ParameterError"
