"""Document 000's profile of a step, from our traces: the quantities of its per-GPU tables, by its own definitions, as pure functions.

The document takes a phase from the start of its first operation to the end of its last one. Forward ends with the loss and
backward begins with the loss's gradient, both on every GPU apart; computation, merge and update are spans over all GPUs, and a
share is one of these spans over the sum of the three, which is more than the step where they overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
import pandas as pd

from multigpu.analysis.phases import hull, imbalance, passes_time, phase_times, skew_parts, step_time, steps_of
from multigpu.analysis.statistics import interval, sample
from multigpu.analysis.traces import paired_step_s, traced
from multigpu.measure.trace import Phase, StepTrace, TraceSummary
from multigpu.published import load_published, published_value
from multigpu.record import Record

REPLICA_PHASES: tuple[Phase, ...] = ("pull", "forward", "backward", "merge", "update")
"""Of which a replica's time is told apart. pull is not the document's: its variables were read within forward."""

WHOLE = ("computation_s", "merge_s", "update_s")
"""The spans whose sum the document calls total."""

PROFILED_BATCH = 128
"""Pairs of sentences a GPU in the document's profile."""

PROFILE_QUANTITIES = (
    *("forward_s", "backward_s", "backward_over_forward", "forward_imbalance"),
    *("computation_share", "merge_share", "launch_skew_s"),
)
"""What `profile_quantities` says of a trace, and a claim may compare.

forward_s, backward_s: mean over replicas. backward_over_forward: of these means. forward_imbalance: largest over mean of the
replicas. computation_share, merge_share: in the sum of computation, merge and update. launch_skew_s: see `phases.skew_parts`.
Each is the median over the traced steps, and None where a phase it needs is not known.
"""


def forward_time(step: StepTrace) -> float | None:
    """How long a replica's forward lasted by the document's definition, s: at most until its backward begins; None where unknown.

    Forward ends with the loss and backward begins with the loss's gradient, so what is called forward later belongs elsewhere:
    traces of TensorFlow from before copies were told from passes call the copy of a table's gradient rows so.
    """
    if not {"forward", "backward"} <= set(step.phases):
        return None
    (start, end), (begin, _) = step.phases["forward"], step.phases["backward"]
    return min(end, begin) - start if begin > start else end - start


def forward_clipped(step: StepTrace) -> float:
    """By how much `forward_time` is shorter than the trace's own forward, s."""
    mine = forward_time(step)
    return 0.0 if mine is None else phase_times(step)["forward"] - mine


def update_is_early(step: StepTrace) -> bool:
    """Whether a replica's update begins before its backward does, and so before there are gradients (Adam's powers of beta need none)."""
    return {"backward", "update"} <= set(step.phases) and step.phases["update"][0] < step.phases["backward"][0]


def replica_times(step: StepTrace) -> dict[Phase, float]:
    """How long each of `REPLICA_PHASES` lasted on one replica, s, with the document's forward."""
    times = {phase: time for phase, time in phase_times(step).items() if phase in REPLICA_PHASES}
    mine = forward_time(step)
    return times if mine is None else times | {"forward": mine}


def phase_span(replicas: Sequence[StepTrace], phase: Phase) -> float | None:
    """From the first start of a phase to its last end over all replicas, s; None where no replica has it."""
    whole = hull(step.phases[phase] for step in replicas if phase in step.phases)
    return None if whole is None else whole[1] - whole[0]


@dataclass(frozen=True)
class WholeStep:
    """The document's second table of a step, s: spans over all replicas. step_s: from the first start to the last end.

    update_s is NaN, and with it every share, where a replica's update begins before its gradients can be there (`update_is_early`):
    the span from there on is not the time that updating takes.
    """

    computation_s: float
    merge_s: float
    update_s: float
    step_s: float
    launch_skew_s: float

    @property
    def total_s(self) -> float:
        """Computation, merge and update, one after the other as it were."""
        return self.computation_s + self.merge_s + self.update_s

    def share(self, name: str) -> float:
        """One of `WHOLE` over `total_s`."""
        return float(getattr(self, name)) / self.total_s

    @property
    def total_over_step(self) -> float:
        """Above 1 where phases overlap; below where something else (reading variables, waiting) takes part of the step."""
        return self.total_s / self.step_s


