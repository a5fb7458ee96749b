"""What is measured between hosts: how cost grows with their number, what latency does, document 004's curve in miniature, and a step.

Each part has its own hosts (links and processes on each); within a part the most informative Runs come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from multigpu.collectives import algorithms
from multigpu.collectives.run import CollectiveRun, build_collective_run
from multigpu.run import Run
from multigpu.workloads import find_model

RATE_MBIT = 200.0
"""Of every host's link, each way: slow enough that two cores keep sixteen links busy."""

SLOW_MBIT, SLOW_BYTES = 50.0, 2**22
"""Of the repeated part, which decides C25: so slow and so much that what the links take hides what a shared processor adds."""

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
    """Runs that are measured on the same hosts. cost_s: what one repeat of all may take; timeout_s: one Run, at most."""

    name: str
    title: str
    per_host: int
    runs: tuple[CollectiveRun, ...]
    cost_s: float
    rate_mbit: float = RATE_MBIT
    timeout_s: float = 60.0

    @property
    def hosts(self) -> int:
        """How many hosts it needs."""
        return max(-(-run.devices // self.per_host) for run in self.runs)


@dataclass(frozen=True)
class Steps:
    """Training steps on as many hosts as a Run has devices, one process on each. cost_s, timeout_s: as of a Part."""

    name: str
    title: str
    runs: tuple[Run, ...]
    cost_s: float
    rate_mbit: float = RATE_MBIT
    timeout_s: float = 120.0
    per_host: int = 1

    @property
    def hosts(self) -> int:
        """How many hosts it needs."""
        return max(run.devices for run in self.runs)


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


def growth_repeated() -> Part:
    """The server and the ring that C25 speaks of, 4 MiB on 2, 4 and 8 hosts with slower links; meant to be repeated in several launches."""
    runs = [_run(method, SLOW_BYTES, devices, warmup_calls=1, samples=3) for method in ("ring", "central_server") for devices in COUNTS]
    return Part("growth_repeated", "the central server and the ring, to be repeated", 1, tuple(runs), 190, SLOW_MBIT, timeout_s=240)


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


STEP_HOSTS = (4, 2, 1)
STEP_WAYS: tuple[dict[str, object], ...] = (
    {"framework": "torch", "placement": "ddp"},
    {"framework": "tensorflow", "placement": "multi_worker", "execution": "graph"},
)
"""PyTorch's all-reduce over gloo, and TensorFlow's MultiWorkerMirroredStrategy with its ring."""


def steps() -> Steps:
    """A training step on 4, 2 and 1 hosts, by both frameworks' own data parallelism: a translation model of 1.1 million parameters, so
    that its gradients (4.4 MB) take the links longer than the processors need for so few words.
    """
    common: dict[str, object] = {"workload": "nmt", "model": "nmt_short", "device_type": "cpu", "batch_size": 8, "sequence_length": 8}
    common |= {"warmup_steps": 10, "timed_steps": 20}
    runs = [Run(**(common | way | {"devices": count})) for count in STEP_HOSTS for way in STEP_WAYS]  # type: ignore[arg-type]
    return Steps("steps", "a training step of PyTorch and of TensorFlow", tuple(runs), 150)


def small() -> Part:
    """For a look, and for tests: two hosts, a few small messages."""
    runs = [_run(method, 4096, 2, samples=3, warmup_calls=1) for method in ("ring", "central_server")]
    return Part("small", "two hosts, a look", 1, tuple(runs), 10)


PARTS: dict[str, Callable[[], Part | Steps]] = {
    part().name: part for part in (growth, document_004, latency, document_004_apart, steps, growth_repeated, small)
}
"""By name, in the order in which they tell most."""

STUDY = ("growth", "document_004", "latency", "document_004_apart", "steps")


def find_parts(names: Sequence[str] = ()) -> list[Part | Steps]:
    """The parts of these names; the whole study without any.

    Raises:
        ValueError: no such part; the sentence names the known ones.
    """
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(f"unknown part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    return [PARTS[name]() for name in names or STUDY]
