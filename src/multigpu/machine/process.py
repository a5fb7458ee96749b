"""Ties between processes: children that end with their parent, and what they find in their
environment.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

PR_SET_PDEATHSIG = 1
MULTICAST_OFF = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""Environment of every process of a launch: a program that misuses NVLink multicast can put all
GPUs of a host out of service.
"""
NO_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
"""Environment of processes that use TensorFlow without Keras: it would import Keras 3, scikit-learn
and matplotlib, half its start.
"""
# of those that train a user's Keras model, whose file may say `tf.keras`
WITH_KERAS = {"TF_USE_LEGACY_KERAS": "0"}
# so long a process of a launch that somebody stopped (SIGSTOP) may take to be continued
STOPPED_S = 5.0
STARTED_AT = "MULTIGPU_STARTED_AT"
"""In a forked worker's environment: when its start began (monotonic), imports included."""


def start_ticks(process: int | str = "self") -> int:
    """Return when a process started, in ticks since this machine's boot, which no setting of its
    clock changes. An OSError: there is no such process.
    """
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def age_s() -> float:
    """Return the seconds since this process started, whoever sets the clock meanwhile."""
    started_s = start_ticks() / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def import_for_good(name: str) -> Any:
    """The module. On hosts without GPUs no collection of garbage, with which every Run ends, looks
    through what is imported by then.
    """
    if name not in sys.modules:
        collecting = gc.isenabled()
        gc.disable()  # of what is imported nothing is garbage
        try:
            importlib.import_module(name)
            if not os.path.exists("/dev/nvidiactl"):
                gc.freeze()
        finally:
            if collecting:
                gc.enable()
    return sys.modules[name]


def ask(
    what: str, module: str, text: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Return the output of `python -m module` given this text; a RuntimeError says in what it
    failed, and its last words.
    """
    done = subprocess.run(
        [sys.executable, "-m", module], input=text, capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{what} failed: {last_words(done.stderr)}")
    return done.stdout


def last_words(text: str) -> str:
    """The last line that a process left, in few words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it left no message"


def end_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when the thread that started it ends, even one that is
    killed with -9 (Linux only).

    parent: the process that started this one, which may have ended while this one imported a
        framework; None: whatever its parent is now.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)


def end_in_order(processes: Iterable[subprocess.Popen[Any]], patience_s: float = 0.0) -> None:
    """End those that still run: politely, which lets them end what they have started, and surely
    after so many seconds, or at once.
    """
    left = [process for process in processes if process.poll() is None]
    for process in left if patience_s else ():
        process.terminate()
    until = time.monotonic() + patience_s
    for process in left:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class StoppedProcesses:
    """Those of a launch that somebody stopped: they neither answer nor end, and all others would
    wait for them.
    """

    def __init__(self) -> None:
        self.since: dict[psutil.Process, float] = {}
        self.looked_s = 0.0

    def kill(self, roots: Sequence[int]) -> list[int]:
        """Kill what was stopped `STOPPED_S` ago among these processes and all that they started,
        and tell which; a look a second.
        """
        now = time.monotonic()
        if now < self.looked_s + 1:
            return []
        self.looked_s, found = now, []
        for root in roots:
            with contextlib.suppress(psutil.Error):  # one has ended meanwhile
                own = psutil.Process(root)
                found += [
                    each
                    for each in (own, *own.children(recursive=True))
                    if each.status() == psutil.STATUS_STOPPED
                ]
        self.since = {each: self.since.get(each, now) for each in found}
        over = [each for each, since in self.since.items() if now - since >= STOPPED_S]
        for each in over:
            each.kill()
        return [each.pid for each in over]


DATA = "--xla_gpu_cuda_data_dir"


def library_folders(site: Iterable[str | Path]) -> list[Path]:
    """Folders with shared libraries of the `nvidia` packages in these folders of packages (as
    `sys.path`), in the order to search them. A generation's common folder comes last: CUDA 12 and
    13 both have a libcusparse.so.12, and TensorFlow needs CUDA 12's. It stays, since PyTorch's
    cuDNN opens libraries from it. Asked for files: an `nvidia/__init__.py` of CUDA 12 would hide
    the others from an import.
    """
    roots = list(dict.fromkeys(Path(folder).resolve() / "nvidia" for folder in site))
    found = [
        folder
        for root in roots
        for folder in sorted(root.glob("*/lib"))
        if any(folder.glob("*.so*"))
    ]
    return sorted(found, key=lambda folder: bool(re.fullmatch(r"cu\d+", folder.parent.name)))


def tensorflow_environment(
    site: Iterable[str | Path], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that `environment` lacks for a TensorFlow process to find these
    libraries; empty where there are none, or nothing is lacking.

    TensorFlow 2.21 opens libraries of CUDA 12 (packages nvidia-*-cu12, the extra `tensorflow-gpu`),
    and cuDNN and NCCL, which are those of a PyTorch built for CUDA 13. The loader reads
    LD_LIBRARY_PATH when a process starts; what is set there stays, in front. XLA_FLAGS gains the
    folder of CUDA's compiler (nvidia-cuda-nvcc-cu12), unless it names one.
    """
    site, changes = list(site), {}
    kept, flags = environment.get("LD_LIBRARY_PATH", ""), environment.get("XLA_FLAGS", "")
    if lacking := [
        str(folder) for folder in library_folders(site) if str(folder) not in kept.split(os.pathsep)
    ]:
        changes["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [kept, *lacking]))
    folders = (Path(folder).resolve() / "nvidia" / "cuda_nvcc" for folder in site)
    compiler = next((path for path in folders if path.is_dir()), None)
    if compiler and DATA not in flags:
        changes["XLA_FLAGS"] = " ".join(filter(None, [flags, f"{DATA}={compiler}"]))
    return changes
