"""A TensorFlow Run over several processes: a killed member leaves nothing behind, a failure is a status, and the sweep goes on."""

import pytest

from multigpu.engines.errors import Unsupported
from multigpu.engines.tensorflow.members import device_environment
from multigpu.measure.point import Point
from multigpu.run import Run, build_run
from tests.measure.launched import REVIEWS, Struck, strike

KILLED_ONCE, RAISES, ASYNCHRONOUS = range(3)


def spread(seed: int, placement: str = "multi_worker", devices: int = 2) -> Run:
    """A Run over two small processes; its seed names it."""
    own = {"placement": placement, "processes": "per_device", "devices": devices, "optimizer": "adam", "timed_steps": 8}
    return build_run(**REVIEWS | own | {"seed": seed})


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Struck:
    """One sweep in which a worker is killed and another fails, and an asynchronous Run has to go on beside them."""
    folder = tmp_path_factory.mktemp("processes")
    faults = [
        {"seed": KILLED_ONCE, "stage": "warm-up", "rank": 1, "fault": "kill", "once": str(folder / "struck")},
        {"seed": RAISES, "stage": "build", "rank": 1, "fault": "raise"},
    ]
    runs = [spread(KILLED_ONCE), spread(RAISES), spread(ASYNCHRONOUS, "parameter_server_async")]
    return strike(folder, [Point(run, timeout_s=200.0) for run in runs], faults, TF_CPP_MIN_LOG_LEVEL="3")


@pytest.mark.timeout(600)
def test_every_run_has_one_record_and_no_process_is_left(sweep: Struck) -> None:
    sweep.check_whole()
    assert sweep.heard, "a look that came too late would see nobody listen"


def test_a_run_whose_worker_was_killed_is_measured_in_fresh_processes(sweep: Struck) -> None:
    record = sweep[KILLED_ONCE]
    assert (sweep.store.root.parent / "struck").exists(), "the fault struck"
    measured = record.measurement
    assert record.status == "ok" and measured
    assert measured.replicas_agree and measured.moved_bytes == measured.predicted_bytes == {
        "all_reduce": measured.moved_bytes["all_reduce"]
    }
    assert len(measured.step_time_s) == len(measured.peak_memory_gib) == 2


def test_the_first_cause_is_told_and_not_its_echoes(sweep: Struck) -> None:
    record = sweep[RAISES]
    assert record.status == "failed" and "planted fault" in record.reason


def test_an_asynchronous_run_applies_each_update_once_and_learns(sweep: Struck) -> None:
    """That 2 x 10 updates were applied is checked by the Run itself, which would have failed."""
    record = sweep[ASYNCHRONOUS]
    measured = record.measurement
    assert record.status == "ok" and measured, record.reason
    assert len(measured.loss) == 10 and measured.loss[-1] < measured.loss[0] and measured.replicas_agree is None
    assert measured.moved_bytes is None and any("not counted" in flag for flag in measured.flags)
    assert set(measured.predicted_bytes) == {"host_to_device", "device_to_host"}
    assert len(measured.peak_memory_gib) == 2 and all(measured.peak_memory_gib)


def test_each_process_sees_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_environment("cuda", 2) == {"CUDA_VISIBLE_DEVICES": "2"}
    assert device_environment("cuda", -1) == device_environment("cpu", 0) == {"CUDA_VISIBLE_DEVICES": "-1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert device_environment("cuda", 1) == {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(Unsupported, match="shows 2 GPUs and replica 2 needs one of its own"):
        device_environment("cuda", 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-8932f937")
    assert device_environment("cuda", 1) == {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Unsupported, match="shows 0 GPUs and replica 0 needs one of its own"):
        device_environment("cuda", 0)
