"""Summarise a profile of a few steps, small enough for a Record (`engines.common.traced` makes it
of what the profiler says). No framework.
"""

from typing import Any, Literal

from multigpu.spec.schema import Data

Phase = Literal["pull", "forward", "backward", "forward_backward", "merge", "update"]
PHASES: tuple[Phase, ...] = ("pull", "forward", "backward", "forward_backward", "merge", "update")
"""A step's phases in order. pull: variables travel. forward_backward: unknown border."""

Kind = Literal["compute", "collective", "host_to_device", "device_to_host", "device_to_device"]
"""What a device does. collective: the library's kernels and waits; copies inside: compute."""

COPIES: tuple[Kind, ...] = ("host_to_device", "device_to_host", "device_to_device")
Part = Literal["input", "launch", "computing", "waiting", "merging", "rest"]
SIX_PARTS: tuple[Part, ...] = ("input", "launch", "computing", "waiting", "merging", "rest")
"""Of a step, which they add up to (`engines.common.timeline`)."""

TOP_KERNELS = 12
MOST_SPANS = 12  # stretches of communication kept of a replica's step: enough for a picture of it
Missing = dict[Phase, str]  # why a phase is not known


class StepTrace(Data):
    """One step of one replica. Times in seconds on the host's clock, from the first start over all
    replicas.

    start_s, end_s: of all that its device (or the host for it) did. host_s: how long the host was
        in the step's call.
    phases: (start, end) of each, gaps included.
    kernels: on a CPU, outermost operations of the framework. launches: calls that started kernels
        and copies; a captured step has one.
    busy_s: the device did anything. communication_s: collectives, and copies to or from elsewhere.
        exposed_s: the part of these during which it computed nothing; exposed_copies_s: of that,
            copies alone. communication: their stretches, small gaps closed.
    parts: the six that add up to it, s; None in older Records, and where they were not told apart.
    """

    start_s: float
    end_s: float
    host_s: float
    phases: dict[Phase, tuple[float, float]]
    kernels: int
    launches: int
    busy_s: float
    communication_s: float
    exposed_s: float
    exposed_copies_s: float
    communication: list[tuple[float, float]]
    parts: dict[Part, float] | None = None


class CopyTotals(Data):
    """Copies of one kind by one replica over all traced steps."""

    kind: Kind
    calls: int
    bytes: int
    total_s: float
    min_s: float
    max_s: float

    @property
    def mean_s(self) -> float:
        return self.total_s / self.calls


class KernelTotals(Data):
    """A kernel by its shortened name, over all replicas and traced steps. min_s, max_s: of single
    calls; None in older Records.
    """

    name: str
    calls: int
    total_s: float
    min_s: float | None = None
    max_s: float | None = None


class HostTotals(Data):
    """The host's own work in one phase with one kind of operation, over all replicas and traced
    steps. busy_s: while at least one call ran: total_s over busy_s is how many ran side by side.
    """

    name: str
    phase: Phase
    calls: int
    total_s: float
    busy_s: float


class LayerTotals(Data):
    """What a layer of a user's model took, forward, backward and its share of the update, over all
    replicas and traced steps. kind: its class. share: of the model's parameters that are its own.
    """

    name: str
    kind: str
    total_s: float
    share: float


class ReplicaTrace(Data):
    """One replica's steps. unlinked: what its device did that could not be led back to a launch,
    and so is in no phase.

    launch_lead_s: the shortest time from a launch's begin on the host to its kernel's start on the
        device, None on CPUs. Nothing starts before it is launched: a negative value is by how much
        the two clocks are apart at least.
    device_time_s: sum over all that its device did in the traced steps, as nvprof's "GPU
        activities"; None in older Records.
    """

    rank: int
    steps: list[StepTrace]
    copies: list[CopyTotals]
    unlinked: int = 0
    launch_lead_s: float | None = None
    device_time_s: float | None = None


class TraceSummary(Data):
    """The traced steps as the profiler saw them. first_step: number of the first of them; None in
    older Records, and where the Run asks for no window. host_operations: the dearest of a process
    that works for all replicas; none in older Records and in PyTorch's. layers: the dearest of a
    user's model, where they were told apart.
    """

    source: Literal["kineto", "xplane"]
    replicas: list[ReplicaTrace]
    kernels: list[KernelTotals]
    missing: dict[Phase, str] = {}
    first_step: int | None = None
    host_operations: list[HostTotals] = []
    layers: list[LayerTotals] = []


DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")


def device_of(event: dict[str, Any]) -> int | None:
    """The number of the device of an event; None where it does not say."""
    arguments = event.get("args", {})
    found = arguments.get("device", arguments.get("inDevice"))
    return None if found is None else int(found)


def device_kind(event: dict[str, Any]) -> Kind:
    """Return the kind of one of `DEVICE_EVENTS`."""
    name, arguments = event["name"], event.get("args", {})
    if event["cat"] != "gpu_memcpy":
        return "collective" if "nccl" in name.lower() else "compute"
    if "HtoD" in name:  # of "Memcpy HtoD (Pinned -> Device)"
        return "host_to_device"
    if "DtoH" in name:
        return "device_to_host"
    between = arguments.get("fromDevice") != arguments.get("toDevice")
    return "device_to_device" if "PtoP" in name or between else "compute"
