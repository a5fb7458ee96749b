"""Share what follows from a Run alone among frameworks. Imports no framework."""

import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from multigpu.engines.common.numbers import StepNumbers
from multigpu.engines.common.session import Opening
from multigpu.engines.common.timing import TimedWindow
from multigpu.inputs.batch import Batch, Source
from multigpu.machine.machine import DeviceState
from multigpu.placements import find_placement
from multigpu.placements.resolve import dims_of
from multigpu.placements.row import Placement
from multigpu.placements.traffic import Assigned, assign
from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Model, Optimizer
from multigpu.spec.run import Run
from multigpu.workloads import description_of, optimizer_of
from multigpu.workloads.sources import open_source


@dataclass(frozen=True)
class RunContext:
    """What follows from a Run for its trainer. closing: what its end gives back."""

    run: Run
    closing: ExitStack = field(default_factory=ExitStack, kw_only=True, compare=False)

    @property
    def replicas(self) -> int:
        return self.run.devices

    @property
    def model(self) -> Model:
        return description_of(self.run)

    @property
    def placement(self) -> Placement:
        return find_placement(self.run.placement)

    @property
    def assigned(self) -> list[Assigned]:
        return assign(self.placement, self.model.variables, self.replicas)

    @property
    def rule(self) -> Optimizer:
        return optimizer_of(self.run)

    @property
    def captured(self) -> bool:
        return "captured" in self.run.execution


@dataclass(frozen=True)
class Carries:
    """Parts of a placement's row that a trainer carries out, beside where variables live.

    merges: where gradients merge -> whether this may start before backward has ended: (False,),
        (True,) or both.
    algorithms: all-reduces that are written out. staged: variables fetched a step ahead.
    tables: tables at homes of their own, and rows gathered elsewhere than where they live.
    losses: where the loss is computed. copied_anew: variables that devices have for a step alone.
    """

    reductions: Mapping[str, tuple[bool, ...]]
    algorithms: bool = False
    staged: bool = False
    tables: bool = False
    losses: tuple[str, ...] = ("replica",)
    copied_anew: bool = False

    def ignored(self, placement: Placement) -> str | None:
        """The first field of the row, with its value, that the trainer would pass over."""
        row = placement
        ignored = {
            "reduction": row.reduction not in self.reductions,
            "overlap": row.overlap not in self.reductions.get(row.reduction, (row.overlap,)),
            "algorithm": row.algorithm is not None and not self.algorithms,
            "staged": row.staged and not self.staged,
            "embeddings": row.embeddings != row.variables and not self.tables,
            "lookup": row.lookup not in ("replica", row.embeddings) and not self.tables,
            "loss": row.loss not in self.losses,
            "copied_anew": row.copied_anew and not self.copied_anew,
        }
        name = next((name for name, is_so in ignored.items() if is_so), None)
        return f"{name} {getattr(row, name)!r}" if name else None


def check_carried(trainer: type[Any], placement: Placement) -> None:
    """Refuse (`Unsupported`) a row that says what its trainer would ignore."""
    if field := trainer.carries.ignored(placement):
        raise Unsupported(
            f"placement {placement.name!r} says {field}, which {trainer.__name__} does not carry"
            " out: choose another value, or a trainer that does"
        )


def all_replicated(placement: Placement) -> bool:
    """Whether every replica keeps all variables; `Unsupported` where it keeps some of them."""
    kept = {where == "replica" for where in (placement.variables, placement.embeddings)}
    if len(kept) > 1:
        raise Unsupported(
            f"placement {placement.name!r} keeps copies of some variables and one master of others,"
            " which this engine does not do"
        )
    return kept == {True}


class RunSession:
    """One process's side of a Run. one_shard: of a step for all devices. told: to each part."""

    one_shard = False
    devices: Any
    trainer: Any
    moved: dict[str, int]
    warmup_s: float
    build_s: float

    def __init__(self, opening: Opening) -> None:
        self.began = time.perf_counter()
        self.opening = opening
        self.run = opening.run
        self.stage = opening.stage
        self.source: Source = open_source(self.run)
        self.batches: dict[int, list[Batch]] = {}
        self.told: dict[str, Any] = {}

    def build(self, make: Callable[[], Any]) -> None:
        """Make the trainer, and give back what the session holds where that fails."""
        try:
            self.stage("build")
            self.trainer = make()
            self.devices.synchronise()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self.close()
            raise
        self.build_s = time.perf_counter() - self.began

    def close(self) -> None:
        """Give back what the session holds, however far building came."""
        raise NotImplementedError

    def counted(self, index: int, shards: list[Any]) -> list[Any]:
        """The shards of step `index`, whose counts are kept for the Record."""
        found = [replace(shard.batch, arrays={}) for shard in shards]
        if self.one_shard:
            found += [replace(found[0], units=0, padded_units=0) for _ in self.devices.ranks[1:]]
        self.batches[index] = found
        return shards

    def part(self, place: int, window: TimedWindow, state: DeviceState | None) -> StepNumbers:
        """Return the figures of the replica at `place` in this process, after the timed steps."""
        first, leads = self.run.warmup_steps, dims_of(self.run).leads(self.devices.ranks[place])
        batches = [
            self.batches[index][place] for index in range(first, first + self.run.timed_steps)
        ]
        found: StepNumbers = {
            "wall_s": window.wall_s,
            "units": sum(b.units for b in batches) * leads,
            "padded_units": sum(b.padded_units for b in batches) * leads,
            "lookups": self.batches[0][place].lookups,
            "moved": self.moved if place == 0 else {},
            "state": state.model_dump() if state else None,
            "threads": self.opening.threads,
            "startup_s": self.opening.startup_s,
            "build_s": self.build_s,
            "warmup_s": self.warmup_s,
        }
        if "equivalence" in self.told:
            found["equivalence"] = self.told["equivalence"]
        return found
