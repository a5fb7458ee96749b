"""From a placement's row to the trainer that dispatches it from one thread."""

from __future__ import annotations

from multigpu.engines.errors import Unsupported
from multigpu.engines.torch.dispatch.parallel import ParallelTrainer
from multigpu.engines.torch.dispatch.pipeline import PipelineTrainer
from multigpu.engines.torch.dispatch.replicated import ReplicatedTrainer
from multigpu.engines.torch.dispatch.server import ServerTrainer
from multigpu.engines.torch.dispatch.trainer import Context, Trainer


def build_trainer(context: Context) -> Trainer:
    """The trainer of the Run's placement, for all replicas.

    Raises:
        Unsupported: the row asks for what this engine does not do.
    """
    placement = context.placement
    if placement.compute == "sections":
        return PipelineTrainer(context)
    if placement.variables == "replica" and placement.embeddings == "replica":
        return ReplicatedTrainer(context)
    if "replica" in (placement.variables, placement.embeddings):
        raise Unsupported(
            f"placement {placement.name!r} keeps copies of some variables and one master of others, which this engine does not do"
        )
    return ParallelTrainer(context) if placement.loss == "gpu0" else ServerTrainer(context)
