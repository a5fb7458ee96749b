"""Results that are computed once: kept in a file until a Record, a claim or this program changes."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
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
from multigpu.store import stamp_of
from multigpu.writing import write_whole

SOURCE = Path(__file__).parents[1]


def state_of(roots: Sequence[Path]) -> str:
    """A digest of everything that results depend on: names, times and sizes of Records' files, and of this program's."""
    program = sorted(path for pattern in ("*.py", "*.yaml") for path in SOURCE.rglob(pattern))
    own = [(str(path), found.st_mtime_ns, found.st_size) for path in program for found in (path.stat(),)]
    return hashlib.sha256(repr((stamp_of(*roots), own)).encode()).hexdigest()[:20]


def remembered(roots: Sequence[Path], compute: Callable[[], list[Result]], folder: Path = paths.CACHE) -> list[Result]:
    """What `compute` gives, or gave when all was as it is now. A folder that cannot be written is done without.

    roots: the folders of Records that it reads.
    """
    path = folder / f"claims-{state_of(roots)}.pickle"
    try:
        found: list[Result] = pickle.loads(path.read_bytes())
        return found
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError):
        pass
    results = compute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("claims-*.pickle"):
            old.unlink(missing_ok=True)
        write_whole(path, pickle.dumps(results))
    except OSError:
        pass
    return results


def study_results(
    runs: Path = paths.RUNS, hosts: Path = paths.HOSTS, synchrony: Path = paths.SYNCHRONY, training: Path = paths.TRAINING
) -> list[Result]:
    """What the Records of these folders say of every claim."""
    return remembered([runs, hosts, synchrony, training], lambda: _evaluated(runs, hosts, synchrony, training))


def _evaluated(runs: Path, hosts: Path, synchrony: Path, training: Path) -> list[Result]:
    records = with_untraced_steps(records_of(runs))
    return claims.evaluate_all(
        frame_of(records),
        hosts=hosts_frame(hosts),
        synchrony=synchrony_frame(synchrony),
        traces=trace_table(records),
        training=training_frame(training_records(training)),
    )
