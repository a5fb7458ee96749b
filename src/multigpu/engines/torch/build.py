"""From a placement's row to the trainer that does what it says."""

from typing import Any

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.dispatch import replicated
from multigpu.engines.torch.dispatch.parallel import ParallelTrainer
from multigpu.engines.torch.dispatch.pipeline import PipelineTrainer
from multigpu.engines.torch.fully_sharded import FullyShardedTrainer
from multigpu.engines.torch.replicated import AveragedTrainer, ReplicatedTrainer, ShardedUpdateTrainer
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.split import SplitTrainer
from multigpu.engines.torch.trainer import Context


def build_trainer(context: Context) -> Any:
    """The trainer of the Run's placement for the replicas of this process; `Unsupported` where the row asks for what no trainer does."""
    placement = context.placement
    if {placement.variables, placement.embeddings} == {"replica"}:
        if context.run.processes == "one":
            return replicated.ReplicatedTrainer(context)
        kind = AveragedTrainer if placement.merge == "average" else ShardedUpdateTrainer if placement.update == "cut" else ReplicatedTrainer
        return kind(context)
    if "replica" in (placement.variables, placement.embeddings):
        raise Unsupported(
            f"placement {placement.name!r} keeps copies of some variables and one master of others, which this engine does not do"
        )
    if placement.variables == "cut":
        return FullyShardedTrainer(context)
    if placement.compute in ("split", "sections"):
        return SplitTrainer(context) if placement.compute == "split" else PipelineTrainer(context)
    return ParallelTrainer(context) if placement.loss == "gpu0" else ServerTrainer(context)
