"""Draw a job's batches several times to find what one draw does not tell: whether they differ in
length, whether fewer samples can be asked for, and what of a loader is not used as it stands.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from multigpu.spec.errors import JobError
from multigpu.workloads.own.batches import arrays_of_step, batches_of
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.structure import names_of

DRAWS, DRAWS_S = 6, 0.5  # at most so many batches, or so many seconds, and one at least


@dataclass
class Drawn:
    """ragged: whether samples of different batches differ in length. few: whether a batch of few
    samples can be had, small: that batch of the first step, or the whole one. notes: for the user.
    """

    ragged: bool
    few: bool
    small: list[np.ndarray]
    notes: list[str] = field(default_factory=list)


def loader_notes(job: Job, replicas: int) -> list[str]:
    """List what a user should know of how their DataLoader is read."""
    from multigpu.workloads.own.loaded import is_map, own_order

    source, notes = job.batch, list[str]()
    size = getattr(source, "batch_size", None)
    if is_map(source):
        if own_order(source) == "batch_sampler":
            notes.append(
                "the batches of the DataLoader's batch_sampler are handed out to devices in turn,"
                f" the first {job.batch_size} samples of each; shorter ones are left out"
            )
        elif isinstance(size, int) and size != job.batch_size:
            notes.append(
                f"the DataLoader's batch_size is {size} and the job's {job.batch_size}: each device"
                " gets as many as the job says"
            )
    elif hasattr(source, "__iter__") and not isinstance(source, list | tuple):
        if replicas > 1:
            notes.append(
                "batch can only be read in its order: each of several devices reads all of it and"
                f" takes its share, so reading costs it {replicas} times what it costs one device"
            )
        if isinstance(size, int) and size > job.batch_size:
            notes.append(
                f"batch gives {size} samples at a time, of which the job takes {job.batch_size}"
            )
    return notes


def ragged_note(names: list[str], shapes: list[list[tuple[int, ...]]]) -> str:
    """Which tensor differs in length, and what that means for a mean over its positions."""
    which = next(index for index in range(len(names)) if len({each[index] for each in shapes}) > 1)
    lengths = sorted({each[which] for each in shapes})
    told = ", ".join(str(list(shape)) for shape in lengths[:3])
    return (
        f"samples of different batches differ in length ({names[which]}: {told}): where the loss is"
        " a mean over tokens, a device with few tokens counts as much as one with many, here as in"
        " plain DistributedDataParallel; multiply each device's loss by its tokens x devices / the"
        " tokens of all devices to train what one process on the global batch does. Placements are"
        " compared with one process that takes the shards one after the other"
    )


def several(
    framework: Literal["torch", "tensorflow"],
    job: Job,
    replicas: int,
    structure: Any,
    arrays: list[np.ndarray],
    few: int,
) -> Drawn:
    """Draw more batches beside the first, `arrays`. few: of how many samples a small one is."""
    began_s = time.monotonic()
    shapes = [[array.shape[1:] for array in arrays]]
    found = Drawn(ragged=False, few=True, small=[array.copy() for array in arrays])
    reader = batches_of(framework, job, job.batch_size, replicas, 0, 0)
    for step in range(1, DRAWS):
        _, more = arrays_of_step(reader, step)
        shapes.append([array.shape[1:] for array in more])
        if len(more) != len(arrays) or time.monotonic() > began_s + DRAWS_S:
            break
    found.ragged = any(len(each) == len(arrays) and each != shapes[0] for each in shapes)
    if few < job.batch_size:
        try:
            _, small = arrays_of_step(batches_of(framework, job, few, replicas, 0, 0), 0)
            found.small = [array.copy() for array in small]
        except JobError:
            found.few = False
    if framework == "torch":
        found.notes += loader_notes(job, replicas)
    if found.ragged:
        same = [each for each in shapes if len(each) == len(arrays)]
        found.notes.append(ragged_note(names_of(structure), same))
    return found