def whole_step(replicas: Sequence[StepTrace]) -> WholeStep | None:
    """The step over all replicas; None where forward or backward of one is not known. A phase that nobody has lasts 0 s."""
    parts = skew_parts(replicas)
    if parts is None:
        return None
    merge, update = (phase_span(replicas, phase) or 0.0 for phase in ("merge", "update"))
    if any(update_is_early(step) for step in replicas):
        update = math.nan
    return WholeStep(parts.span, merge, update, step_time(replicas), parts.skew)


def slowest_over_mean(replicas: Sequence[StepTrace]) -> dict[str, float]:
    """max/mean over replicas of forward and of forward + backward (`passes`) in one step; without those that are not known."""
    forward = [forward_time(step) for step in replicas]
    passes = [passes_time(step) for step in replicas]
    known = {"forward": [time for time in forward if time], "passes": [time for time in passes if time]}
    return {name: imbalance(times) for name, times in known.items() if len(times) == len(replicas)}


def step_quantities(replicas: Sequence[StepTrace]) -> dict[str, float]:
    """`PROFILE_QUANTITIES` of one step that are known; none where a replica's forward or backward is not."""
    whole = whole_step(replicas)
    forward = [time for step in replicas if (time := forward_time(step)) is not None]
    if whole is None or len(forward) < len(replicas):
        return {}
    backward = [phase_times(step)["backward"] for step in replicas]
    found = {
        "forward_s": fmean(forward),
        "backward_s": fmean(backward),
        "backward_over_forward": fmean(backward) / fmean(forward),
        "forward_imbalance": imbalance(forward),
        "computation_share": whole.share("computation_s"),
        "merge_share": whole.share("merge_s"),
        "launch_skew_s": whole.launch_skew_s,
    }
    return {name: value for name, value in found.items() if not math.isnan(value)}


def profile_quantities(trace: TraceSummary) -> dict[str, float | None]:
    """`PROFILE_QUANTITIES` of a trace: medians over its steps, None where one step does not tell."""
    found = [step_quantities(replicas) for replicas in steps_of(trace)]
    return {
        name: median(one[name] for one in found) if found and all(name in one for one in found) else None for name in PROFILE_QUANTITIES
    }


def _median(values: Iterable[float]) -> float:
    """The median, NaN where one value is."""
    return float(np.median(list(values)))


