"""From a placement's row to the trainer that does what it says."""

from typing import Any

from multigpu.engines.common.context import all_replicated, check_carried
from multigpu.engines.torch.averaged import AveragedTrainer
from multigpu.engines.torch.data_parallel import DataParallelTrainer
from multigpu.engines.torch.dispatch import CopiesTrainer, PipelineTrainer
from multigpu.engines.torch.fully_sharded import FullyShardedTrainer
from multigpu.engines.torch.own_update import job_of
from multigpu.engines.torch.replicated import ReplicatedTrainer, ShardedUpdateTrainer
from multigpu.engines.torch.scattered import ScatteredTrainer
from multigpu.engines.torch.scheduled import ScheduledTrainer
from multigpu.engines.torch.server import ParallelTrainer, ServerTrainer
from multigpu.engines.torch.split import SplitTrainer
from multigpu.engines.torch.trainer import Context
from multigpu.placements.row import Placement
from multigpu.spec.errors import Unsupported


def build_trainer(context: Context) -> Any:
    """The trainer of the Run's placement; `Unsupported` where none does what the row asks."""
    trainer = trainer_of(context.placement, context.run.processes)
    check_carried(trainer, context.placement)
    if job_of(context.model) is not None and not issubclass(trainer, ReplicatedTrainer):
        raise Unsupported(
            f"the job's own update is not carried out by placement {context.placement.name!r}:"
            " choose ddp, zero1, fsdp2, or another that has replicas"
        )
    return trainer(context)


def trainer_of(placement: Placement, processes: str) -> type[Any]:
    """The class that carries the row out, with one process for all devices or one for each."""
    if placement.compute == "split":
        return SplitTrainer
    if placement.compute == "sections":
        return PipelineTrainer if processes == "one" else ScheduledTrainer
    if placement.copied_anew and processes == "one":
        return DataParallelTrainer
    if all_replicated(placement):
        if processes == "one":
            return CopiesTrainer
        if placement.reduction == "average":
            return AveragedTrainer
        if placement.update == "sharded":
            return ScatteredTrainer if placement.overlap else ShardedUpdateTrainer
        return ReplicatedTrainer
    if placement.variables == "sharded":
        return FullyShardedTrainer
    return ParallelTrainer if placement.loss == "gpu0" else ServerTrainer
