"""The one command: measures on real processes, goes on where it was, keeps to its budget, and leaves out what fails."""

import os
import signal
import time
from pathlib import Path

import pytest

from multigpu.collectives.command import _parser as parser
from multigpu.collectives.command import chosen_runs, main
from multigpu.collectives.experiment import COLLECTIVES, CollectiveItem, Collectives, measure
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import CollectiveRun, runs_in_order
from multigpu.measure.machine import gpu_count
from multigpu.measure.summary import LEFT
from multigpu.measure.sweep import launch_environment, make_plan
from tests.measure.listening import overheard

METHODS = ["gloo", "tree", "ring", "central_server", "everyone_fp16"]


def fail(stage: str, run: CollectiveRun, rank: int) -> None:
    """A hook: the tree dies in its second process, and in each start anew."""
    if rank == 1 and run.method == "tree":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.timeout(300)
def test_a_sweep_is_measured_once_and_a_method_that_dies_is_left_out(tmp_path: Path) -> None:
    """Started twice, as everywhere: whoever killed it may have meant another process."""
    store, runs = CollectiveStore(tmp_path), runs_in_order(2, "cpu", sizes=[4, 4096], methods=METHODS)
    with overheard() as heard:
        summary = measure(runs, store, budget_s=300, progress=False, hook="tests.collectives.test_measure:fail")
    assert heard, "a look that came too late would see nobody listen"
    assert dict(summary.statuses) == {"ok": 8, "failed": 1, "passed_over": 1}
    records = {record.run: record for record in store}
    dead = records.pop(runs[1])
    assert set(records) == {run for run in runs if run.method != "tree"}
    assert (dead.status, dead.measurement) == ("failed", None) and "its workers died 2 times" in dead.reason
    assert len(summary.troubles) == 2 and "tree has failed" in summary.troubles[1]
    for run, record in records.items():
        assert record.measurement and len(record.measurement.time_s) == run.samples and min(record.measurement.time_s) > 0
        assert record.measurement.flags == []
        assert (record.measurement.counted is None) == (run.method == "gloo")
        assert record.machine.environment["NCCL_NVLS_ENABLE"] == "0" and record.launch_id
    ring = next(record.measurement for run, record in records.items() if (run.method, run.bytes) == ("ring", 4096))
    assert ring and ring.counted == ring.predicted and ring.counted and ring.counted.busiest_link_bytes == 4096  # 2N(P-1)/P
    again = measure(runs, store, budget_s=300, progress=False, retry=["failed"])
    assert again.reused == 8 and dict(again.statuses) == {"ok": 2} and max(record.attempt for record in store) == 1


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs")
def test_gpus_eager_and_captured(tmp_path: Path) -> None:
    runs = runs_in_order(2, "cuda", sizes=[4, 2**20])
    summary = measure(runs, CollectiveStore(tmp_path), budget_s=100, progress=False)
    assert dict(summary.statuses) == {"ok": len(runs)} and summary.troubles == []


def test_what_the_budget_does_not_reach_is_left(tmp_path: Path) -> None:
    """What had begun before is measured; nothing begins after."""
    item = CollectiveItem(run=runs_in_order(2, "cpu", sizes=[2**20], methods=["ring"])[0])
    plan = make_plan(COLLECTIVES, [item], tmp_path, tmp_path, tmp_path)[0]
    for until_s, said in ((None, None), (time.time() + 30, None), (time.time(), (LEFT, ""))):
        assert Collectives().passed_over(plan.model_copy(update={"until_s": until_s}), item) == said


def test_bad_words_end_with_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, sentence in (
        (["--sizes", "6"], "no whole number of fp32 elements"),
        (["--sizes", "x"], "'x' is no size"),
        (["--devices", "two"], "devices 'two' is not a positive integer"),
        (["--methods", "star"], "unknown method 'star'"),
        (["--device-type", "cuda", "--devices", "16"], "16 GPUs were asked for and this machine has"),
    ):
        assert main([*words, "--out", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1
    assert main(["--device-type", "cpu", "--sizes", "1K", "--methods", "ring,gloo", "--devices", "2,4", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{m} 1 KiB x{p} fp32 eager" for p in (2, 4) for m in ("ring", "gloo")]
    assert len(chosen_runs(parser().parse_args(["--device-type", "cpu"]))) == 12 * 10
    assert launch_environment()["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == launch_environment()["NVSHMEM_DISABLE_NVLS"] == "1"
