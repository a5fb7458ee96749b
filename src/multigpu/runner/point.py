"""Define one measurement, which of them one launch can make, and which this machine has made
already. Imports no framework.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from multigpu.machine.machine import framework_version, this_machine
from multigpu.placements import find_placement
from multigpu.records.base import RecordBase
from multigpu.records.store import Store
from multigpu.runner.experiment import Trial
from multigpu.spec.run import Run
from multigpu.spec.schema import Spec

AnyRecord = TypeVar("AnyRecord", bound=RecordBase)
START_S = 10.0  # what starting a launch takes on a host of GPUs: its processes, CUDA and NCCL


class Point(Trial):
    """The Trial of a Run: its repeat (0, 1, ...) and the launch (0, 1, ...) that measures it.
    smaller: batches of a plan's Runs that differ in nothing else: where one did not fit, this is
        passed over.
    """

    run: Run
    smaller: tuple[int, ...] = ()

    def __init__(
        self, run: Run, repeat: int = 0, launch: int = 0, timeout_s: float = 300.0, **more: Any
    ) -> None:
        if isinstance(run, dict):  # read from a plan, whose JSON has lists for tuples
            run = Run.model_validate(run, strict=False)
            more["smaller"] = tuple(more.get("smaller", ()))
        super().__init__(run=run, repeat=repeat, launch=launch, timeout_s=timeout_s, **more)


def launch_of(
    point: Trial,
) -> tuple[int, str, str, str, int, int, bool, tuple[tuple[str, str], ...]]:
    """Return what points must share to be measured by one launch: what is settled when its
    processes start. A profiler may leave one slower.
    """
    run = point.run
    return (
        point.launch,
        run.framework,
        run.processes,
        *_fixed_devices(run),
        run.host_cores or 0,
        run.traced_steps > 0,
        tuple(sorted(run.environment.items())),
    )


def _fixed_devices(run: Run) -> tuple[str, int]:
    """The kind and number of devices that a process of the Run keeps until it ends; 0: any number.
    One of TensorFlow fixes its stand-ins for GPUs when it starts; GPUs it sees all, but a second
    group of collectives of another size aborts it, which tf.distribute may make.
    """
    if run.framework != "tensorflow":
        return "", 0
    row = find_placement(run.placement)
    groups = row.reduction == "all_reduce" or any(engine.strategy for engine in row.engines)
    free = run.device_type == "cuda" and run.processes == "one" and not groups
    return run.device_type, 0 if free else run.devices


def records_here(items: Iterable[Trial], store: Store[AnyRecord]) -> list[AnyRecord]:
    """Return the Records of these items on this machine, by the frameworks and the timer that are
    here; of each the latest attempt.
    """
    machine, kind = this_machine().name, store.kind
    keys = (
        kind.key_for(item.spec, item.repeat, machine, framework_version(item.run.framework))
        for item in items
    )
    return [record for key in keys if (record := store.find(machine, key)) is not None]


def known_here(
    items: Iterable[Trial], store: Store[AnyRecord], retry: Sequence[str] = ()
) -> set[tuple[Spec, int]]:
    """Return (spec, repeat) of items that have a Record here and are not to be measured again."""
    records = records_here(items, store)
    return {(one.spec, one.repeat) for one in records if one.status not in retry}
