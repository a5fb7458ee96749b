"""Write and read what a comparison keeps beside its Records: its model, Runs and refusals."""

import json
from collections.abc import Sequence
from pathlib import Path

from multigpu.build import build_run
from multigpu.spec.run import Run
from multigpu.workloads.own.description import Described

KEPT = "comparison.json"


def keep(
    folder: Path,
    described: Described,
    runs: Sequence[Run],
    refused: dict[str, str],
    budget_s: float,
) -> None:
    """Write what `compared` wants beside the Records: comparison.json of the folder."""
    told = {"model": described.name, "refused": refused, "budget_s": budget_s}
    (folder / KEPT).write_text(
        json.dumps(
            {**told, "runs": [run.model_dump(exclude_defaults=True) for run in runs]}, indent=1
        )
    )


def kept_runs(folder: Path, model: str) -> list[Run]:
    """The Runs of the comparison of this model that is in a folder; none where there is none."""
    told = json.loads((folder / KEPT).read_text()) if (folder / KEPT).is_file() else {}
    return [build_run(**fields) for fields in told["runs"]] if told.get("model") == model else []
