"""Where the repository keeps its parts, and an installed package what is measured with it."""

import linecache
import os
import sysconfig
from pathlib import Path

HOME_VARIABLE = "MULTIGPU_HOME"


def find_checkout() -> Path | None:
    """Return the repository whose parts are used: `MULTIGPU_HOME`, or the one whose src/ holds this
    package; None where the package is installed by itself.

    Raises:
        FileNotFoundError: `MULTIGPU_HOME` names no folder.
    """
    if chosen := os.environ.get(HOME_VARIABLE):
        folder = Path(chosen).expanduser().resolve()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{HOME_VARIABLE} names {chosen}, which is not a folder: set it to the repository's"
                " root"
            )
        return folder
    source = Path(__file__).resolve().parents[1]
    is_checkout = source.name == "src" and (source.parent / "pyproject.toml").is_file()
    return source.parent if is_checkout else None


def own_folder() -> Path:
    """Return where an installed package keeps what this user measures; it may not be there yet."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "multigpu"


def check_checkout(what: str) -> None:
    """Raise a ValueError where `what` needs the repository and there is none."""
    if CHECKOUT is None:
        raise ValueError(
            f"{what} needs the repository, and the package is installed without it: set"
            f" {HOME_VARIABLE} to a checkout"
        )


CHECKOUT = find_checkout()
REPOSITORY = CHECKOUT or own_folder()
BUILD, DATA, FIGURES = REPOSITORY / "build", REPOSITORY / "data", REPOSITORY / "figures"
CHECKPOINTS = BUILD / "checkpoints"
PUBLISHED, CORPUS, CACHE = DATA / "published", DATA / "corpus", DATA / "cache"
RUNS = DATA / "runs"
COLLECTIVES = DATA / "collectives"
SYNCHRONY = DATA / "synchrony"
STAGES = DATA / "stages"
TRAINING = DATA / "training"
INTERFERENCE = DATA / "interference"
HOSTS = DATA / "hosts"
HOSTS_RUNS = DATA / "hosts" / "runs"
# beside a folder of Runs: key, attempt, what of that Record is not read, and why
WITHDRAWN = "withdrawn.csv"
# 1 while the published report is built: then figures go to `figures/`, and no finding is left out
PUBLISH = "MULTIGPU_PUBLISH"


def kind_in(records: Path, kind: str = "runs") -> Path:
    """Return the folder of Records of one kind ("runs", "training") that a folder of Records means:
    the one of that name in it where it holds several kinds, as `data` does, else the folder itself.
    """
    return records / kind if os.path.isdir(records / "runs") else records


def publishing() -> bool:
    """Whether the published report is being built."""
    return os.environ.get(PUBLISH) == "1"


def figures() -> Path:
    """Where figures are written: `figures/` of the published report, `build/figures/` of any other,
    so that no tracked file changes.
    """
    return FIGURES if publishing() else BUILD / "figures"


LIBRARIES = tuple(
    {
        str(path)
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        # an environment may be reached by a link: modules have the name that they are found by
        for path in (Path(sysconfig.get_path(name)), Path(sysconfig.get_path(name)).resolve())
    }
)

PACKAGE = str(Path(__file__).resolve().parent)


def is_own(file: str) -> bool:
    """Whether code of this file is the user's, and no library's."""
    return not file.startswith((*LIBRARIES, PACKAGE, "<frozen", "<string>"))


def quoted(file: str, line: int) -> str:
    """A line of a file with its text, where that can be read."""
    text = linecache.getline(file, line).strip()
    return f"{Path(file).name}, line {line}" + (f": {text}" if text else "")
