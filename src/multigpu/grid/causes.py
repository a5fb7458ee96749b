"""Where 2018's speed went: two chains of ways to train document 000's model, from its own to today's, and a sweep of each cause.

A chain changes one thing at a time within one framework and one precision, so that neither mixes with a cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from multigpu.grid.entries import ENDS, FEWEST, Planned, Tier, ends_of, nmt
from multigpu.grid.tensorflow import TENSORFLOW
from multigpu.measure.machine import framework_version, this_machine
from multigpu.run import Run

Cause = Literal["protocol", "host", "links", "work"]
"""Whose a step of a chain is: what was timed; who dispatches how many kernels on how many cores; what merges over the links and
when; how much work a kernel gets.
"""

CORES_THEN = 2
"""Host threads that document 000's build had by its author's correction (`data/published/000_correction.csv`)."""
CORES = (1, 2, 4, 8)
LADDER = (32, 64, 128, 256, 360, 512, 1024, 2048, 4096)
LOOP: dict[str, Any] = {"recurrence": "stepwise", "warmup_steps": 5, "timed_steps": 10}
"""A loop of cells, whose steps are long: as `tensorflow_forms` times it."""


@dataclass(frozen=True)
class Way:
    """One step of a chain: what it changes beside the way before it, and whose cause that is. None: the field's default."""

    name: str
    cause: Cause
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Chain:
    """Ways of one framework, each the one before it with one thing changed; the first is 2018's. The ceiling is the last way with
    independent replicas, which merge nothing.
    """

    name: str
    start: Mapping[str, Any]
    ways: tuple[Way, ...]
    ceiling: Mapping[str, Any]

    def runs(self, devices: int, small: bool = False) -> list[Run]:
        """The Run of each way, in order."""
        return [run for _, run in self.steps(devices, small)]

    def steps(self, devices: int, small: bool = False) -> list[tuple[Way, Run]]:
        """Each way with its Run on so many devices, 2018's own first. small: on CPU processes, with a small model and without what
        only GPUs have.
        """
        found, fields = [], dict(self.start)
        for way in (Way("2018's way", "host", {}), *self.ways):
            if small and way.changes.get("execution") == "captured":
                continue
            fields |= way.changes
            found.append((way, job_run(fields, devices, small)))
        return found

    def ceiling_run(self, devices: int, small: bool = False) -> Run:
        """Independent replicas, done as the chain's last way does it."""
        last = self.runs(devices, small)[-1]
        return Run(**last.model_dump(exclude_defaults=True) | dict(self.ceiling))


SMALL: dict[str, Any] = {"model": "nmt_small", "sequence_length": 20, "device_type": "cpu", "precision": "fp32"}
SMALL_BATCHES = {128: 16, 360: 32}


def job_run(fields: Mapping[str, Any], devices: int, small: bool = False) -> Run:
    """Document 000's model trained so on so many devices, batch 128 unless told; a field that is None is at its default."""
    chosen = {name: value for name, value in fields.items() if value is not None}
    batch = chosen.pop("batch_size", 128)
    if small:
        chosen |= SMALL | {"warmup_steps": 3, "timed_steps": 10}
        batch = SMALL_BATCHES[batch]
        if "host_cores" in chosen:
            chosen["host_cores"] = 1  # a small computer has two
    return nmt(chosen.pop("placement"), devices, batch, **chosen)


ALL_CORES = Way("all host cores", "host", {"host_cores": None})
ONE_CALL = Way("cells in one call", "host", {"recurrence": None, "warmup_steps": None, "timed_steps": None})
LARGER = Way("a larger batch", "work", {"batch_size": 360})

CHAINS = (
    Chain(
        "PyTorch",
        {"placement": "exp4", "processes": "one", "precision": "bf16", "host_cores": CORES_THEN, **LOOP},
        (
            ALL_CORES,
            ONE_CALL,
            Way("a process a device", "host", {"processes": None}),
            Way("all-reduce overlapped (ddp)", "links", {"placement": "ddp"}),
            Way("loss in one piece", "work", {"cross_entropy": "fused"}),
            Way("step as one graph", "host", {"execution": "captured"}),
            LARGER,
        ),
        {"placement": "independent"},
    ),
    Chain(
        "TensorFlow",
        {"placement": "exp4", "precision": "tf32", "host_cores": CORES_THEN, **TENSORFLOW, **LOOP},
        (ALL_CORES, ONE_CALL, Way("all-reduce after backward", "links", {"placement": "replicated_allreduce"}), LARGER),
        {"placement": "independent"},
    ),
)
"""From 2018's way (one process that dispatches a loop of cells for all devices, two host threads, a parameter server on the GPUs)
to today's."""

DISPATCHED: tuple[dict[str, Any], ...] = (
    {"placement": "exp4", "processes": "one", "precision": "bf16"},
    {"placement": "exp4", "precision": "bf16"},
    {"placement": "ddp", "precision": "bf16"},
    {"placement": "exp4", "precision": "tf32", **TENSORFLOW},
)
"""The ways whose host is varied: one process for all devices and one each, in PyTorch; one in TensorFlow."""


