"""Find what a Record contradicts: its own clocks, bytes and units against its Run, and Records
against each other.

`report/method.md` numbers the alterations that these checks catch, and those that no single Record
can show.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from multigpu.analysis.fields import with_role
from multigpu.analysis.limits import bound_units_per_s
from multigpu.machine.cluster import slug
from multigpu.placements import find_placement
from multigpu.placements.resolve import dims_of, semantics_of
from multigpu.placements.step_bytes import step_bytes
from multigpu.records.base import Kept
from multigpu.records.record import Measurement, Record
from multigpu.spec.run import Run
from multigpu.workloads import description_of

THROTTLED = 0.6
"""Of such GPUs' highest clock here: below it one was slowed by more than a power limit does."""
BEYOND = 1.02
"""A rate over its bound, device over wall time: clocks and ceilings differ by a percent."""
STEPS_OF_WALL = 0.88
"""Least share of the wall clock that the slowest replica's steps, or its window of events, fill."""
COUNTED = ("images", "reviews", "samples")
"""Units of which a batch of n holds n."""
SKEW = timedelta(minutes=10)
"""How far a host's clock may be off."""

Found = Iterator[tuple[str, str]]


def physics(record: Record, clocks: Mapping[str, int]) -> Found:
    """Yield what one measured Run contradicts, in a few words, and more of it."""
    m = record.measurement
    if m is None or not (m.wall_s > 0 and 0 < m.units <= m.padded_units):
        yield (
            "no positive time or units",
            "no measurement" if m is None else f"{m.units} units in {m.wall_s} s",
        )
        return
    yield from _rate(record, m)
    yield from _units(record.run, m)
    yield from _bytes(record.run, m)
    yield from _time(record.run, m)
    yield from _training(m)
    yield from _devices(record, m, clocks)


def _rate(record: Record, m: Measurement) -> Found:
    run, gpu = record.run, record.machine.gpus[0] if record.machine.gpus else ""
    moved = {name: count / semantics_of(run).every for name, count in (m.moved_bytes or {}).items()}
    if run.model_parallel is None:
        group = None
    else:
        group = min((n for n in (run.model_parallel, dims_of(run).copies) if n > 1), default=None)
    model = description_of(run)
    bound = bound_units_per_s(
        model, gpu, run.precision, run.devices, m.units / run.timed_steps, moved, group
    ).units_per_s
    if run.device_type == "cuda" and m.units / m.wall_s > BEYOND * bound:
        yield (
            "a rate above its bound",
            f"{m.units / m.wall_s:,.0f} {model.unit}/s above {bound:,.0f}",
        )


def _units(run: Run, m: Measurement) -> Found:
    """Of images, reviews and samples a batch holds as many as it says; of other synthetic units
    each sample holds the same whole number.
    """
    if run.data is not None:  # of a user's own model
        return
    samples = run.batch_size * (run.devices if run.scaling == "weak" else 1) * run.timed_steps
    if description_of(run).unit in COUNTED:
        if m.units != samples:
            yield "units are not those of its batches", f"{m.units} of {samples} samples"
    elif (expected := _per_sample(run)) and m.units != expected * samples:
        said = f"{m.units / samples:g} a sample and not {expected}"
        yield "units are not those of its batches", said


def _per_sample(run: Run) -> int:
    """Units of a synthetic sample: tokens of a sequence, by default the model's context; words of
    a source sentence, and of its translation with the sign that starts it. 0: not known.
    """
    model = description_of(run)
    length = run.sequence_length or (model.config.context if model.unit == "tokens" else 0)
    each = {"words": 2 * length + 1 if length else 0, "tokens": length}
    return each.get(model.unit, 0) if run.inputs == "synthetic" else 0


def _bytes(run: Run, m: Measurement) -> Found:
    counted, predicted = (
        {name: n for name, n in sorted((kinds or {}).items()) if n}
        for kinds in (m.moved_bytes, m.predicted_bytes)
    )
    if m.moved_bytes is not None and counted != predicted:
        yield "bytes counted are not those predicted", f"{counted} and {predicted}"
    if run.data is not None or find_placement(run.placement).compute == "stage":
        return
    least, sparse = _again(run, 0, 0), run.embedding_gradients is not None
    exact = not sparse and (not _tables(run) or _again(run, 1, 1) == least)
    if not exact and not sparse and (length := run.sequence_length) and run.inputs == "synthetic":
        # words of a source sentence, and one more of its translation
        joined = m.padded_units // (2 * length + 1) // run.timed_steps
        least, exact = _again(run, joined * length, joined * (length + 1)), True
    fewer = any(predicted.get(kind, 0) < count for kind, count in least.items())
    if predicted != least if exact else fewer:
        yield "bytes predicted are not those of its placement", f"{predicted} and {least}"


