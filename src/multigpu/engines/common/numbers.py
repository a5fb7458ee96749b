"""Name the numbers that an engine tells of each replica (`session.measurement`)."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict


class StepNumbers(TypedDict):
    """What follows from the timed steps, whatever the framework.

    units, padded_units: of this replica's shards. lookups: rows of the first step, by table, as
    step_bytes takes them. moved: bytes counted in it, by kind. state: of the device
    (`DeviceState`). equivalence: how this model compared with plain training, where it was.
    """

    wall_s: float
    units: int
    padded_units: int
    lookups: Sequence[dict[str, int]]
    moved: dict[str, int]
    state: Any
    threads: int
    startup_s: float
    build_s: float
    warmup_s: float
    equivalence: NotRequired[Any]


class VariableNumbers(TypedDict):
    """How far each variable moved, the sum of squares of all starts, and prints of all ends."""

    distance: dict[str, float]
    start_square: float
    prints: dict[str, float]


class ReplicaNumbers(StepNumbers, VariableNumbers):
    """All that is told of one replica.

    event_s: the timed steps by the device's clock. steps, losses: of every step, warm-up first.
    held_gib: allocated before the Run. skipped: updates left out until the timed steps and until
    their end. input_wait: of each step. substituted: what computed another operation than asked
    for. clock: "host" where steps have no events. uncounted: why bytes were not. ready_s: a step
    whose batches are on the device. launch_s: the host's time for a kernel's launch.
    """

    event_s: float
    steps: list[float]
    losses: list[float]
    peak_memory_gib: float
    held_gib: NotRequired[float]
    skipped: NotRequired[list[int] | None]
    input_wait: NotRequired[list[float]]
    substituted: NotRequired[str | None]
    rank: NotRequired[int]
    clock: NotRequired[Literal["device", "host"]]
    gradient_rows: NotRequired[Sequence[dict[str, int]] | None]
    uncounted: NotRequired[str | None]
    ready_s: NotRequired[float]
    launch_s: NotRequired[float | None]
    energy: NotRequired[Any]
    trace: NotRequired[dict[str, Any]]
