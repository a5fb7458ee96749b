"""Document 003's two-tower model learns."""

import numpy as np
import torch

from multigpu.engines.torch.variables import initial_values, make_optimizer, materialise
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of, workloads
from multigpu_study.workloads.deepconn.reviews import PlantedReviews
from multigpu_study.workloads.deepconn.torch import build


def test_training_on_planted_ratings_beats_the_mean() -> None:
    """300 steps of 32: the error on held-out rows falls below a third of their variance."""
    torch.set_num_threads(1)
    run = Run(
        workload="deepconn",
        model="deepconn_small",
        placement="ddp",
        device_type="cpu",
        batch_size=32,
        inputs="planted_reviews",
    )
    source = workloads()["deepconn"].inputs["planted_reviews"](run, description_of(run))
    assert isinstance(source, PlantedReviews) and source.steps_per_epoch == 113
    device, dtype = torch.device("cpu"), torch.float32
    module = build(description_of(run))
    memory = {
        variable.name: value
        for variable, value in initial_values(description_of(run), run.seed, device, dtype)
    }
    optimizer = make_optimizer(
        optimizer_of(run), list(materialise(module, memory, device, dtype).values())
    )
    words, ratings = (torch.from_numpy(array) for array in source.held_out())

    def error() -> float:
        with torch.no_grad():
            return float(module({"words": words, "ratings": ratings})) / len(ratings)

    mean = float((ratings - ratings.mean()).square().mean())
    assert len(ratings) == 400 and mean > 1 and error() > mean
    for step in range(300):
        arrays = {
            name: torch.from_numpy(array)
            for name, array in source.batch(step, 0).arrays.items()
            if isinstance(array, np.ndarray)
        }
        optimizer.zero_grad()
        (module(arrays) / 32).backward()
        optimizer.step()
    assert error() < mean / 3