def _cost_s(run: Run) -> float:
    """About what one measurement costs on an H200 host, s: a start, and launches by as many cores as there are (TensorFlow builds the
    graph of a loop in 6 s and dispatches it on four H200s in 0.35 s a step; PyTorch launches about 37 thousand kernels a replica).
    """
    tensorflow, loop = run.framework == "tensorflow", run.recurrence == "stepwise"
    start = (8.0 if tensorflow else 2.5) + (6.0 if tensorflow and loop else 4.0 if "captured" in run.execution and loop else 0.0)
    starved = 2.0 if run.host_cores and run.host_cores < run.devices else 1.0
    serial = run.devices if run.processes == "one" else 1
    launches = (0.09 if tensorflow else 0.3) if loop else 0.012
    step = starved * max(launches * serial, run.batch_size / 5000)
    return round(start + step * (run.warmup_steps + run.timed_steps), 1)


def _planned(runs: Sequence[Run], tier: Tier = "screening") -> list[Planned]:
    return [Planned(run, tier, _cost_s(run), FEWEST) for run in runs]


def chain_points(devices: Sequence[int]) -> list[Planned]:
    """Both chains and their ceilings: repeated on 1, 4, 8 and the most, once between."""
    counts = sorted(devices, key=lambda count: (count not in (*ENDS, max(devices)), -count))
    planned: list[Planned] = []
    for count in counts:
        tier: Tier = "headline" if count in (*ENDS, max(devices)) else "screening"
        for chain in CHAINS:
            planned += _planned([*reversed(chain.runs(count)), chain.ceiling_run(count)], tier)
    return planned


def host_points(devices: Sequence[int]) -> list[Planned]:
    """1, 2, 4, 8 and all of the host's cores, at every count of GPUs."""
    return _planned([job_run({**way, "host_cores": cores}, count) for count in devices for way in DISPATCHED for cores in (*CORES, None)])


def recurrence_points(devices: Sequence[int]) -> list[Planned]:
    """A loop of cells in every way that the host dispatches it and as one graph; and traced on the fewest and most devices, which
    counts a step's kernels.
    """
    ways: list[dict[str, Any]] = [*DISPATCHED, {"placement": "ddp", "precision": "bf16", "execution": "captured"}]
    plain_and_loop: list[dict[str, Any]] = [{}, LOOP]
    runs = [job_run(way | form, count) for count in devices for way in ways for form in plain_and_loop]
    traced: list[dict[str, Any]] = [
        {"warmup_steps": 10, "timed_steps": 10, "traced_steps": 3},
        LOOP | {"timed_steps": 5, "traced_steps": 1},
    ]
    return _planned(runs + [job_run(way | form, count) for count in ends_of(devices) for way in DISPATCHED for form in traced])


def ladder_points(devices: Sequence[int]) -> list[Planned]:
    """From 32 sentences a GPU to the most that fit, on the fewest and most devices: dispatched by one process, and as one graph."""
    ways = (DISPATCHED[0], {"placement": "ddp", "precision": "bf16", "execution": "captured", "cross_entropy": "fused"})
    return _planned([job_run({**way, "batch_size": batch}, count) for count in ends_of(devices) for way in ways for batch in LADDER])


def _once(planned: Sequence[Planned]) -> list[Planned]:
    """Each point where it first stands: several sweeps share points with the chains."""
    found: dict[str, Planned] = {}
    for entry in planned:
        found.setdefault(entry.run.digest, entry)
    return list(found.values())


def causes(devices: Sequence[int]) -> list[Planned]:
    """Document 000's lost speed, cause by cause, batch 128 x 100 words unless told: the chains (headline on 1, 4, 8 and the most), then
    sweeps of host cores, of the loop of cells, and of the batch (screening). Points that other grids declare are the same Runs here.
    """
    counts = sorted(devices, reverse=True)
    return _once(chain_points(counts) + recurrence_points(counts) + host_points(counts) + ladder_points(counts))


def causes_small(devices: Sequence[int]) -> list[Planned]:
    """The same paths on CPU processes with a small model, TensorFlow's where it is installed: a minute or two on two cores, and nothing
    about GPUs. Without a second core a host cannot be made smaller, and 2018's way is left out.
    """
    runs: list[Run] = []
    here = [chain for chain in CHAINS if chain.start.get("framework", "torch") == "torch" or framework_version("tensorflow") != "none"]
    for count in sorted(devices, reverse=True):
        for chain in here:
            runs += [run for run in chain.runs(count, small=True) if not run.host_cores or this_machine().cores > run.host_cores]
        runs.append(here[0].ceiling_run(count, small=True))
        runs += [job_run({"placement": "ddp", "batch_size": batch}, count, True) for batch in SMALL_BATCHES]
    return _once([Planned(run, "screening", 6.0 if run.framework == "tensorflow" else 2.0) for run in runs])
