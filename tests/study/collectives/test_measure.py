"""All-reduces as they are measured, and the command: sums are checked, a sweep goes on where it
was.
"""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from multigpu.collectives.algorithm import Cost
from multigpu.machine.machine import gpu_count
from multigpu.records.collective import CollectiveStore
from multigpu.runner.launch_environment import launch_environment
from multigpu.runner.summary import LEFT
from multigpu.runner.sweep import make_plan
from multigpu.spec.collective import CollectiveRun
from multigpu.spec.errors import Unsupported
from multigpu_study.collectives.bench import Bench, expected_sum, symmetric_buffer, values
from multigpu_study.collectives.experiment import (
    COLLECTIVES,
    CollectiveItem,
    Collectives,
    joined,
    main,
    measure,
)
from multigpu_study.collectives.order import runs_in_order
from tests.multigpu.runner.listening import overheard
from tests.refusals import refused


def run(method: str = "ring", **fields: object) -> CollectiveRun:
    base = {
        "method": method,
        "bytes": 400,
        "devices": 2,
        "device_type": "cpu",
        "samples": 3,
        "calls": 4,
    }
    return CollectiveRun.built(**(base | fields))


@pytest.fixture
def alone():  # type: ignore[no-untyped-def]
    """A group of one: its sum is what it brings."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_exact_in_every_type_up_to_sixteen_processes(dtype: torch.dtype) -> None:
    cpu = torch.device("cpu")
    for size in (2, 3, 8, 16):
        total = torch.zeros(40, dtype=dtype)
        for rank in range(size):
            total += values(rank, 40, dtype, cpu)
        exact = sum(values(rank, 40, torch.float64, cpu) for rank in range(size))
        assert torch.equal(total.double(), exact) and torch.equal(
            expected_sum(size, 40, dtype, cpu), total
        )
    assert len(values(0, 13, dtype, cpu).unique()) == 13 and not torch.equal(
        values(0, 13, dtype, cpu), values(1, 13, dtype, cpu)
    )


def test_a_wrong_sum_is_no_measurement(alone, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(Bench, "_call", lambda self: lambda: self.tensor[50].add_(1))
    bench = Bench(run())
    bench.warm_up()
    with pytest.raises(ArithmeticError, match=r"^the sum is wrong: .* off by"):
        bench.time()


def test_calls_that_were_left_out_are_found(alone) -> None:  # type: ignore[no-untyped-def]
    bench = Bench(run())
    bench.size = 2  # as if there were two: every call doubles
    bench.expected = 2 * bench.source
    bench.call = lambda: bench.tensor.mul_(2)
    bench.time_sample()
    assert bench.last_sample_fault() is None
    bench.sample = lambda: [bench.call() for _ in range(3)]
    bench.time_sample()
    assert "after 4 calls values are off by 0.5" in str(bench.last_sample_fault())


def test_symmetric_memory_needs_multicast_off(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    refused(
        "multicast off only: set NCCL_NVLS_ENABLE",
        symmetric_buffer,
        None,
        torch.device("cpu"),
        16,
        error=Unsupported,
    )


def test_parts_are_joined_by_the_slowest_rank() -> None:
    """By hand: 4 calls a sample; N = 400 bytes on two processes, 200 each way in each of two
    steps.
    """
    parts = [
        {"times": [0.4, 0.8, 0.4], "counted": {"1": 400}},
        {"times": [0.8, 0.4, 0.4], "counted": {"0": 400}},
    ]
    found = joined(run(), parts, 1.0)
    assert found.time_s == [0.2, 0.2, 0.1] and found.flags == []
    assert found.counted == found.predicted == Cost(2, 400, 400, 800, 800)
    parts[0]["counted"] = {"1": 404}
    assert joined(run(), parts, 1.0).flags == ["804 bytes were sent and 800 predicted"]


def fail(stage: str, run: CollectiveRun, rank: int) -> None:
    """A hook: the tree dies in its second process, and in each start anew."""
    if rank == 1 and run.method == "tree":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.timeout(300)
def test_a_sweep_is_measured_once_and_a_method_that_dies_is_left_out(tmp_path: Path) -> None:
    methods = ["gloo", "tree", "ring", "central_server", "everyone_fp16"]
    store = CollectiveStore(tmp_path)
    runs = runs_in_order(2, "cpu", sizes=[4, 4096], methods=methods)
    with overheard() as heard:
        summary = measure(
            runs,
            store,
            budget_s=300,
            progress=False,
            hook="tests.study.collectives.test_measure:fail",
        )
    assert heard, "a look that came too late would see nobody listen"
    assert dict(summary.statuses) == {"ok": 8, "failed": 1, "passed_over": 1}
    records = {record.run: record for record in store}
    dead = records.pop(runs[1])
    assert set(records) == {run for run in runs if run.method != "tree"}
    assert (dead.status, dead.measurement) == (
        "failed",
        None,
    ) and "its workers died 2 times" in dead.reason
    assert len(summary.troubles) == 2 and "tree has failed" in summary.troubles[1]
    for run, record in records.items():
        assert (
            record.measurement
            and len(record.measurement.time_s) == run.samples
            and min(record.measurement.time_s) > 0
        )
        assert record.measurement.flags == []
        assert (record.measurement.counted is None) == (run.method == "gloo")
        assert record.machine.environment["NCCL_NVLS_ENABLE"] == "0" and record.launch_id
    ring = next(
        record.measurement
        for run, record in records.items()
        if (run.method, run.bytes) == ("ring", 4096)
    )
    # 2N(P-1)/P
    assert (
        ring
        and ring.counted == ring.predicted
        and ring.counted
        and ring.counted.busiest_link_bytes == 4096
    )
    again = measure(runs, store, budget_s=300, progress=False, retry=["failed"])
    assert (
        again.reused == 8
        and dict(again.statuses) == {"ok": 2}
        and max(record.attempt for record in store) == 1
    )


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs")
def test_gpus_eager_and_captured(tmp_path: Path) -> None:
    runs = runs_in_order(2, "cuda", sizes=[4, 2**20])
    summary = measure(runs, CollectiveStore(tmp_path), budget_s=100, progress=False)
    assert dict(summary.statuses) == {"ok": len(runs)} and summary.troubles == []


def test_what_the_budget_does_not_reach_is_left(tmp_path: Path) -> None:
    item = CollectiveItem(run=run())
    plan = make_plan(COLLECTIVES, [item], tmp_path, tmp_path, tmp_path)[0]
    now_s = time.monotonic()
    for until_s, said in ((None, None), (now_s + 30, None), (now_s, (LEFT, ""))):
        assert Collectives().passed_over(plan.model_copy(update={"until_s": until_s}), item) == said


def test_bad_words_end_with_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words, sentence in (
        (["--sizes", "6"], "no whole number of fp32 elements"),
        (["--sizes", "x"], "'x' is no size"),
        (["--devices", "two"], "devices 'two' is not a positive integer"),
        (["--methods", "star"], "unknown method 'star'"),
        (
            ["--device-type", "cuda", "--devices", "16"],
            "16 GPUs were asked for and this machine has",
        ),
    ):
        assert main([*words, "--out", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1
    words = "--device-type cpu --sizes 1K --methods ring,gloo --devices 2,4 --dry-run"
    assert main(words.split()) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{m} 1 KiB x{p} fp32 eager" for p in (2, 4) for m in ("ring", "gloo")
    ]
    assert (
        main(["--device-type", "cpu", "--dry-run"]) == 0
        and capsys.readouterr().out.count("\n") == 12 * 10
    )
    assert (
        launch_environment()["TORCH_SYMM_MEM_DISABLE_MULTICAST"]
        == launch_environment()["NVSHMEM_DISABLE_NVLS"]
        == "1"
    )
