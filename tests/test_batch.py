"""A batch: each row once, what is done stays, what fails is shown, and bad input is one sentence; rows train nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from multigpu import batch as module
from multigpu.batch import Outcome, batch, find_points, read_tasks
from multigpu.cli import main
from multigpu.grid import FOLDER
from multigpu.notebooks import NotebookError, parameter_names, read_notebook
from multigpu.run import Run

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "experiment.ipynb"
COMMON = "workload: nmt, model: nmt_tiny, device_type: cpu, sequence_length: 6, batch_size: 2"


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for every row that was executed, without a kernel; rows of exp2 fail while `broken` lies beside it."""
    log = tmp_path / "executed"

    def execute(source: Path, target: Path, given: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(f"{given['placement']} {given['devices']} {given['more']}\n")
        failed = given["placement"] == "exp2" and log.with_name("broken").exists()
        nbformat.write(read_notebook(source), target.with_suffix(".failed.ipynb" if failed else ".ipynb"))
        if failed:
            raise NotebookError("experiment.ipynb stopped in cell 2 with ValueError: the host is <on> fire")

    monkeypatch.setattr(module, "execute_one", execute)
    return log


def points(folder: Path, text: str) -> Path:
    (folder / "points.yaml").write_text(text)
    return folder / "points.yaml"


def test_rows_are_done_once_and_what_failed_is_shown_and_tried_again(tmp_path: Path, counting: Path, capsys) -> None:
    text = (
        f"question: Which is faster?\ncommon: {{{COMMON}}}\npoints:\n- {{placement: [ddp, exp2], reason: Two ways.}}\n"
        "- {placement: ddp, repeats: 2}\n- {placement: ddp, device_type: cuda, devices: 64}\n"
    )
    file, out = points(tmp_path, text), tmp_path / "out"
    (tmp_path / "broken").touch()
    assert batch(file, out, progress=False) == 1
    said = capsys.readouterr().out
    assert "point 2 is point 1 again" in said and "measured once" in said
    assert "failed: nmt_tiny exp2" in said and "64 GPUs were asked for" in said and "2 of them not done" in said
    assert counting.read_text() == "ddp 1 {}\nexp2 1 {}\n"
    page = (out / "index.html").read_text()
    assert "<h1>Which is faster?</h1>" in page and "Two ways." in page and "the host is &lt;on&gt; fire" in page
    assert "3 rows of points.yaml: 1 done, 1 failed, 1 not on this machine" in page
    links = [part.partition('"')[0] for part in page.split('href="')[1:]]
    assert len(links) == 4 and all((out / link).is_file() for link in links)

    (tmp_path / "broken").unlink()
    assert batch(file, out, progress=False) == 1  # the GPUs are still missing
    assert counting.read_text() == "ddp 1 {}\nexp2 1 {}\nexp2 1 {}\n"
    assert "1 of them done before" in capsys.readouterr().out and not list((out / "rows").glob("*.failed.*"))

    # a row that says something else is another one; one that is left out or moved changes nothing
    rows = "- {placement: exp2}\n- {placement: ddp, repeats: 2}\n- {placement: ddp, seed: 1}\n"
    file.write_text(f"common: {{{COMMON}}}\npoints:\n{rows}")
    assert batch(file, out, progress=False) == 0
    assert counting.read_text().splitlines()[3:] == ["ddp 1 {'seed': 1}"]


def test_a_row_gives_the_notebook_every_field_and_a_traced_row_is_its_untraced_one(tmp_path: Path) -> None:
    common = f"{COMMON}, placement: ddp"
    text = f"- {{{common}, bucket_mib: 1, warmup_steps: 3, traced_steps: 2}}\n- {{{common}, launches: [0, 1]}}"
    tasks, said = read_tasks(points(tmp_path, text), [1])
    assert len(tasks) == 2 and not said
    names = parameter_names(NOTEBOOK)
    every = [task.parameters(tmp_path, names) for task in tasks]
    for task, given in zip(tasks, every, strict=True):
        assert set(given) == set(names)
        fields = {name: value for name, value in given.items() if name in Run.model_fields} | given["more"]
        assert Run(**fields) == task.run and task.run.traced_steps == 0
    assert [(given["trace"], given["repeats"]) for given in every] == [(2, 1), (0, [0, 1])] and tasks[0].name != tasks[1].name
    assert find_points("headline") == find_points("grids/headline.yaml") == find_points(str(FOLDER / "headline.yaml"))


def test_what_cannot_be_read_of_a_row_is_done_again(tmp_path: Path, counting: Path) -> None:
    file, out = points(tmp_path, f"- {{{COMMON}, placement: ddp}}"), tmp_path / "out"
    assert batch(file, out, progress=False) == 0
    (state,) = (out / "rows").glob("*.json")
    for break_it in (lambda: state.write_text("{"), lambda: state.with_suffix(".ipynb").unlink(), lambda: state.unlink()):
        break_it()
        assert batch(file, out, progress=False) == 0
        assert Outcome.model_validate_json(state.read_text()).status == "done"
    assert len(counting.read_text().splitlines()) == 4


def test_bad_rows_end_with_one_sentence_and_start_nothing(tmp_path: Path, counting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, sentence in (
        (f"- {{{COMMON}, placment: ddp}}", "unknown field 'placment': did you mean 'placement'?"),
        ("", "is empty"),
        (f"- {{{COMMON}, placement: ddp, without: [{{devices: 1}}]}}", "leaves no point"),
    ):
        assert main(["batch", str(points(tmp_path, text)), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert sentence in said and said.count("\n") == 1 and not counting.exists() and not (tmp_path / "out").exists()


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    home, out, mark = tmp_path / "home", tmp_path / "out", tmp_path / "begun"
    source = f"import os, time\nif placement == 'exp4' and not os.path.exists('{mark}'):\n    os.mkdir('{mark}')\n    time.sleep(600)"
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})
    notebook.cells = [cell for cell in read_notebook(NOTEBOOK).cells if "parameters" in cell.metadata.get("tags", [])]
    notebook.cells.append(nbformat.v4.new_code_cell(source))
    (home / "notebooks").mkdir(parents=True)
    nbformat.write(notebook, home / "notebooks" / "experiment.ipynb")
    file = points(tmp_path, f"- {{{COMMON}, placement: [ddp, exp4, exp2]}}")
    command = [sys.executable, "-m", "multigpu", "batch", str(file), "--out", str(out), "--quiet"]
    environment = os.environ | {"MULTIGPU_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not mark.exists():
        assert first.poll() is None
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130 and said.splitlines()[-1].startswith("multigpu: stopped; what was measured is kept")
    assert "Traceback" not in said and "1 done, 2 not begun" in (out / "index.html").read_text()
    monkeypatch.setattr(module, "NOTEBOOK", home / "notebooks" / "experiment.ipynb")
    assert batch(file, out, progress=False) == 0
    assert "3 rows, 1 of them done before" in capsys.readouterr().out and "3 done" in (out / "index.html").read_text()
