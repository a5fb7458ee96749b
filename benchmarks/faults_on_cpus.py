"""What a sweep on CPUs survives: a clock that is set, disks that fill or become read-only, the
kernel's memory killer, a GPU that is gone after a restart, and a Keras job or Snakemake killed.

    python benchmarks/faults_on_cpus.py --out data/faults/cpus.csv

A row is a fault: how the call that met it ended, in how many calls all was measured, the seconds
from the fault until the next good Record, and how many Records that were there before are gone.
Disks and memory groups are made, and need root. The clock is Python's, in every process of the
sweep (libfaketime breaks Python's own `sleep`).
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil

from multigpu.machine.machine import source_state, this_machine
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.runner.sweep import measure
from multigpu.spec.run import Run
from multigpu.user_model.result import compared

ROOT = Path(__file__).resolve().parents[1]
PLANTED = "MULTIGPU_PLANTED"
"""In the environment of a sweep that meets a fault: its name and its folder, as JSON."""
RUNS = 4
STRUCK = 1
"""The seed of the Run that meets the fault, in its timed steps, once."""
DAY_S = 86_400
CLOCK = """
import os, time
from pathlib import Path
today = time.time
def changed():
    return today() + float(Path(os.environ["PLANTED_CLOCK"]).read_text())
time.time = changed
"""
"""Python's clock of the day, set by what a file says."""
NVML = """
import os
from pathlib import Path
class NVMLError(Exception): pass
NVML_CLOCK_SM = NVML_CLOCK_MEM = NVML_TEMPERATURE_GPU = 0
def nvmlInit(): pass
def nvmlDeviceGetCount(): return int(Path(os.environ["PLANTED_GPUS"]).read_text())
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "Planted GPU"
def nvmlSystemGetDriverVersion(): return "1"
class nvmlDeviceGetMemoryInfo:
    def __init__(self, handle): self.total = 2**30
"""
"""NVML's Python module on a machine with as many GPUs as a file says."""


def write_clock(folder: Path, days: float) -> None:
    """Set the clock of a sweep to so many days from now."""
    new = folder / "clock.new"
    new.write_text(f"{days * DAY_S:+.0f}")
    new.replace(folder / "clock")


def fill(disk: Path) -> None:
    """Leave no byte on a disk."""
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while file.write(bytes(1 << 12)):
            pass


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


def memory_group(folder: Path) -> Path:
    """The folder of a group of processes whose memory the kernel bounds, which is not made yet."""
    root = Path("/sys/fs/cgroup/memory")
    return (root if root.is_dir() else root.parent) / f"multigpu-{folder.name}"


def outgrow(folder: Path) -> None:
    """Take more memory than this process's new group may have: the kernel kills it."""
    group = memory_group(folder)
    group.mkdir()
    limit = group / "memory.limit_in_bytes"
    (limit if limit.exists() else group / "memory.max").write_text(str(64 << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    held = [b"x" * (1 << 20) for _ in range(4096)]
    raise AssertionError(f"{len(held)} MiB were had beyond 64 MiB")


def lose_gpu(folder: Path) -> None:
    (folder / "gpus").write_text("1")
    os.kill(os.getpid(), signal.SIGKILL)


def find_gpu(folder: Path) -> None:
    (folder / "gpus").write_text("2")


@dataclass(frozen=True)
class Fault:
    """name; strike: in the last rank's process, given the folder; mend: what a person would do
    before the same call; disk: below the folder, one that is made for the fault.
    """

    name: str
    strike: Callable[[Path], None]
    mend: Callable[[Path], None] = lambda folder: None
    disk: str = ""


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("the clock is set a day ahead", lambda folder: write_clock(folder, 1)),
        Fault("the clock is set two days back", lambda folder: write_clock(folder, -2)),
        Fault(
            "the disk of the Records is full",
            lambda folder: fill(folder / "runs"),
            lambda folder: (folder / "runs" / "filler").unlink(),
            "runs",
        ),
        Fault(
            "the folder of the Records is read-only",
            lambda folder: remount(folder / "runs", "ro"),
            lambda folder: remount(folder / "runs", "rw"),
            "runs",
        ),
        Fault(
            "the disk for temporary files is full",
            lambda folder: fill(folder / "tmp"),
            lambda folder: (folder / "tmp" / "filler").unlink(missing_ok=True),
            "tmp",
        ),
        Fault("the kernel's memory killer", outgrow, lambda folder: memory_group(folder).rmdir()),
        Fault(
            "a GPU gone after a restart",
            lose_gpu,
            find_gpu,
        ),
    )
}


