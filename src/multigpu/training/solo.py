"""The program of the one process that trains on all devices: `measure.solo`'s recovery around a TrainingSession.

Killed, it is started again by the launcher and goes on from its checkpoint, as `training.worker`.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from multigpu.measure.plan import Item
from multigpu.measure.process import end_with_parent
from multigpu.measure.solo import Solo
from multigpu.training.plan import TrainingPlan
from multigpu.training.program import TrainingProgram
from multigpu.training.session import TrainingSession


class TrainingSolo(TrainingProgram, Solo):
    """The only process of a launch that trains."""

    def _session(self, item: Item, shared: Path) -> TrainingSession:
        return self.training_session(item, shared, 0, 1)


def main() -> None:
    """Entry point: `python -m multigpu.training.solo PLAN`, in the environment that the launcher sets."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan = TrainingPlan.model_validate_json(Path(sys.argv[1]).read_text())
    TrainingSolo(plan).run_plan()


if __name__ == "__main__":
    main()
