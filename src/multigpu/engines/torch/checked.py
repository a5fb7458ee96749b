"""One Run on one replica whose model no test compares: its placement first trains a few steps beside one process on the joined batch."""

import contextlib
import importlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multigpu.engines.context import STEPS, compared, told_once, tolerance_of
from multigpu.engines.torch import session, told
from multigpu.engines.torch.build import build_trainer
from multigpu.engines.torch.devices import DTYPES, give_back_memory
from multigpu.engines.torch.feed import Feed
from multigpu.engines.torch.reference import train_averaged, train_reference
from multigpu.engines.torch.trainer import Context, open_context
from multigpu.engines.torch.variables import initial_values
from multigpu.measure.session import Stage
from multigpu.record import Equivalence
from multigpu.run import Run
from multigpu.workloads import open_source, part_of


def _context(run: Run, rank: int, threads: int, shared: Path, timeout_s: float) -> tuple[Context, Any]:
    source = open_source(run)
    return open_context(run, rank, threads, source.capacity, shared, timeout_s), source


@lru_cache(maxsize=2)
def _reference(run: Run, ranks: tuple[int, ...], stale: int, every: int, steps: int, threads: int) -> list[dict[str, Tensor]]:
    """What each replica's variables must equal. The placement is left out of `run`, so that those that equal the same thing share it."""
    context, source = _context(run, 0, threads, Path(), 60.0)
    if every > 1:
        return [values for values, _ in train_averaged(context, source, steps, run.devices, every)]
    return [train_reference(context, source, steps, list(ranks), stale)[0]]


def _distance(run: Run, found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Norm of the difference over norm of the reference's update."""
    apart = moved = 0.0
    for variable, start in initial_values(run.description, run.seed, torch.device("cpu"), DTYPES[run.precision]):
        value = expected[variable.name]
        apart += float((found[variable.name] - value).double().square().sum())
        moved += float((value - start).double().square().sum())
    return (apart / moved) ** 0.5 if moved else float(apart > 0)


def _placed(run: Run, rank: int, threads: int, shared: Path, timeout_s: float, steps: int) -> dict[str, Tensor]:
    """All variables after the same steps under the placement."""
    context, source = _context(run, rank, threads, shared, timeout_s)
    feed = Feed(source, run.copy_of(rank), context.device)
    with contextlib.closing(context.closing):
        trainer = build_trainer(context)
        with contextlib.closing(trainer):
            for step in range(steps):
                trainer.step([feed.shard(step)])
            values = trainer.full_values()
    feed.close()
    return values


def equivalence(run: Run, rank: int, threads: int, shared: Path, timeout_s: float) -> Equivalence | None:
    """How far the placement's variables are from the reference's; None: the model cannot be compared. Called on every replica."""
    described = run.description.config.described
    if described.checked_in is None:
        return None
    check = compared(run, described.checked_in, described.any_rows)
    semantics = run.semantics
    steps = STEPS if semantics.every == 1 else 2 * semantics.every + 1  # two averages, and a step after them
    builder = importlib.import_module(part_of(run.workload, "torch"))
    alone = not semantics.facts.replicas_agree
    distance = 0.0
    with builder.comparable(DTYPES[check.precision]):
        values = _placed(check, rank, threads, shared, timeout_s, steps)
        if alone or rank == 0:
            shards = (rank,) if alone else tuple(range(run.copies))
            plain = check.model_copy(update={"placement": "ddp", "local_steps": None})
            expected = _reference(plain, shards, semantics.steps, semantics.every, steps, threads)
            distance = _distance(check, values, expected[rank if semantics.every > 1 else 0])
    if run.devices > 1:
        distance = max(told.everyone(distance))
    if run.device_type == "cuda":
        give_back_memory(True)
    tolerance = tolerance_of(run, described.checked_in)
    return Equivalence(distance=distance, tolerance=tolerance, steps=steps, precision=described.checked_in)


class Session(session.Session):
    """As any other, once its placement was compared; what the comparison took is in no time and in no peak of memory on a GPU."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        found = told_once(run, lambda: equivalence(run, rank, threads, shared, timeout_s))
        super().__init__(run, rank, threads, shared, timeout_s, startup_s, stage)
        self.told = found