MOVES_NOTHING = (
    *with_role("watch", "length", "repeat"),
    *("data", "traced_steps", "traced_from", "host_cores", "input_workers", "prefetch", "staging"),
    *("execution", "layout", "batch_norm", "stem", "weight_casts", "recurrence", "cross_entropy"),
)
"""Fields of a Run on which no byte of a step depends."""
MOVING = tuple(name for name in Run.model_fields if name not in MOVES_NOTHING)
_known: dict[tuple[object, ...], dict[str, float]] = {}


def _again(run: Run, *rows: int) -> dict[str, float]:
    """Return the bytes of a step by the placement's row, where all replicas together look up so
    many rows of the first and of the second table.
    """
    name = (*(getattr(run, field) for field in MOVING), *rows)
    if name not in _known:
        replicas = dims_of(run).copies
        each = dict(zip(_tables(run), (count / replicas for count in rows), strict=False))
        moved = step_bytes(run, description_of(run), [each] * replicas)  # type: ignore[list-item]
        _known[name] = {kind: count for kind, count in moved.items() if count}
    return _known[name]


def _tables(run: Run) -> list[str]:
    return [one.name for one in description_of(run).variables if one.kind == "embedding"]


def _time(run: Run, m: Measurement) -> Found:
    if any(len(steps) != run.warmup_steps + run.timed_steps for steps in m.step_time_s):
        yield "not as many steps as it names", ""
        return
    for name, longest in (
        ("steps", max((sum(steps[run.warmup_steps :]) for steps in m.step_time_s), default=None)),
        ("events", max(m.event_time_s, default=None)),
    ):
        if longest is not None and not STEPS_OF_WALL <= longest / m.wall_s <= BEYOND:
            yield f"its {name} do not fill its wall clock", f"{longest:.3f} s of {m.wall_s:.3f} s"


def _training(m: Measurement) -> Found:
    if not m.loss or m.loss[0] == m.loss[-1] or not all(map(math.isfinite, m.loss)):
        yield "a loss that did not move, or is no number", ""
    if not 0 < m.parameter_change < math.inf:
        yield "variables that did not change", f"{m.parameter_change}"
    if m.replicas_agree is False:
        yield "replicas that do not agree", ""


def _devices(record: Record, m: Measurement, clocks: Mapping[str, int]) -> Found:
    machine = record.machine
    gpu = machine.gpus[0] if machine.gpus else ""
    if slow := [
        state.sm_clock_mhz
        for state in m.device_states
        if state.sm_clock_mhz < THROTTLED * clocks.get(gpu, 0)
    ]:
        yield "a throttled clock", f"{min(slow)} MHz of {clocks[gpu]}"
    if record.run.device_type != "cuda":
        return
    if fault := machine_fault(record):
        yield "its GPUs are not those of its machine", fault
    least = min(machine.gpu_memory_gib, default=math.inf)
    if max((peak for peak in m.peak_memory_gib if peak == peak), default=0.0) > least:
        yield "a peak above the GPU's memory", f"{max(m.peak_memory_gib):g} of {least:g} GiB"


def machine_fault(record: Kept) -> str:
    """Why these GPUs cannot be those of a machine of this name; "" if they can."""
    machine = record.machine
    count, kinds = len(machine.gpus), {slug(one) for one in machine.gpus}
    named = re.match(r"(\d+)x-(.+)", machine.name)
    if machine.hosts > 1 or named is None or not count:
        return ""
    if int(named[1]) != count or any(named[2] != kind for kind in kinds):
        return f"{count} of {', '.join(sorted(kinds))} on {machine.name}"
    return ""


def date_fault(record: Kept, commits: Mapping[str, datetime]) -> str:
    """Why it cannot have been measured then: before its commit, or the first of all, or later than
    now; "" if it can. commits: when each of the history was made, by its first seven digits.
    """
    try:
        at = datetime.fromisoformat(record.measured_at)
    except ValueError:
        return f"{record.measured_at!r} is no date"
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > datetime.now(UTC) + SKEW:
        return f"{record.measured_at} is to come"
    first = commits.get(record.commit[:7]) or min(commits.values(), default=None)
    if first is not None and at < first - SKEW:
        return f"{record.measured_at} is before its commit"
    return ""


Named = TypeVar("Named")


def beside_others(records: Iterable[tuple[Named, Record]]) -> Iterator[tuple[Named, str, str]]:
    """Yield what Records contradict of others: equal measurements under two keys, and one launch on
    two machines, in two boots or of two commits. records: each with what it is to be called.
    """
    measured: dict[object, str] = {}
    launches: dict[str, tuple[str, str, str]] = {}
    for name, record in records:
        launch = record.launch_id.partition(".")[0]
        own = (record.machine.name, record.boot, record.commit)
        if (first := launches.setdefault(launch, own)) != own:
            yield name, "a launch in two places", f"{' '.join(first)} and {' '.join(own)}"
        m = record.measurement
        if m is not None:
            times = (m.wall_s, *(tuple(steps) for steps in m.step_time_s))
            if (other := measured.setdefault(times, record.key)) != record.key:
                yield name, "measured to the last digit what another was", other
