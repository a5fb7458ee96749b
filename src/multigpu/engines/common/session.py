"""Define an engine's session, and turn its numbers into a Record's measurement."""

import math
import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from multigpu import plugins
from multigpu.engines.common.numbers import ReplicaNumbers
from multigpu.engines.common.timing import clock_flags, training_fault
from multigpu.engines.common.traced import joined
from multigpu.machine.process import import_for_good
from multigpu.placements import find_placement
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.placements.step_bytes import step_bytes
from multigpu.records.record import HELD_FLAG, Measurement
from multigpu.spec.errors import DidNotTrain
from multigpu.spec.parallel import PARTITIONED
from multigpu.spec.run import Run
from multigpu.workloads import description_of, workloads
from multigpu.workloads.stages import graph_of

Stage = Callable[[str], None]
"""Told the name of each stage that begins: "build", "warm-up", "step", "timed"."""


@dataclass(frozen=True)
class Opening:
    """What a session is opened with. threads: of each replica. shared: a folder in memory, one for
    all replicas. timeout_s: how long processes wait for each other. startup_s: that this one took.
    """

    run: Run
    rank: int
    threads: int
    shared: Path
    timeout_s: float
    startup_s: float
    stage: Stage


class Session(Protocol):
    """One process's side of one Run, from its building to the numbers for the Record."""

    def warm_up(self) -> None:
        """The first step, whose bytes are counted, and the rest of the warm-up."""

    def time(self) -> Sequence[Mapping[str, Any]]:
        """The timed steps; the numbers of each replica of this process (`ReplicaNumbers`)."""
        ...

    def close(self) -> None:
        """Free what this Run holds; the process goes on to the next."""


def open_session(opening: Opening, **hosts: Any) -> Session:
    """Import the Run's framework and open its session."""
    run = opening.run
    # a process for each device of a TensorFlow Run is started by its session
    module = (
        "processes" if (run.framework, run.processes) == ("tensorflow", "per_device") else "session"
    )
    if workloads()[run.workload].checked:
        module = "checked"
    where = f"multigpu.engines.{run.framework}.{module}"
    if (compute := find_placement(run.placement).compute) == "stage":
        where = f"{plugins.declared('engines')[compute].value}.{run.framework}_engine"
    return import_for_good(where).Session(opening, **hosts)


def load_hook(path: str | None) -> Callable[[str, Run, int], None]:
    """The function that a plan's `hook` names, or one that does nothing."""
    return pkgutil.resolve_name(path) if path else lambda stage, run, rank: None


def joined_losses(run: Run, parts: Sequence[Mapping[str, Any]]) -> list[float]:
    """The loss of each step over all replicas: a sum of shares, or the mean of their own."""
    scale = 1.0 if find_placement(run.placement).semantics.facts.loss_is_shared else 1 / run.devices
    return [scale * sum(step) for step in zip(*(part["losses"] for part in parts), strict=True)]


