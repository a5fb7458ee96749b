"""Document 003's two-tower model: its sizes by hand, its arithmetic against plain loops, and that it learns."""

import numpy as np
import pytest
import torch

from multigpu.engines.torch.variables import initial_values, make_optimizer, materialise
from multigpu.inputs.reviews import StoredReviews
from multigpu.run import Run, build_run
from multigpu.workloads import find_model, workloads
from multigpu.workloads.deepconn.description import DeepconnConfig, describe, epoch_steps
from multigpu.workloads.deepconn.torch import build
from tests.refusals import refused

DOCUMENT = find_model("deepconn", "deepconn")


def test_layers_are_the_documents() -> None:
    """By hand: 800 words, 798 windows of 3, 797 maxima of 2, 10 filters: 7,970."""
    config = DOCUMENT.config
    assert (config.embedding, config.filters, config.width, config.pool, config.dense, config.length) == (50, 10, 3, 2, 64, 800)
    assert config.flat == 797 * 10 == 7970
    towers = [("conv_kernel", (10, 50, 3)), ("conv_bias", (10,)), ("dense_kernel", (64, 7970)), ("dense_bias", (64,))]
    expected = [("word_embeddings", (80_000, 50))] + [(f"{side}_{name}", shape) for side in ("user", "item") for name, shape in towers]
    assert [(v.name, v.shape) for v in DOCUMENT.variables] == expected
    assert [v.name for v in DOCUMENT.variables if v.kind == "embedding"] == ["word_embeddings"]
    tower = 3 * 50 * 10 + 10 + 7970 * 64 + 64
    assert DOCUMENT.parameters == 4_000_000 + 2 * tower == 5_023_308
    assert DOCUMENT.forward_flops_per_unit == 2 * 2 * (798 * 3 * 50 * 10 + 7970 * 64)
    assert (DOCUMENT.optimizer.name, DOCUMENT.optimizer.rate, DOCUMENT.unit) == ("adam", 1e-4, "reviews")
    assert epoch_steps(32) == 824


def test_the_factorisation_machine_adds_its_own_variables() -> None:
    model = find_model("deepconn", "deepconn_fm")
    assert [v.shape for v in model.variables[-3:]] == [(1,), (128, 1), (128, 8)]
    assert model.parameters == DOCUMENT.parameters + 1 + 128 + 128 * 8


def test_texts_too_short_for_the_layers_are_refused() -> None:
    short = DeepconnConfig(50, length=3)
    refused("reads 3 words: its convolution and maximum need at least 4", describe, "short", short, DOCUMENT.optimizer)


@pytest.mark.parametrize(
    ("field", "value"), [("sequence_length", 10), ("layout", "channels_last"), ("recurrence", "fused"), ("cross_entropy", "library")]
)
def test_fields_of_other_workloads_are_refused(field: str, value: object) -> None:
    fields = {"workload": "deepconn", "model": "deepconn_tiny", "placement": "ddp", "batch_size": 2, field: value}
    refused(f"{field} {value!r} has no meaning for reviews: leave it out", build_run, **fields)


def test_training_on_planted_ratings_beats_the_mean() -> None:
    """300 steps of 32: the error on held-out rows falls below a third of their variance (to 0.36 against 1.58 when this was written)."""
    torch.set_num_threads(1)
    run = Run(workload="deepconn", model="deepconn_small", placement="ddp", device_type="cpu", batch_size=32, inputs="planted_reviews")
    source = workloads()["deepconn"].inputs["planted_reviews"](run, run.description)
    assert isinstance(source, StoredReviews) and source.steps_per_epoch == 113
    device, dtype = torch.device("cpu"), torch.float32
    module = build(run.description)
    memory = {variable.name: value for variable, value in initial_values(run.description, run.seed, device, dtype)}
    optimizer = make_optimizer(run.rule, list(materialise(module, memory, device, dtype).values()))
    words, ratings = (torch.from_numpy(array) for array in source.held_out())

    def error() -> float:
        with torch.no_grad():
            return float((module.ratings({"words": words}) - ratings).square().mean())  # type: ignore[operator]

    mean = float((ratings - ratings.mean()).square().mean())
    assert len(ratings) == 400 and mean > 1 and error() > mean
    for step in range(300):
        arrays = {name: torch.from_numpy(array) for name, array in source.batch(step, 0).arrays.items() if isinstance(array, np.ndarray)}
        optimizer.zero_grad()
        (module(arrays) / 32).backward()
        optimizer.step()
    assert error() < mean / 3
