"""Tell processes how many rows the others look up, where samples differ in length."""

from dataclasses import replace

import torch
import torch.distributed as dist

from multigpu.engines.torch.feed import Shard
from multigpu.spec.run import Run
from multigpu.workloads import description_of


def tells_lookups(run: Run, tables: bool) -> bool:
    """Whether processes must tell each other: ragged batches, and tables sent by row."""
    described = getattr(description_of(run).config, "described", None)
    ragged = described is not None and described.ragged
    return ragged and tables and run.devices > 1 and run.processes != "one"


def with_everyones_lookups(shard: Shard) -> Shard:
    """The shard with every process's look-ups in this step. Called in every process."""
    batch = shard.batch
    own = batch.lookups[batch.rank]
    names = sorted(own)
    mine = torch.tensor([own[name] for name in names], dtype=torch.int64)
    each = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(each, mine)
    told = tuple(dict(zip(names, counts.tolist(), strict=True)) for counts in each)
    return replace(shard, batch=replace(batch, lookups=told))
