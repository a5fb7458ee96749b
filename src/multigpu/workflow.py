"""One job of the Snakemake workflow: a notebook, or any command, which ends with the process that started it, however that ends.

    python -m multigpu.workflow page notebooks/02-parameters.ipynb build/workflow/pages/02-parameters.ipynb records=data
    python -m multigpu.workflow measure --grid headline --quiet
    python -m multigpu.workflow batch POINTS.yaml --out FOLDER --row NAME

Its kernel and workers end with it. Bad input ends with exit code 2 and one sentence, what stopped with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from multigpu.cli import main as multigpu
from multigpu.command import Parser, answered
from multigpu.measure.process import end_with_parent
from multigpu.notebooks import execute_one


@answered
def main(words: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    end_with_parent()
    words = sys.argv[1:] if words is None else words
    if words[:1] != ["page"]:
        return multigpu(words)
    parser = Parser(prog="multigpu.workflow page", description="Execute one notebook.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("parameters", nargs="*", metavar="name=value")
    arguments = parser.parse_args(words[1:])
    if strange := [text for text in arguments.parameters if "=" not in text]:
        raise ValueError(f"parameters {' '.join(strange)!r} are not of the form name=value")
    execute_one(arguments.notebook, arguments.output, dict(text.split("=", 1) for text in arguments.parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
