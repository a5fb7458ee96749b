"""The folders of CUDA's libraries that TensorFlow is told of, found in planted site-packages."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu.cli import doctor
from multigpu.cli.doctor import Seen, ask_tensorflow, tensorflow_lines
from multigpu.machine.process import library_folders, tensorflow_environment
from multigpu.records.record import RecordStore
from tests.factory import make_machine

# as the packages of CUDA 12 lie, a folder each, the compiler's `lib` empty; and as those of a
# PyTorch for CUDA 13
OURS = (
    "__init__.py",
    "cublas/lib/libcublas.so.12",
    "cusparse/lib/libcusparse.so.12",
    "cuda_nvcc/bin/ptxas",
    "cuda_nvcc/lib/__init__.py",
)
TORCHS = (
    "cu13/lib/libcublas.so.13",
    "cu13/lib/libcusparse.so.12",
    "cudnn/lib/libcudnn.so.9",
    "nccl/lib/libnccl.so.2",
)


def plant_site(site: Path, *files: str) -> Path:
    """A folder of site-packages whose `nvidia` packages have these (empty) files."""
    for name in files:
        file = site / "nvidia" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return site.resolve()


def below(site: Path, *names: str) -> list[Path]:
    return [site / "nvidia" / name / "lib" for name in names]


def test_cuda_13_is_searched_last_and_a_bundle_before_the_hosts_own_pytorch(tmp_path: Path) -> None:
    """Both generations have a libcusparse.so.12: the loader takes the first, which must be
    TensorFlow's.
    """
    site = plant_site(tmp_path / "one", *OURS, *TORCHS)
    assert library_folders([site]) == below(site, "cublas", "cudnn", "cusparse", "nccl", "cu13")
    bundle, host = plant_site(tmp_path / "bundle", *OURS), plant_site(tmp_path / "host", *TORCHS)
    found = library_folders([tmp_path / "absent", bundle, host, bundle])
    assert found == below(bundle, "cublas", "cusparse") + below(host, "cudnn", "nccl", "cu13")


def test_what_the_user_set_comes_first_and_is_kept(tmp_path: Path) -> None:
    site = plant_site(tmp_path, *OURS)
    cublas, cusparse = map(str, below(site, "cublas", "cusparse"))
    before = {"LD_LIBRARY_PATH": f"/opt/own{os.pathsep}{cusparse}", "XLA_FLAGS": "--xla_dump_to=d"}
    changes = tensorflow_environment([site], before)
    assert changes["LD_LIBRARY_PATH"].split(os.pathsep) == ["/opt/own", cusparse, cublas]
    assert (
        changes["XLA_FLAGS"] == f"--xla_dump_to=d --xla_gpu_cuda_data_dir={site}/nvidia/cuda_nvcc"
    )
    assert tensorflow_environment([site], before | changes) == {}, "nothing is lacking any more"
    assert "XLA_FLAGS" not in tensorflow_environment(
        [site], {"XLA_FLAGS": "--xla_gpu_cuda_data_dir=/usr/local/cuda"}
    )
    empty = plant_site(tmp_path / "empty", "nvml/__init__.py", "cuda_runtime/lib/__init__.py")
    assert (
        tensorflow_environment([empty, tmp_path / "absent"], {"LD_LIBRARY_PATH": "/opt/own"}) == {}
    )


def test_doctor_tells_what_tensorflow_sees() -> None:
    assert list(tensorflow_lines(4, Seen(True, 4), {})) == [
        "tensorflow  sees all 4 GPUs in the processes that measure"
    ]
    (few,), (built,) = (
        tensorflow_lines(4, Seen(True, 0), {}),
        tensorflow_lines(2, Seen(False, 0), {"LD_LIBRARY_PATH": "a"}),
    )
    assert (
        few.startswith("tensorflow  sees 0 of 4 GPUs: ")
        and "cuDNN and NCCL with PyTorch" in few
        and "build for CPUs" in built
    )
    dead = tensorflow_lines(2, Seen(False, 0, "ImportError: planted"), {})
    assert list(dead) == ["tensorflow  does not start: ImportError: planted"]


def test_doctors_line_sets_what_a_shell_lacks(tmp_path: Path) -> None:
    site = plant_site(tmp_path / "a folder", *OURS)
    changes = tensorflow_environment([site], {})
    *_, line = tensorflow_lines(2, Seen(True, 2), changes)
    said = subprocess.run(
        ["sh", "-c", f"{line}; printenv LD_LIBRARY_PATH XLA_FLAGS"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines() == [changes["LD_LIBRARY_PATH"], changes["XLA_FLAGS"]]


def test_doctor_asks_where_there_are_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = plant_site(tmp_path / "site", *OURS)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setattr(doctor, "framework_version", lambda framework: "2.21.0")
    monkeypatch.setattr(
        doctor,
        "ask_tensorflow",
        lambda changes: Seen(True, 2 if str(site) in changes["LD_LIBRARY_PATH"] else 0),
    )
    monkeypatch.setattr(doctor, "gpu_count", lambda: 0)
    without = list(doctor.diagnose(RecordStore(tmp_path / "runs")))
    assert not [line for line in without if line.startswith(("export", "tensorflow  sees"))], (
        "no GPU, no question"
    )
    monkeypatch.setattr(doctor, "gpu_count", lambda: 2)
    monkeypatch.setattr(doctor, "this_machine", lambda: make_machine(2))
    lines = list(doctor.diagnose(RecordStore(tmp_path / "runs")))
    at = lines.index("tensorflow  sees all 2 GPUs in the processes that measure")
    assert lines[at - 1] == "tensorflow  2.21.0" and lines[at + 2].startswith(
        "export LD_LIBRARY_PATH="
    )


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_tensorflow_answers_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ask_tensorflow({"CUDA_VISIBLE_DEVICES": "-1"})
    assert (seen.gpus, seen.trouble) == (0, "")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert ask_tensorflow({}) == Seen(False, 0, "it left no message")
