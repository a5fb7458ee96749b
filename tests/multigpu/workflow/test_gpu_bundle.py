"""A bundle of packages for a host without a network: what it leaves out, and what it refuses."""

import importlib.util
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from multigpu import paths

SCRIPT = paths.REPOSITORY / "workflow" / "gpu_bundle.py"
HERE = ".".join(map(str, sys.version_info[:2]))
spec = importlib.util.spec_from_file_location("gpu_bundle", SCRIPT)
assert spec and spec.loader
bundles: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bundles)


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    """One entry of a container of GPU code; only what is read of its header is filled in."""
    header = bytearray(64)
    struct.pack_into("<H", header, 0, kind)
    struct.pack_into("<IQ", header, 4, len(header), len(code))
    struct.pack_into("<I", header, 28, architecture)
    return bytes(header) + code


def container(*code: bytes) -> bytes:
    """A container of GPU code as nvcc writes it into a library."""
    body = b"".join(code)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


PTX = bundles.PTX
CUBIN = bundles.CUBIN
LTO = bundles.LTO
EXACT = container(
    entry(CUBIN, 80, b"a" * 40),
    entry(CUBIN, 90, b"b" * 24),
    entry(PTX, 90, b"c" * 16),
    entry(LTO, 50, b"g" * 12),
)
OLDER = container(entry(PTX, 70, b"d" * 8), entry(PTX, 80, b"e" * 32), entry(PTX, 100, b"f" * 8))
LIBRARY = b"\x7fELF" + b"host code" + EXACT + b"between" + OLDER + b"the end"


def slimmed(tmp_path: Path, architecture: int, opened_only: bool = False) -> tuple[bytes, int]:
    path = tmp_path / "library.so"
    path.write_bytes(LIBRARY)
    cleared = bundles.slim(path, architecture, opened_only)
    return path.read_bytes(), cleared


def test_a_library_keeps_the_code_of_its_gpu_and_every_byte_its_place(tmp_path: Path) -> None:
    """On 9.0: machine code for 9.0, and where there is none PTX for 8.0, the newest it can use."""
    after, cleared = slimmed(tmp_path, 90)
    gone = LIBRARY
    for letter, count in ((b"a", 40), (b"c", 16), (b"d", 8), (b"f", 8)):
        gone = gone.replace(letter * count, bytes(count))
    assert after == gone and cleared == 40 + 16 + 8 + 8
    after, cleared = slimmed(tmp_path, 80)
    assert b"a" * 40 in after and b"e" * 32 in after and cleared == 24 + 16 + 8 + 8
    after, cleared = slimmed(tmp_path, 90, opened_only=True)
    assert (
        cleared == 40 + 24 + 16 + 12 + 8 + 32 + 8 and b"host code" in after and b"between" in after
    )


