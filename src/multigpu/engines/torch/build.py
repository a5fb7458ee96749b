"""From a placement's row to the trainer that does what it says."""

from __future__ import annotations

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.averaged import AveragedTrainer
from multigpu.engines.torch.fully_sharded import FullyShardedTrainer
from multigpu.engines.torch.replicated import ReplicatedTrainer
from multigpu.engines.torch.server import ServerTrainer
from multigpu.engines.torch.sharded_update import ShardedUpdateTrainer
from multigpu.engines.torch.split import SplitTrainer
from multigpu.engines.torch.trainer import Context, Trainer


def build_trainer(context: Context) -> Trainer:
    """The trainer of the Run's placement for this replica.

    Raises:
        Unsupported: the row asks for what this engine does not do.
    """
    placement = context.placement
    if context.run.processes == "one":
        raise Unsupported(f"placement {placement.name!r} is asked to dispatch from one process, which this engine does not do")
    if placement.compute == "split":
        return SplitTrainer(context)
    if placement.variables == "cut":
        return FullyShardedTrainer(context)
    if placement.variables == "replica" and placement.embeddings == "replica":
        kind = AveragedTrainer if placement.merge == "average" else ShardedUpdateTrainer if placement.update == "cut" else ReplicatedTrainer
        return kind(context)
    if "replica" in (placement.variables, placement.embeddings):
        raise Unsupported(
            f"placement {placement.name!r} keeps copies of some variables and one master of others, which this engine does not do"
        )
    return ServerTrainer(context)
