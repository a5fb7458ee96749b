"""Packages installed beside a copy of the study's tables, as CONTRIBUTING says, and processes that
find them.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import multigpu
from multigpu.paths import PUBLISHED, REPOSITORY

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
    variables="replica", reduction="all_reduce", update="replica", engines=(Engine(),),
)
"""
    ),
    "blobs/__init__.py": (
        """
from dataclasses import replace

from multigpu.lazy import lazy
from multigpu.spec.model import Optimizer
from multigpu.workloads.base import Workload
from multigpu.workloads.stacks.description import StackConfig, describe

TINY = describe("blobs_tiny", StackConfig("dense", 5, 6, 2, 3), Optimizer("sgd", rate=0.1))
MODEL = replace(TINY, workload="blobs")
INPUTS = {"synthetic": lazy("multigpu.inputs.images:synthetic_samples")}
WORKLOAD = Workload(
    name="blobs", unit="samples", models={"blobs_tiny": MODEL}, inputs=INPUTS,
    frameworks=("torch",),
)
"""
    ),
    "blobs/torch.py": "from multigpu.workloads.stacks.torch import build as build\n",
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
        path += filter(None, [os.environ.get("PYTHONPATH")])
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


def check_wrong(wrong: dict[str, dict[str, tuple[str, str]]], said: list[str]) -> None:
    """Check that a line says of everything what is wrong with it.
    wrong: kind -> name -> what the distribution `wrong` names, and what is wrong with it.
    """
    for kind, name, value, why in [
        (kind, name, *entry) for kind, own in wrong.items() for name, entry in own.items()
    ]:
        start = f"multigpu: {kind.removesuffix('s')} {name!r} of wrong ({value}) cannot be used: "
        (line,) = [line for line in said if line.startswith(start)]
        assert why in line and line.endswith("; mend it there, or uninstall that package")
