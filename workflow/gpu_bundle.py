#!/usr/bin/env python3
"""Carry Python packages, TensorFlow above all, to a GPU host that reaches no registry.

Where there is a network, from the repository's root:

    python workflow/gpu_bundle.py pack build/bundle workflow/bundles/tensorflow.txt

This downloads the wheels named in the lists for Linux on x86-64, leaves out C headers and GPU code
for other GPUs than the host's (--architecture), and writes build/bundle: `part-00`, `part-01` ...,
none larger than --part-mb, `manifest.json` with their checksums, and a copy of this script. Copy
all of it to the host, in as many goes as you like, and run there:

    python3 bundle/gpu_bundle.py unpack bundle site && source site/env.sh
    python3 bundle/gpu_bundle.py check

`env.sh` puts `site` before other packages on PYTHONPATH, and on LD_LIBRARY_PATH the CUDA libraries
in it, then those of the host's own PyTorch (cuDNN, NCCL). `check` multiplies matrices on every GPU
that TensorFlow sees. Only Python's own library is needed on either side; on the host no pip.

The parts joined are a tar archive in xz's format: `cat part-* | xz -dc | tar x` reads them too.
"""

import argparse
import hashlib
import importlib.util
import io
import json
import lzma
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

GLIBC = (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in GLIBC),
    *(f"manylinux{year}_x86_64" for year in (2014, 2010, 1)),
    "linux_x86_64",
]
LEFT_OUT = ("/include/",)
"""Folders of a wheel that nothing imports."""

PROFILING_ONLY = "libnvperf_host.so"
"""CUPTI's library for counters of the hardware, which TensorFlow never opens."""

OPENED_ONLY = ("libcufft", "libcusolver", "libcusparse")
"""Libraries that TensorFlow must be able to open, or it sees no GPU, while no model here calls
them: all their GPU code is left out, and a call fails with CUDA's "no kernel image"."""

BLOCK = 32 * 2**20
"""Bytes of the archive that are compressed by themselves, so that all cores take part."""

PRESET = 3
"""Of xz: a fifth larger than its default, and three times as fast."""

FATBIN = struct.pack("<I", 0xBA55ED50)
PTX = 1
CUBIN = 2
LTO = 8  # what nvJitLink links when a program asks for a kernel


class BundleError(Exception):
    """Why there is no bundle, or none that can be used, in one sentence."""


def ahead(
    pool: ThreadPoolExecutor, make: Callable[[Given], Made], given: Iterable[Given], most: int
) -> Iterator[Made]:
    """Make something of each item, in order, never working on more than `most` at a time."""
    waiting: deque[Future[Made]] = deque()
    for item in given:
        waiting.append(pool.submit(make, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def workers() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


# ------------------------------------------------------------------------------------------ pack


def requirements(lists: Iterable[Path]) -> list[str]:
    """Read the requirements that the lists name, one a line, without comments."""
    names = []
    for path in lists:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"{path} cannot be read: {error}") from None
        names += [line.split("#")[0].strip() for line in lines]
    names = [name for name in names if name]
    if not names:
        raise BundleError(
            "the lists name no package: write one requirement a line, such as keras==3.15.*"
        )
    return names


def download(folder: Path, names: list[str], python: str, deps: bool, links: Path | None) -> None:
    """Download the wheels of `names` into `folder`, for the host's Python and processor.

    links: take them from this folder of wheels and from no registry.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if not deps:
        command.append("--no-deps")
    if links:
        command += ["--no-index", "--find-links", str(links)]
    done = subprocess.run(
        [*command, "--dest", str(folder), *names], stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = " ".join((errors or done.stderr.splitlines() or ["pip said nothing"])[-1].split())
        raise BundleError(f"the wheels could not be downloaded: {why}")


def unzip(wheels: Path, site: Path) -> None:
    """Unzip every wheel into `site` as pip would put it there, without headers."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            kept = [
                name
                for name in archive.namelist()
                if not any(folder in f"/{name}" for folder in LEFT_OUT)
            ]
            archive.extractall(site, kept)
        wheel.unlink()
    for data in sorted(site.glob("*.data")):
        for library in (data / "purelib", data / "platlib"):
            if library.is_dir():
                shutil.copytree(library, site, dirs_exist_ok=True)
        shutil.rmtree(data)