def distances_moved(run: Run, parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far each variable moved, by name; flat ones, which need not, are left out. Devices' own
    variables of one name have an entry each, else one that moved would hide one that stood still.
    """
    row = find_placement(run.placement)
    flat = {variable.name for variable in description_of(run).variables if variable.flat}
    own = row.compute in PARTITIONED or not row.semantics.facts.replicas_agree
    found: dict[str, float] = {}
    for rank, part in enumerate(parts):
        for name, distance in part["distance"].items():
            if name not in flat:
                called = f"{name} (device {rank})" if own else name
                # pieces of one variable
                found[called] = math.hypot(found.get(called, 0.0), distance)
    return found


def _agree(run: Run, parts: Sequence[ReplicaNumbers]) -> bool | None:
    """Whether replicas that must hold equal variables do; None: there are none."""
    row, semantics = find_placement(run.placement), semantics_of(run)
    averaged = semantics.every > 1 and (run.warmup_steps + run.timed_steps) % semantics.every == 0
    if row.variables == "replica" and (semantics.facts.replicas_agree or averaged):
        return all(part["prints"] == parts[0]["prints"] for part in parts)
    if row.compute in PARTITIONED and dims_of(run).copies > 1:
        return all(
            part["prints"] == parts[rank % dims_of(run).degree]["prints"]
            for rank, part in enumerate(parts)
        )
    return None


# what a GPU may have allocated before a Run begins and still tell the Run's own peak
HELD_GIB = 0.05


def parameter_change(run: Run, parts: Sequence[Mapping[str, Any]]) -> float:
    """How far all variables moved over how far from zero they began; copies count once."""
    row = find_placement(run.placement)
    if row.variables == "replica":
        masters = parts[:1]
    elif row.compute in PARTITIONED:
        masters = parts[: dims_of(run).degree]
    else:
        masters = parts
    start = sum(part["start_square"] for part in masters) ** 0.5
    return sum(d**2 for part in masters for d in part["distance"].values()) ** 0.5 / start


def measurement(run: Run, parts: Sequence[ReplicaNumbers], total_s: float) -> Measurement:
    """The Record's measurement from every replica's numbers; DidNotTrain: why it is none."""
    first, losses, agree = parts[0], joined_losses(run, parts), _agree(run, parts)
    # until the timed steps and until their end; the same on all replicas that merge
    skipped = first.get("skipped")
    left_out = max((skips[1] for part in parts if (skips := part.get("skipped"))), default=0)
    # stale variables are the first ones more than once
    row = find_placement(run.placement)
    stale = row.semantics.steps
    if fault := training_fault(losses[stale:], distances_moved(run, parts), agree, left_out):
        raise DidNotTrain(fault)
    # of one step, or cycle of steps, over all replicas, by kind; uncounted: why there are none
    counted = dict(sum((Counter(part["moved"]) for part in parts), Counter[str]()))
    uncounted = first.get("uncounted")
    predicted = step_bytes(
        run,
        description_of(run),
        first["lookups"],
        first.get("gradient_rows"),
        graph_of(run) if row.compute == "stage" else None,
    )
    wall_s, events = max(part["wall_s"] for part in parts), [part["event_s"] for part in parts]
    flags = clock_flags(wall_s, events)
    if uncounted:
        flags.append(f"moved bytes were not counted: {uncounted}")
    elif counted != predicted:
        flags.append(f"moved bytes {counted} differ from the prediction {predicted}")
    # the peak counts what the process held before
    if (held := max(part.get("held_gib", 0.0) for part in parts)) > HELD_GIB:
        flags.append(f"{held:.2f}{HELD_FLAG}")
    flags += sorted({why for part in parts if (why := part.get("substituted"))})
    if left_out:
        flags.append(f"{left_out} of {len(losses)} steps left out: a gradient overflowed")
    return Measurement(
        wall_s=wall_s,
        units=sum(part["units"] for part in parts),
        padded_units=sum(part["padded_units"] for part in parts),
        step_time_s=[part["steps"] for part in parts],
        event_time_s=events,
        loss=[float(f"{loss:.7g}") for loss in losses],
        peak_memory_gib=[round(part["peak_memory_gib"], 4) for part in parts],
        moved_bytes=None if uncounted else counted,
        predicted_bytes=predicted,
        parameter_change=parameter_change(run, parts),
        replicas_agree=agree,
        host_threads=first["threads"],
        startup_s=round(max(part["startup_s"] for part in parts), 3),
        build_s=max(part["build_s"] for part in parts),
        warmup_s=max(part["warmup_s"] for part in parts),
        total_s=total_s,
        device_states=[part["state"] for part in parts if part["state"]],
        step_clock=first.get("clock", "device"),
        skipped_steps=(skipped[0], skipped[1] - skipped[0]) if skipped else None,
        flags=flags,
        input_wait_s=[part["input_wait"] for part in parts if part.get("input_wait")],
        ready_step_s=max((part["ready_s"] for part in parts if "ready_s" in part), default=None),
        launch_s=max((one for part in parts if (one := part.get("launch_s"))), default=None),
        energy=[part["energy"] for part in parts if part.get("energy")],
        equivalence=first.get("equivalence"),
        trace=joined([part["trace"] for part in parts], run.traced_from)
        if run.traced_steps
        else None,
    )
