"""Resolve what a Run's placement decides: degrees of parallelism, shards and semantics."""

from multigpu.placements import find_placement, row_of
from multigpu.spec import parallel
from multigpu.spec.parallel import ParallelDims
from multigpu.spec.run import Run
from multigpu.spec.semantics import Semantics


def dims_of(run: Run) -> ParallelDims:
    """How many devices take part in each way of being parallel."""
    return ParallelDims.of(run, row_of(run.placement))


def shard_sizes(run: Run) -> list[int]:
    """Rows of each replica's shard of one step (`spec.parallel.shard_sizes`)."""
    return parallel.shard_sizes(run, row_of(run.placement))


def semantics_of(run: Run) -> Semantics:
    """Return the Run's semantics: its placement's, with what its own fields change."""
    semantics = find_placement(run.placement).semantics.sent_in(run.wire_dtype)
    semantics = semantics.by_parts(run.powersgd_rank is not None or run.top_k is not None)
    if run.local_steps is None:
        return semantics
    return semantics.model_copy(update={"every": run.local_steps})
