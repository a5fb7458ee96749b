"""What notebooks do before they look at anything: measure what is asked for, and read the Records.

`measure` is "missing" (Runs of the grid without a Record), "all" (every Run of the grid once more) or "none".
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from multigpu import paths
from multigpu.analysis.frame import frame_of
from multigpu.analysis.front import NO_FINDING, findings_of, front_frame, front_machine
from multigpu.analysis.inside_traces import trace_table
from multigpu.analysis.ordinary import BUCKETS, ordinary
from multigpu.analysis.picture import Shown, paragraphs
from multigpu.analysis.training import training_frame, training_records
from multigpu.collectives.record import CollectiveStore
from multigpu.grid import Planned, default_grid, devices_here, find_grid, points
from multigpu.measure.launch import measure as run_points
from multigpu.measure.machine import gpu_count, this_machine
from multigpu.parameters import Measure
from multigpu.reading import study_records, todays_records
from multigpu.record import STATUSES, RecordStore


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
    if measure != "none":
        print(run_points(points(planned_here(grid, workload)), RecordStore(paths.RUNS), retry=STATUSES if measure == "all" else ()))
    return frame_of(study_records())


def observe_today() -> pd.DataFrame:
    """Every Record of today's programs (`reading.todays_records`): for pages that say what to choose.

    Raises:
        ValueError: Records cannot be read.
    """
    return frame_of(todays_records())


def observe_traces() -> pd.DataFrame:
    """Every traced Run there is, a row each (`inside_traces.trace_table`).

    Raises:
        ValueError: Records cannot be read.
    """
    return trace_table(study_records())


def observe_training() -> pd.DataFrame:
    """Every run trained to the end of a budget there is, a row each.

    Raises:
        ValueError: Records cannot be read.
    """
    return training_frame(training_records(paths.TRAINING))


def observe_hosts(measure: Measure, budget_s: float = 900.0) -> pd.DataFrame:
    """Measure all-reduces between hosts made on this computer as asked, and return every Record of several hosts there is.

    Raises:
        ValueError: hosts cannot be made here, or Records cannot be read or written.
    """
    from multigpu.analysis.hosts import hosts_frame
    from multigpu.hosts.grid import find_parts
    from multigpu.hosts.measure import measure_parts

    store = CollectiveStore(paths.HOSTS)
    if measure != "none":
        done = measure_parts(find_parts(), store, budget_s, retry=STATUSES if measure == "all" else ())
        print("\n".join(f"{name}: {text}" for name, text in done.items()))
    return hosts_frame(store)


def published_whole(frame: pd.DataFrame) -> pd.DataFrame:
    """As `published`, with the Records that have a page of their own: fed, pinned, counted, and of the made-up family."""
    return front_machine(frame)


def published(
    frame: pd.DataFrame, workload: str | None = None, models: Sequence[str] = (), most_devices: int | None = None
) -> pd.DataFrame:
    """The Records that the report speaks of: each model's on the machine that shows it best (`front.front_machine`).

    Args:
        workload: of one workload or of all. models: of these models only. most_devices: on so many devices at most; the machine that
            measured a model most often there may be another than the one with most devices.
    """
    chosen = frame if workload is None else frame[frame["workload"] == workload]
    chosen = chosen[chosen["model"].isin(models)] if models else chosen
    return front_frame(chosen if most_devices is None else chosen[chosen["devices"] <= most_devices])


def of_all_machines(frame: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Every machine's ordinary rows of a workload, those with GPUs if there are any: for figures that tell machines apart.

    Of machines with GPUs those count that have what the report's machines for this workload have; another kind of GPU is another subject,
    which the page about hardware has.
    """
    rows = frame[frame["workload"] == workload]
    gpus = rows[rows["device_type"] == "cuda"]
    if gpus.empty:
        return ordinary(rows)
    return ordinary(gpus[gpus["gpu"].isin(set(published(rows)["gpu"]))])


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The plainest way only: PyTorch, one process a device, kernels launched one by one, nothing but the library's own parts."""
    usual = {"framework": "torch", "processes": "per_device", "execution": "eager"}
    chosen = pd.concat([frame[name] == value for name, value in usual.items()], axis=1).all(axis=1)
    usual_parts = ["cross_entropy", *BUCKETS, "recurrence", "all_reduce_spec", "wire_dtype", "loss_scale"]
    return frame[chosen & frame[usual_parts].isna().all(axis=1)]


def measured_here(frame: pd.DataFrame, workload: str | None = None) -> pd.DataFrame:
    """This computer's own Records of models that the report tells on another machine."""
    rows = frame if workload is None else frame[frame["workload"] == workload]
    here = this_machine().name
    own = rows[rows["machine"] == here]
    told, names = published(rows), ["workload", "model"]
    return own[~pd.MultiIndex.from_frame(own[names]).isin(pd.MultiIndex.from_frame(told.loc[told["machine"] == here, names]))]


def answer(frame: pd.DataFrame) -> Shown:
    """The findings that these Records support, one sentence each; without any, why there is none."""
    return paragraphs(*(findings_of(frame) or [NO_FINDING]))


def own_grid(grid: str, name: str) -> str:
    """The grid of a page with questions of its own: as asked; for "auto" its own one, without GPUs its small one of a minute or two."""
    return grid if grid != "auto" else name if gpu_count() else f"{name}_small"


def verdict_table(numbers: Sequence[str]) -> Shown:
    """What all Records say of these claims, as the list of claims has it: a page shows a part of them, and a part may decide otherwise.

    Raises:
        ValueError: no such claim, or Records cannot be read.
    """
    from multigpu.analysis.front import results
    from multigpu.analysis.verdicts import verdicts
    from multigpu.claims import find_claim

    found = {result.claim.number: result for result in results()}
    return verdicts([found[find_claim(number).number] for number in numbers])


def record_keys(frame: pd.DataFrame) -> Shown:
    """Which Records a page rests on: how many, from which commits, and their keys, folded."""
    if frame.empty:
        return Shown("<p>No Record.</p>")
    commits: Sequence[str] = sorted({str(commit)[:7] for commit in frame["commit"]})
    keys = ", ".join(f"<code>{key}</code>" for key in frame["key"])
    where = f"{len(frame)} Records of {', '.join(sorted(set(frame['machine'])))}"
    if "measured_on" in frame:
        elsewhere = frame.loc[frame["machine"].ne(frame["measured_on"]), "measured_on"].value_counts()
        where += "".join(f", {count} of them measured on {name}, which has the same GPUs" for name, count in elsewhere.items())
    first = f"{where}, measured at commit {', '.join(commits)}"
    return Shown(f"<details><summary>{first}</summary><p>{keys}</p></details>")
