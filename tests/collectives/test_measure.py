"""The one command: measures on real processes, goes on where it was, keeps to its budget, and leaves no child behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from multigpu.collectives.command import _parser as parser
from multigpu.collectives.command import chosen_runs, main
from multigpu.collectives.launch import environment
from multigpu.collectives.measure import MAX_STARTS, _after_failure, measure, missing_items
from multigpu.collectives.plan import CollectivePlan, Item
from multigpu.collectives.record import CollectiveStore
from multigpu.collectives.run import runs_in_order
from multigpu.measure.launch import Summary
from multigpu.measure.machine import gpu_count

METHODS = ["gloo", "ring", "central_server", "everyone_fp16"]


def test_a_sweep_is_measured_once(tmp_path: Path) -> None:
    store = CollectiveStore(tmp_path)
    runs = runs_in_order(2, "cpu", sizes=[4, 4096], methods=METHODS)
    summary = measure(runs, store, budget_s=90, progress=False)
    assert dict(summary.statuses) == {"ok": 8} and summary.troubles == []
    records = {record.run: record for record in store}
    assert set(records) == set(runs)
    for run, record in records.items():
        assert record.measurement and len(record.measurement.time_s) == run.samples and min(record.measurement.time_s) > 0
        assert record.measurement.flags == []
        assert (record.measurement.counted is None) == (run.method == "gloo")
        assert record.machine.environment["NCCL_NVLS_ENABLE"] == "0" and record.launch_id
    ring = next(record.measurement for run, record in records.items() if (run.method, run.bytes) == ("ring", 4096))
    assert ring.counted == ring.predicted and ring.counted and ring.counted.busiest_link_bytes == 4096  # 2N(P-1)/P
    again = measure(runs, store, budget_s=90, progress=False)
    assert again.reused == 8 and not again.statuses and again.wall_s < 2


def test_whoever_kills_the_command_leaves_no_child(tmp_path: Path) -> None:
    words = ["--devices", "2", "--device-type", "cpu", "--sizes", "16M", "--methods", "everyone", "--repeats", "50", "--quiet"]
    command = subprocess.Popen(
        [sys.executable, "-m", "multigpu", "collectives", *words, "--out", str(tmp_path)], env=environment(), stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while len(children := psutil.Process(command.pid).children(recursive=True)) < 2 or not list(tmp_path.glob("*/*.gz")):
        assert time.monotonic() < until and command.poll() is None
        time.sleep(0.1)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert all(record.status == "ok" for record in CollectiveStore(tmp_path)), "what was measured is whole"


@pytest.mark.gpu
def test_gpus_eager_and_captured(tmp_path: Path) -> None:
    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    runs = runs_in_order(2, "cuda", sizes=[4, 2**20])
    summary = measure(runs, CollectiveStore(tmp_path), budget_s=100, progress=False)
    assert dict(summary.statuses) == {"ok": len(runs)} and summary.troubles == []


class Dead:
    """A launch that died while it measured its second item."""

    def __init__(self, plan: CollectivePlan, fault: str = "", killed: bool = False) -> None:
        self.plan = plan
        self.killed = {1: 9} if killed else {}
        plan.scratch.mkdir(exist_ok=True)
        (plan.scratch / "current").write_text("1")
        if fault:
            (plan.scratch / "1.fault").write_text(fault)

    def last_words(self) -> str:
        return "its last words"


class NoBar:
    def update(self, count: int) -> None: ...


@pytest.mark.parametrize(
    ("fault", "killed", "status", "reason"),
    [
        ("", False, "failed", "its last words"),
        ('["out_of_memory", "full"]', False, "out_of_memory", "full"),
        ('["failed", "connection reset by peer"]', True, "failed", "process 1 was killed by signal 9"),
    ],
)
def test_a_death_is_recorded_and_its_method_left_out(tmp_path: Path, fault: str, killed: bool, status: str, reason: str) -> None:
    store, summary = CollectiveStore(tmp_path / "out"), Summary()
    runs = runs_in_order(2, "cpu", sizes=[4, 4096], methods=["gloo", "ring", "tree"])
    items = [Item(run=run) for run in runs]
    plan = CollectivePlan(items=items, devices=2, cuda=False, records=store.root, scratch=tmp_path / "s", launch_id="x")
    if killed:  # once more, as Runs that train
        assert _after_failure(Dead(plan, fault, killed), store, summary, NoBar()) == items[1:]  # type: ignore[arg-type]
        assert not list(store) and not summary.troubles
    rest = _after_failure(Dead(plan, fault, killed), store, summary, NoBar())  # type: ignore[arg-type]
    assert [(item.run.method, item.run.bytes) for item in rest] == [
        ("tree", runs[0].bytes),
        ("gloo", runs[3].bytes),
        ("tree", runs[3].bytes),
    ]
    (record,) = store
    assert record.run == runs[1] and (record.status, record.measurement) == (status, None) and reason in record.reason
    assert missing_items(runs[1:2], 1, store, retry=[]) == []
    assert [item.attempt for item in missing_items(runs[1:2], 2, store, retry=[status])] == [1, 0]
    assert MAX_STARTS > 1


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
    assert environment()["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == environment()["NVSHMEM_DISABLE_NVLS"] == "1"