def entries(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """List the entries of the container of GPU code whose content lies between `start` and `end`.

    Yields: kind (PTX, CUBIN, LTO or another), architecture (90 for 9.0), where its code begins, and
        its bytes.
    """
    at = start
    while at + 32 <= end:
        (kind,) = struct.unpack_from("<H", data, at)
        header, size = struct.unpack_from("<IQ", data, at + 4)
        (architecture,) = struct.unpack_from("<I", data, at + 28)
        if not header or at + header + size > end:
            return
        yield kind, architecture, at + header, size
        at += header + size


def slim(path: Path, architecture: int, opened_only: bool = False) -> int:
    """Write zeros over a library's GPU code that a GPU of this architecture never runs.

    Kept is its machine code, or where there is none the newest PTX that the driver can compile for
    it. Nothing moves: zeros are compressed away. opened_only: keep none.

    Returns: how many bytes became zeros.
    """
    if not path.stat().st_size:
        return 0
    cleared = 0
    kinds = (PTX, CUBIN, LTO) if opened_only else (PTX, CUBIN)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(FATBIN)
        while at >= 0:
            start = at + 16
            if start > len(data):
                break
            version, header, size = struct.unpack_from("<HHQ", data, at + 4)
            if version != 1 or header != 16 or start + size > len(data):
                at = data.find(FATBIN, at + 4)
                continue
            code = list(entries(data, start, start + size))
            kept = [] if opened_only else chosen(code, architecture)
            for entry in code:
                _, _, begin, length = entry
                if entry[0] in kinds and entry not in kept:
                    data[begin : begin + length] = bytes(length)
                    cleared += length
            at = data.find(FATBIN, start + size)
    return cleared


def chosen(
    code: list[tuple[int, int, int, int]], architecture: int
) -> list[tuple[int, int, int, int]]:
    """Choose what a GPU of this architecture runs: its machine code, else the newest older PTX."""
    exact = [entry for entry in code if entry[0] == CUBIN and entry[1] == architecture]
    older = [entry for entry in code if entry[0] == PTX and entry[1] <= architecture]
    return exact or sorted(older, key=lambda entry: entry[1])[-1:]


def slim_all(site: Path, architecture: int) -> None:
    """Slim every library under `site` (`slim`), and say of which most was left out."""
    for path in site.rglob(f"{PROFILING_ONLY}*"):
        path.unlink()
    for path in sorted(site.rglob("*.so*")):
        if path.is_symlink() or not path.is_file():
            continue
        cleared = slim(path, architecture, path.name.startswith(OPENED_ONLY))
        if cleared >= 10**6:
            print(f"{path.name}: {cleared / 1e6:.0f} MB of GPU code left out", flush=True)


class Blocks(io.RawIOBase):
    """A stream that hands on what is written to it in blocks of `BLOCK` bytes."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.held += data
        while len(self.held) >= BLOCK:
            self.take(bytes(self.held[:BLOCK]))
            del self.held[:BLOCK]
        return len(data)

    def close(self) -> None:
        if self.held:
            self.take(bytes(self.held))
            self.held.clear()
        super().close()


class Parts:
    """Files `part-00`, `part-01` ... of at most `size` bytes, written one after another."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.sums: list[Any] = []
        self.lengths: list[int] = []

    def write(self, data: bytes) -> None:
        """Append to the last part, and go on in a new one wherever it is full."""
        at = 0
        while at < len(data):
            if not self.lengths or self.lengths[-1] == self.size:
                self.sums.append(hashlib.sha256())
                self.lengths.append(0)
            piece = data[at : at + self.size - self.lengths[-1]]
            with (self.folder / f"part-{len(self.lengths) - 1:02d}").open("ab") as file:
                file.write(piece)
            self.sums[-1].update(piece)
            self.lengths[-1] += len(piece)
            at += len(piece)

    def listed(self) -> list[dict[str, Any]]:
        """Describe each part as the manifest does."""
        return [
            {"name": f"part-{number:02d}", "bytes": length, "sha256": digest.hexdigest()}
            for number, (length, digest) in enumerate(zip(self.lengths, self.sums, strict=True))
        ]


def compress(site: Path, parts: Parts) -> list[int]:
    """Write the folder as a compressed archive into `parts`; return how long each block became."""
    lengths: list[int] = []
    waiting: deque[Future[bytes]] = deque()
    most = 2 * workers()

    def finish(left: int) -> None:
        while len(waiting) > left:
            block = waiting.popleft().result()
            parts.write(block)
            lengths.append(len(block))

    with ThreadPoolExecutor(workers()) as pool:

        def take(block: bytes) -> None:
            waiting.append(pool.submit(lzma.compress, block, preset=PRESET))
            finish(most)

        stream = Blocks(take)
        with tarfile.open(fileobj=stream, mode="w|") as tar:
            tar.add(site, arcname=".")
        stream.close()
        finish(0)
    return lengths


def pack(
    out: Path,
    lists: list[Path],
    python: str,
    architecture: int | None,
    part_mb: int,
    deps: bool = False,
    links: Path | None = None,
) -> None:
    """Write the bundle of the packages that `lists` name into the new folder `out`.

    Args:
        out: must not exist, or be empty.
        python: the host's, such as 3.12.
        architecture: the host's GPUs (90: H100 and H200); None: keep the code for all.
        part_mb: the largest part, in megabytes (10^6 bytes).
        deps: download what the packages need too; else the host has it, or the lists name it.
        links: a folder of wheels to take in place of a registry's.

    Raises:
        BundleError: there is something in `out`, or a wheel cannot be had.
    """
    names = requirements(lists)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError(f"{out} exists and is not empty: name a new folder, or delete it")
    with tempfile.TemporaryDirectory(prefix="gpu-bundle-") as scratch:
        wheels = Path(scratch, "wheels")
        site = Path(scratch, "site")
        site.mkdir()
        download(wheels, names, python, deps, links)
        packed = sorted(path.name for path in wheels.glob("*.whl"))
        unzip(wheels, site)
        if architecture is not None:
            slim_all(site, architecture)
        out.mkdir(parents=True, exist_ok=True)
        parts = Parts(out, part_mb * 10**6)
        blocks = compress(site, parts)
    manifest = {
        "python": python,
        "architecture": architecture,
        "wheels": packed,
        "blocks": blocks,
        "parts": parts.listed(),
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    shutil.copy(__file__, out / "gpu_bundle.py")
    total = sum(parts.lengths) / 1e6
    print(f"{len(packed)} wheels, {total:.0f} MB in {len(parts.lengths)} parts under {out}")


# ---------------------------------------------------------------------------------------- unpack


class Joined(io.RawIOBase):
    """A stream of what an iterator of bytes yields."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.held:
            piece = next(self.pieces, None)
            if piece is None:
                return 0
            self.held = memoryview(piece)
        count = min(len(buffer), len(self.held))
        buffer[:count] = self.held[:count]
        self.held = self.held[count:]
        return count


def read_manifest(bundle: Path) -> dict[str, Any]:
    """Read what the bundle should hold, once every part is there and whole.

    Raises:
        BundleError: naming all parts that are missing, or differ from what was packed.
    """
    path = bundle / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BundleError(
            f"{path} is missing or damaged: copy it from where the bundle was packed"
        ) from None
    missing = [part["name"] for part in manifest["parts"] if not (bundle / part["name"]).is_file()]
    if missing:
        raise BundleError(f"{bundle} lacks {', '.join(missing)}: copy these parts too")
    with ThreadPoolExecutor(workers()) as pool:
        sums = pool.map(lambda part: digest_of(bundle / part["name"]), manifest["parts"])
        pairs = zip(manifest["parts"], sums, strict=True)
        damaged = [part["name"] for part, digest in pairs if digest != part["sha256"]]
    if damaged:
        raise BundleError(f"{', '.join(damaged)} of {bundle} are not as packed: copy them again")
    return manifest


def digest_of(path: Path) -> str:
    """Compute a file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def compressed_blocks(bundle: Path, manifest: dict[str, Any]) -> Iterator[bytes]:
    """Read the compressed blocks one after another; some begin in one part and end in the next."""
    paths = iter(bundle / part["name"] for part in manifest["parts"])
    held = bytearray()
    for length in manifest["blocks"]:
        while len(held) < length:
            held += next(paths).read_bytes()
        yield bytes(held[:length])
        del held[:length]


def unpack(bundle: Path, site: Path) -> None:
    """Unpack a bundle into the new folder `site`, and write `site/env.sh`.

    Raises:
        BundleError: a part is missing or damaged, Python is another one than the bundle is for, or
            there is something in `site`; nothing was written.
    """
    manifest = read_manifest(bundle)
    here = ".".join(map(str, sys.version_info[:2]))
    if manifest["python"] != here:
        raise BundleError(
            f"this bundle is for Python {manifest['python']} and this is {here}: pack it with"
            f" --python {here}, or unpack it with the other"
        )
    if site.exists() and (not site.is_dir() or any(site.iterdir())):
        raise BundleError(f"{site} exists and is not empty: name a new folder, or delete it")
    site.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(workers()) as pool:
        blocks = ahead(pool, lzma.decompress, compressed_blocks(bundle, manifest), 2 * workers())
        stream: Any = io.BufferedReader(Joined(blocks), 2**20)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(site, filter="data")
            else:
                tar.extractall(site)
    (site / "env.sh").write_text(environment(site.resolve()), encoding="utf-8")
    print(f"{len(manifest['wheels'])} wheels unpacked into {site}; now: source {site}/env.sh")


def environment(site: Path) -> str:
    """Write the shell's lines that make a process find what lies under `site`."""
    libraries = sorted(site.glob("nvidia/*/lib"))
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        libraries += sorted(Path(root).resolve().glob("*/lib"))
    lines = [f'export PYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}"']
    if libraries:
        paths = ":".join(dict.fromkeys(map(str, libraries)))
        lines.append(f'export LD_LIBRARY_PATH="{paths}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    compiler = site / "nvidia" / "cuda_nvcc"
    if compiler.is_dir():
        lines.append(
            f'export XLA_FLAGS="--xla_gpu_cuda_data_dir={compiler}${{XLA_FLAGS:+ $XLA_FLAGS}}"'
        )
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------- check


def check() -> None:
    """Multiply matrices on every GPU that TensorFlow sees, and compare with NumPy.

    Raises:
        BundleError: TensorFlow cannot be imported, sees no GPU, or computes something else.
    """
    try:
        import numpy as np
        import tensorflow as tf
    except ImportError as error:
        raise BundleError(
            f"TensorFlow cannot be imported ({error}): source the env.sh of its folder first"
        ) from None
    names = [device.name for device in tf.config.list_logical_devices("GPU")]
    if not names:
        raise BundleError(
            "TensorFlow sees no GPU: its messages above name the library that it could not open,"
            " cuDNN and NCCL among them, which are the host's PyTorch's"
        )
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 512, 512)).astype("float32")
    wanted = left.astype("float64") @ right.astype("float64")
    for name in names:
        with tf.device(name):
            product = tf.matmul(left, right).numpy()
        error = float(np.linalg.norm(product - wanted) / np.linalg.norm(wanted))
        if not error < 2e-3:  # TF32 reaches 3e-4
            raise BundleError(
                f"{name} multiplies with an error of {error:.1e}, where 2e-3 is allowed"
            )
    print(f"TensorFlow {tf.__version__} computes on {len(names)} GPUs")


# -------------------------------------------------------------------------------------- commands


def positive(text: str) -> int:
    """Read a whole number above zero."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def parser() -> argparse.ArgumentParser:
    """Make the parser of the three commands."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = top.add_subparsers(dest="verb", required=True)
    own = verbs.add_parser("pack", help="download packages and write the bundle")
    own.add_argument("out", type=Path, help="a new folder")
    own.add_argument("lists", type=Path, nargs="+", help="files of requirements, one a line")
    own.add_argument("--python", default="3.12", help="the host's Python (default: 3.12)")
    own.add_argument(
        "--architecture",
        type=positive,
        default=90,
        help="of the host's GPUs, without the point: 80 A100, 89 L40S, 90 H100 and H200 (default)",
    )
    own.add_argument("--whole", action="store_true", help="keep GPU code for all architectures")
    own.add_argument(
        "--part-mb", type=positive, default=40, help="the largest part, in MB (default: 40)"
    )
    own.add_argument("--with-deps", action="store_true", help="what the packages need as well")
    own.add_argument("--find-links", type=Path, metavar="FOLDER", help="take wheels from here only")
    own = verbs.add_parser("unpack", help="on the host: verify the bundle and unpack it")
    own.add_argument("bundle", type=Path, help="the folder that holds all parts")
    own.add_argument("site", type=Path, help="a new folder")
    verbs.add_parser("check", help="on the host: multiply matrices on every GPU")
    return top


def main(words: list[str] | None = None) -> int:
    """Carry out one command; the exit code is 2 where it cannot be."""
    asked = parser().parse_args(words)
    try:
        if asked.verb == "pack":
            architecture = None if asked.whole else asked.architecture
            pack(
                asked.out,
                asked.lists,
                asked.python,
                architecture,
                asked.part_mb,
                asked.with_deps,
                asked.find_links,
            )
        elif asked.verb == "unpack":
            unpack(asked.bundle, asked.site)
        else:
            check()
    except BundleError as error:
        print(f"gpu_bundle: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
