"""One job of the Snakemake workflow: a notebook, a grid, or a row of a batch.

    python -m multigpu.workflow page notebooks/02-parameters.ipynb build/workflow/pages/02-parameters.ipynb records=data
    python -m multigpu.workflow grid headline
    python -m multigpu.workflow row POINTS.yaml FOLDER NAME        # of a batch; `python -m multigpu batch` shows what came of all
    python -m multigpu.workflow index POINTS.yaml FOLDER

A job ends with the process that started it, however that ends, and its kernel and workers end with it. Bad input ends with exit code 2
and one sentence, what stopped with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from multigpu.batch import do, prepare, read_tasks
from multigpu.batch_index import write_index, write_page
from multigpu.cli import main as multigpu
from multigpu.command import Parser, answered
from multigpu.grid import devices_here
from multigpu.measure.process import end_with_parent
from multigpu.notebooks import execute_one


def run_row(points: Path, out: Path, name: str) -> int:
    """Do one row of a batch, or write its index where `name` is ""; 1 where the row is not done.

    Raises:
        ValueError: the file or the folder cannot be used, or the file has no such row.
    """
    tasks = read_tasks(points, devices_here())[0]
    chosen = {task.name: task for task in tasks}
    if name and name not in chosen:
        raise ValueError(f"{points} has no row {name!r}: `python -m multigpu batch {points} --out {out} --dry-run` lists them")
    prepare(out)
    if not name:
        write_index(points, tasks, out)
        return 0
    outcome = do(chosen[name], out)
    write_page(chosen[name], out)
    if outcome.status != "done":
        print(f"multigpu: {outcome.status.replace('_', ' ')}: {chosen[name].run.label()}: {outcome.reason}", file=sys.stderr)
    return 0 if outcome.status == "done" else 1


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    end_with_parent()
    parser = Parser(prog="multigpu.workflow", description="One job of the workflow.")
    jobs = parser.add_subparsers(dest="job", required=True)
    page = jobs.add_parser("page", help="execute one notebook")
    page.add_argument("notebook", type=Path)
    page.add_argument("output", type=Path)
    page.add_argument("parameters", nargs="*", metavar="name=value")
    grid = jobs.add_parser("grid", help="measure one grid")
    grid.add_argument("name")
    row = jobs.add_parser("row", help="do one row of a batch")
    index = jobs.add_parser("index", help="write the index of a batch")
    for job in (row, index):
        job.add_argument("points", type=Path)
        job.add_argument("out", type=Path)
    row.add_argument("name")
    arguments = parser.parse_args(words)
    if arguments.job == "grid":
        return multigpu(["measure", "--grid", arguments.name, "--quiet"])
    if arguments.job != "page":
        return run_row(arguments.points, arguments.out, getattr(arguments, "name", ""))
    if strange := [text for text in arguments.parameters if "=" not in text]:
        raise ValueError(f"parameters {' '.join(strange)!r} are not of the form name=value")
    execute_one(arguments.notebook, arguments.output, dict(text.split("=", 1) for text in arguments.parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
