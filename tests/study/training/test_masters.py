"""A checkpoint's values reach the 16-bit copies that compute."""

from pathlib import Path

from multigpu_study.training.state import Tower
from tests.multigpu.engines.test_masters import run_of
from tests.multigpu.equivalence.cases import answers, replica


def put_back(rank: int, folder: Path) -> bool:
    """Whether what computes follows masters that were written from outside."""
    trainer, feed = replica(run_of("ddp", 1), rank, folder)
    tower = Tower(trainer, 0)
    trainer.step([feed.shard(0)])
    kept = tower.take()
    ahead = float(trainer.step([feed.shard(1)])[0])
    trainer.step([feed.shard(2)])
    tower.put_back([kept])
    again = float(trainer.step([feed.shard(1)])[0])
    trainer.context.closing.close()
    return ahead == again


def test_what_was_kept_comes_back() -> None:
    assert answers(put_back, 1) == [True]
