"""A placement that was compared, in a training loop of the user's own under torchrun: it trains what DistributedDataParallel does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import multigpu
from tests.own.test_compare import BUDGET_S, MODELS

LOOP = f"""
import sys
sys.path.insert(0, {str(MODELS.parent)!r})
import torch
import multigpu as mg
from models import Ratings, Recommender

result, steps = mg.compared(sys.argv[1]), 3
ratings = Ratings()

def made():
    torch.manual_seed(7)
    return Recommender()

def shard(step, rank):
    rows = slice(16 * step + 8 * rank, 16 * step + 8 * rank + 8)
    return (ratings.ids[rows], ratings.age[rows]), ratings.rating[rows, 0]

plain = made()
plain.user.sparse = plain.item.sparse = False
ddp = result["ddp"].wrap(plain)
rank, rule = torch.distributed.get_rank(), torch.optim.SGD(ddp.parameters(), 0.1)
for step in range(steps):
    inputs, target = shard(step, rank)
    rule.zero_grad()
    torch.nn.functional.mse_loss(ddp(*inputs), target).backward()
    rule.step()
for name in ("exp2", "exp4"):
    trained = result[name].wrap(made())
    losses = [trained.step(shard(step, rank)) for step in range(steps)]
    values = trained.state_dict()
    trained.close()
    if rank == 0:
        apart = max(float((values[key] - value).abs().max()) for key, value in plain.state_dict().items())
        moved = max(float((value - start).abs().max()) for value, start in zip(values.values(), made().state_dict().values()))
        print(name, apart < 1e-6 < moved, losses[0] > 0)
"""


@pytest.mark.slow
def test_a_loop_of_ones_own_trains_as_it_was_compared(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    multigpu.compare(f"{MODELS}:recommender", 2, ("ddp", "exp2", "exp4"), BUDGET_S, folder, "cpu", repeats=1, progress=False)
    (tmp_path / "loop.py").write_text(LOOP)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "loop.py")]
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert sorted(line for line in ended.stdout.splitlines() if line) == ["exp2 True True", "exp4 True True"]
