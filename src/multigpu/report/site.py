"""Build the HTML report, which opens from a file path and requests nothing: `report/`, executed
notebooks, and fragments from Records.
"""

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import FunctionType

import nbformat
import pandas as pd

from multigpu import paths
from multigpu.grids import GRIDS, grid_file
from multigpu.grids.expand import read_entries
from multigpu.lazy import LazyMapping
from multigpu.machine.process import end_with_parent
from multigpu.plugins import PluginRegistry
from multigpu.records.cache import cached_on_disk
from multigpu.records.record import Record, RecordStore
from multigpu.report.notebooks import (
    NotebookError,
    execute_notebooks,
    load_parameters,
    numbered_notebooks,
    read_notebook,
)
from multigpu.writing import explaining

PAGES = paths.REPOSITORY / "report"
NO_NOTEBOOK = "No notebook has been executed yet: run `make study`."
FRONT = "00-front"  # the notebook that is the report's first page
LAST = "Evidence"  # the topic of pages of `report/`, and of a notebook that names none
FAULTS = paths.DATA / "faults"
"""soak*.csv: a row a fault of a soak (`make soak`). cpus.csv and gpus.csv: a row a fault that was
planted (`benchmarks/faults_on_*.py`).
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


class ReportError(RuntimeError):
    """A report that cannot be built; its message is one sentence."""


def failures(records: Iterable[Record]) -> pd.DataFrame:
    """A row for each Run on GPUs that is not ok: its status, and seconds until its launch had the
    next Record (nan: it was the last).
    """
    rows = [
        (one.launch_id.partition(".")[0], one.measured_at, one.status)
        for one in records
        if one.run.device_type == "cuda"
    ]
    table = pd.DataFrame(rows, columns=["launch", "at", "status"]).sort_values("at", kind="stable")
    at = pd.to_datetime(table["at"], utc=True)
    table = table.assign(
        fault="GPU: " + table["status"],
        recovered_s=(at.groupby(table["launch"]).shift(-1) - at).dt.total_seconds(),
    )
    return table.loc[table["status"].ne("ok"), ["fault", "recovered_s"]]


def fault_table(soaked: pd.DataFrame, failed: pd.DataFrame, planted: pd.DataFrame) -> pd.DataFrame:
    """A row a kind of fault: how often, after how many a Record followed in that sweep, the seconds
    until it did, and how many Records were lost (NaN: not counted).
    """
    on = {"cpu": "CPU", "cuda": "GPU"}
    soak = soaked.assign(fault=soaked["device_type"].map(on) + ": " + soaked["fault"])
    tried = planted.assign(fault=planted["device_type"].map(on) + ", planted: " + planted["fault"])
    columns = ["fault", "recovered_s", "lost"]
    parts = [one.reindex(columns=columns) for one in (soak, tried, failed)]
    every = pd.concat(parts, ignore_index=True).astype({"recovered_s": float, "lost": float})
    groups = every.groupby("fault")
    found = groups["recovered_s"].agg(
        tried="size", survived="count", median_s="median", most_s="max"
    )
    found.insert(2, "last", found["tried"] - found["survived"])
    return found.assign(lost=groups["lost"].sum(min_count=1)).reset_index()


def faults_page() -> str:
    """Tabulate launches in which something went wrong: killed, planted, or failed on GPUs."""
    failed = cached_on_disk("failures", [paths.RUNS], lambda: failures(RecordStore(paths.RUNS)))
    soaked = pd.concat([pd.read_csv(file) for file in sorted(FAULTS.glob("soak*.csv"))])
    planted = [
        pd.read_csv(FAULTS / f"{name}.csv").assign(device_type=on)
        for name, on in (("cpus", "cpu"), ("gpus", "cuda"))
    ]
    table = fault_table(soaked, failed, pd.concat(planted))
    counts = ("times", "a Record followed", "none followed")
    heads = ["fault", *counts, "median s until then", "most s", "Records lost"]
    lost = table["lost"].map(lambda count: "not counted" if pd.isna(count) else f"{count:.0f}")
    cells = table.drop(columns="lost").map(
        lambda value: f"{value:.1f}" if isinstance(value, float) else str(value)
    )
    return "\n".join(
        f"| {' | '.join(line)} |"
        for line in [heads, ["---"] * len(heads), *cells.assign(lost=lost).to_numpy().tolist()]
    )


def grids_page() -> str:
    """Tabulate the grids with the question that each file asks."""
    files = [file for name in sorted(GRIDS) if (file := grid_file(name))]
    rows = [f"| `{file.stem}` | {read_entries(file)[0]} |" for file in files]
    return "\n".join(["| grid | asks |", "|---|---|", *rows])


FRAGMENTS: Mapping[str, Callable[[], str]] = LazyMapping(
    {"faults": lambda: faults_page, "grids": lambda: grids_page},
    PluginRegistry("fragments", FunctionType),
)
"""By name, what pages of `report/` include; other packages add some."""


def generated() -> dict[str, str]:
    """What pages of `report/` include, by name (MyST); a ReportError names a fragment that cannot
    be computed.
    """
    found = {}
    for name, function in FRAGMENTS.items():
        try:
            found[name] = function()
        except Exception as error:
            raise ReportError(
                f"the report's {name} cannot be computed: {type(error).__name__}:"
                f" {' '.join(str(error).split())}"
            ) from error
    return found


def by_topic(notebooks: Iterable[Path]) -> dict[str, list[Path]]:
    """The numbered notebooks of every topic, as their metadata's `topic` says, in the order of
    their numbers; the front page, which lists them, is in none.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in notebooks if path.stem != FRONT):
        found.setdefault(read_notebook(path).metadata.get("topic", LAST), []).append(path)
    return found


