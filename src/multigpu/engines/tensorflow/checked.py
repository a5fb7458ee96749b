"""One Run whose model no test compares: its placement first trains a few steps beside one device on the joined batch."""

import importlib
from pathlib import Path

from multigpu.engines.context import STEPS, compared, told_once, tolerance_of
from multigpu.engines.errors import Unsupported
from multigpu.engines.tensorflow import session
from multigpu.engines.tensorflow.build import build_trainer
from multigpu.engines.tensorflow.devices import Devices
from multigpu.engines.tensorflow.feed import Feed
from multigpu.engines.tensorflow.reference import train_reference
from multigpu.engines.tensorflow.trainer import Context
from multigpu.engines.tensorflow.variables import initial_values, squared_distance
from multigpu.measure.session import Stage
from multigpu.record import Equivalence
from multigpu.run import Run
from multigpu.workloads import part_of, workloads


def equivalence(run: Run) -> Equivalence | None:
    """How far the placement's variables are from the reference's, on the same shards; None: this model cannot be compared."""
    described = run.description.config.described
    if described.checked_in is None:
        return None
    check = compared(run, described.checked_in, described.any_rows)
    with importlib.import_module(part_of(run.workload, "tensorflow")).comparable():
        devices = Devices(check)
        context = Context(check, devices, even=False, dynamic=False)
        feed = Feed(workloads()[run.workload].inputs[run.inputs](check, check.description), devices)
        shards = [feed.shards(step) for step in range(STEPS)]
        feed.close()
        trainer = build_trainer(context)
        for step in shards:
            trainer.step(step)
        alone = not check.semantics.facts.replicas_agree
        groups = [[rank] for rank in range(run.devices)] if alone else [list(range(run.devices))]
        initial = {variable.name: value for variable, value in initial_values(check.description, check.seed)}
        distances = []
        for ranks in groups:
            expected, found = train_reference(context, shards, ranks)[0], trainer.full_values(ranks[0])
            apart = sum(squared_distance(found[name], value) for name, value in expected.items())
            moved = sum(squared_distance(value, initial[name]) for name, value in expected.items())
            distances.append((apart / moved) ** 0.5 if moved else float(apart > 0))
    return Equivalence(
        distance=max(distances), tolerance=tolerance_of(run, described.checked_in), steps=STEPS, precision=described.checked_in
    )


class Session(session.Session):
    """As any other, once its placement was compared; what the comparison took is in no time."""

    def __init__(self, run: Run, rank: int, threads: int, shared: Path, timeout_s: float, startup_s: float, stage: Stage) -> None:
        if run.processes != "one":
            raise Unsupported("a user's Keras model is trained by one process for all devices: leave processes out")
        Devices(run)  # before the user's file: what it makes of TensorFlow fixes devices
        found = told_once(run, lambda: equivalence(run))
        super().__init__(run, rank, threads, shared, timeout_s, startup_s, stage)
        self.told = found
