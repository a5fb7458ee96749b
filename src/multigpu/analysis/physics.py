"""Find the physical limits that a Record contradicts."""

import math
from collections.abc import Iterator, Mapping

from multigpu.analysis.limits import bound_units_per_s
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.records.record import Record
from multigpu.workloads import description_of

# of the highest clock of such GPUs in the folder: below it one was slowed by more than a busy one's
# power limit does
THROTTLED = 0.6


# a rate over its bound, and device time over wall clock: clocks and measured ceilings differ by a
# percent
BEYOND = 1.02


def physics(record: Record, clocks: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the physical limits that one measured Run contradicts: bounds, bytes, its own clocks,
    its loss.
    """
    run, m = record.run, record.measurement
    if m is None or not (m.wall_s > 0 and 0 < m.units <= m.padded_units):
        yield (
            "no positive time or units",
            "no measurement" if m is None else f"{m.units} units in {m.wall_s} s",
        )
        return
    rate, gpu = m.units / m.wall_s, record.machine.gpus[0] if record.machine.gpus else ""
    moved = {name: count / semantics_of(run).every for name, count in (m.moved_bytes or {}).items()}
    group = (
        None
        if run.model_parallel is None
        else min((n for n in (run.model_parallel, dims_of(run).copies) if n > 1), default=None)
    )
    bound = bound_units_per_s(
        description_of(run),
        gpu,
        run.precision,
        run.devices,
        m.units / run.timed_steps,
        moved,
        group,
    ).units_per_s
    if run.device_type == "cuda" and rate > BEYOND * bound:
        yield (
            "a rate above its bound",
            f"{rate:,.0f} {description_of(run).unit}/s above {bound:,.0f}",
        )
    counted, predicted = (
        {name: n for name, n in sorted((kinds or {}).items()) if n}
        for kinds in (m.moved_bytes, m.predicted_bytes)
    )
    if m.moved_bytes is not None and counted != predicted:
        yield "bytes counted are not those predicted", f"{counted} and {predicted}"
    if any(len(steps) != run.warmup_steps + run.timed_steps for steps in m.step_time_s):
        yield "not as many steps as it names", ""
    if m.event_time_s and max(m.event_time_s) > BEYOND * m.wall_s:
        yield (
            "devices' time above the wall clock",
            f"{max(m.event_time_s):.3f} s above {m.wall_s:.3f} s",
        )
    if not m.loss or m.loss[0] == m.loss[-1] or not any(map(math.isfinite, m.loss)):
        yield "a loss that did not move", ""
    if slow := [
        state.sm_clock_mhz
        for state in m.device_states
        if state.sm_clock_mhz < THROTTLED * clocks.get(gpu, 0)
    ]:
        yield "a throttled clock", f"{min(slow)} MHz of {clocks[gpu]}"
