"""Call a PyTorch job's `evaluate` once, with its model as it is made."""

import math
import time
from typing import Any

import torch

from multigpu.spec.errors import JobError
from multigpu.workloads.own.job import Job
from multigpu.workloads.own.torch import own_module


def score_of(job: Job) -> dict[str, Any]:
    """Return the score that `evaluate` gives and the seconds it takes, as a description tells them;
    nothing where the job has none.

    Raises:
        JobError: it fails, gives no finite number, or changes the model.
    """
    if job.evaluate is None:
        return {}
    module = own_module(job).eval()
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    with torch.no_grad(), job.telling("evaluate"):
        began_s = time.perf_counter()
        given = job.evaluate(module)
        took_s = time.perf_counter() - began_s
        score = float(given)
    if not math.isfinite(score):
        raise JobError(f"evaluate gives {score}: give one finite number ({job.made_at})")
    for name, value in module.named_parameters():
        if not torch.equal(before[name], value):
            raise JobError(
                f"evaluate changes {name}: what is scored is trained further, and must stay as it"
                f" is ({job.made_at})"
            )
    return {"score": score, "evaluate_s": took_s}
