"""Compile CUDA sources by NVRTC, which PyTorch's GPU builds bring, into the user's cache."""

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from multigpu.writing import check_room, write_whole

SOURCES = Path(__file__).parent
CUDA = 13  # the major version of CUDA whose NVRTC is asked; the kernels were tried with no other


class Unavailable(Exception):
    """These kernels cannot run here; the message is one clause that says why."""


def cache_folder() -> Path:
    """Where built kernels are kept: `multigpu/kernels` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "multigpu" / "kernels"


def library_names(folders: Iterable[str]) -> list[str]:
    """Names of NVRTC: as the loader finds it, then in NVIDIA's packages in these folders."""
    name = f"libnvrtc.so.{CUDA}"
    return [
        name,
        *(
            str(path)
            for folder in folders
            for path in sorted(Path(folder).glob(f"nvidia/*/lib/{name}"))
        ),
    ]


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """NVIDIA's run-time compiler; raises `Unavailable` where it is not here."""
    for name in library_names(sys.path):
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise Unavailable(f"NVRTC (libnvrtc.so.{CUDA}, the package nvidia-cuda-nvrtc) is not installed")


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """A cubin of this source; `Unavailable` without NVRTC, or where it refuses."""
    library = nvrtc()
    program, size, log_size = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    if library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
    ):
        raise Unavailable("NVRTC takes no program")
    try:
        encoded = [option.encode() for option in options]
        if library.nvrtcCompileProgram(
            program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
        ):
            library.nvrtcGetProgramLogSize(program, ctypes.byref(log_size))
            log = ctypes.create_string_buffer(log_size.value + 1)
            library.nvrtcGetProgramLog(program, log)
            first = next(
                (line for line in log.value.decode(errors="replace").splitlines() if line.strip()),
                "it left no message",
            )
            raise Unavailable(f"NVRTC does not build the kernels: {first.strip()[:200]}")
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, image)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def version() -> str:
    """Of NVRTC; raises `Unavailable` where it is not here."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def read_cached(path: Path) -> bytes | None:
    """Read a kernel behind the hash of it; None where there is nothing, or not all of it."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    expected, image = content[:32], content[32:]
    return image if image and hashlib.sha256(image).digest() == expected else None


def writable(folder: Path) -> bool:
    """Whether what is built can be kept in this folder."""
    try:
        check_room(folder)
    except OSError:
        return False
    return True


def built(name: str, options: Sequence[str]) -> bytes:
    """The cubin of a file beside this one under these options, from the cache or from NVRTC."""
    source = (SOURCES / name).read_text()
    key = hashlib.sha256("\0".join([source, *options, version()]).encode()).hexdigest()
    path = cache_folder() / f"{Path(name).stem}-{key[:24]}.cubin"
    image = read_cached(path)
    if image is None:
        image = compile_source(source, options)
        with suppress(OSError):  # a folder that cannot be written costs a second in every process
            write_whole(path, hashlib.sha256(image).digest() + image, replace=True, synced=False)
    return image
