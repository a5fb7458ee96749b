"""The workflow: its jobs and their GPUs, locally and through Slurm; after kill -9 nothing is left running and it goes on."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from multigpu.batch import Outcome, read_tasks
from multigpu.cli import main

ROOT = Path(__file__).parents[2]
needs_snakemake = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None, reason='no snakemake here: pip install "multigpu[cluster]"'
)
needs_slurm_plugin = pytest.mark.skipif(
    importlib.util.find_spec("snakemake_executor_plugin_slurm") is None, reason="no snakemake-executor-plugin-slurm here"
)


def notebook(path: Path, source: str) -> None:
    cell = nbformat.v4.new_code_cell('measure = "missing"', metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell(source)]), path)


def snakemake(tmp_path: Path, *words: str, profile: str = "local") -> list[str]:
    return [
        *(sys.executable, "-m", "snakemake", "-s", str(ROOT / "workflow" / "Snakefile"), "--directory", str(tmp_path), "--nocolor"),
        *("--profile", str(ROOT / "workflow" / "profiles" / profile), *words),
    ]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


@needs_snakemake
@needs_slurm_plugin
def test_every_notebook_is_a_job_with_gpus(tmp_path: Path) -> None:
    """Through Slurm; the rows of a batch are jobs of the local profile."""
    words = ["--dry-run", "--config", f"out={tmp_path}", "grids=headline", "gpus=4", "--resources", "gpu=4"]
    done = subprocess.run(snakemake(tmp_path, *words, profile="slurm"), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    pages = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    for page in pages:
        assert f"{tmp_path}/pages/{page.name}" in said
    assert said.count("gpu=4") >= len(pages) + 1 and f"{tmp_path}/measured/headline" in said


@needs_snakemake
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_rows_of_a_batch_are_jobs_and_the_index_shows_all(tmp_path: Path) -> None:
    """A row that a machine cannot do, so that nothing is trained here, beside one that the batch has done before."""
    rows, out = tmp_path / "points.yaml", tmp_path / "out"
    rows.write_text("- {workload: nmt, model: nmt_tiny, placement: [ddp, exp4], batch_size: 2, devices: 64}\n")
    names = [task.name for task in read_tasks(rows, [1])[0]]
    (out / "rows").mkdir(parents=True)
    (out / "rows" / f"{names[0]}.ipynb").touch()
    (out / "rows" / f"{names[0]}.json").write_text(Outcome(status="done").model_dump_json())
    words = ["--config", f"points={rows}", f"out={out}"]
    listed = subprocess.run(snakemake(tmp_path, *words, "--dry-run"), env=environment(), capture_output=True, text=True)
    assert listed.returncode == 0 and f"{names[1]}.ipynb" in listed.stdout + listed.stderr and "gpu=" in listed.stdout + listed.stderr
    assert f"output: {out}/rows/{names[0]}.ipynb" not in listed.stdout + listed.stderr
    done = subprocess.run(snakemake(tmp_path, *words), env=environment(), capture_output=True, text=True)
    assert done.returncode != 0 and "64 GPUs were asked for" in done.stdout + done.stderr
    page = (out / "index.html").read_text()
    assert "1 done, 1 not on this machine" in page and "64 GPUs were asked for" in page


@needs_snakemake
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.environ.get("MULTIGPU_TEST_HOSTS"), reason="half a minute: set MULTIGPU_TEST_HOSTS=1")
def test_after_kill_9_nothing_runs_on_and_the_rest_is_done(tmp_path: Path) -> None:
    pages, out, mark = tmp_path / "pages", tmp_path / "out", tmp_path / "kernel"
    pages.mkdir()
    notebook(pages / "01-short.ipynb", "print(1)")
    # first it sleeps; when it is run again the mark is there
    source = (
        "import os, pathlib, subprocess, time\n"
        f"mark = pathlib.Path({str(mark)!r})\nfirst = not mark.exists()\n"
        'mark.write_text(str(os.getpid()))\nif first:\n    subprocess.run(["sleep", "1"])\n    time.sleep(600)'
    )
    notebook(pages / "02-long.ipynb", source)
    words = ["--config", f"notebooks={pages}", f"out={out}", "measure=none"]
    first = subprocess.Popen(snakemake(tmp_path, *words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 100
    while not mark.exists() or not (out / "pages" / "01-short.ipynb").exists():
        assert time.monotonic() < until and first.poll() is None
        time.sleep(0.2)
    time.sleep(5)  # until Snakemake has noted that the first page is done
    children = psutil.Process(first.pid).children(recursive=True)
    assert int(mark.read_text()) in [child.pid for child in children]
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not (out / "pages" / "02-long.ipynb").exists()
    before = (out / "pages" / "01-short.ipynb").stat().st_mtime_ns
    subprocess.run(snakemake(tmp_path, *words, "--unlock"), env=environment(), check=True, capture_output=True)
    again = subprocess.run(snakemake(tmp_path, *words), env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (out / "pages" / "02-long.ipynb").exists() and (out / "pages" / "01-short.ipynb").stat().st_mtime_ns == before


def test_bad_words_end_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook(tmp_path / "01-page.ipynb", "print(1)")
    (tmp_path / "points.yaml").write_text("- {workload: nmt, model: nmt_tiny, placement: ddp, batch_size: 2}")
    for words, sentence in (
        (["page", str(tmp_path / "01-page.ipynb"), str(tmp_path / "out.ipynb"), "measur=none"], "unknown parameter 'measur'"),
        (["page", str(tmp_path / "01-page.ipynb"), str(tmp_path / "out.ipynb"), "measure"], "are not of the form name=value"),
        (["page", str(tmp_path / "none.ipynb"), str(tmp_path / "out.ipynb")], "none.ipynb is no notebook"),
        (["measure", "--grid", "nothing"], "unknown grid 'nothing'"),
        (["batch", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out"), "--row", "name"], "none.yaml cannot be read"),
        (["batch", str(tmp_path / "points.yaml"), "--out", str(tmp_path / "out"), "--row", "name"], "has no row 'name'"),
        (["batch", str(tmp_path / "points.yaml"), "--out", str(tmp_path / "points.yaml"), "--row", ""], "cannot be written"),
    ):
        assert main(words) in (1, 2)
        assert sentence in capsys.readouterr().err
