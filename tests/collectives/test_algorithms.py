"""Every all-reduce algorithm: the right sum, the same bits everywhere, the bytes of its formula, and no deadlock."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.collectives import algorithms, find_algorithm
from multigpu.collectives.algorithm import Algorithm, Cost, grid_of
from tests.collectives.memory import MemoryTransport, counted, run_ranks
from tests.refusals import refused

SIZES = range(1, 9)
LOSSLESS = [name for name, algorithm in algorithms().items() if not algorithm.wire]
LOSSY = [name for name, algorithm in algorithms().items() if algorithm.wire]


def inputs(size: int, elements: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * seed + size)
    return [torch.randn(elements, generator=generator, dtype=torch.float64).to(dtype) for _ in range(size)]


def reduced(algorithm: Algorithm, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], Cost]:
    """What every rank ends with, and what it cost."""
    mine = [tensor.clone() for tensor in tensors]

    def work(transport: MemoryTransport) -> None:
        algorithm.all_reduce(mine[transport.rank], transport)

    _, transports = run_ranks(len(tensors), work)
    return mine, counted(transports)


def error_bound(absolute_sum: torch.Tensor, size: int, wire: str) -> torch.Tensor:
    """Of a sum of fp32 numbers whose sizes add up to this, by the formula of `everyone.py`."""
    u, t, v = {"bf16": 2.0**-8, "fp16": 2.0**-11}[wire], {"bf16": 2.0**-134, "fp16": 2.0**-25}[wire], 2.0**-24
    g = (size - 1) * v / (1 - (size - 1) * v)
    return u * absolute_sum + size * t + g * (1 + u) * (absolute_sum + size * t)


def test_an_unknown_algorithm_is_refused() -> None:
    refused(r"^unknown all-reduce algorithm 'star': choose one of central_server, .*, ring, torus, tree$", find_algorithm, "star")


def test_naming_an_algorithm_imports_no_framework() -> None:
    code = "import sys; from multigpu.collectives import algorithms, run, record, spec; algorithms();"
    code += "print('torch' in sys.modules, 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False False"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LOSSLESS)
def test_the_sum_is_right_and_the_same_everywhere(name: str, size: int) -> None:
    for elements in sorted({0, 1, size - 1, size, size + 1, 2 * size + 1, 13, 101}):
        tensors = inputs(size, elements)
        results, _ = reduced(algorithms()[name], tensors)
        exact = torch.tensor([math.fsum(values) for values in zip(*(t.tolist() for t in tensors), strict=True)], dtype=torch.float64)
        absolute = torch.stack(tensors).abs().sum(0)
        assert torch.all((results[0] - exact).abs() <= size * 2.0**-53 * absolute), (elements, "rounding of P - 1 additions")
        assert all(torch.equal(result, results[0]) for result in results), elements


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(algorithms())), st.integers(1, 8), st.integers(0, 40), st.integers(0, 10**6))
def test_whole_numbers_are_summed_exactly(name: str, size: int, elements: int, seed: int) -> None:
    """Up to 8 x 32 = 256 every partial sum is exact in every type, so any wrong, missing or doubled element shows."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randint(-31, 32, (elements,), generator=generator).float() for _ in range(size)]
    results, _ = reduced(algorithms()[name], tensors)
    assert all(torch.equal(result, torch.stack(tensors).sum(0)) for result in results)


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


def test_fp16_reaches_65504_and_bf16_as_far_as_fp32() -> None:
    tensors = [torch.full((3,), 7e4), torch.full((3,), 1.0)]
    assert reduced(algorithms()["everyone_fp16"], tensors)[0][0].isinf().all()
    assert reduced(algorithms()["everyone_bf16"], tensors)[0][0].tolist() == pytest.approx([7e4] * 3, rel=2**-8)


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
        assert (cost.latency_terms, cost.total_bytes) == (formula.latency_terms, formula.total_bytes), elements
        for field in ("busiest_link_bytes", "busiest_way_bytes", "busiest_port_bytes"):
            assert abs(getattr(cost, field) - getattr(formula, field)) <= 4 * 2 * size, (field, elements)


def test_costs_of_eight_by_hand() -> None:
    """N = 8 bytes (eight elements of one byte) and P = 8: latency terms, busiest link, sent by one, through one port, in all.

    Counted alike, one way, a server is P/2 times as busy as a ring, not P times.
    """
    assert {name: algorithms()[name].cost(8, 1, 8) for name in LOSSLESS} == {
        "central_server": Cost(2, 8, 56, 112, 112),
        "ring": Cost(14, 14, 14, 28, 112),
        "halving_doubling": Cost(6, 8, 14, 28, 112),
        "tree": Cost(6, 8, 24, 48, 112),
        "hierarchical": Cost(6, 8, 24, 48, 112),
        "torus": Cost(8, 12, 14, 28, 112),
        "everyone": Cost(1, 8, 56, 112, 448),
    }
    assert algorithms()["everyone_bf16"].cost(8, 4, 8) == Cost(1, 16, 112, 224, 896)


def test_grids_and_what_a_prime_falls_back_to() -> None:
    for size in range(1, 50):
        rows = max(rows for rows in range(1, math.isqrt(size) + 1) if size % rows == 0)
        assert grid_of(size) == (rows, size // rows)
    for size in (2, 3, 5, 7):
        ring = algorithms()["ring"].cost(840, 4, size)
        assert algorithms()["torus"].cost(840, 4, size) == algorithms()["hierarchical"].cost(840, 4, size) == ring


def test_tensors_of_any_shape_and_type() -> None:
    for name in LOSSLESS:
        results, _ = reduced(algorithms()[name], [torch.arange(12).reshape(3, 4) + rank for rank in range(3)])
        assert torch.equal(results[1], 3 * torch.arange(12).reshape(3, 4) + 3)
    turned = torch.zeros(2, 3).t().clone(memory_format=torch.preserve_format)
    refused(r"strides \(1, 3\) cannot be cut into messages", reduced, algorithms()["ring"], [turned] * 2)
    refused("rounds to bf16, which torch.int64 does not allow", reduced, algorithms()["everyone_bf16"], [torch.arange(3)] * 2)
