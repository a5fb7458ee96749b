"""What the Records of folders say of every claim, computed anew."""

from __future__ import annotations

from pathlib import Path

from multigpu.analysis.collectives import collectives_frame
from multigpu.analysis.frame import frame_of
from multigpu.analysis.read import records_of
from multigpu.analysis.step_traces import trace_table
from multigpu.analysis.synchrony import synchrony_frame
from multigpu.analysis.traces import with_untraced_steps
from multigpu.analysis.training import training_frame
from multigpu.claims.results import Result
from multigpu.claims.verdicts import evaluate_all
from multigpu.training.record import TrainingStore


def results_of(runs: Path, hosts: Path, synchrony: Path, training: Path) -> list[Result]:
    """What the Records of these folders say of every claim."""
    records = with_untraced_steps(records_of(runs))
    further = {"hosts": collectives_frame(hosts), "synchrony": synchrony_frame(synchrony), "traces": trace_table(records)}
    return evaluate_all(frame_of(records), training=training_frame(TrainingStore(training)), **further)
