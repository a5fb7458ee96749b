"""Where installed packages keep the CUDA libraries that TensorFlow opens, as environment for its processes. Imports no framework.

TensorFlow 2.21 opens libraries of CUDA 12 (packages nvidia-*-cu12, the extra `tensorflow-gpu`), and cuDNN and NCCL, which are those of a
PyTorch built for CUDA 13. The dynamic loader reads LD_LIBRARY_PATH when a process starts: it must be there before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

GENERATION = re.compile(r"cu\d+")
"""The folder that all packages of one generation share, since CUDA 13; the packages of CUDA 12 have one each."""
DATA = "--xla_gpu_cuda_data_dir"


def library_folders(site: Iterable[str | Path]) -> list[Path]:
    """Folders with shared libraries of the `nvidia` packages in these site-packages, in the order in which they are to be searched.

    A generation's common folder comes last: CUDA 12 and 13 both have a libcusparse.so.12, and TensorFlow needs CUDA 12's. It stays, since
    PyTorch's cuDNN opens libraries from it.

    Args:
        site: folders of installed packages, as `sys.path`, those with precedence first. Asked for files: one of the packages of CUDA 12
            brings an `nvidia/__init__.py`, which would hide the others from an import.
    """
    roots = list(dict.fromkeys(Path(folder).resolve() / "nvidia" for folder in site))
    found = [folder for root in roots for folder in sorted(root.glob("*/lib")) if any(folder.glob("*.so*"))]
    return sorted(found, key=lambda folder: bool(GENERATION.fullmatch(folder.parent.name)))


def tensorflow_environment(site: Iterable[str | Path], environment: Mapping[str, str]) -> dict[str, str]:
    """What `environment` lacks for a TensorFlow process to find these libraries; empty where there are none, or nothing is lacking.

    LD_LIBRARY_PATH keeps what is set, in front. XLA_FLAGS gains the folder of CUDA's compiler (nvidia-cuda-nvcc-cu12), unless it
    names one.
    """
    site, changes = list(site), {}
    set_before = environment.get("LD_LIBRARY_PATH", "")
    lacking = [str(folder) for folder in library_folders(site) if str(folder) not in set_before.split(os.pathsep)]
    if lacking:
        changes["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [set_before, *lacking]))
    flags = environment.get("XLA_FLAGS", "")
    compiler = next((path for folder in site if (path := Path(folder).resolve() / "nvidia" / "cuda_nvcc").is_dir()), None)
    if compiler and DATA not in flags:
        changes["XLA_FLAGS"] = " ".join(filter(None, [flags, f"{DATA}={compiler}"]))
    return changes
