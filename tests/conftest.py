import atexit
import gc
import importlib.util
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from multigpu import paths
from multigpu.machine.lock import LOCK_VARIABLE
from multigpu.machine.process import NO_KERAS
from multigpu.machine.surroundings import SHARE_VARIABLE
from multigpu.records.cache import cached_on_disk
from multigpu.records.record import Record, RecordStore

pytest_plugins = ["tests.command_line"]

gc.disable()  # until all tests are collected: of what is imported nothing is garbage
# three workers of pytest-xdist share two cores, and most tests' arrays are too small for a second
# thread; set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# tests run beside each other and much else: each worker has a lock of its own, and what is beside a
# Run is not judged
os.environ[LOCK_VARIABLE] = f"{tempfile.gettempdir()}/multigpu-tests-{os.getpid()}.lock"
atexit.register(Path(os.environ[LOCK_VARIABLE]).unlink, missing_ok=True)
os.environ[SHARE_VARIABLE] = "inf"
if not Path("/dev/nvidiactl").exists():
    # Triton, where it is installed, runs its kernels on CPUs; read when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")
# for this process and every TensorFlow process that a test starts
os.environ |= NO_KERAS | {"TF_CPP_MIN_LOG_LEVEL": "3"}

SLOWEST = (Path(__file__).parent / "slowest.txt").read_text().split()
"""The slowest files, first those of `make jobs`: they are begun first, so that all workers
end together. Others keep their order.
"""


@pytest.fixture(scope="session")
def committed() -> list[Record]:
    """All committed Records, unpacked by one worker for all that ask later."""
    return cached_on_disk("tests", [paths.RUNS], lambda: list(RecordStore(paths.RUNS)))


OF_THE_TOOL = ("RUNS", "COLLECTIVES", "HOSTS", "HOSTS_RUNS")
FOLDERS = (*OF_THE_TOOL, "TRAINING", "INTERFERENCE", "SYNCHRONY", "STAGES")
"""Of `multigpu.paths`: where the study's Records lie, and first those that the tool measures."""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose folders of Records are empty."""
    for name in FOLDERS:
        monkeypatch.setattr(
            paths, name, tmp_path / getattr(paths, name).relative_to(paths.REPOSITORY)
        )
    return tmp_path / "data"


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow in this process, with four stand-ins for GPUs and no GPU: the first operation
    fixes its devices.
    """
    tensorflow = pytest.importorskip("tensorflow")
    from multigpu.engines.tensorflow.devices import prepare

    tensorflow.config.set_visible_devices([], "GPU")
    prepare("cpu", 4)
    gc.collect()
    gc.freeze()  # as `pytest_collection_finish`
    return tensorflow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files; skip what needs a GPU where there is none."""
    place = {f"tests/{name}": number for number, name in enumerate(SLOWEST)}
    items.sort(
        key=lambda item: place.get(item.path.relative_to(paths.REPOSITORY).as_posix(), len(place))
    )
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker(
                "gpu"
            ):  # not in keywords, which hold the names of folders too
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of garbage, of which many Runs end with one,
    looks through it again.
    """
    gc.freeze()
    gc.enable()


if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = [
        "multigpu/engines/test_t*.py",
        "*/*/test_tensorflow_*.py",
        "multigpu/runner/test_solo.py",
        "multigpu/user_model/test_keras.py",
        "multigpu/test_callbacks.py",
    ]

# A suite in the background of a shell inherits that Ctrl-C is ignored, and would hand it on to the
# processes that it stops by it.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