def test_what_only_looks_like_gpu_code_stays(tmp_path: Path) -> None:
    for content in (
        b"",
        bundles.FATBIN,
        bundles.FATBIN + b"x" * 40,
        container(entry(CUBIN, 80, b"a" * 40))[:-1],
    ):
        path = tmp_path / "library.so"
        path.write_bytes(content)
        assert bundles.slim(path, 90) == 0 and path.read_bytes() == content


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one wheel: a module, a header, a library, and 2.5 MB that do not compress."""
    folder = tmp_path_factory.mktemp("wheels")
    content = {
        "tiny/__init__.py": b"VALUE = 41\n",
        "tiny/include/tiny.h": b"int tiny;\n",
        "tiny/libtiny.so": LIBRARY,
        "tiny/noise": os.urandom(2_500_000),
        "nvidia/tiny/lib/libcuda_tiny.so.1": b"",
        "tiny-1.0.data/purelib/beside.py": b"VALUE = 42\n",
        "tiny-1.0.data/data/share/notes.txt": b"unread",
        "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "tiny-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return folder


@pytest.fixture(scope="module")
def bundle(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed bundle of that wheel, in parts of 1 MB and blocks that cross them."""
    folder = tmp_path_factory.mktemp("packed")
    listing = folder / "list.txt"
    listing.write_text("# one package\n\ntiny==1.*  # the only one\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "BLOCK", 700_000)
        bundles.pack(folder / "out", [listing], HERE, 90, 1, links=wheels)
    return folder / "out"


def call(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def refusal_of(*words: object, **environment: str) -> str:
    """What the command says as it ends with exit code 2."""
    done = call(*words, **environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr


def test_what_was_packed_is_imported_on_the_host(bundle: Path, tmp_path: Path) -> None:
    parts = sorted(bundle.glob("part-*"))
    assert [part.name for part in parts] == ["part-00", "part-01", "part-02"]
    assert [part.stat().st_size for part in parts[:-1]] == [10**6, 10**6]
    site = tmp_path / "its site"
    done = call(bundle / "gpu_bundle.py", "unpack", bundle, site)
    assert done.returncode == 0, done
    program = (
        "import os, tiny, beside; print(tiny.VALUE, beside.VALUE, os.environ['LD_LIBRARY_PATH'])"
    )
    script = 'source "$1"/env.sh && "$2" -c "$3"'
    command = ["bash", "-c", script, "bash", str(site), sys.executable, program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert said.stdout.startswith(f"41 42 {site}/nvidia/tiny/lib")
    library = (site / "tiny/libtiny.so").read_bytes()
    assert len(library) == len(LIBRARY) and b"b" * 24 in library and b"a" * 40 not in library
    assert not (site / "tiny/include").exists() and not (site / "tiny-1.0.data").exists()


def test_the_parts_joined_are_an_archive_that_other_programs_read(bundle: Path) -> None:
    joined = b"".join(part.read_bytes() for part in sorted(bundle.glob("part-*")))
    with tarfile.open(fileobj=BytesIO(lzma.decompress(joined))) as archive:
        assert "./tiny/__init__.py" in archive.getnames()


def test_a_bundle_that_is_not_whole_writes_nothing(bundle: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(bundle, copied)
    site = tmp_path / "site"
    part = copied / "part-01"
    whole = part.read_bytes()
    part.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    assert "part-01 of" in refusal_of(copied / "gpu_bundle.py", "unpack", copied, site)
    part.write_bytes(whole[:-1])
    assert "not as packed" in refusal_of(copied / "gpu_bundle.py", "unpack", copied, site)
    part.unlink()
    (copied / "part-02").unlink()
    assert "part-01, part-02" in refusal_of(copied / "gpu_bundle.py", "unpack", copied, site)
    (copied / "manifest.json").write_text("{")
    assert "manifest.json" in refusal_of(copied / "gpu_bundle.py", "unpack", copied, site)
    assert not site.exists()


def test_another_python_and_a_folder_in_use_are_refused(
    bundle: Path, wheels: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(bundle, copied)
    manifest = copied / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{HERE}"', '"3.1"'))
    said = refusal_of(copied / "gpu_bundle.py", "unpack", copied, tmp_path / "site")
    assert f"for Python 3.1 and this is {HERE}" in said
    assert "not empty" in refusal_of(SCRIPT, "unpack", bundle, copied)
    listing = tmp_path / "list.txt"
    listing.write_text("tiny\n")
    pack = (SCRIPT, "pack", bundle, listing, "--find-links", wheels)
    assert "not empty" in refusal_of(*pack)


def test_a_list_that_cannot_be_had_is_refused(wheels: Path, tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    pack = (SCRIPT, "pack", tmp_path / "out", listing, "--find-links", wheels)
    assert "cannot be read" in refusal_of(*pack)
    listing.write_text("# nothing\n")
    assert "name no package" in refusal_of(*pack)
    listing.write_text("tiny==2.0\n")
    assert "tiny==2.0" in refusal_of(*pack)
    assert not (tmp_path / "out").exists()


STAND_IN = """
import numpy
__version__ = "of a test"
class config:
    list_logical_devices = lambda kind: [type("", (), {"name": f"GPU:{n}"}) for n in range(GPUS)]
class device:
    def __init__(self, name): device.name = name
    __enter__ = __exit__ = lambda *_: None
def matmul(left, right):
    product = left @ right
    if device.name == "GPU:1": product = product * ERROR
    return type("", (), {"numpy": lambda self: product})()
"""


@pytest.mark.parametrize(
    ("gpus", "error", "said"),
    [
        (2, 1.0003, ""),
        (2, 1.003, "GPU:1 multiplies"),
        (0, 1.0, "sees no GPU"),
        (None, 1.0, "env.sh"),
    ],
)
def test_the_check_fails_where_a_gpu_is_missing_or_wrong(
    gpus: int | None, error: float, said: str, tmp_path: Path
) -> None:
    body = STAND_IN.replace("GPUS", str(gpus)).replace("ERROR", str(error))
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no')" if gpus is None else body)
    environment = {"PYTHONPATH": str(tmp_path)}
    if said:
        assert said in refusal_of(SCRIPT, "check", **environment)
    else:
        assert "computes on 2 GPUs" in call(SCRIPT, "check", **environment).stdout


def test_the_list_of_tensorflow_pins_the_libraries_that_the_project_names() -> None:
    project = tomllib.loads((paths.REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = set(project["optional-dependencies"]["tensorflow-gpu"])
    listed = bundles.requirements([paths.REPOSITORY / "workflow/bundles/tensorflow.txt"])
    assert wanted - set(listed) <= {"tensorboard==2.21.*"}  # which reads logs, and on no GPU host
