"""Where the repository keeps its parts."""

import os
from pathlib import Path

HOME_VARIABLE = "MULTIGPU_HOME"


def find_repository() -> Path:
    """The folder that holds pyproject.toml: `MULTIGPU_HOME` if it is set, else the first one above this file.

    Raises:
        FileNotFoundError: `MULTIGPU_HOME` names no folder, or no folder above this file holds pyproject.toml
            (the package was installed without the repository); the sentence says what to set.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        folder = Path(chosen).expanduser().resolve()
        if not folder.is_dir():
            raise FileNotFoundError(f"{HOME_VARIABLE} names {chosen}, which is not a folder: set it to the repository's root")
        return folder
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").is_file():
            return folder
    raise FileNotFoundError(f"no folder above the package holds pyproject.toml: set {HOME_VARIABLE} to the repository's root")


REPOSITORY = find_repository()
DATA = REPOSITORY / "data"
BUILD = REPOSITORY / "build"
PUBLISHED = DATA / "published"
CORPUS = REPOSITORY / "data" / "corpus"
RUNS = REPOSITORY / "data" / "runs"
COLLECTIVES = REPOSITORY / "data" / "collectives"
HOSTS = REPOSITORY / "data" / "hosts"
HOSTS_RUNS = HOSTS / "runs"
SYNCHRONY = REPOSITORY / "data" / "synchrony"
STAGES = REPOSITORY / "data" / "stages"
TRAINING = REPOSITORY / "data" / "training"
INTERFERENCE = REPOSITORY / "data" / "interference"
CHECKPOINTS = REPOSITORY / "build" / "checkpoints"
CACHE = REPOSITORY / "data" / "cache"
WITHDRAWN = "withdrawn.csv"
"""Beside a folder of Runs: key, attempt, what of that Record is not read, and why."""
FIGURES = REPOSITORY / "figures"

PUBLISH = "MULTIGPU_PUBLISH"
"""Set to 1 while the published report is built: then figures go to `figures/`, and no finding is left out."""


def publishing() -> bool:
    """Whether the published report is being built."""
    return os.environ.get(PUBLISH) == "1"


def figures() -> Path:
    """Where figures are written: `figures/` of the published report, `build/figures/` of any other, so that no tracked file changes."""
    return FIGURES if publishing() else BUILD / "figures"
