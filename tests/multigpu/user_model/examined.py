"""An examination, and what engines train of it, in the process of a test, where nothing hangs and
nothing ends itself.
"""

import math
from pathlib import Path
from typing import Any

import torch

from multigpu.engines.torch.checked import Kept, train_reference
from multigpu.engines.torch.trainer import open_context
from multigpu.spec.run import Run
from multigpu.user_model.describe import describe
from multigpu.user_model.examining import Examined
from multigpu.workloads.own.job import Job, load_job
from multigpu.workloads.own.torch import comparable
from multigpu.workloads.sources import open_source

TWICE_S = 60.0  # without a limit, so long batches and model may take to be made again


def examine_here(
    job: Job | str,
    folder: Path,
    replicas: int,
    timed: bool,
    within_s: float = math.inf,
    compiled: bool = False,
    compared: bool = True,
) -> Examined:
    """Examine a job in this process, without a limit; a JobError says what is wrong with it."""
    named = job if isinstance(job, str) else ""
    loaded = load_job(job) if isinstance(job, str) else job
    twice_s = TWICE_S if math.isinf(within_s) else within_s / 2
    how: dict[str, Any] = {"twice_s": twice_s, "compiled": compiled, "compared": compared}
    described = describe(loaded, folder, replicas, named, timed, **how)
    return Examined(described, loaded.batch_size, loaded.precision)


def train_here(run: Run, steps: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Values and losses of the engines' own reference on two shards, in fp64."""
    source = Kept(open_source(run), [0, 1], steps, torch.get_default_dtype())
    with comparable(torch.float64):
        context = open_context(run, 0, 1, source.capacity, Path(), 60.0)
        return train_reference(context, source, steps, [0, 1])
