"""Results that are computed once: kept in a file until a Record, a claim or this program changes."""

from __future__ import annotations

from pathlib import Path

from multigpu import claims, paths
from multigpu.analysis.all_reduce import hosts_frame
from multigpu.analysis.frame import frame_of
from multigpu.analysis.read import records_of
from multigpu.analysis.step_traces import trace_table
from multigpu.analysis.synchrony import synchrony_frame
from multigpu.analysis.traces import with_untraced_steps
from multigpu.analysis.training import training_frame, training_records
from multigpu.claims.results import Result
from multigpu.remembered import remembered


def study_results(
    runs: Path = paths.RUNS, hosts: Path = paths.HOSTS, synchrony: Path = paths.SYNCHRONY, training: Path = paths.TRAINING
) -> list[Result]:
    """What the Records of these folders say of every claim."""
    return remembered("claims", [runs, hosts, synchrony, training], lambda: _evaluated(runs, hosts, synchrony, training))


def _evaluated(runs: Path, hosts: Path, synchrony: Path, training: Path) -> list[Result]:
    records = with_untraced_steps(records_of(runs))
    return claims.evaluate_all(
        frame_of(records),
        hosts=hosts_frame(hosts),
        synchrony=synchrony_frame(synchrony),
        traces=trace_table(records),
        training=training_frame(training_records(training)),
    )
