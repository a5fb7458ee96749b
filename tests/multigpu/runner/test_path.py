"""The path of one Run as CONTRIBUTING tells it, against the functions that one Run calls, from the
notebook's cell to its Record.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import multigpu
from multigpu.build import build_run
from multigpu.paths import REPOSITORY
from multigpu.workloads import description_of, workloads
from tests.installed import needs_deepconn

SOURCE = Path(multigpu.__file__).parent
TRACER = Path(__file__).parent / "tracer"
PAGE = (
    (REPOSITORY / "CONTRIBUTING.md")
    .read_text()
    .partition("## The path of one Run\n")[2]
    .partition("\n## ")[0]
)

TRAINED = """
import sys
from multigpu.report.experiment import planned, train
from multigpu.report.notebooks import read_notebook

cells = read_notebook(sys.argv[1]).cells
named = {}
exec(next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])), named)
named |= {"workload": "cnn", "model": "alexnet_cifar_tiny", "placement": "ddp"}
named |= {"device_type": "cpu", "devices": 2, "batch_size": 4, "timed_steps": 2, "repeats": 1}
named |= {"trace": False, "records": sys.argv[2], "compare": False, "more": {"warmup_steps": 2}}
(record,) = train(planned(named))
print(record.status, record.run.placement)
"""  # as the notebook's cells


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str, str]]:
    """(file, "import" or "call", function) of all that the launcher's process, the agent and the
    workers of one Run entered.
    """
    folder = tmp_path_factory.mktemp("path")
    path = os.pathsep.join([str(TRACER), str(SOURCE.parent)])
    environment = os.environ | {
        "PYTHONPATH": path,
        "TRACED_SOURCE": f"{SOURCE}{os.sep}",
        "TRACED_TO": str(folder / "calls"),
    }
    words = [
        sys.executable,
        "-c",
        TRAINED,
        str(REPOSITORY / "notebooks" / "experiment.ipynb"),
        str(folder / "records"),
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "ok ddp"
    return {
        (file, word, name)
        for file, word, name in (
            line.split(" ") for line in (folder / "calls").read_text().splitlines()
        )
    }


def test_the_page_names_the_files_of_the_path_and_the_folders_beside_it(
    traced: set[tuple[str, str, str]],
) -> None:
    calls = {(file, name) for file, word, name in traced if word == "call"}
    entered = {file for file, _ in calls}
    named = re.findall(r"^\d+\. `([\w/]+\.py)`", PAGE, re.MULTILINE)
    beside = re.findall(r"`([\w/]*/)`", PAGE.partition("Entered beside these")[2])
    assert named and set(named) <= entered
    uncovered = {
        file
        for file in entered
        if "/" in file and file not in named and not file.startswith(tuple(beside))
    }
    assert not uncovered, (
        f"one Run enters these, of which CONTRIBUTING says nothing: {sorted(uncovered)}"
    )
    assert not any(file.startswith("engines/tensorflow/") for file in entered)
    assert not {folder for folder in beside if not any(file.startswith(folder) for file in entered)}


def test_no_other_workload_and_no_other_placement_is_read(
    traced: set[tuple[str, str, str]],
) -> None:
    files = {file for file, _, _ in traced}
    assert {
        file.split("/")[1]
        for file in files
        if file.startswith("workloads/") and file.count("/") == 2
    } == {"cnn"}
    placements = [
        file.stem
        for file in (SOURCE / "placements").glob("*.py")
        if "PLACEMENT = Placement(" in file.read_text()
    ]
    assert [name for name in placements if f"placements/{name}.py" in files] == ["ddp"]


@pytest.mark.parametrize("model", ["nmt_tiny", pytest.param("deepconn_tiny", marks=needs_deepconn)])
def test_to_build_a_run_describes_its_own_model_alone(model: str) -> None:
    workloads.cache_clear()
    run = build_run(
        workload=model.removesuffix("_tiny"),
        model=model,
        placement="ddp",
        device_type="cpu",
        devices=2,
        batch_size=4,
    )
    assert list(workloads().made) == [run.workload]
    assert description_of(run).name == model
