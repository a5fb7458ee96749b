"""Estimate the memory that Runs need of a device: what their placements keep, by their rows, and
what a step adds to it, as measured.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

from multigpu.analysis.expected import by_nearness
from multigpu.analysis.fields import with_role
from multigpu.analysis.points import where
from multigpu.analysis.query import measure_command, run_of
from multigpu.analysis.read import Study, machines_of
from multigpu.analysis.words import joined
from multigpu.build import build_run
from multigpu.placements import placements
from multigpu.placements.memory import StepNeeds, needed
from multigpu.placements.resolve import shard_sizes
from multigpu.spec.run import Run
from multigpu.workloads import description_of

GIB = 2**30


@dataclass(frozen=True)
class Room:
    """GiB that the fullest device should need (`knows_steps`: in a step), what it has, what those
    that fit need; instead: a Run to take.
    """

    needed_gib: float
    has_gib: float
    knows_steps: bool
    others: dict[str, float]
    instead: Run | None

    def text(self) -> str:
        """Say which point does not fit, which should, and the command that measures it; "" where it
        fits.
        """
        if self.needed_gib <= self.has_gib:
            return ""
        least = "" if self.knows_steps else ", without what a step computes"
        needs = (
            f"It should need about {self.needed_gib:.0f} GiB of a device's"
            f" {self.has_gib:.0f}{least}."
        )
        if self.instead is None:
            return f"{needs} Take more devices, a smaller batch or a smaller model."
        fit = joined([f"{name} ({gib:.0f} GiB)" for name, gib in self.others.items()])
        if fit:
            way = f"Of placements that train the same, these should fit: {fit}."
        else:
            way = "Take a smaller batch, or pass it in parts."
        return f"{needs} {way}\nThis measures it: `{measure_command(self.instead)}`"


def room_for(study: Study, run: Run, machine: str | None = None) -> Room | None:
    """Whether a Run fits a device of a machine: unless named, of the one that measured its model on
    the nearest batch, or of the richest. What a step adds grows with the rows that pass at a time;
    of a model that was never measured it is left out. Half of such peaks are forecast within 2%,
    single ones are far off: cuDNN tries algorithms with large workspaces. None: the placement cuts
        one model over its devices, or no Record is of such a device.
    """
    every = study.everywhere
    same = run.values_of(
        "workload", "model", "precision", "device_type", "framework", "processes", "scaling"
    )
    rows = placements()
    replicas = [name for name, placement in rows.items() if placement.compute == "replica"]
    known = where(every[every["n"] > 0], **same, placement=replicas, peak_memory_gib=...)
    there = machines_of(where(every, device_type=run.device_type))["machine"].tolist()
    if run.placement not in replicas or not there:
        return None
    adds, name = 0.0, machine or there[0]
    if len(known):
        row = by_nearness(known, run).iloc[0]
        measured, name = run_of(row), machine or row["machine"]
        above = float(row["peak_memory_gib"]) * GIB - _needed(measured).held
        adds = above * _passing(run) / _passing(measured)
    host = study.on(name).host
    has_gib = (
        max(host.gpu_memory_gib) if run.device_type == "cuda" else host.memory_gib / run.devices
    )
    fitting = {}
    for other in (
        _under(run, name) for name in replicas if rows[name].semantics.facts.is_equal_training
    ):
        with suppress(ValueError):  # its variables are where no formula says
            if other and (gib := _needed(other).peak(adds) / GIB) <= has_gib:
                fitting[other.placement] = (gib, other)
    best = sorted(fitting, key=lambda name: (rows[name].uses_host, fitting[name][0]))[:3]
    instead = fitting[best[0]][1] if best else None
    if instead is None:
        with suppress(ValueError):  # more parts than rows
            instead = _in_parts(run, adds, has_gib * GIB)
    return Room(
        _needed(run).peak(adds) / GIB,
        has_gib,
        len(known) > 0,
        {name: fitting[name][0] for name in best},
        instead,
    )


def _needed(run: Run) -> StepNeeds:
    return needed(run, description_of(run))


def _in_parts(run: Run, adds: float, room: float) -> Run | None:
    """Return the Run with enough micro-steps to fit into `room` bytes, beside the gradients that
    micro-steps add up; None where no number does.
    """
    fields, before = run.model_dump(exclude_defaults=True), run.micro_steps or 1
    left = room - _needed(build_run(**fields | {"micro_steps": before + 1})).held
    parts = math.ceil(before * max(adds / left, 1) + 1) if left > 0 else 0
    return build_run(**fields | {"micro_steps": parts}) if parts else None


def _passing(run: Run) -> float:
    """Rows of the largest shard that pass forward and backward at a time."""
    return max(shard_sizes(run)) / (run.micro_steps or 1)


def _under(run: Run, placement: str) -> Run | None:
    """The Run under another placement, done as it is done here or else plainly; None where no such
    Run can be.
    """
    every = run.model_dump(exclude_defaults=True) | {"placement": placement}
    job = {
        name: value
        for name, value in every.items()
        if name in ("placement", *with_role("job", "size"))
    }
    for fields in (every, job):
        with suppress(ValueError):
            return build_run(**fields)
    return None
