"""The machine a Run ran on: what it is (once a Record) and how it was just then (clocks, power,
temperature).
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from multigpu.machine.cluster import CLUSTER_VARIABLE, Cluster, as_machine, slug
from multigpu.machine.lane import LANE_VARIABLE, this_lane, visible_gpus
from multigpu.spec.schema import Data

# Environment variables that change what is measured; a Record keeps those that are set.
TELLING = re.compile(
    r"^(NCCL_|GLOO_|OMP_|MKL_|CUDA_|TORCH_NCCL|TORCH_SYMM|PYTORCH_|TF_GPU|TF_XLA|TF_NUM|TF_ENABLE"
    r"|XLA_|NVSHMEM_)"
)
PATH = re.compile(r"/[^\s:,=]+")
PACKAGES = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "numpy",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu13",
    "nvidia-nccl-cu12",
    "ray",
)

EMPTY_TREE = hashlib.sha1(b"tree 0\0").hexdigest()


class Machine(Data):
    """The facts of a machine that do not change while a sweep runs; links: as the driver says.
    hosts, processes_per_host, network: of several hosts that are one machine (`machine.cluster`);
        all else is of one of them.
    """

    name: str
    gpus: list[str]
    gpu_memory_gib: list[float]
    driver: str
    links: list[list[str]]
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    environment: dict[str, str]
    hosts: int = 1
    processes_per_host: int | None = None
    network: str = ""


class DeviceState(Data):
    """One GPU as found after the timed steps (its settings are never touched)."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    power_w: float
    temperature_c: int
    energy_j: float | None = None


class EnergyWindow(Data):
    """One GPU between two readings of its counter of energy, in joules since the driver was loaded;
    what this replica did meanwhile.
    """

    window_s: float
    start_j: float
    end_j: float
    steps: int
    units: int


@cache
def find_nvml() -> Any:
    """NVML's Python module, initialised, or None where there is no NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # no driver, no library, no permission: all mean that NVML has nothing to say
        return None


def gpu_count() -> int:
    """GPUs that this process may use (CUDA_VISIBLE_DEVICES honoured), without importing a
    framework.
    """
    nvml = find_nvml()
    return len(
        visible_gpus(
            os.environ.get("CUDA_VISIBLE_DEVICES"), nvml.nvmlDeviceGetCount() if nvml else 0
        )
    )


def gpu_handle(index: int) -> Any:
    """NVML's handle of one of the GPUs that this process may use, by its number or by what its UUID
    begins with. None without NVML, and where CUDA_VISIBLE_DEVICES names it otherwise, or none or
    several: another GPU's meters must not speak for it.
    """
    if (nvml := find_nvml()) is None:
        return None
    count = nvml.nvmlDeviceGetCount()
    name = dict(enumerate(visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), count))).get(
        index, ""
    )
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name)) if int(name) < count else None
    if not name.startswith("GPU-"):
        return None
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
    meant = [
        handle
        for handle in handles
        if nvml.nvmlDeviceGetUUID(handle).lower().startswith(name.lower())
    ]
    return meant[0] if len(meant) == 1 else None


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peers(i: int, j: int, how: str) -> bool | None:
    """Whether the driver says that GPU i has this access to GPU j's memory ("NVLINK", "READ"); None
    where it does not answer.
    """
    try:
        nvml = find_nvml()
        status = nvml.nvmlDeviceGetP2PStatus(
            gpu_handle(i), gpu_handle(j), getattr(nvml, f"NVML_P2P_CAPS_INDEX_{how}")
        )
        return bool(status == nvml.NVML_P2P_STATUS_OK)
    except Exception:
        return None


@cache
def this_machine() -> Machine:
    """This host, or the hosts that are one machine if the launcher said so; a process in a lane is
    told of the whole machine.
    """
    if told := os.environ.get(LANE_VARIABLE):
        return Machine.model_validate(json.loads(told)["machine"]).model_copy(
            update={"environment": telling_environment()}
        )
    text = os.environ.get(CLUSTER_VARIABLE)
    return as_machine(this_host(), Cluster.model_validate_json(text)) if text else this_host()


def cores_here() -> int:
    """Cores that a launch may use: this process's lane's, or the machine's."""
    lane = this_lane()
    return lane.cores if lane else this_machine().cores


