"""The clock and the check of one process: wrong sums and skipped calls are found. On real processes: `test_measure`."""

import pytest
import torch
import torch.distributed as dist

from multigpu.collectives.algorithm import Cost
from multigpu.collectives.bench import Bench, SymmetricMemory, expected_sum, values
from multigpu.collectives.record import joined
from multigpu.collectives.run import CollectiveRun
from multigpu.engines.errors import Unsupported
from tests.refusals import refused


def run(method: str = "ring", **fields: object) -> CollectiveRun:
    base = {"method": method, "bytes": 400, "devices": 2, "device_type": "cpu", "samples": 3, "calls": 4}
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
        assert torch.equal(total.double(), exact) and torch.equal(expected_sum(size, 40, dtype, cpu), total)
    assert len(values(0, 13, dtype, cpu).unique()) == 13 and not torch.equal(values(0, 13, dtype, cpu), values(1, 13, dtype, cpu))


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
    take, wanted = SymmetricMemory().take, (4, torch.float32, torch.device("cpu"), 16)
    refused("with NVLink multicast off only: set NCCL_NVLS_ENABLE", take, *wanted, error=Unsupported)


def test_parts_are_joined_by_the_slowest_rank() -> None:
    """By hand: 4 calls a sample; N = 400 bytes on two processes, 200 each way in each of two steps."""
    parts = [{"times": [0.4, 0.8, 0.4], "counted": {"1": 400}}, {"times": [0.8, 0.4, 0.4], "counted": {"0": 400}}]
    found = joined(run(), parts, 1.0)
    assert found.time_s == [0.2, 0.2, 0.1] and found.flags == []
    assert found.counted == found.predicted == Cost(2, 400, 400, 800, 800)
    parts[0]["counted"] = {"1": 404}
    assert joined(run(), parts, 1.0).flags == ["804 bytes were sent and 800 predicted"]