def strike(stage: str, run: Run, rank: int) -> None:
    """Let a launch meet its fault: a plan's hook."""
    told = json.loads(os.environ[PLANTED])
    folder = Path(told["folder"])
    if (stage, run.seed, rank) != ("timed", STRUCK, run.devices - 1):
        return
    with contextlib.suppress(FileExistsError):
        (folder / "struck").touch(exist_ok=False)
        FAULTS[told["name"]].strike(folder)


def sweep_once(folder: Path) -> int:
    """Measure the Runs that have no Record yet, as one call does; 1 and a sentence where it ends
    early.
    """
    points = [
        Point(
            Run(
                workload="cnn",
                model="resnet_tiny",
                placement="ddp",
                devices=2,
                batch_size=4,
                device_type="cpu",
                seed=seed,
                warmup_steps=2,
                timed_steps=3,
            ),
            timeout_s=60.0,
        )
        for seed in range(RUNS)
    ]
    try:
        store = RecordStore(folder / "runs")
        measure(points, store, progress=False, hook=f"{Path(__file__).stem}:strike")
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def environment_of(fault: Fault, folder: Path) -> dict[str, str]:
    """What the processes of a sweep find in theirs: the fault, its clock, its GPUs, its disk."""
    site = folder / "site"
    site.mkdir()
    more = {PLANTED: json.dumps({"name": fault.name, "folder": str(folder)})}
    if "clock" in fault.name:
        write_clock(folder, 0)
        more["PLANTED_CLOCK"] = str(folder / "clock")
        (site / "sitecustomize.py").write_text(CLOCK)
    if "GPU" in fault.name:
        (site / "pynvml.py").write_text(NVML)
        (folder / "gpus").write_text("2")
        more["PLANTED_GPUS"] = str(folder / "gpus")
    (folder / "tmp").mkdir(exist_ok=True)
    own = (site, ROOT / "src", ROOT / "benchmarks", os.environ.get("PYTHONPATH", ""))
    more |= {"PYTHONPATH": os.pathsep.join(map(str, own)), "TMPDIR": str(folder / "tmp")}
    return os.environ | more | {"MULTIGPU_LOCK": str(folder / "lock")}


@contextlib.contextmanager
def disk_at(folder: Path, size: str = "8m") -> Iterator[None]:
    """A small disk in memory at this folder. A CalledProcessError: it cannot be made here."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(words, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def since_s(mark: Path, store: RecordStore) -> float:
    """Seconds from when the fault struck until the next good Record."""
    files = (store.path(one.place, one.key, one.attempt) for one in store if one.status == "ok")
    later = [late for file in files if (late := file.stat().st_mtime - mark.stat().st_mtime) > 0]
    return round(min(later, default=float("nan")), 2)


def tried(name: str) -> dict[str, object]:
    """Let what measures meet a fault: its row, less the conditions."""
    return KILLED[name]() if name in KILLED else swept(FAULTS[name])


def swept(fault: Fault) -> dict[str, object]:
    """Let a sweep meet a fault of `FAULTS`."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="multigpu-faults-")))
        if fault.disk:
            stack.enter_context(disk_at(folder / fault.disk))
        store, own = RecordStore(folder / "runs"), environment_of(fault, folder)
        said, calls, lost = "", 0, 0
        while calls < 3:
            calls += 1
            words = [sys.executable, __file__, "--sweep", str(folder)]
            done = subprocess.run(words, env=own, capture_output=True, text=True)
            assert (folder / "struck").exists(), done.stderr
            if calls == 1:
                said = (done.stderr.strip().splitlines() or [""])[-1]
                before = {one.key for one in store}
                fault.mend(folder)
            if done.returncode == 0:
                break
        after = {one.key for one in store if one.status == "ok"}
        lost = len(before - after) + len(list(store.unreadable()))
        return {
            "fault": fault.name,
            "status": "ok" if len(after) == RUNS else "not all measured",
            "reason": said.replace(str(folder), "FOLDER")[:200],
            "calls": calls,
            "recovered_s": since_s(folder / "struck", store),
            "lost": lost,
        }


KERAS = f"{ROOT}/tests/multigpu/user_model/keras_model.py:functional"


