"""`fits`: the memory that a job's step needs under each placement, before anything runs there."""

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from multigpu.build import build_run
from multigpu.machine.machine import Machine, gpu_count, this_machine
from multigpu.placements import find_placement, placements
from multigpu.placements.memory import StepNeeds, kept_on, needed
from multigpu.spec.errors import JobError
from multigpu.spec.model import Model, optimizer_of
from multigpu.spec.run import Run
from multigpu.user_model.examining import examine_apart
from multigpu.user_model.per_batch import COMPILED, GIVEN, RECOMPUTED, WRITTEN, PerBatch, per_batch
from multigpu.user_model.placed import called
from multigpu.workloads import description_of
from multigpu.workloads.own.description import Described, know, model_of
from multigpu.workloads.own.job import Job

GIB = 2**30
CONTEXT_BYTES = GIB  # of a GPU's memory, what CUDA, cuDNN and NCCL keep for themselves
CUBLAS_BYTES = 2 * 32 * 2**20
"""PyTorch gives cuBLAS a workspace a handle and stream, kept in its own allocator: 32 MiB on Hopper
(8 before; `getChosenWorkspaceSize` in ATen/cuda/CublasHandlePool.cpp). The threads of forward and
of backward have a handle each."""

MICRO_STEPS = (1, 4)
"""Parts of a batch that are forecast: all at once, and four one after the other."""

NEEDS = "its step needs"
"""So begins why a way that cannot fit is not launched."""


@dataclass(frozen=True)
class StepMemory:
    """What a step needs of its fullest device, bytes. needed: whatever the batch; activations: of
    the samples that pass at once.
    """

    placement: str
    is_recomputed: bool
    micro_steps: int
    needed: StepNeeds
    activations: PerBatch
    is_compiled: bool = False

    def peak(self, samples: int) -> float:
        """Return the most bytes in a step of so many samples on the device."""
        passing = math.ceil(samples / self.micro_steps)
        computing = self.needed.held + self.activations.of(passing, self.needed.made)
        return max(computing, self.needed.least)

    def largest_batch(self, room: float) -> int:
        """Return the most samples of a device whose step fits into so many bytes; 0: none do."""
        if self.needed.least > room:
            return 0
        left = room - self.needed.held
        return self.micro_steps * self.activations.most_samples(left, self.needed.made)


def traced_activations(described: Described) -> dict[str, PerBatch]:
    """Return what a batch holds on a device, in each way that is told."""
    return {way: per_batch(lines) for way, lines in described.activations.items()}


def step_memory(run: Run, model: Model, traced: Mapping[str, PerBatch]) -> StepMemory | None:
    """Return what a Run's step needs; None for placements that keep parts of one model, of which no
    formula says how much, and for what was not traced.

    What cuDNN tries while it chooses the algorithms of convolutions is no part of it: in the first
    step it takes what is free and goes without where nothing is. Measured peaks tell it, up to
    twice the step's own in 32 bits and next to nothing in 16.
    """
    way = RECOMPUTED if run.recompute else WRITTEN
    whole = find_placement(run.placement).variables != "sharded"  # else blocks alone are compiled
    compiled = "compiled" in run.execution and whole and way + COMPILED in traced
    way += COMPILED if compiled else ""
    if way not in traced:
        return None
    try:
        found = needed(run, model)
    except ValueError:
        return None
    described = getattr(model.config, "described", None)
    if described is not None and "optimizer" in described.own_update:
        # on GPUs PyTorch has it update all at once, with an array as large as one of its states
        array = kept_on(run, model).slots // optimizer_of(run, model).slots
        found = replace(found, updating=found.updating + array)
    if run.device_type == "cuda":
        found = replace(found, held=found.held + CUBLAS_BYTES)
    parts, lines = run.micro_steps or 1, traced[way]
    if GIVEN in traced:  # whole, beside the part that passes; once more in a graph, and those ahead
        batches = parts * (1 + ("captured" in run.execution) + run.prefetch) - 1
        lines = lines._replace(each=lines.each + batches * traced[GIVEN].each)
    return StepMemory(run.placement, bool(run.recompute), parts, found, lines, compiled)


def memories_of(runs: Sequence[Run], described: Described) -> dict[str, StepMemory]:
    """Return what a step of each of these Runs needs, by its name, as far as it can be forecast."""
    traced = traced_activations(described)
    found = {
        called(run): step_memory(run, description_of(run), traced)
        for run in (runs if traced else ())
    }
    return {name: memory for name, memory in found.items() if memory is not None}


def room_of(machine: Machine, device_type: str, devices: int) -> float:
    """Return the bytes that a step may take: of a GPU, or a process's share of all memory."""
    if device_type == "cuda":
        return min(machine.gpu_memory_gib) * GIB - CONTEXT_BYTES
    return machine.memory_gib * GIB / devices


def those_that_fit(
    runs: Sequence[Run], described: Described, machine: Machine
) -> tuple[list[Run], dict[str, str]]:
    """Return the Runs whose step fits into a device of this machine as far as that can be forecast,
    and of each other one, by its name in a comparison, why it does not. What a compiled step
    holds of a batch is not followed in a comparison, so it is judged by what it needs beside.
    """
    refused, memories = dict[str, str](), memories_of(runs, described)
    for run in runs:
        memory = memories.get(name := called(run))
        room = room_of(machine, run.device_type, run.devices)
        if memory is None or memory.peak(run.batch_size) <= room:
            continue
        if "compiled" in run.execution and memory.needed.least <= room:
            continue
        largest = memory.largest_batch(room)
        other = f"a batch of {largest:,} would fit" if largest else "no batch would fit"
        refused[name] = (
            f"{NEEDS} {memory.peak(run.batch_size) / GIB:.3g} GiB of a device that has"
            f" {room / GIB:.3g}, so it was not launched: {other}"
        )
    return [run for run in runs if called(run) not in refused], refused


