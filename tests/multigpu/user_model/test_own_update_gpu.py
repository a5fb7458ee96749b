"""A job's own update in captured steps on GPUs, beside plain PyTorch in one process on all batches:

torchrun --nproc-per-node 2 -m pytest -c /dev/null --noconftest
tests/multigpu/user_model/test_own_update_gpu.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.captured import EAGER_STEPS, CapturedTrainer
from multigpu.engines.torch.checked import train_reference
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.trainer import open_context
from multigpu.engines.torch.variables import initial_values
from multigpu.spec.errors import Unsupported
from multigpu.spec.run import Run
from multigpu.user_model.describe import describe
from multigpu.workloads import description_of
from multigpu.workloads.own.description import know
from multigpu.workloads.own.job import load_job
from multigpu.workloads.own.torch import comparable
from multigpu.workloads.sources import open_source
from tests.multigpu.ranks import RANK, RANKS, joined

pytestmark = pytest.mark.gpu
STEPS = EAGER_STEPS + 4
FILE = Path(__file__).parent / "own_updates.py"
PLACEMENTS = ("ddp", "replicated_allreduce", "zero1", "fsdp2")
PIECES = ("zero1", "fsdp2")


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    with joined():
        yield


def apart(job: str, placement: str, folder: Path, followed: bool = True) -> float:
    """How far captured steps are from plain PyTorch's, over how far those moved.

    followed: whether the schedule is, between replays.
    """
    know(folder)
    named = f"{FILE}:{job}"
    described = describe(load_job(named), folder, RANKS, named, timed=False)
    run = Run(
        workload="own",
        model=described.name,
        placement=placement,
        devices=RANKS,
        device_type="cuda",
        execution="captured",
        batch_size=32,
        inputs="own",
        batching="own",
        micro_steps=2,
        precision="fp64",
    )
    with comparable(torch.float64):
        source = open_source(run)
        context = open_context(run, RANK, 1, source.capacity, Path(), 60.0)
        feed = Feed(source, RANK, context.device)
        trainer: Any = CapturedTrainer(build_trainer(context))
        if not followed:
            trainer.trainer.follow = None
        for step in range(STEPS):
            trainer.step([feed.shard(step)])
        assert len(trainer.graphs) == 1
        found = trainer.full_values()
        feed.close()
        trainer.close()
        plain = run.model_copy(update={"placement": "ddp", "execution": "eager"})
        context = open_context(plain, RANK, 1, source.capacity, Path(), 60.0)
        expected, _ = train_reference(context, open_source(plain), STEPS, list(range(RANKS)))
        difference = update = 0.0
        cpu = torch.device("cpu")
        for variable, start in initial_values(description_of(run), run.seed, cpu, torch.float64):
            value = expected[variable.name]
            difference += float((found[variable.name] - value).square().sum())
            update += float((value - start).square().sum())
    return (difference / update) ** 0.5


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("job", ["clipped", "own", "scheduled", "other"])
def test_captured_steps_clip_and_follow_a_schedule(
    job: str, placement: str, tmp_path: Path
) -> None:
    if job == "other" and placement in PIECES:
        pytest.skip("RMSprop may look at a parameter as a whole")
    # a captured step reads its rate in 32 bits
    assert apart(job, placement, tmp_path) < (1e-6 if job == "scheduled" else 1e-8)


def test_a_schedule_that_is_not_followed_is_seen(tmp_path: Path) -> None:
    assert apart("scheduled", "ddp", tmp_path, followed=False) > 0.1


def test_an_optimizer_that_counts_on_the_host_is_not_captured(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="optimizer Adagrad counts"):
        apart("uncapturable", "ddp", tmp_path)
