"""What is measured between hosts: how cost grows with their number, what latency does, and document 004's curve in miniature.

Each part has its own hosts (links and processes on each); within a part the most informative Runs come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multigpu.collectives import algorithms
from multigpu.collectives.run import CollectiveRun, build_collective_run
from multigpu.workloads import find_model

RATE_MBIT = 200.0
"""Of every host's link, each way: slow enough that two cores keep sixteen links busy."""

BYTES = 2**20
LATENCY_BYTES = 4096
DELAY_US = 5000
COUNTS = (2, 4, 8)

DOCUMENT_GBIT = 100.0
"""Document 004's Ethernet between machines of four GPUs."""
SCALE = DOCUMENT_GBIT * 1000 / RATE_MBIT
"""Bytes and bandwidth are divided by the same number, so that every transfer takes the time it would take there."""
COMPUTE_MS = 360
"""Document 004's step on one GPU, slept."""
DOCUMENT_COUNTS = (1, 2, 4, 8, 12, 16)
DOCUMENT_PER_HOST = 4
DOCUMENT_METHODS = ("ring", "central_server", "hierarchical", "halving_doubling", "gloo")


@dataclass(frozen=True)
class Part:
    """Runs that are measured on the same hosts. cost_s: what one repeat of all may take."""

    name: str
    title: str
    per_host: int
    runs: tuple[CollectiveRun, ...]
    cost_s: float
    rate_mbit: float = RATE_MBIT

    @property
    def hosts(self) -> int:
        """How many hosts it needs."""
        return max(-(-run.devices // self.per_host) for run in self.runs)


def _run(method: str, size: int, devices: int, **more: int) -> CollectiveRun:
    fields: dict[str, object] = {"warmup_calls": 2, "calls": 1, "samples": 10, **more}
    return build_collective_run(method=method, bytes=size, devices=devices, device_type="cpu", **fields)


def _methods() -> list[str]:
    compared = ["ring", "central_server", "gloo"]
    return [*compared, *(name for name in algorithms() if name not in compared)]


def document_bytes() -> int:
    """Document 004's gradients divided by `SCALE`, in whole fp32 elements."""
    return round(4 * find_model("nmt", "nmt004").parameters / SCALE / 4) * 4


def growth() -> Part:
    """Every algorithm on 2, 4 and 8 hosts of one process: 1 MiB."""
    runs = [_run(method, BYTES, devices) for method in _methods() for devices in COUNTS]
    return Part("growth", "cost against the number of hosts", 1, tuple(runs), 260)


def latency() -> Part:
    """Small messages, each 5 ms late, as between distant hosts: what counts is how many must follow each other."""
    chosen = [method for method in _methods() if method in algorithms() and algorithms()[method].wire is None]
    runs = [_run(method, LATENCY_BYTES, devices, delay_us=DELAY_US) for method in chosen for devices in COUNTS]
    return Part("latency", "small messages between distant hosts", 1, tuple(runs), 90)


def document_004() -> Part:
    """Document 004's step from 1 to 16 processes, four a host: compute is slept, bytes and bandwidth are divided by `SCALE`."""
    size = document_bytes()
    runs = [_run(DOCUMENT_METHODS[0], size, 1, compute_ms=COMPUTE_MS, samples=6)]
    runs += [
        _run(method, size, devices, compute_ms=COMPUTE_MS, samples=6, warmup_calls=1)
        for method in DOCUMENT_METHODS
        for devices in DOCUMENT_COUNTS[1:]
    ]
    return Part("document_004", "document 004's step, four processes a host", DOCUMENT_PER_HOST, tuple(runs), 300)


def document_004_apart() -> Part:
    """The same with every process on a host of its own, as if no machine had more than one GPU."""
    size = document_bytes()
    runs = [
        _run(method, size, devices, compute_ms=COMPUTE_MS, samples=6, warmup_calls=1)
        for method in ("ring", "central_server", "halving_doubling")
        for devices in (2, 4, 8, 16)
    ]
    return Part("document_004_apart", "document 004's step, one process a host", 1, tuple(runs), 180)


def small() -> Part:
    """For a look, and for tests: two hosts, a few small messages."""
    runs = [_run(method, 4096, 2, samples=3, warmup_calls=1) for method in ("ring", "central_server")]
    return Part("small", "two hosts, a look", 1, tuple(runs), 10)


PARTS = {part().name: part for part in (growth, document_004, latency, document_004_apart, small)}
"""By name, in the order in which they tell most."""

STUDY = ("growth", "document_004", "latency", "document_004_apart")


def find_parts(names: Sequence[str] = ()) -> list[Part]:
    """The parts of these names; the whole study without any.

    Raises:
        ValueError: no such part; the sentence names the known ones.
    """
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(f"unknown part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    return [PARTS[name]() for name in names or STUDY]
