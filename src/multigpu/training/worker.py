"""The program of one worker process that trains: `measure.worker`'s recovery around a TrainingSession.

A process that is killed takes its launch with it; the launcher starts all of them again, and the run goes on from its checkpoint.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from multigpu.measure.plan import Item
from multigpu.measure.process import end_with_parent
from multigpu.measure.worker import Worker
from multigpu.training.plan import TrainingPlan
from multigpu.training.program import TrainingProgram
from multigpu.training.session import TrainingSession


class TrainingWorker(TrainingProgram, Worker):
    """One process of a launch that trains with a process a device."""

    def _session(self, item: Item, shared: Path) -> TrainingSession:
        return self.training_session(item, shared, self.rank, item.run.devices)


def main() -> None:
    """Entry point: `python -m multigpu.training.worker PLAN`, in the environment that the launcher sets."""
    end_with_parent()
    faulthandler.register(signal.SIGTERM, chain=True)
    plan = TrainingPlan.model_validate_json(Path(sys.argv[1]).read_text())
    TrainingWorker(plan).run_plan()


if __name__ == "__main__":
    main()