def growth(records: Iterable[Record], name: str, low: int, most: int) -> tuple[float, float, float] | None:
    """One of `PROFILE_QUANTITIES` on `most` GPUs over that on `low`: ratio and 95% interval (NaN where a side was measured once), as
    claims take them. None where a side is not known.
    """
    values: dict[int, list[tuple[float, str]]] = {low: [], most: []}
    for record, trace in traced(records):
        value = profile_quantities(trace)[name] if record.run.devices in values else None
        if value is not None:
            values[record.run.devices].append((value, record.launch_id))
    if not values[low] or not values[most]:
        return None
    over, under = (sample(*zip(*values[count], strict=True)) for count in (most, low))
    middle, half = over.mean - under.mean, interval([over, under])
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def replicas_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Record and replica: key, devices, rank, launch_id, and each of `REPLICA_PHASES` as <phase>_s.

    Medians over steps, NaN where a phase is not known. early_update: see `update_is_early`, in any step; update_s is NaN there.
    clipped_s: by how much forward was cut at backward's begin. step_s: of the replica's own step, under the profiler.
    """
    rows: list[dict[str, Any]] = []
    for record, trace in traced(records):
        for replica in trace.replicas:
            times = [replica_times(step) for step in replica.steps]
            row: dict[str, Any] = {"key": record.key, "devices": record.run.devices, "rank": replica.rank, "launch_id": record.launch_id}
            for phase in REPLICA_PHASES:
                row[f"{phase}_s"] = median(each[phase] for each in times) if all(phase in each for each in times) else np.nan
            row["early_update"] = any(update_is_early(step) for step in replica.steps)
            if row["early_update"]:
                row["update_s"] = np.nan
            row["clipped_s"] = median(forward_clipped(step) for step in replica.steps)
            rows.append(row | {"step_s": median(step.end_s - step.start_s for step in replica.steps)})
    columns = ["key", "devices", "rank", "launch_id", *(f"{phase}_s" for phase in REPLICA_PHASES), "early_update", "clipped_s", "step_s"]
    return pd.DataFrame(rows, columns=columns)


def whole_frame(records: Iterable[Record]) -> pd.DataFrame:
    """A row a traced Record whose passes are known: the document's second table, medians over steps.

    Returns:
        key, devices, launch_id; computation_s, merge_s, update_s, total_s (their sum); <part>_share of it; step_s (traced);
        total_over_step; launch_skew_s, skew_share (of computation_s); forward_imbalance, passes_imbalance (max/mean of replicas);
        timed_step_s (`traces.paired_step_s`: without a profiler).
    """
    rows: list[dict[str, Any]] = []
    for record, trace in traced(records):
        steps = steps_of(trace)
        wholes = [whole for replicas in steps if (whole := whole_step(replicas))]
        uneven = [slowest_over_mean(replicas) for replicas in steps]
        if len(wholes) < len(steps) or not all("forward" in each for each in uneven):
            continue
        row: dict[str, Any] = {"key": record.key, "devices": record.run.devices, "launch_id": record.launch_id}
        row |= {name: _median(getattr(whole, name) for whole in wholes) for name in (*WHOLE, "total_s", "step_s", "launch_skew_s")}
        row |= {f"{name.removesuffix('_s')}_share": _median(whole.share(name) for whole in wholes) for name in WHOLE}
        row |= {"total_over_step": _median(whole.total_over_step for whole in wholes)}
        row |= {"skew_share": median(whole.launch_skew_s / whole.computation_s for whole in wholes)}
        row |= {f"{name}_imbalance": median(each[name] for each in uneven) for name in ("forward", "passes")}
        rows.append(row | {"timed_step_s": paired_step_s(record)})
    columns = ["key", "devices", "launch_id", *WHOLE, "total_s", "step_s", "launch_skew_s"]
    columns += [*(f"{name.removesuffix('_s')}_share" for name in WHOLE), "total_over_step", "skew_share"]
    return pd.DataFrame(rows, columns=[*columns, "forward_imbalance", "passes_imbalance", "timed_step_s"])


def document_replicas() -> pd.DataFrame:
    """The document's per-GPU tables: devices, rank, forward_s, backward_s."""
    table = load_published("000_phases_per_gpu")
    single = table[table["gpu"] != "average"].assign(rank=lambda rows: rows["gpu"].astype(int), devices=lambda rows: rows["gpus"])
    wide = single.pivot(index=["devices", "rank"], columns="phase", values="time_ms") / 1000
    return wide.rename(columns=lambda phase: f"{phase}_s").reset_index()


def document_whole() -> pd.DataFrame:
    """The document's tables of a whole step with the columns of `whole_frame`, NaN where it has none.

    Launch skew and max/mean follow from its per-GPU tables; timed_step_s is a step of its Exp5 at batch 128, whose sentences are
    equally long, as the work of its profile is: 50 steps on 1 to 4 GPUs.
    """
    table, per_gpu = load_published("000_phases").rename(columns={"gpus": "devices"}), document_replicas()
    parts = ("computation", "merge", "update")
    found = pd.DataFrame({"devices": table["devices"]} | {f"{part}_s": table[f"{part}_ms"] / 1000 for part in parts})
    found = found.assign(**{f"{part}_share": table[f"{part}_share"] for part in parts}, total_s=table["total_ms"] / 1000)
    by_gpus = per_gpu.assign(passes_s=per_gpu["forward_s"] + per_gpu["backward_s"]).groupby("devices")
    most, mean = by_gpus[["forward_s", "passes_s"]].max(), by_gpus[["forward_s", "passes_s"]].mean()
    found = found.set_index("devices")
    found["launch_skew_s"] = found["computation_s"] - most["passes_s"]
    found["skew_share"] = found["launch_skew_s"] / found["computation_s"]
    found["forward_imbalance"], found["passes_imbalance"] = (most[name] / mean[name] for name in ("forward_s", "passes_s"))
    experiments = load_published("000_experiments")
    fixed = experiments[(experiments["experiment"] == "Exp5") & (experiments["batch_size"] == PROFILED_BATCH)]
    timed = fixed.set_index("gpus")["total_time_s"]
    found["timed_step_s"] = timed / published_value("000_statements", "mini_batches")
    return found.reset_index().reindex(columns=[*whole_frame([]).columns.drop(["key", "launch_id"])])
