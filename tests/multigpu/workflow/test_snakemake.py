"""The workflow: its jobs and their GPUs, locally and through Slurm; after kill -9 nothing is left
running and it goes on.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from multigpu.report.batch_rows import Outcome, read_tasks
from tests.multigpu.runner.launched import PATHS
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
needs_snakemake = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None,
    reason='no snakemake: pip install "multigpu[cluster]"',
)


def notebook(path: Path, source: str) -> None:
    cell = nbformat.v4.new_code_cell('measure = "missing"', metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell(source)]), path)


def snakemake(folder: Path, *words: str, profile: str = "local") -> dict[str, Any]:
    """How a process of the workflow is started."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        f"{ROOT}/workflow/Snakefile",
        "--directory",
        str(folder),
        "--nocolor",
        "--profile",
    ]
    return {
        "args": [*command, f"{ROOT}/workflow/profiles/{profile}", *words],
        "env": os.environ | {"PYTHONPATH": PATHS},
    }


def said(folder: Path, *words: str, **profile: str) -> tuple[int, str]:
    """How it ends, and what it says."""
    done = subprocess.run(
        **snakemake(folder, *words, **profile),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@needs_snakemake
@pytest.mark.skipif(
    importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
    reason="no snakemake-executor-plugin-slurm here",
)
def test_every_notebook_is_a_job_with_gpus(tmp_path: Path) -> None:
    """Through Slurm; the rows of a batch are jobs of the local profile."""
    words = [
        "--dry-run",
        "--config",
        f"out={tmp_path}",
        "grids=headline",
        "gpus=4",
        "--resources",
        "gpu=4",
    ]
    code, text = said(tmp_path, *words, profile="slurm")
    assert code == 0, text
    pages = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert all(f"{tmp_path}/pages/{page.name}" in text for page in pages)
    assert text.count("gpu=4") >= len(pages) + 1 and f"{tmp_path}/measured/headline" in text


@needs_snakemake
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_rows_of_a_batch_are_jobs_and_the_index_shows_all(tmp_path: Path) -> None:
    """A row that a machine cannot do, so that nothing is trained here, beside one that the batch
    has done before.
    """
    rows, out = tmp_path / "points.yaml", tmp_path / "out"
    rows.write_text(
        "- {workload: nmt, model: nmt_tiny, placement: [ddp, exp4], batch_size: 2, devices: 64}\n"
    )
    names = [task.name for task in read_tasks(rows, [1])[0]]
    (out / "rows").mkdir(parents=True)
    (out / "rows" / f"{names[0]}.ipynb").touch()
    (out / "rows" / f"{names[0]}.json").write_text(Outcome(status="done").model_dump_json())
    words = ["--config", f"points={rows}", f"out={out}"]
    code, listed = said(tmp_path, *words, "--dry-run")
    assert (
        code == 0
        and f"{names[1]}.ipynb" in listed
        and "gpu=" in listed
        and f"output: {out}/rows/{names[0]}.ipynb" not in listed
    )
    code, done = said(tmp_path, *words)
    assert code != 0 and "64 GPUs were asked for" in done
    page = (out / "index.html").read_text()
    assert "1 done, 1 not on this machine" in page and "64 GPUs were asked for" in page


@needs_snakemake
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not os.environ.get("MULTIGPU_TEST_HOSTS"), reason="half a minute: set MULTIGPU_TEST_HOSTS=1"
)
def test_after_kill_9_nothing_runs_on_and_the_rest_is_done(tmp_path: Path) -> None:
    pages, out, mark = tmp_path / "pages", tmp_path / "out", tmp_path / "kernel"
    pages.mkdir()
    notebook(pages / "01-short.ipynb", "print(1)")
    # first it sleeps; when it is run again the mark is there
    source = (
        f"import os, subprocess, time\nfirst = not os.path.exists('{mark}')\nopen('{mark}',"
        " 'w').write(str(os.getpid()))\n"
    )
    source += 'if first:\n    subprocess.run(["sleep", "1"])\n    time.sleep(600)'
    notebook(pages / "02-long.ipynb", source)
    words = ["--config", f"notebooks={pages}", f"out={out}", "measure=none"]
    first = subprocess.Popen(
        **snakemake(tmp_path, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not mark.exists() or not (out / "pages" / "01-short.ipynb").exists():
        assert first.poll() is None
        time.sleep(0.2)
    time.sleep(5)  # until Snakemake has noted that the first page is done
    children = psutil.Process(first.pid).children(recursive=True)
    assert int(mark.read_text()) in [child.pid for child in children]
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not (out / "pages" / "02-long.ipynb").exists()
    before = (out / "pages" / "01-short.ipynb").stat().st_mtime_ns
    assert said(tmp_path, *words, "--unlock")[0] == 0
    code, text = said(tmp_path, *words)
    assert code == 0, text
    assert (out / "pages" / "02-long.ipynb").exists() and (
        out / "pages" / "01-short.ipynb"
    ).stat().st_mtime_ns == before