def navigation(notebooks: list[Path]) -> str:
    """The tree of pages, topic by topic, as the front page holds it out of sight."""
    trees = {topic: [path.stem for path in own] for topic, own in by_topic(notebooks).items()}
    trees[LAST] = [*trees.get(LAST, []), *sorted(path.stem for path in PAGES.glob("*.md"))]
    return "\n\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {topic}\n\n" + "\n".join(pages) + "\n```"
        for topic, pages in trees.items()
    )


def publishable(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An executed notebook as its page shows it: code folded, a cell that shows nothing with the
    next one; progress bars left out.
    """
    for key in ("papermill", "widgets"):
        notebook.metadata.pop(key, None)
    cells: list[nbformat.NotebookNode] = []
    for cell in notebook.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if output.get("name") != "stderr" and WIDGET not in output.get("data", {})
            ]
            cell.metadata["tags"] = ["hide-input"]
            if cells and cells[-1].cell_type == "code" and not cells[-1].outputs:
                cell.source = f"{cells.pop().source}\n\n{cell.source}"
        cells.append(cell)
    notebook.cells = cells
    return notebook


def in_the_site(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with links as they are in the site, where all pages and figures lie in one
    folder, the front page as `index`.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((?:\.\./)+(?:report/)?", "](", cell.source).replace(
                f"]({FRONT}.ipynb", "](index.ipynb"
            )
        # whose links Sphinx does not follow
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            if "text/markdown" in data:
                data["text/markdown"] = re.sub(
                    r"\]\(([\w-]+)\.ipynb", r"](\1.html", data["text/markdown"]
                )
    return notebook


# of a notebook's cell or this package, not of libraries
OWN_WARNING = re.compile(r"(?:ipykernel_|/multigpu(?:_study)?/)\S*: (\w*Warning: .+)")


def warnings_of(notebook: nbformat.NotebookNode) -> list[str]:
    """List Python's warnings while the notebook was executed: its page leaves stderr out, and a
    warning of ours tells of a mistake.
    """
    said = (
        "".join(output["text"])
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("name") == "stderr"
    )
    return [found[1] for text in said for found in OWN_WARNING.finditer(text)]


def prepare_sources(source: Path, notebooks: list[Path], fragments: Mapping[str, str]) -> None:
    """Gather everything that Sphinx reads under `source`; a file that is as it was stays as old as
    it was. fragments: as of `generated`.
    """
    last, source = source, source.with_name(f"{source.name}_new")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(PAGES, source, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    tree = navigation(notebooks)
    for path in notebooks:
        notebook = read_notebook(path)
        for warning in warnings_of(notebook):
            print(f"report: {path.name}: {warning}", file=sys.stderr)
        page = in_the_site(publishable(notebook))
        if path.stem == FRONT:
            page.cells.append(nbformat.v4.new_markdown_cell(tree))
        nbformat.write(page, source / ("index.ipynb" if path.stem == FRONT else path.name))
    if not (source / "index.ipynb").exists():
        (source / "index.md").write_text(
            f"# multigpu\n\n{NO_NOTEBOOK}\n\n{tree}\n", encoding="utf-8"
        )
    copy_figures(source)
    (source / "generated").mkdir()
    for name, text in fragments.items():
        (source / "generated" / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    for path in source.rglob("*"):
        before = last / path.relative_to(source)
        if path.is_file() and before.is_file() and filecmp.cmp(path, before, shallow=False):
            shutil.copystat(before, path)
    shutil.rmtree(last, ignore_errors=True)
    source.rename(last)


def copy_figures(folder: Path) -> None:
    """Put the figures, and the CSV files of their data, where pages refer to them."""
    if paths.figures().is_dir():
        shutil.copytree(
            paths.figures(),
            folder / "figures",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(".*", "README*"),
        )


def build_report(
    output: Path,
    notebooks: Path,
    changed_only: bool = False,
    fragments: Callable[[], Mapping[str, str]] = generated,
) -> Path:
    """Build the site in `output` from the executed notebooks in the folder `notebooks` and return
    its first page; or a ReportError.
    changed_only: leave pages as the last build wrote them where nothing that they show has changed
        since.
    """
    output = output.resolve()
    if (
        output.exists()
        and not (output / ".buildinfo").exists()
        and (not output.is_dir() or any(output.iterdir()))
    ):
        raise ReportError(f"{output} holds something that is no report: choose an empty folder")
    try:
        executed = numbered_notebooks(notebooks)
    except NotebookError:
        executed = []
    source = output.parent / "report_source"
    with explaining(f"the report cannot be written to {output}", kind=ReportError):
        prepare_sources(source, executed, fragments())
        if not changed_only:
            shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet", "--jobs", "auto"]
    command += ["--keep-going", *([] if changed_only else ["--fresh-env"])]
    command += ["--doctree-dir", str(output.parent / "doctrees"), str(source), str(output)]
    result = subprocess.run(command, capture_output=True, text=True)
    said = [
        line.replace(str(source) + "/", "").strip()
        for line in result.stderr.splitlines()
        if line.strip()
    ]
    if result.returncode or not (output / "index.html").exists():
        reason = next((line for line in reversed(said) if "rror" in line), "Sphinx gave no reason")
        raise ReportError(f"the report could not be built: {reason}")
    for line in said:
        print(f"report: {line}", file=sys.stderr)
    copy_figures(output)
    return output / "index.html"


def report_command(arguments: argparse.Namespace) -> int:
    """Execute the notebooks and build the site from them."""
    paths.check_checkout("the report")
    executed, home = paths.REPOSITORY / "build" / "notebooks", paths.REPOSITORY
    given = load_parameters(arguments.parameters) if arguments.parameters else {}
    if arguments.records is not None:
        given = given | {"records": str(Path(arguments.records).resolve())}
    if arguments.publish:
        os.environ[paths.PUBLISH] = "1"  # kernels inherit it
    # verdicts read every Record: a process of their own finds them while notebooks are executed
    with ProcessPoolExecutor(1, get_context("fork"), end_with_parent) as beside:
        fragments = beside.submit(generated).result
        execute_notebooks(home / "notebooks", executed, given, only=arguments.only or "")
        site = build_report(home / "build" / "html", executed, bool(arguments.only), fragments)
    print(f"the report is at {site}")
    return 0
