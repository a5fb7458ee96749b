"""One job of the Snakemake workflow: a notebook, or a grid.

    python -m multigpu.workflow page notebooks/02-parameters.ipynb build/workflow/pages/02-parameters.ipynb records=data
    python -m multigpu.workflow grid headline

A job ends with the process that started it, however that ends, and its kernel and workers end with it. Bad input ends with exit code 2
and one sentence, what stopped with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from multigpu.measure.process import end_with_parent


def run_page(notebook: Path, output: Path, parameters: dict[str, str]) -> None:
    """Execute one notebook; `output` appears when it ran to its end.

    Raises:
        ParameterError: a parameter has no meaning for the notebook.
        NotebookError: it stopped; the sentence says where and why.
    """
    from multigpu.notebooks import execute_one

    execute_one(notebook, output, parameters)


def main(words: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    end_with_parent()
    parser = argparse.ArgumentParser(prog="multigpu.workflow", description="One job of the workflow.")
    jobs = parser.add_subparsers(dest="job", required=True)
    page = jobs.add_parser("page", help="execute one notebook")
    page.add_argument("notebook", type=Path)
    page.add_argument("output", type=Path)
    page.add_argument("parameters", nargs="*", metavar="name=value")
    grid = jobs.add_parser("grid", help="measure one grid")
    grid.add_argument("name")
    arguments = parser.parse_args(words)
    if arguments.job == "grid":
        from multigpu.cli import main as multigpu

        return multigpu(["measure", "--grid", arguments.name, "--quiet"])
    from multigpu.notebooks import NotebookError

    try:
        parameters = dict(text.split("=", 1) for text in arguments.parameters)
    except ValueError:
        print(f"multigpu: parameters {' '.join(arguments.parameters)!r} are not all of the form name=value", file=sys.stderr)
        return 2
    try:
        run_page(arguments.notebook, arguments.output, parameters)
    except (ValueError, NotebookError) as error:
        print(f"multigpu: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
