"""A small GPT trains on the catalogs to less than their words' frequencies tell."""

from pathlib import Path

import numpy as np
import pytest

from multigpu.workloads.sources import open_source
from multigpu_study.training.build import build_training_run
from tests.multigpu.workloads.test_gpt import FIELDS
from tests.study.training.cases import Case, measured, train_one


@pytest.mark.slow
def test_it_trains_on_the_catalogs_below_what_frequencies_tell(tmp_path: Path) -> None:
    fields = FIELDS | {"placement": "replicated_allreduce", "processes": "one"}
    fields |= {"model": "gpt_small", "inputs": "pieces_package", "shuffle": True}
    training = build_training_run(**fields, batch_size=16, steps=200, evaluate_every=100)
    source = open_source(training.run)
    counts = np.bincount(source._windows[:, 1:].ravel(), minlength=500) + 1
    shares = counts / counts.sum()
    unigram = -np.log(shares[source.held_out()[:, 1:]]).mean()
    case = Case("gpt", training)
    trained = measured(case, train_one(case, 0, tmp_path))
    first, *_, last = (each.scores["loss"] for each in trained.evaluations)
    assert first == pytest.approx(np.log(500), abs=0.1)
    assert last < unigram - 0.5
