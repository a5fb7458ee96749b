"""What notebooks do before they look at anything: measure what is asked for, and read the Records.

`measure` is "missing" (Runs of the grid without a Record), "all" (every Run of the grid once more) or "none".
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from multigpu import paths
from multigpu.analysis.frame import load_frame
from multigpu.analysis.front import NO_FINDING, findings_of, front_frame
from multigpu.analysis.tables import Shown
from multigpu.grid import Planned, default_grid, devices_here, find_grid, points
from multigpu.measure.launch import measure as run_points
from multigpu.measure.machine import this_machine
from multigpu.parameters import Measure
from multigpu.record import RecordStore

EVERY_STATUS = ("ok", "out_of_memory", "timeout", "unsupported", "failed")


def planned_here(grid: str = "auto", workload: str | None = None) -> list[Planned]:
    """The entries of a grid at this machine's device counts, of one workload or of all.

    Raises:
        ValueError: no such grid.
    """
    planned = find_grid(default_grid() if grid == "auto" else grid, devices_here())
    return [entry for entry in planned if workload in (None, entry.run.workload)]


def observe(measure: Measure, grid: str = "auto", workload: str | None = None) -> pd.DataFrame:
    """Measure as asked, with a progress bar, and return every Record there is as a tidy frame.

    Raises:
        ValueError: no such grid, or Records cannot be read or written.
        RuntimeError: the launcher died; what it had measured is kept.
    """
    store = RecordStore(paths.RUNS)
    if measure != "none":
        print(run_points(points(planned_here(grid, workload)), store, retry=EVERY_STATUS if measure == "all" else ()))
    return load_frame(store)


def published(frame: pd.DataFrame, workload: str | None = None) -> pd.DataFrame:
    """The Records that the report speaks of (of the machine with GPUs and most Records), of one workload or of all."""
    own = front_frame(frame)
    return own if workload is None else own[own["workload"] == workload]


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The plainest way only: PyTorch, one process a device, kernels launched one by one, nothing but the library's own parts."""
    usual = {"framework": "torch", "processes": "per_device", "execution": "eager"}
    chosen = pd.concat([frame[name] == value for name, value in usual.items()], axis=1).all(axis=1)
    return frame[chosen & frame[["cross_entropy", "bucket_mib", "recurrence"]].isna().all(axis=1)]


def measured_here(frame: pd.DataFrame, workload: str | None = None) -> pd.DataFrame:
    """This computer's own Records where they are not the published ones."""
    own = frame[frame["machine"] == this_machine().name]
    if len(own) and own["machine"].iloc[0] in set(published(frame)["machine"]):
        own = own.iloc[:0]
    return own if workload is None else own[own["workload"] == workload]


def answer(frame: pd.DataFrame) -> Shown:
    """The findings that these Records support, one sentence each; without any, why there is none."""
    sentences = findings_of(frame) or [NO_FINDING]
    items = "".join(f"<p>{_bold(sentence)}</p>" for sentence in sentences)
    return Shown(f'<div class="answer">{items}</div>')


def _bold(sentence: str) -> str:
    """Markdown's ** as HTML."""
    parts = sentence.split("**")
    return "".join(f"<strong>{part}</strong>" if index % 2 else part for index, part in enumerate(parts))


def record_keys(frame: pd.DataFrame) -> Shown:
    """Which Records a page rests on: how many, from which commits, and their keys, folded."""
    if frame.empty:
        return Shown("<p>No Record.</p>")
    commits: Sequence[str] = sorted({str(commit)[:7] for commit in frame["commit"]})
    keys = ", ".join(f"<code>{key}</code>" for key in frame["key"])
    first = f"{len(frame)} Records of {', '.join(sorted(set(frame['machine'])))}, measured at commit {', '.join(commits)}"
    return Shown(f"<details><summary>{first}</summary><p>{keys}</p></details>")
