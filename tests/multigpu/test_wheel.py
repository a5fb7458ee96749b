"""The wheel, installed without the repository: an environment that holds its base dependencies
and nothing else answers from any folder as a checkout does.
"""

import gzip
import io
import json
import os
import pickle
import pickletools
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from multigpu.paths import REPOSITORY
from multigpu.records.published import FILE
from tests.further import but

pytestmark = pytest.mark.slow
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
BUILT_FROM = ("src", "data", "workflow", "pyproject.toml", "README.md", "LICENSE")
TRACES = Path(__file__).parents[1] / "data"
MIB = 2**20


def link_packages(site: Path, requirements: Iterable[str]) -> None:
    """Link what these packages consist of, and all that they require in turn, into a folder."""
    left, done = [Requirement(one) for one in requirements], set()
    while left:
        one = left.pop()
        extras = one.extras | {""}
        if one.name in done or not any(
            one.marker is None or one.marker.evaluate({"extra": extra}) for extra in extras
        ):
            continue
        done.add(one.name)
        found = metadata.distribution(one.name)
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}:
            if not (link := site / top).exists():
                link.symlink_to(found.locate_file(top))
        left += [Requirement(other) for other in found.requires or []]


class Environment:
    """A fresh environment with the wheel in it. python: its interpreter; wheel: the file."""

    def __init__(self, folder: Path) -> None:
        tree = folder / "tree"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "cache", FILE.name)
        for name in BUILT_FROM:
            if (source := REPOSITORY / name).is_dir():
                shutil.copytree(source, tree / name, ignore=ignored)
            else:
                shutil.copy(source, tree / name)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
        offline = ["--no-index", "--no-deps"]
        self.own = {**os.environ, "HOME": str(folder / "home")}
        for name in ("PYTHONPATH", "MULTIGPU_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            self.own.pop(name, None)
        self.done([*pip, "wheel", *offline, "--no-build-isolation", "-w", str(folder), str(tree)])
        assert not (tree / FILE.relative_to(REPOSITORY)).exists(), "the source is left as it was"
        (self.wheel,) = folder.glob("*.whl")
        venv.create(folder / "env", symlinks=True)
        self.python = str(folder / "env" / "bin" / "python")
        (site,) = (folder / "env").glob("lib/python*/site-packages")
        link_packages(site, PROJECT["dependencies"])
        self.done([*pip, "install", *offline, "--target", str(site), str(self.wheel)])
        shutil.rmtree(tree)

    def done(self, words: list[str], folder: Path | None = None, code: int = 0) -> str:
        """What a process says on both streams; it must end with this code."""
        ended = subprocess.run(
            words, cwd=folder, env=self.own, capture_output=True, text=True, timeout=115
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def multigpu(self, folder: Path, words: str, code: int = 0) -> str:
        return self.done([self.python, "-m", "multigpu", *words.split()], folder, code)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_published_points_and_is_small(installed: Environment) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        sizes = {one.filename: one.file_size for one in wheel.infolist()}
    assert 0 < sizes["multigpu/records/published.parquet"] <= 3 * MIB
    assert installed.wheel.stat().st_size < 5 * MIB
    assert not any(name.endswith((".pickle", ".tar.xz", ".json.gz")) for name in sizes)


ASKED = (
    "workload=nmt model=nmt000 devices=4 batch_size=128",
    "workload=cnn model=resnet50_v1.5 devices=2 --format json",
    # not measured: forecast from its series and links; and a batch that does not fit
    "workload=nmt model=nmt000 devices=3 batch_size=128 precision=bf16",
    "workload=cnn model=resnet152_v1 devices=1 batch_size=4096 precision=fp32 device_type=cuda",
)


@pytest.mark.parametrize("asked", but((ASKED[0], ASKED[2]), ASKED))
def test_it_advises_as_a_checkout_does(installed: Environment, tmp_path: Path, asked: str) -> None:
    words = [sys.executable, "-m", "multigpu", "advise", *asked.split()]
    own = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    checkout = subprocess.run(words, cwd=tmp_path, env=own, capture_output=True, text=True)
    assert checkout.stdout
    assert installed.multigpu(tmp_path, f"advise {asked}") == checkout.stdout + checkout.stderr


def test_readmes_example_runs_in_an_empty_folder_and_gives_the_answer(
    installed: Environment, tmp_path: Path
) -> None:
    example = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)[0]
    (tmp_path / "my_model.py").write_text(example)
    said = installed.done([installed.python, "my_model.py"], tmp_path)
    for name in ("one device", "ddp", "samples/s", "computing"):
        assert name in said
    assert re.search(r"^on 8 devices: [\d.,]+( [KM])? samples/s \(.+\)$", said, re.M)
    folder = tmp_path / "multigpu-compare"
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert sum(map(len, files.values())) < 2 * MIB
    assert files[folder / "index.html"].count(b"<tr>") > 3
    assert not [path for path, content in files.items() if is_pickle(content)]
    # the folder of this comparison is read from elsewhere, and by another copy of it
    again = shutil.copytree(folder, tmp_path / "copy")
    code = f"import multigpu; print(multigpu.compared({str(again)!r}).names)"
    assert "one device" in installed.done([installed.python, "-c", code])


def is_pickle(content: bytes) -> bool:
    """Whether some reader of pickles would run what stands in these bytes, PyTorch's archives
    included.
    """
    if zipfile.is_zipfile(io.BytesIO(content)):
        names = zipfile.ZipFile(io.BytesIO(content)).namelist()
        return any(name.endswith(".pkl") for name in names)
    if content[:2] == b"\x1f\x8b":
        return is_pickle(gzip.decompress(content))
    start = content.find(b"\x80\x04")
    try:
        return start >= 0 and bool(list(pickletools.genops(content[start:])))
    except Exception:
        return False


def test_what_is_no_pickle_is_told_from_what_is_one() -> None:
    torch.save({"a": torch.zeros(2)}, held := io.BytesIO())
    sealed = b"x" * 32 + pickle.dumps(Environment)
    assert is_pickle(pickle.dumps([1])) and is_pickle(sealed) and is_pickle(held.getvalue())
    assert is_pickle(gzip.compress(sealed)) and not is_pickle(json.dumps({"a": 1}).encode())


def test_it_says_what_is_here_and_reads_a_trace(installed: Environment, tmp_path: Path) -> None:
    said = installed.multigpu(tmp_path, "doctor")
    assert re.search(r"^torch +\d", said, re.M) and re.search(r"^missing +tensorflow", said, re.M)
    traces = " ".join(str(TRACES / f"late-{rank}.json.gz") for rank in range(2))
    assert "ms" in installed.multigpu(tmp_path, f"explain --trace {traces}")


@pytest.mark.parametrize("words", ["batch headline --out x", "report", "study"])
def test_what_wants_the_repository_or_an_extra_says_so(
    installed: Environment, tmp_path: Path, words: str
) -> None:
    said = installed.multigpu(tmp_path, words, code=2)
    assert re.fullmatch(
        r"multigpu: (\w+ is not installed: pip install \"multigpu\[study\]\" brings it"
        r"|the study needs the repository, .* set MULTIGPU_HOME to a checkout)\n",
        said,
    )
    assert not list(tmp_path.iterdir())
