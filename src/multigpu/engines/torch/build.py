"""From a placement's row to the trainer that does what it says."""

from typing import Any

from multigpu.engines.context import all_replicated
from multigpu.engines.torch.dispatch import CopiesTrainer, PipelineTrainer
from multigpu.engines.torch.fully_sharded import FullyShardedTrainer
from multigpu.engines.torch.replicated import (
    AveragedTrainer,
    ReplicatedTrainer,
    ShardedUpdateTrainer,
)
from multigpu.engines.torch.server import ParallelTrainer, ServerTrainer
from multigpu.engines.torch.split import SplitTrainer
from multigpu.engines.torch.trainer import Context


def build_trainer(context: Context) -> Any:
    """The trainer of the Run's placement for the replicas of this process; `Unsupported` where the
    row asks for what no trainer does.
    """
    placement = context.placement
    if all_replicated(placement):
        if context.run.processes == "one":
            return CopiesTrainer(context)
        kind = (
            AveragedTrainer
            if placement.merge == "average"
            else ShardedUpdateTrainer
            if placement.update == "cut"
            else ReplicatedTrainer
        )
        return kind(context)
    if placement.variables == "cut":
        return FullyShardedTrainer(context)
    if placement.compute in ("split", "sections"):
        return SplitTrainer(context) if placement.compute == "split" else PipelineTrainer(context)
    return ParallelTrainer(context) if placement.loss == "gpu0" else ServerTrainer(context)
