"""Define what a kind of experiment adds to the one sweep (`runner.sweep`): how a process opens a
point, what that measures, and its Record. An experiment is an object in a module that imports no
framework; a plan names it by its path, so that launcher and workers find the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import Field

from multigpu.engines.common.failures import printable
from multigpu.engines.common.session import Session, Stage
from multigpu.machine.machine import versions
from multigpu.records.base import Status
from multigpu.records.store import Store
from multigpu.spec.run import Run
from multigpu.spec.schema import Data, Spec
from multigpu.workloads.sources import check_inputs, open_source

if TYPE_CHECKING:
    from multigpu.runner.hosts.group import LaunchHosts
    from multigpu.runner.plan import Plan


class Trial(Data):
    """One point to measure, by the launch of this number. run: what names its devices and
    framework. timeout_s: building included.
    """

    run: Any
    repeat: int = 0
    attempt: int = 0
    launch: int = 0
    timeout_s: float = Field(default=300.0, gt=0, le=7 * 86400)

    @property
    def spec(self) -> Spec:
        """The `Spec` that its Record answers."""
        return self.run

    @property
    def label(self) -> str:
        return self.spec.label()


@dataclass(frozen=True)
class WorkerContext:
    """A process's place in a launch. rank: of its replica (0 where one process dispatches for all).
    stage: told what begins.
    shared: a folder in memory, the same for all replicas. startup_s: that the process took. hosts:
        `gathering`, the other hosts' programs.
    """

    rank: int
    shared: Path
    startup_s: float
    stage: Stage
    hosts: dict[str, Any] = field(default_factory=dict)


AnyItem = TypeVar("AnyItem", bound=Trial)


class Experiment(Generic[AnyItem]):
    """One kind of experiment: what processes of a launch ask of it, and from `check` on what the
    launcher does.

    path: "module:NAME" of such an object. watched: whether its Records say what else the machine
        did. cyclic: whether a closed session may leave tensors in cycles, which only a collection
        frees. modules: imported once before workers are forked; torch._dynamo among them where
        there are optimizers, the first of which would import it, a second and a half of each
        worker.
    """

    path: ClassVar[str]
    item: type[AnyItem]
    store: type[Store[Any]]
    watched: ClassVar[bool] = False
    cyclic: ClassVar[bool] = True
    modules: ClassVar[tuple[str, ...]] = ()

    def open(self, item: AnyItem, seat: WorkerContext) -> Session:
        """This process's side of a point."""
        raise NotImplementedError

    def measure(self, item: AnyItem, parts: Sequence[Mapping[str, Any]], total_s: float) -> Any:
        """The Measurement that all replicas' numbers make, by rank; a DidNotTrain says why the
        steps were no training.
        """
        raise NotImplementedError

    def fields(self, item: AnyItem, status: Status) -> dict[str, Any]:
        """Return the fields of its Record beside those of all."""
        return {"run": item.run}

    def told(self, item: AnyItem, measured: Any) -> str:
        """The figure that a progress bar shows."""
        raise NotImplementedError

    def learn(self, item: AnyItem, record: Any) -> None:
        """Hear of every Record of a plan, those of earlier starts too; in the first process."""

    def passed_over(self, plan: Plan, item: AnyItem) -> tuple[str, str] | None:
        """Why this point is not started now, as a word to be counted and a reason; no Record is
        written. None: it is.
        """
        return None

    def finished(self, item: AnyItem) -> None:
        """Clear away what a point that has its Record needs no more."""

    def check(self, item: AnyItem, company: LaunchHosts | None) -> None:
        """Refuse (ValueError) what cannot run here, or on these hosts, naming what was asked for
        and what there is.
        """

    def launch_of(self, item: AnyItem) -> Any:
        """Return what items share that one launch can measure; launches are in its order."""
        raise NotImplementedError

    def ordered(self, items: Sequence[AnyItem], launch_id: str) -> list[AnyItem]:
        """The items as a launch measures them: in their order, grouped by devices, since a new
        group costs as much as a short Run.
        """
        counts = list(dict.fromkeys(item.run.devices for item in items))
        return sorted(items, key=lambda item: counts.index(item.run.devices))

    def versions(self) -> dict[str, str]:
        """Of installed packages, those that its Records name."""
        return {name: version for name, version in versions().items() if "tensorflow" not in name}

    def check_all(self, items: Sequence[AnyItem], company: LaunchHosts | None) -> None:
        """Refuse (ValueError) what cannot run, and inputs that cannot be read."""
        for item in items:
            self.check(item, company)
        check_inputs(item.run for item in items if isinstance(item.run, Run))


def print_trials(trials: Sequence[Trial]) -> None:
    """Print a line a trial, in order; a ValueError where an input cannot be read."""
    check_inputs(trial.run for trial in trials)
    for trial in trials:
        print(f"launch {trial.launch} repeat {trial.repeat}  {trial.label}")


def input_fields(run: Any, status: Status) -> dict[str, str]:
    """Label and fingerprint of what a Run reads; "" where that cannot be read (of a measured Run:
    an error).
    """
    try:
        source = open_source(run)
        return {"input_label": printable(source.label), "input_fingerprint": source.fingerprint}
    except Exception:
        if status == "ok":
            raise
        return {"input_label": "", "input_fingerprint": ""}
