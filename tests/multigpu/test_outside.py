"""What another installed package adds, as CONTRIBUTING says: commands find it, workers train it;
what cannot be used stops nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import multigpu
from multigpu.paths import PUBLISHED, REPOSITORY
from multigpu.placements import placements
from multigpu.workloads import workloads
from multigpu_study.claims import all_claims
from tests.study.claims.planted import ENTRY, NEW

pytestmark = pytest.mark.slow

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("**From another package**")[2]
DECLARED = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])["project"][
    "entry-points"
]  # type: ignore[index]
"""Group -> name -> what the page's example names."""

FILES = {
    "__init__.py": "",
    "placements.py": (
        """
from multigpu.placements.row import Engine, Placement

BY_COPY = Placement(
    name="by_copy", title="Planted", source="a test",
    summary="Gradients are summed after backward.",
    variables="replica", merge="all_reduce", update="replica", engines=(Engine(),),
)
"""
    ),
    "blobs/__init__.py": (
        """
from dataclasses import replace

from multigpu.lazy import lazy
from multigpu.workloads.base import Optimizer, Workload
from multigpu.workloads.stacks.description import StackConfig, describe

TINY = describe("blobs_tiny", StackConfig("dense", 5, 6, 2, 3), Optimizer("sgd", rate=0.1))
MODEL = replace(TINY, workload="blobs")
INPUTS = {"synthetic": later("multigpu.inputs.images:synthetic_samples")}
WORKLOAD = Workload(
    name="blobs", unit="samples", models={"blobs_tiny": MODEL}, inputs=INPUTS,
    frameworks=("torch",),
)
"""
    ),
    "blobs/torch.py": "from multigpu.workloads.stacks.torch import build as build\n",
    "src/multigpu_study/claims/__init__.py": "",
    "claims/900.yaml": (
        ENTRY.replace(NEW, "C900").replace("'004'", "'900'").replace("04-all-reduce", "''")
    ),
}


class Installed:
    """A study without Records, and distributions beside it that Python finds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        (folder / "pyproject.toml").touch()
        for name in ("runs", "hosts", "synchrony", "training"):
            (folder / "data" / name).mkdir(parents=True)
        for name in ("claims-ledger.csv", "claims-changes.csv"):
            shutil.copy(REPOSITORY / "data" / name, folder / "data" / name)
        shutil.copytree(PUBLISHED, folder / "data" / "published")

    def install(self, distribution: str, declared: dict[str, dict[str, str]], **files: str) -> None:
        """Add a distribution with these entry points and modules."""
        info = self.site / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        groups = (
            f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in own.items())
            for group, own in declared.items()
        )
        (info / "entry_points.txt").write_text("\n".join(groups))
        for name, text in files.items():
            (self.site / name).parent.mkdir(parents=True, exist_ok=True)
            (self.site / name).write_text(text)

    def run(self, *words: str, installed: bool = True) -> tuple[str, str]:
        """What a process says: Python with these words."""
        path = [str(Path(multigpu.__file__).parents[1]), *([str(self.site)] if installed else [])]
        own = os.environ | {"PYTHONPATH": os.pathsep.join(path), "MULTIGPU_HOME": str(self.folder)}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, done.stderr

    def __call__(self, *lines: str, installed: bool = True) -> tuple[str, str]:
        """What these command lines say, one after the other in one process."""
        return self.run("-c", EACH, *lines, installed=installed)


EACH = """
import sys
from multigpu.cli.main import main
from multigpu.records.cache import state_of
from multigpu.spec.run import Run
Run(workload="cnn", model="lenet", placement="ddp", batch_size=4)
imported = [name for name in sys.modules if name.startswith("example")]
print(state_of([]))
print("imported:", imported)
for line in sys.argv[1:]:
    print(main(line.split()), "is the end of", line)