def fits(
    job: Job | str,
    memory_gib: float | None = None,
    devices: int | None = None,
    names: Sequence[str] | Literal["all"] = "all",
    compiled: bool = False,
    budget_s: float = 300.0,
) -> pd.DataFrame:
    """Forecast the memory that a step of a PyTorch job needs on its fullest GPU, without one.

    Args:
        job: a `Job`, or "FILE.py:NAME" of one. memory_gib: of a GPU (None: of this machine's).
        devices: GPUs (None: this machine's, or 2). names: of placements. compiled: of compiled
            steps, too, which takes a multiple of the time. budget_s: that examining the job on
            this machine may take.

    Returns:
        A row a placement, recomputation, micro-steps and form, the least first: peak_gib at the
        job's batch, kept_gib of it whatever the batch, largest_batch of a device (0: none fits),
        fits. Captured steps need a batch more (those of `wrap` keep all gradients, too).

    Raises:
        JobError: the job cannot be trained, or is none of PyTorch. ValueError: no GPU is here and
            no memory was given.
    """
    gpus = this_machine().gpu_memory_gib
    if memory_gib is None and not gpus:
        raise ValueError("no GPU is here: say how many GiB one has by --memory, such as 80")
    room = (memory_gib or min(gpus)) * GIB - CONTEXT_BYTES
    count = devices or gpu_count() or 2
    for name in names if names != "all" else ():
        find_placement(name)
    with tempfile.TemporaryDirectory() as scratch:
        know(folder := Path(scratch))
        examined = examine_apart(job, folder, count, False, budget_s, compiled, compared=False)
        described = examined.described
        if described.framework != "torch":
            raise JobError(
                "fits follows PyTorch's operators, and this model is of Keras: compare it"
            )
        if described.unforecast:
            raise JobError(f"its operators cannot be followed ({described.unforecast}): compare it")
        fields = {
            "devices": count,
            "workload": "own",
            "model": described.name,
            "inputs": "own",
            "batch_size": examined.batch_size,
            "precision": examined.precision,
            "device_type": "cuda",
        }
        runs, refused = [], []
        for name in placements() if names == "all" else names:
            try:
                runs.append(build_run(placement=name, **fields))
            except ValueError as error:  # it does not go through this placement
                refused.append(str(error))
        if not runs:
            raise ValueError("; ".join(dict.fromkeys(refused)))
        model = model_of(described, folder)
        traced = traced_activations(described)
        ways = [
            run.model_copy(update={"execution": form, "recompute": recompute, "micro_steps": parts})
            for run in runs
            for form in ("eager", "compiled")[: 1 + compiled]
            for recompute in (False, True)
            for parts in MICRO_STEPS
        ]
        found = [(run, step_memory(run, model, traced)) for run in ways]
        # compiled, but not followed so: as it is written, which is there already
        memories = [
            one for run, one in found if one and one.is_compiled == (run.execution != "eager")
        ]
    rows = [
        {
            "placement": one.placement,
            "recomputed": one.is_recomputed,
            "micro_steps": one.micro_steps,
            "compiled": one.is_compiled,
            "kept_gib": one.needed.least / GIB,
            "peak_gib": one.peak(examined.batch_size) / GIB,
            "largest_batch": one.largest_batch(room),
            "fits": one.peak(examined.batch_size) <= room,
        }
        for one in memories
        if one.micro_steps <= examined.batch_size
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.sort_values(["peak_gib", "micro_steps"], kind="stable", ignore_index=True)


COLUMNS = (
    *("placement", "recomputed", "micro_steps", "compiled"),
    *("kept_gib", "peak_gib", "largest_batch", "fits"),
)


def shown(found: pd.DataFrame) -> pd.DataFrame:
    """Return the forecast as a row a placement: GiB at the job's batch, and the largest batch."""
    ways = [
        ("recomputed" if row["recomputed"] else "as written")
        + ("" if row["micro_steps"] == 1 else f", {row['micro_steps']} micro-steps")
        + (COMPILED if row["compiled"] else "")
        for _, row in found.iterrows()
    ]
    cells = [
        f"{row['peak_gib']:.3g} (up to {row['largest_batch']:,})" if row["largest_batch"] else "–"
        for _, row in found.iterrows()
    ]
    table = found.assign(way=ways, cell=cells).pivot(
        index="placement", columns="way", values="cell"
    )
    return table.fillna("").loc[found["placement"].unique(), list(dict.fromkeys(sorted(ways)))]


def fits_command(arguments: argparse.Namespace) -> int:
    """Print what each placement's step needs, and the largest batch."""
    names = "all" if arguments.placements == "all" else arguments.placements.split(",")
    found = fits(
        arguments.job,
        arguments.memory,
        arguments.devices,
        names,
        arguments.compiled,
        arguments.budget_s,
    )
    print("GiB of the fullest device in a step of the job's batch, and the largest batch that fits")
    print(shown(found).rename_axis(columns=None).to_string())
    return 0