def threads_for(processes: int, host_cores: int | None = None) -> int:
    """Threads of each of so many processes: they share a host's cores (a lane's) evenly, or the
    `host_cores` of them that they may use.
    """
    machine, here = this_machine(), cores_here()
    cores = min(here, host_cores or here)
    return max(1, cores // min(processes, machine.processes_per_host or processes))


@cache
def _allowed_cores() -> tuple[int, ...]:
    """The cores that this process might use when it was first asked."""
    this_machine()  # known from now on: it counts the cores that a process may use
    return tuple(sorted(os.sched_getaffinity(0)))


def confine(host_cores: int | None) -> None:
    """Keep this process, and all that it starts from now on, to the first so many of the cores that
    it might use at first (None: all of them, also after a call with a number).
    """
    cores = _allowed_cores()[:host_cores]
    if os.sched_getaffinity(0) == {*cores}:
        return
    # a library may have made some when it was imported
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)


@cache
def this_host() -> Machine:
    """Describe this host. Its name is made of what determines speed, so that equal machines share
    one folder of Records.
    """
    nvml, count = find_nvml(), gpu_count()
    handles = [gpu_handle(i) for i in range(count)]
    # NVML cannot find every one that this process may use: a MIG device say
    names = [
        "unknown GPU" if handle is None else nvml.nvmlDeviceGetName(handle) for handle in handles
    ]
    cores = len(os.sched_getaffinity(0))
    # where the driver says that peer access over NVLink works, and where not
    words = {True: "NVLink", False: "PCIe", None: "unknown"}
    name = f"{count}x-{slug(names[0])}" if names else f"{cores}x-cpu-{slug(_cpu_model())[:40]}"
    return Machine(
        name=name,
        gpus=names,
        gpu_memory_gib=[
            0.0 if handle is None else round(nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30, 1)
            for handle in handles
        ],
        driver=nvml.nvmlSystemGetDriverVersion() if nvml else "",
        links=[
            ["self" if i == j else words[peers(i, j, "NVLINK")] for j in range(count)]
            for i in range(count)
        ],
        cpu=_cpu_model(),
        cores=cores,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        environment=telling_environment(),
    )


def telling_environment() -> dict[str, str]:
    """Return the variables of this process's environment that matter for speed, paths left out."""
    return {k: PATH.sub("<path>", v) for k, v in sorted(os.environ.items()) if TELLING.match(k)}


@cache
def this_boot() -> str:
    """Which start of this host it is: a few letters of what the kernel drew at random then; ""
    where it does not say.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def device_state(index: int) -> DeviceState | None:
    """Clocks, power and temperature of one GPU now, or None without NVML, and where NVML cannot
    tell which GPU it is.
    """
    if (handle := gpu_handle(index)) is None:
        return None
    nvml = find_nvml()
    return DeviceState(
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    )


def total_energy_j(index: int) -> float | None:
    """NVML's energy counter of one GPU in joules, or None where it has none. Differences below 10 s
    are not trustworthy.
    """
    if (handle := gpu_handle(index)) is None:
        return None
    nvml = find_nvml()
    try:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except nvml.NVMLError:
        return None


@cache
def versions() -> dict[str, str]:
    """Versions of the installed packages that decide speed, read without importing them."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def framework_version(framework: str, installed: Mapping[str, str] | None = None) -> str:
    """The version that enters a Record's key, "none" if the framework is missing; of what is
    `installed` (None: of this computer).
    """
    found = versions() if installed is None else installed
    names = ("torch",) if framework == "torch" else ("tensorflow", "tensorflow-cpu")
    return next((found[name] for name in names if name in found), "none")


@cache
def source_state() -> tuple[str, bool]:
    """(commit, whether the tracked tree was clean); where git is absent, what the environment says,
    else ("unknown", False).
    """
    try:
        here = Path(__file__).parent
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=here,
            capture_output=True,
            text=True,
        ).stdout
        return commit, not changed.strip()
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("MULTIGPU_COMMIT", "unknown"), os.environ.get(
            "MULTIGPU_CLEAN", ""
        ) == "1"


@cache
def source_tree(folder: Path = Path(__file__).parents[1]) -> str:
    """Return git's name of the tree of this package's sources as they lie here: `git rev-parse
    COMMIT:src/multigpu`, without git.
    """
    entries = b""
    for path in sorted(folder.iterdir(), key=lambda path: path.name + "/" * path.is_dir()):
        if (
            path.is_dir()
            and path.name != "__pycache__"
            and (inner := source_tree(path)) != EMPTY_TREE
        ):
            entries += f"40000 {path.name}\0".encode() + bytes.fromhex(inner)
        elif path.is_file():
            mode, content = "100755" if os.access(path, os.X_OK) else "100644", path.read_bytes()
            entries += (
                f"{mode} {path.name}\0".encode()
                + hashlib.sha1(b"blob %d\0" % len(content) + content).digest()
            )
    return hashlib.sha1(b"tree %d\0" % len(entries) + entries).hexdigest()
