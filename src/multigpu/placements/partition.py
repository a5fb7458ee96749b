"""Which device has which part of a model, and the bytes a step moves. Plain arithmetic."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import inf, prod

from multigpu.placements import find_placement
from multigpu.placements.resolve import dims_of, shard_sizes
from multigpu.spec.model import Model, Variable
from multigpu.spec.rules.partition import ACTIVATION_BYTES
from multigpu.spec.run import Run
from multigpu.spec.stage_graph import Stage

EXACT_BYTES = {"fp64": 8}
"""Of one element of a loss's statistics; 4 in other precisions."""


def bounds(size: int, parts: int, index: int) -> tuple[int, int]:
    """Begin and end of part `index` of `size` elements in `parts`; the first ones take the rest."""
    share, rest = divmod(size, parts)
    begin = index * share + min(index, rest)
    return begin, begin + share + (index < rest)


def stages_of(work: Sequence[float], devices: int) -> list[int]:
    """The device of each section, consecutive ones together (a ValueError: too few): the largest
    sum of work least, then their squares.
    """
    if len(work) < devices:
        raise ValueError(
            f"{len(work)} sections cannot be spread over {devices} devices: choose at most"
            f" {len(work)}"
        )
    sums = [0.0, *accumulate(work)]

    def cut(join: Callable[[float, float], float], limit: float) -> tuple[float, list[int]]:
        """The least `join` of all stretches' loads, none above `limit`, and where they end."""

        @cache
        def best(parts: int, end: int) -> tuple[float, list[int]]:
            if parts == 0:
                return (inf if end else 0.0), []
            found: tuple[float, list[int]] = inf, []
            for begin in range(parts - 1, end):
                load, (rest, ends) = sums[end] - sums[begin], best(parts - 1, begin)
                value = join(load, rest) if load <= limit and rest < inf else inf
                if value < found[0]:
                    found = value, [*ends, end]
            return found

        return best(devices, len(work))

    largest, _ = cut(max, inf)
    _, ends = cut(lambda load, rest: load * load + rest, largest * (1 + 1e-12))
    return [
        device
        for device, (begin, end) in enumerate(pairwise([0, *ends]))
        for _ in range(begin, end)
    ]


def section_places(model: Model, devices: int) -> dict[str, int]:
    """The device of each of the model's sections, balanced by their work for one row."""
    places = stages_of([sum(section.work.values()) for section in model.graph.stages], devices)
    return {section.name: place for section, place in zip(model.graph.stages, places, strict=True)}


def pipeline_stages(run: Run, model: Model) -> list[tuple[Stage, ...]]:
    """Return the sections of each stage of a pipeline; stage i is on device i % degree, which has
    two where they interleave.
    """
    count = dims_of(run).degree * (2 if run.pipeline_schedule == "interleaved" else 1)
    places = section_places(model, count)
    return [
        tuple(one for one in model.graph.stages if places[one.name] == stage)
        for stage in range(count)
    ]


SHARED = "shared_"
"""Begins the name of what a section gives once a pass: the variable of the name that follows."""


def sent_on(stage: Sequence[Stage]) -> list[str]:
    """Return the names of what a stage gives the next one: all that its last section gives."""
    return [name for name in stage[-1].gives if not name.startswith(SHARED)]


def shared_in(sections: Sequence[Stage]) -> list[str]:
    """Return the names of variables of other sections that these ones read."""
    taken = [name for section in sections for name in section.inputs if name.startswith(SHARED)]
    return [name.removeprefix(SHARED) for name in taken]


def shared_by_ends(run: Run, model: Model) -> int:
    """Return elements of variables that a pipeline's first and last device both keep."""
    gives = [size for section in model.graph.stages for size in section.gives.values()]
    return sum(size.get("once", 0) for size in gives) if dims_of(run).degree > 1 else 0


def pipelined_bytes(run: Run, model: Model) -> dict[str, int]:
    """Bytes one step of a pipeline moves: what passes each border of two stages, and as large a
    gradient back; gradients of what both ends keep, to each other; an all-reduce between copies.
    """
    dims = dims_of(run)
    item = 8 if run.precision == "fp64" else 4
    shared = shared_by_ends(run, model)
    moved: Counter[str] = Counter()
    for stage in pipeline_stages(run, model)[:-1] if dims.degree > 1 else ():
        elements = sum(size.get("rows", 0) for size in stage[-1].gives.values())
        moved["device_to_device"] += (
            2 * elements * sum(shard_sizes(run)) * ACTIVATION_BYTES[run.precision]
        )
    if dims.degree > 1:
        moved["device_to_device"] += 2 * shared * dims.copies * item
    if dims.copies > 1:
        moved["all_reduce"] += dims.copies * (model.parameters + shared) * item
    return {kind: count for kind, count in moved.items() if count}


def part_shape(variable: Variable, axis: int | None, parts: int, index: int) -> tuple[int, ...]:
    """The shape of one device's part of a variable; the whole one's without an axis."""
    if axis is None:
        return variable.shape
    begin, end = bounds(variable.shape[axis], parts, index)
    return (*variable.shape[:axis], end - begin, *variable.shape[axis + 1 :])


def part_elements(run: Run, model: Model, rank: int) -> int:
    """Return the elements of the variables that device `rank` keeps of its copy of the model."""
    degree = dims_of(run).degree
    index = rank % degree
    if find_placement(run.placement).compute == "split":
        axes = model.splitting.axes if model.splitting else {}
        return sum(prod(part_shape(v, axes.get(v.name), degree, index)) for v in model.variables)
    sections = [one for stage in pipeline_stages(run, model)[index::degree] for one in stage]
    own = {name for section in sections for name in section.variables}
    if run.processes == "per_device":
        own |= set(shared_in(sections))
    return sum(v.elements for v in model.variables if v.name in own)


def partition_bytes(run: Run, model: Model, lookups: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Bytes one step of a Run of a model that is parallel in itself moves, over all devices, by
    kind. Stages: every tensor that crosses goes once to each device that takes it, and as large a
    gradient comes back. Parts: every device of a copy hands each exchange's elements to its
    collective. Each device hands the gradients that it holds to an all-reduce of all copies.
    """
    if find_placement(run.placement).compute == "sections" and run.processes == "per_device":
        return pipelined_bytes(run, model)
    # of each copy of the model
    passes = run.micro_batches or 1
    extents = [
        {"rows": rows, "once": passes, **found}
        for rows, found in zip(shard_sizes(run), lookups, strict=True)
    ]
    item = ACTIVATION_BYTES[run.precision]
    moved: Counter[str] = Counter()
    dims = dims_of(run)
    degree = dims.degree
    copies = dims.copies
    held = model.parameters
    if find_placement(run.placement).compute == "sections":
        places = section_places(model, degree)
        for own in extents:
            moved.update(model.graph.moved(places, own, item))
    elif degree > 1:
        assert model.splitting
        for exchange in model.splitting.exchanges:
            size = EXACT_BYTES.get(run.precision, 4) if exchange.exact else item
            # each hands over its own part of what is gathered
            devices = 1 if exchange.kind == "all_gather" else degree
            moved[exchange.kind] += (
                devices * exchange.elements * sum(own["rows"] for own in extents) * size
            )
        held = sum(
            v.elements * (1 if v.name in model.splitting.axes else degree) for v in model.variables
        )
    if copies > 1:
        moved["all_reduce"] += copies * held * (8 if run.precision == "fp64" else 4)
    return {kind: count for kind, count in moved.items() if count}