"""
JOB = "workload=blobs model=blobs_tiny devices=2 batch_size=4"


def test_a_package_adds_a_placement_a_workload_and_a_claim(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    study.install("example", DECLARED, **{f"example/{name}": text for name, text in FILES.items()})
    reading = (
        f"explain {JOB} placement=by_copy",
        f"advise {JOB}",
        "records --export listed.csv",
        "claims",
        "doctor",
    )
    measure = (
        f"measure {JOB} device_type=cpu placement=by_copy warmup_steps=2 timed_steps=3 --repeats 2"
    )
    said, left_out = study(measure, *reading, "records --share shared")
    assert "imported: []" in said and all(f"0 is the end of {line}" in said for line in reading)
    assert (
        "placement   by_copy: torch, per_device process, eager" in said
        and "workload    blobs: blobs_tiny; inputs synthetic" in said
    )
    assert (study.folder / "listed.csv").read_text().count("by_copy") == 2
    (line,) = [line for line in said.splitlines() if line.startswith("C900")]
    assert "not yet measured" in line and "Planted sentences hold." in line
    assert (
        "left out: 2 Records that of a placement or a workload of another package, which others may"
        " not have" in said + left_out
    )
    with (study.site / "example" / "claims" / "900.yaml").open("a") as file:
        file.write("# another state\n")
    other = study()[0]
    # without it, its Records are named and the rest of the study is read
    lines, unread = study("records", "claims", "claims C900", installed=False)
    assert len({text.splitlines()[0] for text in (said, other, lines)}) == 3, (
        "what is kept of results depends on what is installed"
    )
    assert "no Record matches\n0 is the end of records" in lines and "C900:" not in lines
    assert (
        "unknown workload 'blobs': choose one of cnn, deepconn, nmt, own, stacks, or install the"
        " package that adds it" in unread
    )
    assert (
        "unknown claim 'C900': choose one of C1 to " in unread
        and "2 is the end of claims C900" in lines
    )


WRONG = {
    "placements": {
        "ddp": ("wrong.rows:GOOD", "multigpu itself has that name"),
        "odd": ("wrong.rows:ODD", "it is of type dict and must be a Placement"),
        "gone": ("wrong.nowhere:ROW", "No module named 'wrong.nowhere'"),
        "ill": ("wrong.ill:ROW", "ill: variables at 'replica' cannot be updated at 'host'"),
        "loud": ("wrong.loud:ROW", "division by zero"),
    },
    "workloads": {
        "cnn": ("wrong.work:WORKLOAD", "multigpu itself has that name"),
        "half": (
            "wrong.work:WORKLOAD",
            "it is built in torch, tensorflow, and wrong.work has no module 'torch'",
        ),
    },
    "claims": {
        "none": ("wrong", "holds no *.yaml with claims"),
        "taken": ("wrong.taken", "two claims are called C1"),
        "unfit": ("wrong.unfit", "a Run has no field speed: choose among workload"),
    },
}
"""Kind -> name -> what is named, and what is wrong with it."""

ROW = FILES["placements.py"].replace("BY_COPY", "GOOD").replace("by_copy", "good")
WRONG_FILES = {
    "__init__.py": "",
    "rows.py": f"{ROW}\nODD = {{}}\n",
    "ill.py": (
        ROW.replace("GOOD", "ROW")
        .replace('"good"', '"ill"')
        .replace('update="replica"', 'update="host"')
    ),
    "loud.py": "ROW = 1 / 0\n",
    "work/__init__.py": (
        """
from multigpu.workloads.base import Workload
WORKLOAD = Workload(name="half", unit="samples", models={}, inputs={})
"""
    ),
    "taken/__init__.py": "",
    "taken/a.yaml": ENTRY.replace(NEW, "C1"),
    "unfit/__init__.py": "",
    "unfit/a.yaml": ENTRY.replace(NEW, "C901").replace("{model: nmt004}", "{speed: 1}"),
}
ASKED = """
import contextlib, io, json
from multigpu_study.claims import all_claims
from multigpu.placements import find_placement, placements
from multigpu.workloads import workloads
said = io.StringIO()
with contextlib.redirect_stderr(said):
    names = [list(placements()), list(workloads()), [claim.number for claim in all_claims()]]
    placements(), list(workloads())
print(json.dumps([names, said.getvalue().splitlines()]))
find_placement("twice")
"""


def test_what_cannot_be_used_says_why_and_stops_nothing_else(tmp_path: Path) -> None:
    study = Installed(tmp_path)
    declared = {
        f"multigpu.{kind}": {name: value for name, (value, _) in own.items()}
        for kind, own in WRONG.items()
    }
    twice = {"twice": "wrong.rows:GOOD"}
    declared["multigpu.placements"] |= twice
    study.install("wrong", declared)
    study.install(
        "second",
        {"multigpu.placements": twice},
        **{f"wrong/{name}": text for name, text in WRONG_FILES.items()},
    )
    asked = study.run("-c", ASKED)
    names, said = json.loads(asked[0])
    assert names == [
        list(placements()),
        list(workloads()),
        [claim.number for claim in all_claims()],
    ], "what this study has is there"
    assert len(said) == sum(map(len, WRONG.values())) + 1, said
    for kind, name, value, why in [
        (kind, name, *wrong) for kind, own in WRONG.items() for name, wrong in own.items()
    ]:
        start = f"multigpu: {kind.removesuffix('s')} {name!r} of wrong ({value}) cannot be used: "
        (line,) = [line for line in said if line.startswith(start)]
        assert why in line and line.endswith("; mend it there, or uninstall that package")
    of_both = (
        r"placement 'twice' of (wrong|second) \(wrong.rows:GOOD\) .*(wrong|second)"
        r" \(wrong.rows:GOOD\).*one name cannot stand for two"
    )
    assert re.search(of_both, asked[1].splitlines()[-1])
    out, err = study(
        "records", "measure workload=cnn model=lenet batch_size=4 device_type=cpu placement=gone"
    )
    assert (
        "no Record matches" in out
        and "placement 'gone' of wrong (wrong.nowhere:ROW) cannot be used: " in err
        and "Traceback" not in err
    )
