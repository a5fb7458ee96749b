"""From a placement's row to the trainer that carries it out in TensorFlow."""

from multigpu.engines.errors import Unsupported
from multigpu.engines.tensorflow.parallel import ParallelTrainer
from multigpu.engines.tensorflow.replicated import ReplicatedTrainer
from multigpu.engines.tensorflow.server import ServerTrainer
from multigpu.engines.tensorflow.strategies import StrategyTrainer
from multigpu.engines.tensorflow.trainer import Context, Trainer


def build_trainer(context: Context) -> Trainer:
    """The trainer of the Run's placement; `Unsupported` where the row asks for what no trainer does."""
    placement = context.placement
    if any(engine.strategy for engine in placement.engines):
        return StrategyTrainer(context)
    if placement.variables == "replica" and placement.embeddings == "replica":
        return ReplicatedTrainer(context)
    if "replica" in (placement.variables, placement.embeddings):
        raise Unsupported(
            f"placement {placement.name!r} keeps copies of some variables and one master of others, which this engine does not do"
        )
    return ParallelTrainer(context) if placement.loss == "gpu0" else ServerTrainer(context)
