"""What a job says of its update: each thing is refused in a sentence where it is none, and trains
what plain PyTorch does where it is one.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import multigpu as mg
from multigpu.engines.torch.own_update import own_optimizer, settle
from multigpu.records.record import RecordStore
from multigpu.runner.point import Point
from multigpu.spec.errors import JobError
from multigpu.user_model.budget import Budget
from multigpu.user_model.candidates import candidate_runs
from multigpu.user_model.describe import describe
from multigpu.user_model.kept import keep
from multigpu.user_model.launches import measured_within
from multigpu.user_model.placed import ONE
from multigpu.user_model.result import compared
from multigpu.user_model.scored import score_of
from multigpu.workloads.own.description import FOLDERS, know
from multigpu.workloads.own.job import load_job
from tests.multigpu.user_model.causes import Net, samples
from tests.multigpu.user_model.own_updates import CLIP, falling, momentum
from tests.refusals import refused

JOBS = Path(__file__).parent / "own_updates.py"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"gradient_clip": 0}, "gradient_clip = 0: give the largest norm"),
        ({"gradient_clip": math.nan}, "gradient_clip = nan"),
        ({"gradient_clip": True}, "gradient_clip = True"),
        ({"schedule": 0.1}, "schedule = 0.1: give a function of the step"),
        ({"evaluate": 0.1}, "evaluate = 0.1: give a function of the model"),
        ({"micro_steps": 0}, "micro_steps = 0: give into how many parts"),
        ({"micro_steps": 2.0}, "micro_steps = 2.0"),
        ({"optimizer": 0.1}, "optimizer = 0.1: describe it with multigpu.SGD"),
    ],
)
def test_what_is_none_of_these_is_refused(told: dict[str, Any], sentence: str) -> None:
    refused(sentence, mg.Job, Net, samples, F.cross_entropy, **told)


def test_an_optimizer_that_is_none_or_looks_at_whole_parameters_is_refused() -> None:
    parameters = [nn.Parameter(torch.ones(3))]
    job = mg.Job(Net, samples, F.cross_entropy, lambda parameters: None)
    refused("optimizer gives a NoneType", own_optimizer, job, parameters, False)
    job = mg.Job(Net, samples, F.cross_entropy, torch.optim.Adafactor)
    assert own_optimizer(job, parameters) is not None
    refused("updates pieces of parameters", own_optimizer, job, parameters, True)


def test_clipped_and_scheduled_steps_are_plain_pytorchs() -> None:
    """Values after some steps, beside a loop that clips by the library and steps a schedule."""
    job = mg.Job(Net, samples, F.cross_entropy, momentum, gradient_clip=CLIP, schedule=falling)
    models = []
    for plain in (True, False):
        torch.manual_seed(1)
        model = Net().double()
        rule = momentum(model.parameters())
        rates = torch.optim.lr_scheduler.LambdaLR(rule, falling) if plain else None
        if not plain:
            settle(rule, job, pieces=False)
        for step in range(4):
            x, target = samples(16, torch.Generator().manual_seed(step))
            rule.zero_grad()
            F.cross_entropy(model(x.double()), target).backward()
            if rates is not None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                assert norm > CLIP, "else nothing is clipped"
            rule.step()
            if rates is not None:
                rates.step()
        models.append(model)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=0)


def test_a_score_is_told_and_one_that_is_none_or_trains_is_refused() -> None:
    def job(evaluate: Any) -> mg.Job:
        return mg.Job(Net, samples, F.cross_entropy, evaluate=evaluate)

    def accuracy(model: nn.Module) -> torch.Tensor:
        assert not model.training and not torch.is_grad_enabled()
        x, target = samples(100, torch.Generator().manual_seed(0))
        return (model(x).argmax(1) == target).float().mean()

    def training(model: nn.Module) -> float:
        next(model.parameters()).add_(1)
        return 0.0

    found = score_of(job(accuracy))
    assert 0 <= found["score"] <= 1 and found["evaluate_s"] > 0
    assert score_of(job(None)) == {}
    for evaluate, sentence in (
        (lambda model: math.nan, "evaluate gives nan: give one finite number"),
        (lambda model: "good", "evaluate fails with ValueError"),
        (training, r"evaluate changes layers\.0\.weight"),
    ):
        with pytest.raises(JobError, match=sentence):
            score_of(job(evaluate))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_placements_train_them_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two CPU processes: pieces and whole replicas, each beside plain PyTorch on the joined
    batch.
    """
    monkeypatch.setenv(FOLDERS, "")
    know(tmp_path / "jobs")
    store, bar = RecordStore(tmp_path / "records"), Budget(99, False)
    bar.ends_s, points = math.inf, list[Point]()
    names = ["ddp", "replicated_allreduce", "zero1", "fsdp2", "exp4"]
    for name in ("clipped", "own", "other"):
        (folder := tmp_path / name).mkdir()
        for shared in ("jobs", "records"):
            (folder / shared).symlink_to(tmp_path / shared)
        job = load_job(f"{JOBS}:{name}")
        described = describe(job, tmp_path / "jobs", 2, f"{JOBS}:{name}", timed=False)
        runs, no = candidate_runs(job, described, folder, names, 2, "cpu", 0)
        assert "exp4" in no and "does not update whole replicas" in no["exp4"]
        assert all(run.micro_steps == 2 for run in runs)
        keep(folder, described, runs, no, 60)
        # one device in a launch of its own
        points += [Point(run, launch=run.devices) for run in runs if run.placement != "independent"]
    store.check_writable()
    kept = list[int]()  # Records there are once each launch has ended: what a page then shows
    measured_within(points, store, bar, after=lambda: kept.append(len(list(store))))
    assert len(kept) == 2 and 0 < kept[0] < kept[1] == len(list(store))
    for name in ("clipped", "own", "other"):
        result = compared(tmp_path / name)
        pieces = {"zero1", "fsdp2"}
        assert {*result.names} == {ONE, *names} - {"exp4"} - (pieces if name == "other" else set())
        for placed in result.names:
            found = result.equivalence(placed)
            assert found is not None and found.holds and found.precision == "fp64", placed
    for placed in ("zero1", "fsdp2"):
        assert "may look at a parameter as a whole" in compared(tmp_path / "other").failed[placed]
