"""Every all-reduce algorithm: the right sum, the same bits everywhere, the bytes of its formula,
and no deadlock; gloo as memory.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.collectives import algorithms
from multigpu.collectives.algorithm import Algorithm, Cost, grid_of
from tests.multigpu.collectives.memory import MemoryTransport, counted, run_ranks
from tests.multigpu.equivalence.cases import answers
from tests.refusals import refused

SIZES = range(1, 9)
LOSSLESS = [name for name, algorithm in algorithms().items() if not algorithm.wire]
LOSSY = [name for name, algorithm in algorithms().items() if algorithm.wire]


def inputs(
    size: int, elements: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * seed + size)
    return [
        torch.randn(elements, generator=generator, dtype=torch.float64).to(dtype)
        for _ in range(size)
    ]


def reduced(algorithm: Algorithm, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], Cost]:
    """What every rank ends with, and what it cost."""
    mine = [tensor.clone() for tensor in tensors]
    _, transports = run_ranks(
        len(tensors), lambda transport: algorithm.all_reduce(mine[transport.rank], transport)
    )
    return mine, counted(transports)


def error_bound(absolute_sum: torch.Tensor, size: int, wire: str) -> torch.Tensor:
    """Of a sum of fp32 numbers whose sizes add up to this, by the formula of `everyone.py`."""
    u = {"bf16": 2.0**-8, "fp16": 2.0**-11}[wire]
    t = {"bf16": 2.0**-134, "fp16": 2.0**-25}[wire]
    v = 2.0**-24
    g = (size - 1) * v / (1 - (size - 1) * v)
    return u * absolute_sum + size * t + g * (1 + u) * (absolute_sum + size * t)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LOSSLESS)
def test_the_sum_is_right_and_the_same_everywhere(name: str, size: int) -> None:
    for elements in sorted({0, 1, size - 1, size, size + 1, 2 * size + 1, 13, 101}):
        tensors = inputs(size, elements)
        results, _ = reduced(algorithms()[name], tensors)
        exact = torch.tensor(
            [math.fsum(values) for values in zip(*(t.tolist() for t in tensors), strict=True)],
            dtype=torch.float64,
        )
        absolute = torch.stack(tensors).abs().sum(0)
        assert torch.all((results[0] - exact).abs() <= size * 2.0**-53 * absolute), (
            elements,
            "rounding of P - 1 additions",
        )
        assert all(torch.equal(result, results[0]) for result in results), elements


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LOSSY)
def test_compression_stays_within_its_bound(name: str, size: int) -> None:
    wire = algorithms()[name].wire
    assert wire
    for scale in (1.0, 1e-6, 1e3):
        tensors = [scale * tensor for tensor in inputs(size, 997, torch.float32, seed=1)]
        results, _ = reduced(algorithms()[name], tensors)
        exact = torch.stack(tensors).double().sum(0)
        error = (results[0].double() - exact).abs()
        bound = error_bound(torch.stack(tensors).double().abs().sum(0), size, wire)
        assert torch.all(error <= bound) or size == 1
        assert all(torch.equal(result, results[0]) for result in results)
        if size > 1:
            assert error.max() > 0.05 * bound.max(), "a bound that is never approached says nothing"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(algorithms()))
def test_bytes_on_every_link_are_those_of_the_formula(name: str, size: int) -> None:
    algorithm = algorithms()[name]
    for elements in (840, 1680):  # they divide by every size from 1 to 8
        _, cost = reduced(algorithm, inputs(size, elements, torch.float32))
        assert cost == algorithm.cost(elements, 4, size), elements
    for elements in (size + 1, 97, 1009):
        _, cost = reduced(algorithm, inputs(size, elements, torch.float32))
        formula = algorithm.cost(elements, 4, size)
        assert (cost.latency_terms, cost.total_bytes) == (
            formula.latency_terms,
            formula.total_bytes,
        ), elements
        for field in ("busiest_link_bytes", "busiest_way_bytes", "busiest_port_bytes"):
            assert abs(getattr(cost, field) - getattr(formula, field)) <= 4 * 2 * size, (
                field,
                elements,
            )


def test_grids_are_the_most_nearly_square() -> None:
    for size in range(1, 50):
        rows = max(rows for rows in range(1, math.isqrt(size) + 1) if size % rows == 0)
        assert grid_of(size) == (rows, size // rows)


def test_tensors_of_any_shape_and_type() -> None:
    for name in LOSSLESS:
        results, _ = reduced(
            algorithms()[name], [torch.arange(12).reshape(3, 4) + rank for rank in range(3)]
        )
        assert torch.equal(results[1], 3 * torch.arange(12).reshape(3, 4) + 3)
    turned = torch.zeros(2, 3).t().clone(memory_format=torch.preserve_format)
    refused(
        r"strides \(1, 3\) cannot be cut into messages", reduced, algorithms()["ring"], [turned] * 2
    )
    refused(
        "rounds to bf16, which torch.int64 does not allow",
        reduced,
        algorithms()["everyone_bf16"],
        [torch.arange(3)] * 2,
    )


def test_processes_that_both_send_first_are_found_out() -> None:
    """As between GPUs: nothing may rely on a buffer between the two."""

    def blocked(transport: MemoryTransport) -> None:
        transport.send(torch.ones(3), 1 - transport.rank)
        transport.receive(torch.empty(3), 1 - transport.rank)

    refused(
        "process 0 waited in vain until its message to process 1 is taken",
        run_ranks,
        2,
        blocked,
        timeout_s=0.3,
        error=TimeoutError,
    )
    for peer in (0, 2, -1):
        only_one = partial(
            lambda peer, transport: transport.rank or transport.send(torch.ones(1), peer), peer
        )
        refused(
            f"process 0 of 2 cannot exchange messages with process {peer}", run_ranks, 2, only_one
        )


def over_gloo(rank: int, folder: Path) -> dict[tuple[str, int], tuple[list[float], dict[Any, int]]]:
    """What every algorithm leaves this process of a group, and what it has sent on each link."""
    from multigpu_study.collectives.bench import distributed_transport

    found = {}
    for name, algorithm in algorithms().items():
        for elements in (0, 1, 3, 4, 1009):
            transport, tensor = distributed_transport(delay_s=0.001), values(rank, elements)
            algorithm.all_reduce(tensor, transport)
            found[name, elements] = (tensor.tolist(), dict(transport.sent_bytes))
    return found


def values(rank: int, elements: int) -> torch.Tensor:
    return (torch.arange(elements) % 29 + rank).float()


@pytest.mark.parametrize("size", [2, 3])
def test_gloo_processes_agree_with_memory(size: int) -> None:
    """The same sums and the same bytes on every link, between real processes."""
    found = answers(over_gloo, size)
    for name, elements in found[0]:
        mine = [values(rank, elements) for rank in range(size)]
        _, transports = run_ranks(
            size,
            partial(lambda run, mine, t: run(mine[t.rank], t), algorithms()[name].all_reduce, mine),
        )
        expected = [
            (mine[rank].tolist(), dict(transports[rank].sent_bytes)) for rank in range(size)
        ]
        assert [own[name, elements] for own in found] == expected, (name, elements)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(algorithms())),
    st.integers(1, 8),
    st.integers(0, 40),
    st.integers(0, 10**6),
)
def test_whole_numbers_are_summed_exactly(name: str, size: int, elements: int, seed: int) -> None:
    """Up to 8 x 32 = 256 every partial sum is exact in every type, so any wrong, missing or doubled
    element shows.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randint(-31, 32, (elements,), generator=generator).float() for _ in range(size)
    ]
    results, _ = reduced(algorithms()[name], tensors)
    assert all(torch.equal(result, torch.stack(tensors).sum(0)) for result in results)