def keras_killed() -> dict[str, object]:
    """Kill a process that trains a user's Keras model in a comparison."""
    with tempfile.TemporaryDirectory(prefix="multigpu-faults-") as made:
        out = Path(made) / "out"
        words = ["compare", KERAS, "--devices", "2", "--placements", "mirrored_nccl", "--quiet"]
        words += ["--device-type", "cpu", "--repeats", "1", "--budget-s", "300", "--out", str(out)]
        own = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "MULTIGPU_LOCK": f"{made}/lock"}
        started = subprocess.Popen(
            [sys.executable, "-m", "multigpu", *words],
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        mark = Path(made) / "struck"
        while started.poll() is None and not mark.exists():
            time.sleep(0.2)
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(started.pid).children(recursive=True):
                    at_work = any(f"multigpu.runner.{one}" in child.cmdline() for one in PROGRAMS)
                    if at_work and time.time() - child.create_time() > 6.0:
                        mark.touch()
                        child.kill()
        said = started.communicate()[0].strip().splitlines()
        names = set(compared(out).names)  # which makes the job known, so that Records can be read
        store = RecordStore(out / "records")
        whole = started.returncode == 0 and {"one device", "mirrored_nccl"} <= names
        return {
            "fault": "a killed Keras job",
            "status": "ok" if whole else f"{' and '.join(sorted(names))} alone",
            "reason": said[-1].replace(made, "FOLDER")[:200] if said else "",
            "calls": 1,
            "recovered_s": since_s(mark, store) if mark.exists() else float("nan"),
            "lost": len(list(store.unreadable())),
        }


PROGRAMS = ("solo", "worker")

BATCH = """
- {workload: cnn, model: resnet_tiny, placement: [ddp, exp4], batch_size: 4, devices: 2,
   device_type: cpu, warmup_steps: 2, timed_steps: 3, repeats: 2}
"""
"""Two rows of two Records each; Snakemake is killed once it has one of the second row's."""


def snakemake_killed() -> dict[str, object]:
    """Kill Snakemake with -9 in a batch's second row, unlock its folder and call it again."""
    with tempfile.TemporaryDirectory(prefix="multigpu-faults-") as made:
        folder = Path(made)
        (folder / "points.yaml").write_text(BATCH)
        workflow = ROOT / "workflow"
        words = [sys.executable, "-m", "snakemake", "-s", str(workflow / "Snakefile")]
        words += ["--directory", made, "--nocolor", "--profile", str(workflow / "profiles/local")]
        words += ["--config", f"points={folder}/points.yaml", f"out={folder}/out"]
        own = os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "MULTIGPU_LOCK": f"{made}/lock"}
        store, mark = RecordStore(folder / "out" / "records"), folder / "struck"

        def files() -> dict[Path, bytes]:
            return {path: path.read_bytes() for path in store.root.rglob("*.json.gz")}

        with open(folder / "said", "w") as said:
            started = subprocess.Popen(words, env=own, stdout=said, stderr=subprocess.STDOUT)
        while started.poll() is None and len({one.key for one in store}) < 3:
            time.sleep(0.2)
        assert started.poll() is None, (folder / "said").read_text()[-2000:]
        children = psutil.Process(started.pid).children(recursive=True)
        mark.touch()
        started.kill()
        started.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        before = files()
        subprocess.run([*words, "--unlock"], env=own, capture_output=True, check=True)
        again = subprocess.run(words, env=own, capture_output=True, text=True)
        whole = again.returncode == 0 and len({one.key for one in store}) == RUNS and not alive
        after = files()
        return {
            "fault": "a killed Snakemake",
            "status": "ok" if whole else "not all measured",
            "reason": "" if whole else again.stderr[-200:].replace(made, "FOLDER"),
            "calls": 2,
            "recovered_s": since_s(mark, store),
            "lost": sum(after.get(path) != content for path, content in before.items()),
        }


KILLED = {"a killed Keras job": keras_killed, "a killed Snakemake": snakemake_killed}
"""Faults of what is no sweep of ours alone, which are planted each in its own way."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="a CSV file: a row a fault")
    parser.add_argument("--only", default="", help="faults whose names hold this text")
    parser.add_argument("--sweep", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.sweep:
        return sweep_once(asked.sweep)
    conditions = {"machine": this_machine().name, "commit": source_state()[0]}
    rows = []
    for name in (*FAULTS, *KILLED):
        if asked.only in name:
            rows.append(tried(name) | conditions)
            print(rows[-1], flush=True)
            if asked.out:
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                pd.DataFrame(rows).to_csv(asked.out, index=False)
    return int(any(row["lost"] or row["status"] != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
